#include "router.hpp"

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <map>
#include <utility>
#include <variant>

#include "cluster_client.hpp"

namespace hotcount::redis {
namespace {

// The endpoint of a node that announces no hostname, if cluster-preferred-endpoint-type is
// hostname.
constexpr std::string_view kUnknown = "?";

template <class T>
const T* as(const Reply& reply) {
    return std::get_if<T>(&reply.value);
}

template <class Number>
std::optional<Number> to_number(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return {};
    return number;
}

std::string_view next_word(std::string_view& line) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    return word;
}

class TopologyReader {
  public:
    explicit TopologyReader(const Endpoint& asked) : asked_(asked) {
        topology_.owner.assign(kSlots, Topology::kNoNode);
    }

    Result<Topology> read(const Reply& slots, const Reply* nodes) {
        if (const auto* const error = as<ReplyError>(slots)) {
            return to_error(*error, asked_.str() + ": CLUSTER SLOTS");
        }
        const auto* const ranges = as<ReplyArray>(slots);
        if (ranges == nullptr) return garbage("CLUSTER SLOTS is no array");
        for (const Reply& range : *ranges) HOTCOUNT_TRY(add_range(range));
        if (nodes != nullptr && as<ReplyError>(*nodes) == nullptr) HOTCOUNT_TRY(join(*nodes));
        return std::move(topology_);
    }

  private:
    Error garbage(const std::string& what) const {
        return make_error(ErrorCode::reply,
                          asked_.str() + ": the map of the cluster makes no sense: " + what);
    }

    // [first, last, [host, port, id, ...], replicas ...]
    Result<void> add_range(const Reply& range) {
        const auto* const parts = as<ReplyArray>(range);
        if (parts == nullptr || parts->size() < 3) return garbage("a range without an owner");
        const auto* const first = as<std::int64_t>((*parts)[0]);
        const auto* const last = as<std::int64_t>((*parts)[1]);
        const bool fits = first != nullptr && last != nullptr && *first >= 0 && *first <= *last &&
                          *last < static_cast<std::int64_t>(kSlots);
        if (!fits) return garbage("a range that is not within 0 to 16383");
        HOTCOUNT_TRY_ASSIGN(const std::uint16_t owner, node_of((*parts)[2]));
        for (auto slot = static_cast<std::size_t>(*first); slot <= static_cast<std::size_t>(*last);
             ++slot) {
            if (topology_.owner[slot] != Topology::kNoNode) {
                return garbage("slot " + std::to_string(slot) + " has two owners");
            }
            topology_.owner[slot] = owner;
        }
        return {};
    }

    Result<std::uint16_t> node_of(const Reply& reply) {
        const auto* const parts = as<ReplyArray>(reply);
        if (parts == nullptr || parts->size() < 3) return garbage("a node without an id");
        const auto* const id = as<std::string>((*parts)[2]);
        if (id == nullptr || id->empty()) return garbage("a node without an id");
        const auto* const port = as<std::int64_t>((*parts)[1]);
        if (port == nullptr || *port < 1 || *port > 0xFFFF) {
            return garbage("node " + printable(*id) + " has no port");
        }
        HOTCOUNT_TRY_ASSIGN(std::string host, host_of((*parts)[0], *id));
        NodeInfo node{*id, {std::move(host), static_cast<std::uint16_t>(*port)}};
        const auto [known, is_new] =
            index_.try_emplace(*id, static_cast<std::uint16_t>(topology_.nodes.size()));
        if (is_new) {
            topology_.nodes.push_back(std::move(node));
        } else if (topology_.nodes[known->second].endpoint != node.endpoint) {
            return garbage("node " + printable(*id) + " has two endpoints");
        }
        return known->second;
    }

    Result<std::string> host_of(const Reply& reply, const std::string& id) const {
        const auto* const host = as<std::string>(reply);
        if (host == nullptr && as<std::monostate>(reply) == nullptr) {
            return garbage("node " + printable(id) + " has no endpoint");
        }
        if (host == nullptr || host->empty()) return asked_.host;
        if (*host != kUnknown) return *host;
        return make_error(ErrorCode::config,
                          asked_.str() + ": node " + printable(id) +
                              " of the cluster announces no hostname, and clients are to use that: "
                              "set cluster-announce-hostname on it, or "
                              "cluster-preferred-endpoint-type ip");
    }

    // A line for each node: id, addresses, flags, its primary, ping, pong, config epoch, link, slots.
    Result<void> join(const Reply& nodes) {
        const auto* const text = as<std::string>(nodes);
        if (text == nullptr) return garbage("CLUSTER NODES is no text");
        std::map<std::string_view, std::uint64_t> epochs;
        for (std::string_view lines = *text; !lines.empty();) {
            std::string_view line = lines.substr(0, lines.find('\n'));
            lines.remove_prefix(std::min(line.size() + 1, lines.size()));
            const std::string_view id = next_word(line);
            const std::string_view addresses = next_word(line);
            const std::string_view flags = next_word(line);
            for (int i = 0; i < 3; ++i) (void)next_word(line);
            const auto epoch = to_number<std::uint64_t>(next_word(line));
            if (!epoch) return garbage("a line of CLUSTER NODES without an epoch");
            if (flags.find("master") == std::string_view::npos) continue;
            epochs[id] = *epoch;
            const bool is_reached = next_word(line) == "connected" && serves(flags);
            const bool has_slots = !line.empty() && line.front() != '[';
            if (is_reached && !has_slots) add_without_slots(id, addresses, *epoch);
        }
        for (NodeInfo& node : topology_.nodes) {
            const auto found = epochs.find(node.id);
            if (found == epochs.end()) {
                return garbage("node " + printable(node.id) +
                               " owns slots and is no primary in CLUSTER NODES");
            }
            node.epoch = found->second;
        }
        topology_.has_epochs = true;
        return {};
    }

    // Neither "fail" nor "fail?", "handshake" or "noaddr".
    static bool serves(std::string_view flags) {
        return flags == "master" || flags == "myself,master";
    }
    // host:port@bus, and ",hostname" behind it.
    void add_without_slots(std::string_view id, std::string_view addresses, std::uint64_t epoch) {
        const std::size_t at = addresses.find('@');
        const std::size_t colon = addresses.substr(0, at).rfind(':');
        if (at == std::string_view::npos || colon == std::string_view::npos) return;
        const auto port = to_number<std::uint16_t>(addresses.substr(colon + 1, at - colon - 1));
        if (!port) return;
        std::vector<std::string_view> hosts{addresses.substr(0, colon)};
        const std::size_t comma = addresses.find(',', at);
        if (comma != std::string_view::npos) {
            const std::string_view rest = addresses.substr(comma + 1);
            hosts.push_back(rest.substr(0, rest.find(',')));
        }
        for (const std::string_view host : hosts) {
            const std::string text{host.empty() ? asked_.host : host};
            topology_.without_slots.push_back({std::string{id}, {text, *port}, epoch});
        }
    }

    const Endpoint& asked_;
    Topology topology_;
    std::map<std::string, std::uint16_t> index_;  // By id.
};

}  // namespace

Result<Topology> read_topology(const Reply& slots, const Reply* nodes, const Endpoint& asked) {
    return TopologyReader{asked}.read(slots, nodes);
}

std::optional<Redirect> read_redirect(std::string_view line, const Endpoint& asked) {
    const std::string_view word = next_word(line);
    if (word != "MOVED" && word != "ASK") return {};
    const auto slot = to_number<std::uint16_t>(next_word(line));
    const auto colon = line.rfind(':');
    if (!slot || *slot >= kSlots || colon == std::string_view::npos) return {};
    const auto port = to_number<std::uint16_t>(line.substr(colon + 1));
    const std::string_view host = line.substr(0, colon);
    if (!port || *port == 0 || host == kUnknown || host.find(' ') != std::string_view::npos) {
        return {};
    }
    return Redirect{*slot, {host.empty() ? asked.host : std::string{host}, *port}, word == "ASK"};
}

}  // namespace hotcount::redis

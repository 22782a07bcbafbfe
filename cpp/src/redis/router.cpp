#include "router.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "commands.hpp"

namespace hotcount::redis {
namespace {

using Why = Operation::Departure::Why;

// After this many redirections in a row, a call pauses before it follows the next one.
constexpr unsigned kRedirectionsAtOnce = 5;

}  // namespace

Router::Router(std::map<std::string, std::string> address_map)
    : address_map_(std::move(address_map)) {
    for (auto& owner : owners_) owner.store(kNobody, std::memory_order_relaxed);
    for (auto& term : terms_) term.store(1, std::memory_order_relaxed);
}

Endpoint Router::translate(const Endpoint& announced) const {
    const auto found = address_map_.find(announced.str());
    if (found == address_map_.end()) return announced;
    const std::string& to = found->second;
    const std::size_t colon = to.rfind(':');
    Endpoint endpoint{to.substr(0, colon)};
    if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']')) {
        endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
    }
    std::from_chars(to.data() + colon + 1, to.data() + to.size(), endpoint.port);
    return endpoint;
}

std::optional<Router::Node> Router::node(std::uint16_t number) const {
    const std::lock_guard lock(mutex_);
    if (number >= nodes_.size()) return std::nullopt;
    return nodes_[number];
}

std::vector<std::uint16_t> Router::primaries() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint16_t> found;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].owns) found.push_back(static_cast<std::uint16_t>(i));
    }
    return found;
}

bool Router::owns(std::uint16_t number) const {
    return std::any_of(owners_.begin(), owners_.end(), [&](const auto& owner) {
        return owner.load(std::memory_order_acquire) == number;
    });
}

std::uint16_t Router::node_at(const Endpoint& endpoint) {
    const std::lock_guard lock(mutex_);
    return find_or_add(endpoint);
}

// The newest node at an endpoint: earlier nodes had this address before.
std::uint16_t Router::find_or_add(const Endpoint& endpoint) {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
        if (nodes_[i].endpoint == endpoint) return static_cast<std::uint16_t>(i);
    }
    if (nodes_.size() >= kMostNodes) return kNobody;
    nodes_.push_back({{}, endpoint});
    return static_cast<std::uint16_t>(nodes_.size() - 1);
}

// Known by its id, as addresses change hands: the same node at another address is a new lane.
std::uint16_t Router::number_of(const NodeInfo& info) {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
        Node& known = nodes_[i];
        if (known.endpoint != info.endpoint) continue;
        if (known.id == info.id || known.id.empty() || info.id.empty()) {
            if (!info.id.empty()) known.id = info.id;
            return static_cast<std::uint16_t>(i);
        }
        break;  // Another node had the address before.
    }
    if (nodes_.size() >= kMostNodes) return kNobody;
    nodes_.push_back({info.id, info.endpoint});
    return static_cast<std::uint16_t>(nodes_.size() - 1);
}

void Router::set_owner(std::uint16_t slot, std::uint16_t node, std::uint64_t floor) {
    floors_[slot] = std::max(floors_[slot], floor);
    owners_[slot].store(node, std::memory_order_release);
    terms_[slot].fetch_add(1, std::memory_order_acq_rel);
}

bool Router::is_proven(const Topology& map, const Endpoint& asked) {
    const auto same = [](const NodeInfo& a, const NodeInfo& b) {
        return a.id == b.id && a.endpoint == b.endpoint;
    };
    const bool proven = unproven_ && unproven_->first != asked &&
                        unproven_->second.owner == map.owner &&
                        std::ranges::equal(unproven_->second.nodes, map.nodes, same);
    unproven_.emplace(asked, map);
    return proven;
}

void Router::apply(const Topology& map, const Endpoint& asked) {
    const std::lock_guard lock(mutex_);
    const bool without_epochs = !map.has_epochs;
    if (without_epochs && has_map() && map.nodes.size() > 1 && !is_proven(map, asked)) return;
    std::vector<std::uint16_t> numbers;
    numbers.reserve(map.nodes.size());
    std::vector<bool> owned;
    for (Node& known : nodes_) owned.push_back(std::exchange(known.owns, false));
    // Owners with another epoch than in the map before: replaced and promoted again meanwhile.
    std::vector<bool> again(owned.size(), false);
    for (const NodeInfo& info : map.nodes) {
        const std::uint16_t number = number_of({info.id, translate(info.endpoint), info.epoch});
        numbers.push_back(number);
        if (number == kNobody) continue;
        nodes_[number].owns = true;
        again.resize(nodes_.size(), false);
        again[number] = number < owned.size() && owned[number] && info.epoch > nodes_[number].epoch;
        nodes_[number].epoch = std::max(nodes_[number].epoch, info.epoch);
    }
    bool changed = false;
    for (std::size_t slot = 0; slot < map.owner.size() && slot < kSlots; ++slot) {
        if (map.owner[slot] >= numbers.size()) continue;  // No owner: keep the last one.
        const std::uint16_t found = numbers[map.owner[slot]];
        const std::uint64_t epoch = map.nodes[map.owner[slot]].epoch;
        const std::uint16_t present = owners_[slot].load(std::memory_order_relaxed);
        if (found == kNobody) continue;
        if (found == present) {
            floors_[slot] = std::max(floors_[slot], epoch);
            if (again[found]) terms_[slot].fetch_add(1, std::memory_order_acq_rel);
            continue;
        }
        if (present != kNobody && !without_epochs && epoch < floors_[slot]) continue;
        set_owner(static_cast<std::uint16_t>(slot), found, epoch);
        changed = true;
    }
    has_map_.store(true, std::memory_order_release);
    if (changed) version_.fetch_add(1, std::memory_order_acq_rel);
}

void Router::moved(std::uint16_t slot, const Endpoint& endpoint) {
    const std::lock_guard lock(mutex_);
    const std::uint16_t found = find_or_add(endpoint);
    if (slot >= kSlots || found == kNobody) return;
    const std::uint16_t present = owners_[slot].load(std::memory_order_relaxed);
    if (found == present) return;
    // The new owner has a higher epoch than the former one, even if it is not known here yet: maps
    // from before the move are outdated.
    const std::uint64_t before = present == kNobody ? 0 : nodes_[present].epoch + 1;
    set_owner(slot, found, std::max(nodes_[found].epoch, before));
    version_.fetch_add(1, std::memory_order_acq_rel);
}

Error Router::unserved(const Operation& operation, const Error& why) {
    if (operation.maybe_ran()) {
        return make_error(ErrorCode::outcome_unknown,
                          why.message + "; " + operation.name() +
                              " was sent and not answered: it may or may not be applied");
    }
    return make_error(why.code,
                      why.message + "; the deadline passed before " + operation.name() +
                          " was served; nothing was applied",
                      why.server_code);
}

Router::Next Router::decide(Operation& operation, std::uint16_t from) {
    const Operation::Departure& departure = operation.departure();
    operation.route.asking = false;
    Next next{Next::Do::place};
    const auto asked = node(from);
    std::optional<Redirect> redirect;
    if (departure.why == Why::moved || departure.why == Why::ask) {
        redirect = read_redirect(departure.line, asked ? asked->endpoint : Endpoint{});
        if (redirect && redirect->slot != operation.route.slot) redirect.reset();
        if (redirect) redirect->endpoint = translate(redirect->endpoint);
        if (++operation.route.redirections >= kRedirectionsAtOnce || !redirect) {
            next.pause = next_pause(operation.pause());
        }
    } else if (departure.why == Why::refused) {
        operation.route.redirections = 0;
        next.pause = next_pause(operation.pause());
    }  // After Why::lost, no pause: the call waits for the next lane's dial, ahead of later calls.
    next.doubts_map = departure.why != Why::ask && departure.error.server_code != "TRYAGAIN" &&
                      departure.error.server_code != "BUSY";
    if (next.pause > Duration{0}) {
        operation.set_pause(next.pause);
        if (operation.deadline().remaining() <= next.pause) {
            next.what = Next::Do::end;
            next.error = unserved(operation, departure.error);
            return next;
        }
    }
    if (redirect && departure.why == Why::moved) moved(redirect->slot, redirect->endpoint);
    if (redirect && departure.why == Why::ask) {
        const std::uint16_t target = node_at(redirect->endpoint);
        if (target != kNobody) {
            operation.route.asking = true;
            operation.route.target = target;
            next.what = Next::Do::ask;
        }
    }
    return next;
}

}  // namespace hotcount::redis

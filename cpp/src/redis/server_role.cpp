#include "server_role.hpp"

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cluster_client.hpp"
#include "commands.hpp"

namespace hotcount::redis {
namespace {

constexpr std::string_view kAllSlots = "16384";

// Sends PING, then HELLO without arguments if the handshake used HELLO: that needs no other
// permission and changes no state. Further commands follow only if the server is not a plain
// primary.
class ServerLook : public std::enable_shared_from_this<ServerLook> {
  public:
    ServerLook(const Options& options, std::shared_ptr<const Dialer> dialer, Channel& channel,
               Deadline deadline, Completion<void> done, const Cancelled* cancelled)
        : address_(options.address()),
          dialer_(std::move(dialer)),
          channel_(channel),
          deadline_(deadline),
          done_(std::move(done)),
          cancelled_(cancelled) {}

    void start() {
        ask({"PING"}, [this](Result<Reply> pong) {
            if (!pong) return done_(std::move(pong).error());
            if (!dialer_->knows_hello()) return done_({});
            constexpr std::string_view kHello[] = {"HELLO"};
            std::string bytes;
            encode_command(bytes, kHello);
            submit(Request::encoded("HELLO", std::move(bytes), 1, Shape::any, Repeat::reads),
                   [this](Result<Reply> greeted) { take_greeting(std::move(greeted)); });
        });
    }

  private:
    // `then` may use this object, which the call holds.
    void submit(Request request, std::function<void(Result<Reply>)> then) {
        channel_.submit(
            std::move(request), deadline_,
            [self = shared_from_this(), then = std::move(then)](Result<Reply> reply) {
                then(std::move(reply));
            },
            cancelled_);
    }
    void ask(const std::vector<std::string_view>& command,
             std::function<void(Result<Reply>)> then) {
        submit(Request::command(command), std::move(then));
    }

    // Without a role in the reply the check passes: the server has answered PING.
    void take_greeting(Result<Reply> greeted) {
        auto* const replies = greeted.ok() ? std::get_if<ReplyArray>(&greeted->value) : nullptr;
        if (replies == nullptr || replies->size() != 1) return done_({});
        const std::string mode = hello_field(replies->front(), "mode");
        const bool is_replica = hello_field(replies->front(), "role") == "replica";
        if (mode == "sentinel") {
            return done_(make_error(ErrorCode::config,
                                    address_ + ": this server is a Sentinel, which holds no keys: "
                                               "name it and the others, with the service, in "
                                               "redis+sentinel://host:26379,host:26379/SERVICE/0"));
        }
        if (mode == "cluster") {
            return ask({"CLUSTER", "INFO"}, [this, is_replica](const Result<Reply>& info) {
                look_at_node(info, is_replica);
            });
        }
        if (!is_replica) return done_({});
        ask({"INFO", "replication"}, [this](const Result<Reply>& info) { look_at_replica(info); });
    }

    static std::string field(const Result<Reply>& info, std::string_view name) {
        return info_field(*info, name).value_or("");
    }

    void look_at_node(const Result<Reply>& info, bool is_replica) const {
        if (!info) return done_({});
        const std::string state = field(info, "cluster_state");
        const std::string size = field(info, "cluster_size");
        const bool is_up = state == "ok";
        const bool has_all =
            !is_replica && size == "1" && field(info, "cluster_slots_assigned") == kAllSlots;
        if (is_up && has_all) return done_({});
        const std::string what = is_replica ? "a replica"
                                 : is_up    ? "one of " + size + " primaries"
                                            : "a node in state " + state;
        done_(make_error(ErrorCode::config,
                         address_ + ": this server is a node of a Redis Cluster (" + what +
                             "), and redis:// talks to one server: write "
                             "redis+cluster://host:port",
                         is_up ? "MOVED" : "CLUSTERDOWN"));
    }

    void look_at_replica(const Result<Reply>& info) const {
        std::string of_whom;
        if (info) {
            if (field(info, "slave_read_only") == "0") return done_({});
            of_whom = " of " + field(info, "master_host") + ":" + field(info, "master_port");
        }
        done_(make_error(ErrorCode::unavailable,
                         address_ + ": this server is a read-only replica" + of_whom, "READONLY"));
    }

    const std::string address_;
    const std::shared_ptr<const Dialer> dialer_;
    Channel& channel_;
    const Deadline deadline_;
    const Completion<void> done_;
    const Cancelled* const cancelled_;
};

}  // namespace

std::optional<std::string> info_field(const Reply& info, std::string_view name) {
    const auto* const text = std::get_if<std::string>(&info.value);
    if (text == nullptr) return {};
    std::string_view lines{*text};
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find('\n'));
        lines.remove_prefix(std::min(line.size() + 1, lines.size()));
        if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ':') {
            continue;
        }
        const std::string_view value = line.substr(name.size() + 1);
        return std::string{value.substr(0, value.find('\r'))};
    }
    return {};
}

// The reply to HELLO is a flat array: name, value, name, value ...
std::string hello_field(const Reply& greeted, std::string_view name) {
    const auto* const fields = std::get_if<ReplyArray>(&greeted.value);
    for (std::size_t i = 0; fields != nullptr && i + 1 < fields->size(); i += 2) {
        const auto* const field = std::get_if<std::string>(&(*fields)[i].value);
        const auto* const value = std::get_if<std::string>(&(*fields)[i + 1].value);
        if (field != nullptr && value != nullptr && *field == name) return *value;
    }
    return {};
}

void look_at_server(const Options& options, std::shared_ptr<const Dialer> dialer, Channel& channel,
                    Deadline deadline, Completion<void> done, const Cancelled* cancelled) {
    std::make_shared<ServerLook>(options, std::move(dialer), channel, deadline, std::move(done),
                                 cancelled)
        ->start();
}

std::string eviction_policy(Client& client, Timeout timeout) {
    const std::string_view command[] = {"INFO", "memory"};
    const auto policy = [](const Result<Reply>& reply) {
        return reply ? info_field(*reply, "maxmemory_policy").value_or("") : std::string{};
    };
    ClusterNodes* const nodes = nodes_of(client);
    if (nodes == nullptr) return policy(client.execute(command, timeout));
    std::string found;
    const auto primaries = nodes->primaries(timeout);
    if (!primaries) return found;
    for (const std::uint16_t node : *primaries) {
        std::string one = policy(nodes->execute_at(node, command, timeout));
        if (found.empty() || one.starts_with("allkeys")) found = std::move(one);
    }
    return found;
}

}  // namespace hotcount::redis

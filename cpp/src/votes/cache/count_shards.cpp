#include "count_shards.hpp"

#include "redis/cluster_client.hpp"
#include "redis/scripts.hpp"
#include "redis/server_role.hpp"

namespace hotcount {
namespace {

using redis::ClusterNodes;
using redis::Reply;
using redis::ReplyArray;

// A write that creates a hash in a moving slot waits until all keys of the slot have moved: more shards
// shorten that wait. With a few shards for each node, nodes would have unequal shares of the load.
constexpr std::size_t kClusterShards = 128;
// A timeout below this says nothing about the node.
constexpr Duration kLeastPatience = std::chrono::milliseconds{100};
constexpr Duration kNodePause = std::chrono::seconds{1};

// The id that a server draws for the history of its data when it starts and when it is promoted; 0 if
// it did not answer, `otherwise` if it does not tell.
std::uint64_t history_in(const Result<Reply>& info, std::uint64_t otherwise) {
    if (!info) return redis::concerns_all_keys(info.error()) ? 0 : otherwise;
    const auto id = redis::info_field(*info, "master_replid");
    return id ? std::max<std::uint64_t>(stable_hash(*id), 1) : otherwise;
}

}  // namespace

CountShards::CountShards(std::shared_ptr<redis::Client> client)
    : client_(std::move(client)),
      nodes_(redis::nodes_of(*client_)),
      away_([] { return std::make_unique<Away>(); }) {}

// -- keys -----------------------------------------------------------------------------------------

std::size_t CountShards::size() const { return nodes_ == nullptr ? 1 : kClusterShards; }

std::size_t CountShards::shard_of(std::string_view item) const {
    return nodes_ == nullptr ? 0 : stable_hash(item) % kClusterShards;
}

std::string CountShards::tagged(std::string_view space, std::size_t shard) const {
    if (nodes_ == nullptr) return std::string{space};
    return std::string{"{"}.append(space) + ":" + std::to_string(shard) + "}";
}

std::string CountShards::prefix_of(std::string_view space, std::size_t shard) const {
    return counts_prefix(client_->options().prefix, tagged(space, shard));
}

std::string CountShards::name_key(std::string_view space, std::size_t shard) const {
    return identity_key(client_->options().prefix, tagged(space, shard));
}

std::string CountShards::common_prefix(std::string_view space) const {
    const std::string tag{nodes_ == nullptr ? "" : "{"};
    return counts_prefix(client_->options().prefix, tag + std::string{space});
}

std::optional<std::string> CountShards::item_of(std::string_view space,
                                                const std::string& key) const {
    const std::size_t begin = common_prefix(space).size();
    if (nodes_ == nullptr) return key.substr(begin);
    const std::size_t end = key.find("}:", begin);
    if (end == std::string::npos) return std::nullopt;
    std::string item = key.substr(end + 2);
    if (key != prefix_of(space, shard_of(item)) + item) return std::nullopt;
    return item;
}

std::vector<std::uint64_t> CountShards::histories(std::string_view space, Deadline deadline) const {
    static constexpr std::string_view kAsk[] = {"INFO", "replication"};
    if (nodes_ == nullptr) return {history_in(client_->execute(kAsk, deadline.remaining()), 1)};
    std::vector<std::uint64_t> found(kClusterShards, 0);
    // The first call waits for a map.
    if (!nodes_->primaries(deadline.remaining())) return found;
    std::map<std::uint16_t, Result<Reply>> answers;
    for (std::size_t shard = 0; shard < kClusterShards; ++shard) {
        const std::uint16_t slot = redis::slot_of(name_key(space, shard));
        const std::uint16_t owner = nodes_->owner(slot);
        if (owner == ClusterNodes::kNobody) continue;
        auto answer = answers.find(owner);
        if (answer == answers.end()) {
            const Duration brief = std::min(Duration{deadline.remaining()}, kNodePatience);
            answer = answers.emplace(owner, nodes_->execute_at(owner, kAsk, brief)).first;
        }
        found[shard] = history_in(answer->second, nodes_->term(slot));
    }
    return found;
}

// -- calls ----------------------------------------------------------------------------------------

Error CountShards::strange_reply() const {
    return redis::strange_reply(client_->options().address(), "cached votes");
}

void CountShards::send(const redis::Script& script, std::vector<Part>& parts, Deadline deadline,
                       Waits waits) {
    if (nodes_ != nullptr && waits == Waits::briefly) {
        send_briefly(script, parts, deadline);
    } else {
        send_all(script, parts, deadline);
    }
}

void CountShards::send_all(const redis::Script& script, std::span<Part> parts, Deadline deadline) {
    std::vector<redis::Channel::Call> calls;
    calls.reserve(parts.size());
    for (Part& part : parts) {
        const std::vector<std::string_view> keys(part.keys.begin(), part.keys.end());
        const std::vector<std::string_view> arguments(part.arguments.begin(), part.arguments.end());
        const auto take = [this, &part](Result<Reply> reply) {
            if (!reply) {
                part.replies = redis::of_key(part.keys.front(), reply.error());
                return;
            }
            auto* const replies = std::get_if<ReplyArray>(&reply->value);
            if (replies == nullptr || replies->size() != part.keys.size()) {
                part.replies = strange_reply();
            } else {
                part.replies = std::move(*replies);
            }
        };
        calls.push_back({redis::Request::run(script, keys, {}, arguments), take});
    }
    client_->waiting().submit_all(std::move(calls), deadline);
}

void CountShards::send_briefly(const redis::Script& script, std::vector<Part>& parts,
                               Deadline deadline) {
    const SteadyTime now = system_clock()->steady_now();
    const SteadyTime patience = now + kNodePatience;
    std::vector<std::uint16_t> owners;
    owners.reserve(parts.size());
    for (const Part& part : parts) {
        owners.push_back(nodes_->owner(redis::slot_of(part.keys.front())));
    }
    Away& nodes_away = away_.get();
    std::vector<Part> asked;
    std::vector<std::size_t> places;
    {
        const std::lock_guard lock(nodes_away.mutex);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (nodes_away.has(owners[i], parts[i].shard, now)) {
                parts[i].replies =
                    make_error(ErrorCode::unavailable,
                               nodes_->address(owners[i]) + " has not answered for this slot");
                continue;
            }
            asked.push_back(std::move(parts[i]));
            places.push_back(i);
        }
    }
    const SteadyTime until = std::min(deadline.time(), patience);
    send_all(script, asked, Deadline::at(until));
    const SteadyTime then = system_clock()->steady_now();
    // A repeated call ends before a pause that would outlast its deadline: half of its time is enough.
    const bool waited = until - now >= kLeastPatience && then - now >= (until - now) / 2;
    const std::lock_guard lock(nodes_away.mutex);
    for (std::size_t k = 0; k < asked.size(); ++k) {
        if (!asked[k].replies && waited) {
            // The slot moves; the node serves its other slots.
            if (asked[k].replies.error().server_code == "TRYAGAIN") {
                nodes_away.shards[asked[k].shard] = then + kNodePause;
            } else {
                nodes_away.nodes[owners[places[k]]] = then + kNodePause;
            }
        }
        parts[places[k]] = std::move(asked[k]);
    }
}

Result<std::int64_t> CountShards::number_at(const Part& part, std::size_t place) const {
    if (!part.replies) return part.replies.error();
    const Reply& reply = (*part.replies)[place];
    if (const auto* error = std::get_if<redis::ReplyError>(&reply.value)) {
        return redis::of_key(part.keys[place],
                             redis::error_from_reply(error->message, client_->options().address()));
    }
    const auto number = redis::to_integer(reply);
    if (!number) return strange_reply();
    return *number;
}

}  // namespace hotcount

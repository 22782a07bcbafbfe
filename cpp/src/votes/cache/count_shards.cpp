#include "count_shards.hpp"

#include "redis/scripts.hpp"
#include "redis/slots.hpp"

namespace hotcount {
namespace {

using redis::ClusterNodes;
using redis::Reply;
using redis::ReplyArray;

// A hash that is born in a slot that moves waits until all keys of the slot have moved: the more shards,
// the shorter. With a few shards for each node, nodes would have unequal shares of the load.
constexpr std::size_t kClusterShards = 128;
// How long committed votes wait for a node of a cluster, and then go without that node: a worker recounts
// their items. Votes for items of other nodes are written in the same batches.
constexpr Duration kNodePatience = std::chrono::seconds{1};
constexpr Duration kNodePause = std::chrono::seconds{1};

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

std::vector<std::uint16_t> CountShards::owners(std::string_view space) const {
    static_assert(CountCache::kNobody == ClusterNodes::kNobody);
    std::vector<std::uint16_t> owners;
    if (nodes_ == nullptr) return owners;
    for (std::size_t shard = 0; shard < kClusterShards; ++shard) {
        owners.push_back(nodes_->owner(redis::slot_of(name_key(space, shard))));
    }
    return owners;
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
            const auto away = nodes_away.until.find(owners[i]);
            if (away != nodes_away.until.end() && now < away->second) {
                parts[i].replies = make_error(ErrorCode::unavailable,
                                              nodes_->address(owners[i]) + " does not answer");
                continue;
            }
            asked.push_back(std::move(parts[i]));
            places.push_back(i);
        }
    }
    send_all(script, asked, Deadline::at(std::min(deadline.time(), patience)));
    const SteadyTime then = system_clock()->steady_now();
    const std::lock_guard lock(nodes_away.mutex);
    for (std::size_t k = 0; k < asked.size(); ++k) {
        const bool late = !asked[k].replies && patience <= then;
        if (late) nodes_away.until[owners[places[k]]] = then + kNodePause;
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

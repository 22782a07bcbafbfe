// The shards of strategy cached in a Redis: the keys, and calls of a script over many items. On one
// server all hashes are in one shard, and a batch is one call; in a cluster the calls of all shards go
// to their nodes at once.
//
//   one server  {store prefix}votes:{space}:{item}             name: {store prefix}votes@{space}
//   cluster     {store prefix}votes:{{space}:{shard}}:{item}   name: {store prefix}votes@{{space}:{shard}}
//
// In a cluster the braces around space and shard are the key's own: its hash tag. An item's shard is the
// stable_hash() of its text, modulo kClusterShards.
//
// Thread-safe. A forked child begins anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/redis.hpp>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "count_cache.hpp"
#include "redis/cluster_client.hpp"

namespace hotcount {

class CountShards {
  public:
    explicit CountShards(std::shared_ptr<redis::Client> client);

    redis::Client& client() const { return *client_; }
    /// Null: one server.
    redis::ClusterNodes* nodes() const { return nodes_; }

    // -- keys
    std::size_t size() const;
    std::size_t shard_of(std::string_view item) const;
    std::string prefix_of(std::string_view space, std::size_t shard) const;
    std::string name_key(std::string_view space, std::size_t shard) const;
    /// The text that the keys of all hashes begin with, and no other hash's.
    std::string common_prefix(std::string_view space) const;
    /// The item of a hash with this key, which begins with common_prefix(); nullopt if no item has this
    /// key.
    std::optional<std::string> item_of(std::string_view space, const std::string& key) const;
    /// As CountCache::histories().
    std::vector<std::uint64_t> histories(std::string_view space, Deadline deadline) const;

    // -- calls
    /// A call of a script for elements of one shard, by their indices.
    struct Part {
        std::size_t shard;
        std::vector<std::size_t> members;
        std::string prefix;  ///< Of the keys of the shard's hashes.
        std::vector<std::string> keys{};
        std::vector<std::string> arguments{};
        Result<redis::ReplyArray> replies{redis::ReplyArray{}};  ///< One for each key.

        void add_key(std::string_view item) { keys.push_back(std::string{prefix}.append(item)); }
        void add(std::int64_t argument) { arguments.push_back(std::to_string(argument)); }
    };
    enum class Waits : std::uint8_t {
        until_deadline,
        /// In a cluster a second at most for a node, or for a slot that moves, and then a second
        /// without it.
        briefly,
    };
    /// Runs a script over all elements, with at most 256 keys in a call. `write` fills a part, `read`
    /// takes its replies.
    template <class Element, class Write, class Read>
    void run(const redis::Script& script, std::string_view space, std::span<const Element> all,
             Deadline deadline, const Write& write, const Read& read,
             Waits waits = Waits::until_deadline) {
        std::map<std::size_t, std::vector<std::size_t>> shards;
        for (std::size_t i = 0; i < all.size(); ++i) shards[shard_of(text_of(all[i]))].push_back(i);
        for (std::size_t first = 0; true; first += kMaxKeys) {
            std::vector<Part> parts;
            for (const auto& [shard, members] : shards) {
                if (first >= members.size()) continue;
                const auto begin = members.begin() + static_cast<std::ptrdiff_t>(first);
                const std::size_t size = std::min(kMaxKeys, members.size() - first);
                parts.push_back({shard,
                                 {begin, begin + static_cast<std::ptrdiff_t>(size)},
                                 prefix_of(space, shard)});
                parts.back().keys.reserve(size + 1);
                write(parts.back());
            }
            if (parts.empty()) return;
            send(script, parts, deadline, waits);
            for (Part& part : parts) read(part);
        }
    }
    /// Of the element at this place of the part's.
    Result<std::int64_t> number_at(const Part& part, std::size_t place) const;
    Error strange_reply() const;

  private:
    // A script over this many keys takes about 1 ms of the server's time.
    static constexpr std::size_t kMaxKeys = 256;

    static std::string_view text_of(const std::string& item) { return item; }
    template <class Element>
    static std::string_view text_of(const Element& element) {
        return element.item;
    }
    std::string tagged(std::string_view space, std::size_t shard) const;
    void send(const redis::Script& script, std::vector<Part>& parts, Deadline deadline,
              Waits waits);
    void send_all(const redis::Script& script, std::span<Part> parts, Deadline deadline);
    void send_briefly(const redis::Script& script, std::vector<Part>& parts, Deadline deadline);

    struct Away {
        std::mutex mutex;
        std::map<std::uint16_t, SteadyTime> nodes{};  // Until then.
        std::map<std::size_t, SteadyTime> shards{};   // Whose slots move.

        bool has(std::uint16_t node, std::size_t shard, SteadyTime now) const {
            const auto away = nodes.find(node);
            const auto moving = shards.find(shard);
            return (away != nodes.end() && now < away->second) ||
                   (moving != shards.end() && now < moving->second);
        }
    };

    const std::shared_ptr<redis::Client> client_;
    redis::ClusterNodes* const nodes_;
    ForkLocal<Away> away_;
};

}  // namespace hotcount

// The cells of a WriteBehindCounter in Redis: their keys, and the calls on them.
//
// Keys are spread over kShards, each of which has its keys in one slot of a cluster:
//   {prefix}:{SHARD}:c:KEY   hash: writer -> "up down"
//   {prefix}:{SHARD}:keys    set: the keys that have cells
//   {prefix}:{SHARD}:id      a random name: another one means that the data was lost
// Thread-safe; errors say what is known, as the client's do.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <hotcount/redis.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redis/scripts.hpp"

namespace hotcount {

/// What a writer has counted for a key, ever: neither falls.
struct CellSum {
    std::int64_t up{0};    ///< The sum of the adds above 0.
    std::int64_t down{0};  ///< The sum of those below 0, without the sign.

    friend bool operator==(const CellSum&, const CellSum&) = default;
};

/// The larger of each.
CellSum larger(const CellSum& a, const CellSum& b);
/// What `a` has more than `b`; never less than 0.
CellSum beyond(const CellSum& a, const CellSum& b);
/// `to` and both parts of `sum`, or the most that there is.
std::int64_t plus_size_of(std::int64_t to, const CellSum& sum);

/// A cell as it travels.
struct ViewCell {
    std::string key;
    std::string writer;
    CellSum sum;
};

class ViewCells {
  public:
    static constexpr std::size_t kShards = 16;

    ViewCells(std::shared_ptr<redis::Client> client, std::string_view prefix);

    static std::size_t shard_of(std::string_view key);

    /// One cell; may travel with those of other callers.
    void publish(const ViewCell& cell, redis::Channel& channel, Deadline deadline,
                 Completion<void> done) const;
    /// Many; settle(index, outcome) for each, then done().
    void publish_all(std::span<const ViewCell> cells, redis::Channel& channel, Deadline deadline,
                     std::function<void(std::size_t, Result<void>)> settle,
                     std::function<void()> done) const;
    /// Takes those out that are still as given; returns how many. An empty writer: only looks whether
    /// the key has no cell any more.
    Result<std::int64_t> retire(std::span<const ViewCell> cells, Deadline deadline) const;

    /// Of each of these keys; one without cells has one with an empty writer. A key that holds
    /// something else is an error, or, with `bad`, is left out and told there.
    Result<std::vector<ViewCell>> read(std::span<const std::string> keys, Deadline deadline,
                                       std::optional<Error>* bad = nullptr) const;

    /// Keys of a shard. After the last page `next` is "0".
    Result<redis::ScanPage> scan(std::size_t shard, const std::string& cursor, std::size_t size,
                                 Deadline deadline) const;

    /// The names of the shards' data, for those that are asked for; made where there is none.
    Result<std::vector<std::string>> identities(std::span<const std::size_t> shards,
                                                Deadline deadline) const;
    /// A config error if Redis evicts keys of all kinds; nothing if it does not say.
    Result<void> check_eviction(Deadline deadline) const;

    redis::Client& client() const { return *client_; }

  private:
    std::string in_shard(std::size_t shard, std::string_view what) const;
    std::string cells_key(std::string_view key) const;
    std::string keys_key(std::string_view key) const;

    const std::shared_ptr<redis::Client> client_;
    const std::string prefix_;
};

}  // namespace hotcount

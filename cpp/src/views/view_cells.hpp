// The cells of a WriteBehindCounter in Redis: their keys, and the calls on them.
//
// Keys are spread over kShards, each of which has its keys in one slot of a cluster:
//   {prefix}:{SHARD}:c:KEY   hash: writer -> "up down"
//   {prefix}:{SHARD}:keys    set: the keys that have cells
//   {prefix}:{SHARD}:id      a random name; if it changes, the data was lost
// Thread-safe. Errors tell "not applied" from "unknown", as the client's do.
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

/// The total adds of a writer to a key; neither number ever falls.
struct CellSum {
    std::int64_t up{0};    ///< Sum of the positive adds.
    std::int64_t down{0};  ///< Sum of the negative adds, without the sign.

    friend bool operator==(const CellSum&, const CellSum&) = default;
};

/// The maximum of each part.
CellSum larger(const CellSum& a, const CellSum& b);
/// The excess of `a` over `b` in each part; never negative.
CellSum beyond(const CellSum& a, const CellSum& b);
/// `to` plus both parts of `sum`, capped at the largest number.
std::int64_t plus_size_of(std::int64_t to, const CellSum& sum);

/// A cell in a message.
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

    /// Writes one cell; may share a round trip with cells of other callers.
    void publish(const ViewCell& cell, redis::Channel& channel, Deadline deadline,
                 Completion<void> done) const;
    /// Writes many cells: settle(index, outcome) for each, then done().
    void publish_all(std::span<const ViewCell> cells, redis::Channel& channel, Deadline deadline,
                     std::function<void(std::size_t, Result<void>)> settle,
                     std::function<void()> done) const;
    /// Deletes the cells that have not changed, and returns their number. With an empty writer it
    /// only checks whether the key still has cells.
    Result<std::int64_t> retire(std::span<const ViewCell> cells, Deadline deadline) const;

    /// The cells of the keys; a key without cells has one with an empty writer. A key that holds
    /// another type is an error; with `bad` it is left out and the error stands there.
    Result<std::vector<ViewCell>> read(std::span<const std::string> keys, Deadline deadline,
                                       std::optional<Error>* bad = nullptr) const;

    /// Keys of a shard. After the last page `next` is "0".
    Result<redis::ScanPage> scan(std::size_t shard, const std::string& cursor, std::size_t size,
                                 Deadline deadline) const;

    /// The random names of these shards; missing ones are created.
    Result<std::vector<std::string>> identities(std::span<const std::size_t> shards,
                                                Deadline deadline) const;
    /// Rises with each lost connection, and on a cluster when a slot gets another owner: a promoted
    /// primary may lack writes that the previous one acknowledged.
    std::uint64_t changes_of_server() const;
    /// A config error if Redis evicts keys with and without a TTL. Success if it refuses to say.
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

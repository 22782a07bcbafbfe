// The votes of strategy write_behind that wait in Redis: a stream for each of 16 shards of the items.
//
//   {store prefix}waiting:{<stream_id>:<shard>}           i item, u user (o: op_id), v value
//   {store prefix}waiting:{<stream_id>:<shard>}:refused   the same, e error, id of the vote: the last 1,000
//   {store prefix}waiting:{<stream_id>:<shard>}:closed    the life in which the stream was closed
//   {store prefix}waiting:{<stream_id>:<shard>}:least     if it is made again, its votes have later ids
//
// The braces are the keys' own: the keys of a shard are in one slot of a Redis Cluster. All of an
// item's votes are in one stream. Where ids that differ may be one item or user, because the column
// compares without case say, all votes are in the first stream: the stream_id ends with kOneStream.
// Refused votes expire kKeepRefused after the last of them.
// An entry's id orders them, and becomes the vote's version in SQL:
// the milliseconds of Redis's clock in the upper 43 bits, what follows them in the lower 20. Redis
// gives no stream an id twice, or a lower one, whatever its clock does.
// Thread-safe. Failure: as redis::Client.
#pragma once

#include <array>
#include <functional>
#include <hotcount/redis.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "redis/cluster_client.hpp"
#include "redis/scripts.hpp"

namespace hotcount {

/// The version of a vote: `number` is the part of its id after the milliseconds.
constexpr std::int64_t version_of(std::int64_t milliseconds, std::int64_t number) {
    return (milliseconds << 20) + number;
}
constexpr std::int64_t milliseconds_of(std::int64_t version) { return version >> 20; }

class VoteStream {
  public:
    static constexpr std::size_t kShards = 16;

    VoteStream(std::shared_ptr<redis::Client> client, const VotesOptions& options)
        : client_(std::move(client)), nodes_(redis::nodes_of(*client_)), options_(options) {}

    static constexpr std::string_view kOneStream = ".1";
    static constexpr Duration kKeepRefused = std::chrono::hours{30 * 24};

    static bool has_one_stream(std::string_view space) { return space.ends_with(kOneStream); }
    static std::size_t shard_of(std::string_view space, const sql::Id& item);

    /// In a cluster, changes with the stream's primary: the new one may lack the stream's last votes,
    /// and its clock be behind. 0 with one server.
    std::uint32_t term(std::string_view space, std::size_t shard) const;
    bool in_cluster() const { return nodes_ != nullptr; }
    using Terms = std::array<std::uint32_t, kShards>;

    enum class Added : std::int8_t { added = 1, full = 0, unborn = -1 };
    /// Adds votes in their order, each to the stream of its item. `settle` gets each one's outcome, in
    /// any order and from any thread; `done` is called after the last.
    void add(std::string_view space, std::span<const Ballot> ballots, redis::Channel& channel,
             Deadline deadline, std::function<void(std::size_t, Result<Added>)> settle,
             std::function<void()> done);
    /// Makes a stream, or its group; the first vote comes after `floor`. `life`: of the streams, as
    /// stream_life had it. Nothing if the stream was closed in this life or a later one.
    Result<void> open(std::string_view space, std::size_t shard, std::int64_t floor,
                      std::int64_t life, Deadline deadline);
    /// Deletes it. False, and it stays, if votes wait in it.
    Result<bool> close(std::string_view space, std::size_t shard, std::int64_t life,
                       Deadline deadline);

    struct Entry {
        std::string id;
        std::int64_t version{0};
        /// The entry has been deleted in Redis.
        bool gone{false};
        std::optional<Ballot> ballot{};  ///< nullopt: not a vote for these tables.
        /// As in Redis: i, u or o, v.
        std::array<std::string, 4> fields{};
    };
    enum class Source : std::uint8_t { own = 1, claimed = 2, fresh = 3 };
    struct Page {
        Source source{Source::fresh};
        std::vector<Entry> entries{};
    };
    /// Takes a page for a worker: its own votes of an earlier page that follow the id `after`; if there
    /// are none, those that another consumer has had for kTakeOver; else new ones.
    Result<Page> take(std::string_view space, std::size_t shard, const std::string& consumer,
                      const std::string& after, Deadline deadline);
    /// Gives the worker's votes back, so that other workers take them over at once. Only if no
    /// write of these votes is still under way.
    Result<void> give_back(std::string_view space, std::size_t shard, const std::string& consumer,
                           Deadline deadline);
    static constexpr Duration kTakeOver = std::chrono::seconds{30};
    static constexpr std::size_t kMostTaken = 5'000;

    struct Refused {
        const Entry* entry;
        std::string why;
    };
    /// Takes votes out; `refused` are among `entries`, and kept apart.
    Result<void> settle(std::string_view space, std::size_t shard, std::span<const std::string> ids,
                        std::span<const Refused> refused, Deadline deadline);

    /// Keeps the lower part of versions from overflowing; `newest` was taken from the stream.
    Result<void> move_on(std::string_view space, std::size_t shard, std::int64_t newest,
                         Deadline deadline);

    /// Votes that are added from here on have higher versions. Nothing if the stream is beyond it.
    Result<void> raise(std::string_view space, std::size_t shard, std::int64_t version,
                       Deadline deadline);

    struct State {
        std::int64_t votes{0};
        std::int64_t first{0};  ///< The oldest waiting vote's version; 0 if no vote waits.
        std::int64_t last{0};   ///< The last version that was given; 0: there is no such stream.
    };
    Result<std::vector<State>> states(std::string_view space, std::span<const std::size_t> shards,
                                      Deadline deadline);
    struct Advanced {
        std::int64_t last{0};  ///< The last version that a vote may have by now.
        bool there{false};     ///< There is such a stream.
    };
    /// Has votes that are added from here on get later versions than `last`, for each shard; `last` is
    /// later than `beyond`, which is by shard. For a stream that is not there, this also holds if an
    /// open() that is on its way makes it.
    Result<std::vector<Advanced>> advance(std::string_view space,
                                          std::span<const std::size_t> shards,
                                          const std::array<std::int64_t, kShards>& beyond,
                                          Deadline deadline);
    /// How many refused votes are kept.
    Result<std::int64_t> refused(std::string_view space, Deadline deadline);
    /// Deletes the refused votes of a user; in one stream all of them, because the user may be there
    /// under another id.
    Result<void> forget_refused(std::string_view space, const sql::Id& user, Deadline deadline);
    /// Deletes streams of a former name, and the votes that were refused there: they came back with
    /// an old copy of Redis's data.
    Result<void> drop(std::string_view space, Deadline deadline);
    /// Deletes refused votes of versions up to this one, by shard.
    Result<void> drop_refused(std::string_view space,
                              const std::array<std::int64_t, kShards>& until, Deadline deadline);

    Deadline deadline(Timeout timeout) const { return client_->deadline(timeout); }
    redis::Client& client() const { return *client_; }

  private:
    std::string key(std::string_view space, std::size_t shard) const;
    Entry to_entry(const redis::Reply& reply) const;
    Error strange_reply() const;
    /// Runs it, with repeats, and calls see() with each reply; false: it is of another shape.
    Result<void> ask(redis::ScriptBatch batch, Deadline deadline,
                     const std::function<bool(std::size_t, const redis::Reply&)>& see);
    Result<redis::Reply> run(const redis::Script& script, std::vector<std::string> keys,
                             const std::vector<std::string>& arguments, Deadline deadline);

    const std::shared_ptr<redis::Client> client_;
    redis::ClusterNodes* const nodes_;  // Null: one server.
    const VotesOptions options_;
};

}  // namespace hotcount

// Strategy write_behind: workers that write the votes of the Redis streams to SQL, and calls that
// drain the streams.
#pragma once

#include <array>
#include <condition_variable>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/detail/votes/sync_worker.hpp>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stream_marks.hpp"
#include "vote_stream.hpp"

namespace hotcount {

/// The streams, their marks in SQL, and the writer of their votes. Thread-safe.
class WaitingVotes {
  public:
    WaitingVotes(std::shared_ptr<sql::Database> database, std::shared_ptr<const Layout> layout,
                 const VotesOptions& votes_options, std::shared_ptr<redis::Client> client,
                 std::function<std::unique_ptr<sql::GroupCommit>()> make_commit)
        : options(votes_options),
          stream(std::move(client), votes_options),
          marks(std::move(database), std::move(layout), votes_options),
          commit(std::move(make_commit)) {}

    /// The name of the streams, read at most max_age ago, or earlier while SQL is away. Votes may use
    /// an old name: streams of a former name do not exist, and accept no votes.
    Result<std::string> space(Deadline deadline);
    /// The streams as the tables have them now.
    Result<StreamMarks::Streams> streams(Deadline deadline);
    /// The name as it was within the last second.
    Result<std::string> recent_space(Deadline deadline);
    /// As space(), if that needs no query; else empty.
    std::string known_space();
    /// For each stream the term (VoteStream::term) in which open() last moved it beyond SQL's votes,
    /// or 0. A vote has a higher version than SQL's votes if, after it was added, the stream still is
    /// in the term that this returned before.
    VoteStream::Terms settled_terms();
    /// Makes a stream that the caller found missing at `seen`. Its votes have higher versions than
    /// SQL's; in a cluster, an existing stream is moved there. Does nothing if this process has done
    /// so since `seen`. One call at a time makes streams, and the next one makes all that other calls
    /// have requested meanwhile.
    Result<void> open(std::string_view space, std::size_t shard, SteadyTime seen,
                      Deadline deadline);
    SteadyTime now() const { return options.clock->steady_now(); }

    const VotesOptions options;
    VoteStream stream;
    StreamMarks marks;
    ForkLocal<sql::GroupCommit> commit;

  private:
    struct Known {
        std::mutex mutex;
        std::string space;
        SteadyTime until;
        SteadyTime read;
        std::array<SteadyTime, VoteStream::kShards> opened{};  // By shard.
        VoteStream::Terms terms{};                             // settled_terms()
        std::set<std::size_t> missing;  // Shards whose streams calls wait for.
        bool opening{false};
        std::condition_variable changed;
    };
    ForkLocal<Known> known_{[] { return std::make_unique<Known>(); }};
};

/// A worker for calls that wait for the votes of some streams.
class StreamVisitor : public SyncWorker {
  public:
    /// One visit to each of these streams. A visit to a stream that stays full ends after 0.5 s.
    virtual Result<SyncRound> visit(std::span<const std::size_t> shards, Timeout timeout) = 0;
};

std::unique_ptr<StreamVisitor> make_stream_visitor(std::shared_ptr<WaitingVotes> waiting);
std::shared_ptr<SyncWorker> make_stream_worker(std::shared_ptr<WaitingVotes> waiting);

// -- draining the streams (stream_drain.cpp) ------------------------------------------------------

/// 0 to VoteStream::kShards - 1.
const std::vector<std::size_t>& all_shards();
std::int64_t all_votes(std::span<const VoteStream::State> states);

/// For calls that must see every vote that waits, or that delete votes: writes the waiting votes
/// first. Thread-safe; blocks the calling thread.
class StreamDrain {
  public:
    explicit StreamDrain(std::shared_ptr<WaitingVotes> waiting)
        : waiting_(waiting),
          visitor_([waiting = std::move(waiting)] { return make_stream_visitor(waiting); }) {}

    struct Drained {
        std::int64_t before{0};   ///< Votes that waited when it began.
        std::int64_t left{0};     ///< Of them, at the deadline.
        std::int64_t at_risk{0};  ///< All that waited at the last look.
    };
    /// Writes earlier votes, or waits for workers that have taken them. Votes of other streams are
    /// not waited for.
    Result<Drained> drain(std::string_view space, std::span<const std::size_t> shards,
                          Deadline deadline);
    /// As drain(); a deadline error if votes are left.
    Result<void> write(std::string_view space, std::span<const std::size_t> shards,
                       Deadline deadline);

    struct Fenced {
        StreamMarks::Streams streams;
        /// By shard: every vote up to this version has been written or refused. Only the item's shard
        /// has one if an item was named.
        std::array<std::int64_t, VoteStream::kShards> versions{};
        std::int64_t lowest{0};  ///< The lowest of these versions.
        std::int64_t of(const sql::Id& item) const {
            return versions[VoteStream::shard_of(streams.space, item)];
        }
    };
    /// To be called before votes are deleted, of an item or of all: writes the waiting votes, and
    /// makes sure that none of them is written again.
    Result<Fenced> settle(const sql::Id* item, Deadline deadline);

  private:
    const std::shared_ptr<WaitingVotes> waiting_;
    ForkLocal<StreamVisitor> visitor_;
};

}  // namespace hotcount

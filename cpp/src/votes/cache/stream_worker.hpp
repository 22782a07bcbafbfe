// What brings the votes of strategy write_behind from Redis to SQL.
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

#include "stream_marks.hpp"
#include "vote_stream.hpp"

namespace hotcount {

/// The streams, their marks in SQL, and what writes votes there. Thread-safe.
class WaitingVotes {
  public:
    WaitingVotes(std::shared_ptr<sql::Database> database, std::shared_ptr<const Layout> layout,
                 const VotesOptions& votes_options, std::shared_ptr<redis::Client> client,
                 std::function<std::unique_ptr<sql::GroupCommit>()> make_commit)
        : options(votes_options),
          stream(std::move(client), votes_options),
          marks(std::move(database), std::move(layout), votes_options),
          commit(std::move(make_commit)) {}

    /// The name of the streams, as known for at most max_age, or longer while SQL is away. For votes:
    /// a stream of a name that is not the tables' any more is not there, and takes none.
    Result<std::string> space(Deadline deadline);
    /// What the tables say now.
    Result<StreamMarks::Streams> streams(Deadline deadline);
    /// The name as it was within the last second.
    Result<std::string> recent_space(Deadline deadline);
    /// The same if it needs no look at SQL; else empty.
    std::string known_space();
    /// Makes a stream that was not there at `seen` or later, where SQL's votes end. Nothing, if this
    /// process has made it since then: of many calls that found it missing one makes it. One call at a
    /// time makes streams, and the next one makes all that others have asked for meanwhile.
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
        std::set<std::size_t> missing;                         // That somebody waits for.
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

}  // namespace hotcount

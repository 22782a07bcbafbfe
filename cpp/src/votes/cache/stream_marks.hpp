// The marks that strategy write_behind keeps in SQL beside the votes: rows of vote_meta.
//
//   stream_id     names the streams of these tables, so that two databases over one Redis do not
//                 write each other's votes
//   stream_floor  no vote of a stream has a higher version in SQL. Workers raise it before they write,
//                 0.25 s ahead. A stream that is created again, because Redis has lost its data,
//                 begins above it. So no vote is older than SQL's votes, whatever Redis's clock
//   stream_life   how often a stream was created. A worker with a page from an earlier life does not
//                 raise the floor, because the new stream began above the old floor
//   stream_open   '1' while votes may wait: another strategy does not take the tables over then
//   stream_fence  the streams' name and, for each stream, the version up to which every vote was written
//                 or refused. A call that deletes votes writes the waiting votes, raises the fence,
//                 and then deletes. A worker drops votes up to the fence. It writes the others in a
//                 transaction that locks this row, and only if the row has not changed since the
//                 votes were taken. An old copy of Redis's data, or a page that a worker sent before
//                 it died, therefore brings no vote back
//   stream_names  former names of the streams, which such a copy may bring back
//
// The row stream_open is also the lock under which streams are made and closed; a change of the
// strategy takes it too. Thread-safe.
#pragma once

#include <array>
#include <functional>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vote_stream.hpp"
#include "votes/tables/layout.hpp"

namespace hotcount {

class StreamMarks {
  public:
    StreamMarks(std::shared_ptr<sql::Database> database, std::shared_ptr<const Layout> layout,
                const VotesOptions& options);

    /// stream_fence.
    struct Fence {
        std::string text{};
        std::array<std::int64_t, VoteStream::kShards> versions{};  // By shard.
    };
    struct Streams {
        std::string space;
        std::int64_t life;
        std::int64_t floor;
        bool open;                           // stream_open
        std::shared_ptr<const Fence> fence;  // The same object while the row stays the same.
        std::vector<std::string> former_names;
    };
    /// The streams' name, which is drawn if there is none. A config error if the tables belong to
    /// another strategy.
    Result<Streams> streams(Deadline deadline);
    /// To be called before votes of versions up to this one are written. `streams`: as they were
    /// when the votes were taken. False: a stream was created since, and the votes must not be
    /// written; those that still wait are taken again.
    Result<bool> reserve(const Streams& streams, std::int64_t version, Deadline deadline);
    using Versions = std::array<std::int64_t, VoteStream::kShards>;
    /// Raises the fence of these shards to the last versions of their streams, and the floor behind
    /// it; a higher floor stays. For a missing stream the version is beyond the floor: since
    /// `streams` were read, a worker may have written its votes, and flush() have closed it. Then
    /// `advance` is called for the stream once more, while no stream can be made. No vote that was taken
    /// before is written after this has returned. Returns the versions, by shard; none if a stream
    /// was made since `streams`: its votes may have such versions.
    using Advance = std::function<Result<std::vector<VoteStream::Advanced>>(
        std::span<const std::size_t> shards, std::int64_t beyond)>;
    Result<std::optional<Versions>> raise_fence(const Streams& streams,
                                                std::span<const std::size_t> shards,
                                                std::span<const VoteStream::Advanced> advanced,
                                                const Advance& advance, Deadline deadline);
    /// Runs open(floor, life) while streams cannot be closed and the strategy cannot change. It may
    /// be run again.
    Result<void> open(
        std::string_view space, Deadline deadline,
        const std::function<Result<void>(std::int64_t floor, std::int64_t life)>& open);
    /// Records that no vote waits, if close() says so, while no stream can be made. A config error
    /// if the streams have another name by now.
    Result<void> close(std::string_view space, Deadline deadline,
                       const std::function<Result<bool>(std::int64_t life)>& close);

  private:
    struct Marks {
        std::string id{};
        std::int64_t floor{0};
        std::int64_t life{0};
        bool open{false};
        std::string fence{};
        std::vector<std::string> former_names{};
    };
    std::shared_ptr<const Fence> fence_of(const std::string& text);
    StreamMarks(std::shared_ptr<sql::Database> database, std::shared_ptr<const Layout> layout,
                const VotesOptions& options, const sql::Statements& sql);
    /// In the caller's transaction, as it locks stream_open.
    Result<Marks> hold(sql::Connection& connection);
    Result<Marks> read(sql::Connection& connection, const sql::Statement& statement);
    Result<Marks> make(sql::Connection& connection);
    Result<void> set(sql::Connection& connection, const char* name, std::string_view value);

    const std::shared_ptr<sql::Database> database_;
    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const sql::Statement read_;
    const sql::Statement lock_open_;
    const sql::Statement lock_floor_;
    const sql::Statement lock_fence_;
    const sql::Statement highest_;
    const sql::Statement insert_;
    const sql::Statement set_;
    // The floor was at least `version` in this life of the streams.
    struct Reserved {
        std::mutex mutex;
        std::string space{};
        std::int64_t life{0};
        std::int64_t version{0};
        std::shared_ptr<const Fence> fence{};  // As it was last read.
    };
    ForkLocal<Reserved> reserved_{[] { return std::make_unique<Reserved>(); }};
};

/// For a transaction that changes the strategy: a config error if votes may wait in Redis. `holds`:
/// the transaction writes, and no vote comes to wait until it ends.
Result<void> refuse_waiting_votes(sql::Connection& connection, const VotesOptions& options,
                                  const sql::Grammar& grammar, bool holds);
/// For strategy write_behind as it takes tables over: streams get another name, and go on behind the
/// versions that the votes have then.
Result<void> forget_streams(sql::Connection& connection, const VotesOptions& options,
                            const sql::Grammar& grammar);

}  // namespace hotcount

// write_behind: a vote is acknowledged when Redis has it in a stream; workers write the votes to SQL as
// batched does. votes/cache/vote_stream.hpp has the streams, votes/cache/stream_marks.hpp what SQL
// knows of them.
//
// Calls that delete votes, or that read one and write it, wait until what was cast before them is in
// SQL. Otherwise a vote that waits would come back, or be overlooked.
#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/waiting_calls.hpp>
#include <set>
#include <utility>

#include "group_writer.hpp"
#include "votes/cache/stream_drain.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

using Added = VoteStream::Added;
using StreamState = VoteStream::State;

// A stream that is gone again each time that it was made: Redis loses its data.
constexpr int kMostAttempts = 3;

Cast waiting_cast(const Ballot& ballot) {
    return Cast{ballot.value != 0, false, 0, ballot.value, true};
}

Error versions_are_ours() {
    return bad_option(
        "version",
        "must be None for strategy 'write_behind', which orders votes by the ids that "
        "Redis gives them");
}

std::vector<std::size_t> shards_of(std::string_view space, std::span<const sql::Id> items) {
    std::set<std::size_t> shards;
    for (const sql::Id& item : items) shards.insert(VoteStream::shard_of(space, item));
    return {shards.begin(), shards.end()};
}

class WriteBehindVotes final : public SqlVotes {
  public:
    WriteBehindVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options,
                     std::shared_ptr<redis::Client> client)
        : SqlVotes(std::move(votes_database), std::move(votes_options)),
          waiting_(std::make_shared<WaitingVotes>(shared_database(), layout(), options(),
                                                  std::move(client), commit_maker())),
          drain_(waiting_),
          late_([this] {
              return std::make_unique<Late>(database().name(), options().commit.max_queue);
          }) {}

    Result<Cast> write(const Ballot& ballot, Timeout timeout) override {
        return std::move(write_many({&ballot, 1}, timeout).front());
    }

    std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                         Timeout timeout) override {
        Call call{ballots, waiting_->stream.deadline(timeout)};
        while (!call.open.empty()) {
            const std::string space = prepare(call);
            if (call.open.empty()) break;
            add(call, space, waiting_->stream.client().waiting(), [] {});
            end_attempt(call, space);
        }
        return std::move(call.casts);
    }

    void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) override {
        write_many_async(
            {&ballot, 1},
            [done = std::move(done)](std::vector<Result<Cast>> casts) {
                done(std::move(casts.front()));
            },
            timeout);
    }

    void write_many_async(std::span<const Ballot> ballots,
                          std::function<void(std::vector<Result<Cast>>)> done,
                          Timeout timeout) override {
        const auto call =
            std::make_shared<LateCall>(std::vector<Ballot>{ballots.begin(), ballots.end()},
                                       waiting_->stream.deadline(timeout), std::move(done));
        const std::string space = waiting_->known_space();
        // What needs SQL first goes one after the other; what comes meanwhile queues behind it.
        if (space.empty() || late_.get().calls.load() > 0 || call->open.size() != ballots.size() ||
            ballots.empty()) {
            return add_late(call);
        }
        add_async(call, space);
    }

    Result<std::vector<Count>> count_many(std::span<const sql::Id> items, Timeout timeout,
                                          Consistency) override {
        HOTCOUNT_TRY(check_items(items));
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(std::string space, waiting_->space(deadline));
        std::vector<std::size_t> shards = shards_of(space, items);
        const auto look = [&] {
            return waiting_->stream.states(space, shards,
                                           Deadline::after(Duration{deadline.remaining()} / 2));
        };
        // Before the counts are read: a vote that has left its stream by then is in them.
        auto states = look();
        const auto is_gone = [](const StreamState& state) { return state.last == 0; };
        if (states && std::any_of(states->begin(), states->end(), is_gone)) {
            // Nobody has voted there, or the streams have another name by now.
            auto recent = waiting_->recent_space(deadline);
            if (recent && *recent != space) {
                space = *std::move(recent);
                shards = shards_of(space, items);
                states = look();
            }
        }
        HOTCOUNT_TRY_ASSIGN(auto counts,
                            SqlVotes::count_many(items, deadline.remaining(), Consistency::exact));
        for (std::size_t i = 0; i < items.size(); ++i) {
            const auto shard = std::lower_bound(shards.begin(), shards.end(),
                                                VoteStream::shard_of(space, items[i]));
            counts[i].exact = false;
            counts[i].pending =
                states ? (*states)[static_cast<std::size_t>(shard - shards.begin())].votes : -1;
        }
        return counts;
    }

    Result<std::int64_t> remove_item(const sql::Id& item, bool delete_row,
                                     Timeout timeout) override {
        HOTCOUNT_TRY(check_items({&item, 1}));
        std::int64_t removed = 0;
        HOTCOUNT_TRY(delete_behind_fence(&item, timeout, [&](std::int64_t) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const std::int64_t votes,
                                SqlVotes::remove_item(item, delete_row, timeout));
            removed += votes;
            return {};
        }));
        return removed;
    }
    Result<Erased> erase_user(const sql::Id& user, Timeout timeout) override {
        Erased erased{0, {}};
        HOTCOUNT_TRY_ASSIGN(
            const StreamMarks::Streams streams,
            delete_behind_fence(nullptr, timeout, [&](std::int64_t) -> Result<void> {
                HOTCOUNT_TRY_ASSIGN(Erased found, SqlVotes::erase_user(user, timeout));
                found.votes += erased.votes;
                erased = std::move(found);
                return {};
            }));
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY(waiting_->stream.forget_refused(streams.space, user, deadline));
        for (const std::string& name : streams.former_names) {
            HOTCOUNT_TRY(waiting_->stream.drop(name, deadline));
            HOTCOUNT_TRY(waiting_->stream.forget_refused(name, user, deadline));
        }
        return erased;
    }
    Result<std::int64_t> prune(std::int64_t before, Timeout timeout) override {
        std::int64_t pruned = 0;
        // What was cast in this very millisecond would be newer than the fence of other streams.
        sleep_or_interrupt(std::chrono::milliseconds{2});
        HOTCOUNT_TRY(delete_behind_fence(nullptr, timeout, [&](std::int64_t fence) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const std::int64_t votes,
                                SqlVotes::prune(std::min(before, fence + 1), timeout));
            pruned += votes;
            return {};
        }));
        return pruned;
    }

    Result<FlushReport> flush(Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const StreamMarks::Streams streams, waiting_->streams(deadline));
        const std::string& space = streams.space;
        HOTCOUNT_TRY_ASSIGN(const StreamDrain::Drained drained,
                            drain_.drain(space, all_shards(), deadline));
        if (drained.left > 0) {
            return FlushReport{drained.before - drained.left, drained.left, drained.at_risk};
        }
        HOTCOUNT_TRY(SqlVotes::flush(deadline.remaining()));
        HOTCOUNT_TRY_ASSIGN(const auto states,
                            waiting_->stream.states(space, all_shards(), deadline));
        const std::int64_t at_risk = all_votes(states);
        // Then another strategy may take the tables over. The next vote makes its stream again.
        if (at_risk == 0) {
            HOTCOUNT_TRY(waiting_->marks.close(space, deadline, [&]() -> Result<bool> {
                bool closed = true;
                for (const std::size_t shard : all_shards()) {
                    HOTCOUNT_TRY_ASSIGN(const bool gone,
                                        waiting_->stream.close(space, shard, deadline));
                    closed = closed && gone;
                }
                return closed;
            }));
        }
        return FlushReport{drained.before - drained.left, drained.left, at_risk};
    }

    Result<VotesStats> stats(Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(VotesStats stats, SqlVotes::stats(timeout));
        auto found = waiting_->space(deadline);
        if (!found && found.error().condition == SqlCondition::undefined_table) {
            stats.pending_error = found.error().message;
            return stats;
        }
        HOTCOUNT_TRY_ASSIGN(const std::string space, std::move(found));
        HOTCOUNT_TRY_ASSIGN(const auto states,
                            waiting_->stream.states(space, all_shards(), deadline));
        stats.pending_votes = all_votes(states);
        HOTCOUNT_TRY_ASSIGN(stats.refused_votes, waiting_->stream.refused(space, deadline));
        return stats;
    }

    Result<std::shared_ptr<SyncWorker>> sync_worker() override {
        return make_stream_worker(waiting_);
    }

    Contract contract() const override {
        return Contract{
            "write_behind",
            "Redis has the vote, in a stream; a worker (sync_worker(), `hotcount sync`) writes it "
            "to "
            "SQL later, in one transaction with others. cast does not say what the vote was before",
            "votes that wait in Redis, at most max_pending (" +
                std::to_string(options().max_pending) +
                ") in each of 16 streams, if Redis loses them: its process or machine ends and "
                "they "
                "were not on its disk (appendfsync always: none; everysec: about the last "
                "second's; "
                "no persistence: all that wait), a replica without them is promoted, FLUSHALL, an "
                "eviction. A replica that is promoted, or a copy that is restored, and whose "
                "clock is behind may also let a vote lose against the same user's older one, and "
                "drops votes that are older to it than the last erase_user(), remove_item() or "
                "prune(), until a worker's round has seen it. Never one because a voter or a "
                "worker ends. "
                "A vote that SQL refuses, say for an item that is not there, is set aside after it "
                "was acknowledged: stats() counts those. count() and get() know what is in SQL; "
                "Count.pending says how many votes wait in the item's stream; " +
                (folder() != nullptr ? lag_of_item_count(options())
                                     : std::string{"the item's count is written with them"}),
            false, false};
    }

  private:
    Result<Cast> write_toggled(const Ballot& ballot, Deadline deadline) override {
        HOTCOUNT_TRY_ASSIGN(const StreamMarks::Streams streams, waiting_->streams(deadline));
        const std::array shard{VoteStream::shard_of(streams.space, ballot.item)};
        HOTCOUNT_TRY(drain_.write(streams.space, shard, deadline));
        return SqlVotes::write_toggled(ballot, deadline);
    }

    void add_stats(VotesStats& stats) const override {
        const sql::GroupCommit::Stats commits = waiting_->commit.get().stats();
        stats.batches = commits.batches;
        stats.batched_votes = commits.writes;
        stats.waiting = commits.waiting;
        stats.held_votes = commits.held;
        stats.held_votes_for = commits.held_for;
    }

    // Names of the streams, and versions to go on from, are of one time with this strategy.
    Result<void> take_over(sql::Connection& connection) override {
        const sql::Grammar& grammar = layout()->vote_dialect().grammar();
        return forget_streams(connection, VoteNames{options(), grammar}, grammar);
    }

    std::function<std::unique_ptr<sql::GroupCommit>()> commit_maker() {
        return [database = shared_database(), layout = layout(), options = options(),
                folder = folder()] {
            return std::make_unique<sql::GroupCommit>(
                database, make_batched_writer(layout, options, folder), options.commit);
        };
    }

    void note(const Ballot& ballot, Result<Added> added, Result<Cast>& cast) const {
        if (!added) {
            cast = std::move(added).error();
        } else if (*added == Added::full) {
            cast =
                make_error(ErrorCode::capacity,
                           std::to_string(options().max_pending) +
                               " votes wait in the stream of item " + sql::to_string(ballot.item) +
                               " (max_pending): do workers run? Nothing was applied");
        } else {
            cast = waiting_cast(ballot);
        }
    }

    // Votes on their way to Redis.
    struct Call {
        Call(std::span<const Ballot> votes, Deadline until) : ballots(votes), deadline(until) {
            casts.reserve(ballots.size());
            for (std::size_t i = 0; i < ballots.size(); ++i) {
                if (ballots[i].version && !ballots[i].by_op_id) {
                    casts.emplace_back(versions_are_ours());
                } else {
                    casts.emplace_back(waiting_cast(ballots[i]));
                    open.push_back(i);
                }
            }
        }
        void fail(const Error& error) {
            for (const std::size_t i : open) casts[i] = error;
            open.clear();
        }

        const std::span<const Ballot> ballots;
        const Deadline deadline;
        std::vector<Result<Cast>> casts{};
        std::vector<std::size_t> open{};            // Without an outcome.
        std::vector<std::optional<Added>> added{};  // Of those in `open`, in this attempt.
        std::set<std::size_t> unborn{};  // Shards of all in `open` that were tried before, ...
        SteadyTime sent{};               // ... then.
        int attempts{0};
    };
    struct KeptVotes {
        std::vector<Ballot> kept;
    };
    // A call that nobody waits for.
    struct LateCall : KeptVotes, Call {
        LateCall(std::vector<Ballot> votes, Deadline until,
                 std::function<void(std::vector<Result<Cast>>)> told)
            : KeptVotes{std::move(votes)}, Call(kept, until), done(std::move(told)) {}
        std::function<void(std::vector<Result<Cast>>)> done;
    };

    // Makes the streams that were missing. Returns the streams' name; what cannot be added is told so.
    std::string prepare(Call& call) {
        auto space = waiting_->space(call.deadline);
        if (!space) {
            call.fail(not_applied(std::move(space).error()));
            return {};
        }
        for (const std::size_t shard : std::exchange(call.unborn, {})) {
            const auto opened = waiting_->open(*space, shard, call.sent, call.deadline);
            if (opened) continue;
            if (opened.error().code == ErrorCode::config) {
                // The tables may have been switched to another strategy and back.
                auto now = waiting_->streams(call.deadline);
                if (now && now->space != *space) return std::move(now->space);
            }
            std::erase_if(call.open, [&](std::size_t i) {
                const bool refused = VoteStream::shard_of(*space, call.ballots[i].item) == shard;
                if (refused) call.casts[i] = not_applied(opened.error());
                return refused;
            });
        }
        return *std::move(space);
    }

    // `call` must live until `done`.
    void add(Call& call, std::string_view space, redis::Channel& channel,
             std::function<void()> done) {
        std::vector<Ballot> some;
        if (call.open.size() != call.ballots.size()) {
            for (const std::size_t i : call.open) some.push_back(call.ballots[i]);
        }
        call.added.assign(call.open.size(), std::nullopt);
        call.sent = waiting_->now();
        waiting_->stream.add(
            space, some.empty() ? call.ballots : std::span<const Ballot>{some}, channel,
            call.deadline,
            [this, &call](std::size_t at, Result<Added> added) {
                const std::size_t i = call.open[at];
                if (added) call.added[at] = *added;
                note(call.ballots[i], std::move(added), call.casts[i]);
            },
            std::move(done));
    }

    // Leaves open what is to be added again, because there was no stream.
    static void end_attempt(Call& call, std::string_view space) {
        for (std::size_t at = 0; at < call.open.size(); ++at) {
            if (call.added[at] != Added::unborn) continue;
            call.unborn.insert(VoteStream::shard_of(space, call.ballots[call.open[at]].item));
        }
        // All of a stream's votes again, those too that were added because somebody else made it
        // meanwhile: they keep their order.
        std::erase_if(call.open, [&](std::size_t i) {
            return call.unborn.count(VoteStream::shard_of(space, call.ballots[i].item)) == 0;
        });
        if (++call.attempts < kMostAttempts) return;
        call.fail(make_error(ErrorCode::unavailable,
                             "Redis has lost the stream of the item again and again; nothing "
                             "was applied"));
    }

    // Of a stream. Of the vote it is certain that it is not.
    static Error not_applied(Error error) {
        if (error.code == ErrorCode::outcome_unknown) error.code = ErrorCode::deadline;
        return error;
    }

    void add_async(const std::shared_ptr<LateCall>& call, std::string_view space) {
        add(*call, space, waiting_->stream.client().without_waiting(),
            [self = shared_from_this(), this, call, space = std::string{space}] {
                end_attempt(*call, space);
                if (call->open.empty()) return call->done(std::move(call->casts));
                add_late(call);
            });
    }

    // In the thread for what needs SQL. It only asks SQL, and does not wait for Redis: a call each
    // round trip would be less than one loop makes, so the queue would never end again.
    void add_late(const std::shared_ptr<LateCall>& call) {
        Late& late = late_.get();
        late.calls.fetch_add(1);
        late.thread.run(
            call->deadline,
            [self = shared_from_this(), this, &late, call] {
                const std::string space = prepare(*call);
                const bool open = !call->open.empty();
                // Before the next one, and before it is counted out: votes keep their order.
                if (open) add_async(call, space);
                late.calls.fetch_sub(1);
                if (!open) call->done(std::move(call->casts));
            },
            [self = shared_from_this(), &late, call](const Error& error) {
                late.calls.fetch_sub(1);
                call->fail(error);
                call->done(std::move(call->casts));
            });
    }

    void note_deleted(std::span<const VoteRemoval::Row> votes) override {
        for (const VoteRemoval::Row& vote : votes) {
            newest_deleted_ = std::max(newest_deleted_, vote.version);
        }
    }

    // Calls remove(), which deletes votes of an item or of all, behind a fence. It may delete a vote
    // that was cast since, and an older one of the same user be still on its way in another worker's
    // page, which would be written then: so once more, behind a fence that includes them.
    Result<StreamMarks::Streams> delete_behind_fence(
        const sql::Id* item, Timeout timeout,
        const std::function<Result<void>(std::int64_t)>& remove) {
        while (true) {
            HOTCOUNT_TRY_ASSIGN(StreamDrain::Fenced fenced,
                                drain_.settle(item, database().deadline(timeout)));
            newest_deleted_ = 0;
            HOTCOUNT_TRY(remove(fenced.version));
            if (newest_deleted_ <= fenced.version) return std::move(fenced.streams);
        }
    }
    struct Late {
        Late(const std::string& name, std::size_t most) : thread(name, 1, most) {}
        std::atomic<std::size_t> calls{0};
        WaitingCalls thread;
    };

    // By this thread's call.
    inline static thread_local std::int64_t newest_deleted_{0};
    const std::shared_ptr<WaitingVotes> waiting_;
    StreamDrain drain_;
    ForkLocal<Late> late_;
};

}  // namespace

std::shared_ptr<Votes> make_write_behind_votes(std::shared_ptr<sql::Database> database,
                                               VotesOptions options,
                                               std::shared_ptr<redis::Client> client) {
    return std::make_shared<WriteBehindVotes>(std::move(database), std::move(options),
                                              std::move(client));
}

}  // namespace hotcount

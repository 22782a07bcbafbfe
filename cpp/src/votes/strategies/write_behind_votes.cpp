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
#include <numeric>
#include <set>
#include <utility>

#include "group_writer.hpp"
#include "votes/cache/stream_worker.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

using Added = VoteStream::Added;
using StreamState = VoteStream::State;

// A stream that is gone again each time that it was made: Redis loses its data.
constexpr int kMostAttempts = 3;

// Of a flush's time, for seeing what is left.
constexpr Duration kLastLook = std::chrono::milliseconds{250};

const std::vector<std::size_t>& all_shards() {
    static const std::vector<std::size_t> kAll = [] {
        std::vector<std::size_t> shards(VoteStream::kShards);
        std::iota(shards.begin(), shards.end(), 0);
        return shards;
    }();
    return kAll;
}

Cast waiting_cast(const Ballot& ballot) {
    return Cast{ballot.value != 0, false, 0, ballot.value, true};
}

Error versions_are_ours() {
    return bad_option(
        "version",
        "must be None for strategy 'write_behind', which orders votes by the ids that "
        "Redis gives them");
}

// Votes that wait and were cast no later than `fences`, which has the last version of each shard.
std::int64_t waiting_until(std::span<const StreamState> now, std::span<const StreamState> fences) {
    std::int64_t votes = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i].votes > 0 && now[i].first <= fences[i].last) votes += now[i].votes;
    }
    return votes;
}

std::int64_t all_votes(std::span<const StreamState> states) {
    std::int64_t votes = 0;
    for (const StreamState& state : states) votes += state.votes;
    return votes;
}

class WriteBehindVotes final : public SqlVotes {
  public:
    WriteBehindVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options,
                     std::shared_ptr<redis::Client> client)
        : SqlVotes(std::move(votes_database), std::move(votes_options)),
          waiting_(std::make_shared<WaitingVotes>(shared_database(), layout(), options(),
                                                  std::move(client), commit_maker())),
          drainer_(make_stream_worker(waiting_)),
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
            end_attempt(call);
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
        std::set<std::size_t> distinct;
        for (const sql::Id& item : items) distinct.insert(VoteStream::shard_of(item));
        const std::vector<std::size_t> shards{distinct.begin(), distinct.end()};
        HOTCOUNT_TRY_ASSIGN(const std::string space, waiting_->space(deadline));
        // Before the counts are read: a vote that has left its stream by then is in them.
        const auto states = waiting_->stream.states(
            space, shards, Deadline::after(Duration{deadline.remaining()} / 2));
        HOTCOUNT_TRY_ASSIGN(auto counts,
                            SqlVotes::count_many(items, deadline.remaining(), Consistency::exact));
        for (std::size_t i = 0; i < items.size(); ++i) {
            const auto shard =
                std::lower_bound(shards.begin(), shards.end(), VoteStream::shard_of(items[i]));
            counts[i].exact = false;
            counts[i].pending =
                states ? (*states)[static_cast<std::size_t>(shard - shards.begin())].votes : -1;
        }
        return counts;
    }

    Result<std::int64_t> remove_item(const sql::Id& item, bool delete_row,
                                     Timeout timeout) override {
        HOTCOUNT_TRY(write_waiting(item, database().deadline(timeout)));
        return SqlVotes::remove_item(item, delete_row, timeout);
    }
    Result<Erased> erase_user(const sql::Id& user, Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY(write_waiting(all_shards(), deadline));
        HOTCOUNT_TRY_ASSIGN(Erased erased, SqlVotes::erase_user(user, timeout));
        HOTCOUNT_TRY_ASSIGN(const std::string space, waiting_->space(database().deadline(timeout)));
        HOTCOUNT_TRY(waiting_->stream.forget_refused(space, user, database().deadline(timeout)));
        return erased;
    }
    Result<std::int64_t> prune(std::int64_t before, Timeout timeout) override {
        HOTCOUNT_TRY(write_waiting(all_shards(), database().deadline(timeout)));
        return SqlVotes::prune(before, timeout);
    }

    Result<FlushReport> flush(Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const Drained drained, drain(all_shards(), deadline));
        if (drained.left > 0) {
            return FlushReport{drained.before - drained.left, drained.left, drained.at_risk};
        }
        HOTCOUNT_TRY(SqlVotes::flush(deadline.remaining()));
        HOTCOUNT_TRY_ASSIGN(const std::string space, waiting_->space(deadline));
        HOTCOUNT_TRY_ASSIGN(const auto states,
                            waiting_->stream.states(space, all_shards(), deadline));
        const std::int64_t at_risk = all_votes(states);
        // Then another strategy may take the tables over. The next vote makes its stream again.
        if (at_risk == 0) {
            HOTCOUNT_TRY(waiting_->marks.close(deadline, [&]() -> Result<bool> {
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
                "eviction. A replica that is promoted and whose clock is behind may also let a "
                "vote "
                "lose against the same user's older one. Never one because a voter or a worker "
                "ends. "
                "A vote that SQL refuses, say for an item that is not there, is set aside after it "
                "was acknowledged: stats() counts those. count() and get() know what is in SQL; "
                "Count.pending says how many votes wait in the item's stream; " +
                (folder() != nullptr ? lag_of_item_count(options())
                                     : std::string{"the item's count is written with them"}),
            false, false};
    }

  private:
    Result<Cast> write_toggled(const Ballot& ballot, Deadline deadline) override {
        HOTCOUNT_TRY(write_waiting(ballot.item, deadline));
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
        const VoteNames names{options(), layout()->vote_dialect().grammar()};
        const sql::Statement forget{
            "DELETE FROM " + names.meta +
            " WHERE name IN ('stream_id', 'stream_floor', 'stream_life', 'stream_open')"};
        auto forgotten = connection.execute(forget);
        return forgotten ? Result<void>{} : std::move(forgotten).error();
    }

    std::function<std::unique_ptr<sql::GroupCommit>()> commit_maker() {
        VotesOptions as_batched = options();
        as_batched.strategy = VoteStrategy::batched;
        return [database = shared_database(), layout = layout(), as_batched, folder = folder()] {
            return std::make_unique<sql::GroupCommit>(
                database, make_batched_writer(layout, as_batched, folder), as_batched.commit);
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
            std::erase_if(call.open, [&](std::size_t i) {
                const bool refused = VoteStream::shard_of(call.ballots[i].item) == shard;
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
    static void end_attempt(Call& call) {
        for (std::size_t at = 0; at < call.open.size(); ++at) {
            if (call.added[at] != Added::unborn) continue;
            call.unborn.insert(VoteStream::shard_of(call.ballots[call.open[at]].item));
        }
        // All of a stream's votes again, those too that were added because somebody else made it
        // meanwhile: they keep their order.
        std::erase_if(call.open, [&](std::size_t i) {
            return call.unborn.count(VoteStream::shard_of(call.ballots[i].item)) == 0;
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
            [self = shared_from_this(), this, call] {
                end_attempt(*call);
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

    struct Drained {
        std::int64_t before{0};   // Votes that waited when it began.
        std::int64_t left{0};     // Of them, at the deadline.
        std::int64_t at_risk{0};  // All that waited at the last look.
    };
    // Writes what was cast before, or waits for workers that have taken it. What other streams have
    // keeps nobody waiting.
    Result<Drained> drain(std::span<const std::size_t> shards, Deadline deadline) {
        HOTCOUNT_TRY_ASSIGN(const std::string space, waiting_->space(deadline));
        HOTCOUNT_TRY_ASSIGN(const auto begun, waiting_->stream.states(space, shards, deadline));
        Drained drained{all_votes(begun), all_votes(begun), all_votes(begun)};
        // Rounds end before it: there is time for a last look.
        const Duration left = deadline.remaining();
        const Deadline rounds = Deadline::after(left - std::min<Duration>(left / 4, kLastLook));
        while (drained.left > 0 && !rounds.passed()) {
            const auto round = drainer_->run_once(rounds.remaining());
            auto now = waiting_->stream.states(space, shards, deadline);
            // No answer in time: what the look before saw is what is known.
            if (!now && now.error().code == ErrorCode::deadline) break;
            if (!now) return std::move(now).error();
            drained.left = std::min(waiting_until(*now, begun), drained.before);
            drained.at_risk = all_votes(*now);
            // The time of a round is up a little before `rounds`: the next one does the rest.
            const bool failed = !round && round.error().code != ErrorCode::deadline &&
                                round.error().code != ErrorCode::outcome_unknown;
            if (failed && drained.left > 0 && !rounds.passed()) return round.error();
            if (drained.left > 0) sleep_or_interrupt(std::chrono::milliseconds{2});
        }
        return drained;
    }
    Result<void> write_waiting(const sql::Id& item, Deadline deadline) {
        const std::array shard{VoteStream::shard_of(item)};
        return write_waiting(shard, deadline);
    }
    Result<void> write_waiting(std::span<const std::size_t> shards, Deadline deadline) {
        HOTCOUNT_TRY_ASSIGN(const Drained drained, drain(shards, deadline));
        if (drained.left == 0) return {};
        return make_error(
            ErrorCode::deadline,
            std::to_string(drained.left) +
                " votes that were cast before are still on their way to SQL: a worker "
                "has them (one that was killed leaves them to others after 30 s); nothing "
                "was applied");
    }

    struct Late {
        Late(const std::string& name, std::size_t most) : thread(name, 1, most) {}
        std::atomic<std::size_t> calls{0};
        WaitingCalls thread;
    };

    const std::shared_ptr<WaitingVotes> waiting_;
    const std::shared_ptr<SyncWorker> drainer_;
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

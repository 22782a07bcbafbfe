#include "stream_worker.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "count_cache.hpp"
#include "rounds.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {
namespace {

// A page is written within this time, or not at all. Much less than VoteStream::kTakeOver, after
// which another worker writes it: a worker that was stopped for that time must not restore deleted
// votes.
constexpr Duration kPageTime = std::chrono::seconds{10};
// How long a thread stays with a stream while other streams wait. A stream that receives votes faster
// than the worker writes them would occupy the thread for the whole round.
constexpr Duration kVisit = std::chrono::milliseconds{500};
// How often the fence may be raised in a round.
constexpr int kMostFences = 10;
// The time of a round, and at the end of run(), that is reserved for giving unwritten votes back.
constexpr Duration kGiveBackTime = std::chrono::milliseconds{250};
// How often a worker deletes streams of former names, which an old copy of Redis's data may have
// brought back.
constexpr Duration kCleanEvery = std::chrono::minutes{1};
// While SQL is away, how soon it is asked again for the streams' name.
constexpr Duration kAskAgain = std::chrono::seconds{1};

using WaitingVote = VoteStream::Entry;
using TakenFrom = VoteStream::Source;

class StreamWorker final : public StreamVisitor {
  public:
    explicit StreamWorker(std::shared_ptr<WaitingVotes> waiting) : waiting_(std::move(waiting)) {}

    Result<SyncRound> run_once(Timeout timeout) override {
        // A caller with a deadline waits for a node that is away; other rounds do not.
        return round_of(next_shards(), false, timeout, timeout ? Duration::max() : kNodePatience);
    }

    Result<SyncRound> visit(std::span<const std::size_t> shards, Timeout timeout) override {
        return round_of(shards, true, timeout, Duration::max());
    }

    Result<void> run(const std::function<bool(Duration)>& stop) override {
        // A round that a paused server delays must not delay the call that stops the worker.
        const auto round = [this](const StopRounds&) {
            return round_of(next_shards(), false, kPageTime, kNodePatience);
        };
        auto ended = run_rounds(round, waiting_->options.interval, stop);
        // Redis may have been away when the last round tried to.
        const std::unique_lock one_at_a_time(round_mutex_, kGiveBackTime);
        if (one_at_a_time) give_back(Deadline::after(kGiveBackTime));
        return ended;
    }

    Stats stats() const override {
        const std::lock_guard lock(mutex_);
        return stats_;
    }

  private:
    std::array<std::size_t, VoteStream::kShards> next_shards() {
        std::array<std::size_t, VoteStream::kShards> shards{};
        std::iota(shards.begin(), shards.end(), first_shard_++);
        for (std::size_t& shard : shards) shard %= VoteStream::kShards;
        return shards;
    }

    // once: no stream is visited again, even if it has more votes. patience: how long a call waits for
    // a node of a cluster, while the nodes of other streams may answer.
    Result<SyncRound> round_of(std::span<const std::size_t> shards, bool once, Timeout timeout,
                               Duration patience) {
        const Deadline deadline = Deadline::after(timeout.value_or(kRoundTimeout));
        const std::unique_lock one_at_a_time(round_mutex_, deadline.time());
        if (!one_at_a_time) {
            return make_error(ErrorCode::deadline,
                              "another round was under way; nothing was applied");
        }
        const Duration left = deadline.remaining();
        const Deadline rounds = Deadline::after(left - std::min<Duration>(left / 4, kGiveBackTime));
        auto round = whole_round(shards, once, patience, rounds);
        give_back(Deadline::after(std::min(Duration{deadline.remaining()}, kGiveBackTime)));
        const std::lock_guard lock(mutex_);
        if (!round) {
            stats_.fail(round.error());
            return round;
        }
        ++stats_.rounds;
        add_round(stats_.total, *round);
        return round;
    }

    // A vote that the database refuses with an error that might be about all votes.
    struct Suspect {
        std::size_t shard;
        WaitingVote entry;
        Error error;
    };
    // A stream that a thread of a round is to look at.
    struct Visit {
        std::size_t shard;
        std::string after{"0"};  // Votes up to this id are not taken again in this round.
        bool all_written{true};
    };
    // The state that the threads of a round share.
    struct Round {
        // With the fence as it was when the round began.
        const StreamMarks::Streams streams;
        const Deadline deadline;
        const bool once;
        const Duration patience;
        // The fence was raised, or a stream was made: the remaining votes are for the next round.
        std::atomic<bool> outdated{false};
        std::mutex mutex{};  // Guards all members below.
        std::deque<Visit> to_visit{};
        SyncRound done{};
        std::vector<Suspect> suspects{};
        std::optional<Error> failed{};
        std::set<std::size_t> silent{};  // Shards whose nodes did not answer.

        Deadline answer_by() const {
            return Deadline::after(std::min(Duration{deadline.remaining()}, patience));
        }
    };

    // Repeats the round with the present fence, if the fence was raised meanwhile.
    Result<SyncRound> whole_round(std::span<const std::size_t> shards, bool once, Duration patience,
                                  Deadline deadline) {
        SyncRound done{};
        bool outdated = true;
        for (int fences = 0; fences < kMostFences && outdated; ++fences) {
            if (fences > 0 && deadline.passed()) break;
            HOTCOUNT_TRY_ASSIGN(const SyncRound part,
                                round_of_one_fence(shards, once, patience, deadline, outdated));
            add_round(done, part);
        }
        return done;
    }

    Result<SyncRound> round_of_one_fence(std::span<const std::size_t> to_visit, bool once,
                                         Duration patience, Deadline deadline, bool& outdated) {
        // Before any page is taken: see StreamMarks::reserve().
        HOTCOUNT_TRY_ASSIGN(auto streams, waiting_->streams(deadline));
        if (!waiting_->stream.in_cluster()) patience = Duration::max();
        Round round{std::move(streams), deadline, once, patience};
        for (const std::size_t shard : to_visit) round.to_visit.push_back(Visit{shard});
        HelperThreads helpers;
        // This thread drains no shard meanwhile: an interruption of its wait ends all helpers.
        std::size_t started = 0;
        while (started < waiting_->options.workers && helpers.start([&] { drain_shards(round); })) {
            ++started;
        }
        if (started == 0) drain_shards(round);
        helpers.join();
        outdated = round.outdated;
        HOTCOUNT_TRY_ASSIGN(auto states, states_of(round));
        // Before any error of a vote ends the round: a refused vote must not keep the ids below the
        // fence.
        HOTCOUNT_TRY(mend_old_copy(round, states));
        HOTCOUNT_TRY(settle_suspects(round));
        if (round.failed) return *round.failed;
        if (!round.suspects.empty()) {
            HOTCOUNT_TRY_ASSIGN(states, states_of(round));
        }
        for (const auto& state : states) round.done.at_risk += state.votes;
        round.done.unsettled = round.done.at_risk;
        return round.done;
    }

    // By shard; a silent one's is empty.
    Result<std::vector<VoteStream::State>> states_of(const Round& round) {
        std::vector<std::size_t> heard;
        for (const std::size_t shard : all_shards()) {
            if (!round.silent.contains(shard)) heard.push_back(shard);
        }
        HOTCOUNT_TRY_ASSIGN(const auto found,
                            waiting_->stream.states(round.streams.space, heard, round.answer_by()));
        std::vector<VoteStream::State> states(VoteStream::kShards);
        for (std::size_t i = 0; i < heard.size(); ++i) states[heard[i]] = found[i];
        return states;
    }

    // Redis may have an older copy of its data than the one that the fence was raised over.
    Result<void> mend_old_copy(const Round& round, std::span<const VoteStream::State> states) {
        const StreamMarks::Streams& streams = round.streams;
        const Deadline deadline = round.deadline;
        bool there = false;
        bool is_old = false;
        for (std::size_t shard = 0; shard < states.size(); ++shard) {
            const std::int64_t fence = streams.fence->versions[shard];
            there = there || states[shard].last > 0;
            if (states[shard].last == 0 || states[shard].last >= fence) continue;
            is_old = true;
            HOTCOUNT_TRY(waiting_->stream.raise(streams.space, shard,
                                                std::max(fence, streams.floor), deadline));
        }
        // Not only then: ids do not show an old copy once votes have come to it.
        if (round.silent.empty() && (is_old || waiting_->now() >= cleaned_ + kCleanEvery)) {
            HOTCOUNT_TRY(
                waiting_->stream.drop_refused(streams.space, streams.fence->versions, deadline));
            for (const std::string& name : streams.former_names) {
                HOTCOUNT_TRY(waiting_->stream.drop(name, deadline));
            }
            cleaned_ = waiting_->now();
        }
        // A stream that came back accepts votes, so the tables must not be taken over.
        if (!there || streams.open) return {};
        return waiting_->marks.open(streams.space, deadline,
                                    [](std::int64_t, std::int64_t) { return Result<void>{}; });
    }

    // Gives back the votes that a round has taken and not written: this worker may be at its end.
    // That includes a page whose reply did not come. Under round_mutex_.
    void give_back(Deadline deadline) {
        // A write of them may still be under way: other workers wait for kTakeOver.
        if (waiting_->now() < unsure_until_.load()) return;
        for (std::size_t shard = 0; shard < VoteStream::kShards; ++shard) {
            Left& left = left_[shard];
            if (!left.some || deadline.passed()) continue;
            left.some = !waiting_->stream.give_back(left.space, shard, consumer_, deadline).ok();
        }
    }

    // A thread has a shard for itself: votes of this worker that it finds are of an earlier round.
    void drain_shards(Round& round) {
        std::unique_lock lock(round.mutex);
        while (!round.to_visit.empty() && !round.outdated && !round.deadline.passed()) {
            Visit visit = std::move(round.to_visit.front());
            round.to_visit.pop_front();
            lock.unlock();
            // Until the reply of a take is known, the page may be this worker's.
            left_[visit.shard] = Left{round.streams.space, true};
            auto all_seen = drain(round, visit);
            if (all_seen) left_[visit.shard].some = !*all_seen || !visit.all_written;
            lock.lock();
            if (all_seen && !*all_seen && !round.once) {
                round.to_visit.push_back(std::move(visit));
            } else if (!all_seen && !round.failed) {
                round.failed = all_seen.error();
            }
        }
    }

    // Whether the stream has no more votes for this round. Ends earlier if other streams wait.
    Result<bool> drain(Round& round, Visit& visit) {
        const std::size_t shard = visit.shard;
        const Deadline visit_end = Deadline::after(kVisit);
        bool all_seen = false;
        while (!all_seen && !round.outdated && !round.deadline.passed()) {
            const SteadyTime seen = waiting_->now();
            // Measured before the page is taken: the reply may come long after another worker took
            // the page over.
            const Deadline written_by =
                Deadline::after(std::min<Duration>(kPageTime, round.deadline.remaining()));
            auto taken = waiting_->stream.take(round.streams.space, shard, consumer_, visit.after,
                                               round.answer_by());
            if (!taken && taken.error().server_code == "NOGROUP") {
                HOTCOUNT_TRY(waiting_->open(round.streams.space, shard, seen, round.deadline));
                continue;
            }
            if (!taken) {
                const std::lock_guard lock(round.mutex);
                if (waiting_->stream.in_cluster()) round.silent.insert(shard);
                return std::move(taken).error();
            }
            if (taken->entries.empty()) return true;
            if (taken->source != TakenFrom::fresh) visit.after = taken->entries.back().id;
            HOTCOUNT_TRY_ASSIGN(const bool written,
                                write(round, shard, taken->entries, written_by));
            visit.all_written = visit.all_written && written;
            const bool full =
                taken->entries.size() >= std::min(waiting_->options.page, VoteStream::kMostTaken);
            all_seen = taken->source == TakenFrom::fresh && !full;
            if (visit_end.passed() && (round.once || others_wait(round))) break;
        }
        return all_seen;
    }
    static bool others_wait(Round& round) {
        const std::lock_guard lock(round.mutex);
        return !round.to_visit.empty();
    }

    // Whether all of them are out of the stream.
    Result<bool> write(Round& round, std::size_t shard, std::span<const WaitingVote> entries,
                       Deadline deadline) {
        // Only the last vote of a user for an item is written, and the earlier ones are settled with it.
        // Votes for one row cannot share a transaction, and one user may send hundreds a second.
        using VotesOfRow = std::vector<const WaitingVote*>;
        std::vector<VotesOfRow> rows;
        std::map<std::pair<sql::Id, sql::Id>, std::size_t> row_of;
        std::vector<std::string> settled;
        std::vector<VoteStream::Refused> refused;
        SyncRound part{};
        part.scanned = static_cast<std::int64_t>(entries.size());
        const std::shared_ptr<const StreamMarks::Fence>& fence = round.streams.fence;
        std::int64_t newest = 0;
        for (const WaitingVote& entry : entries) {
            if (entry.version <= fence->versions[shard] || !entry.ballot) {
                settled.push_back(entry.id);
                if (entry.version > fence->versions[shard] && !entry.gone) {
                    refused.push_back({&entry, "no vote for these tables"});
                }
                continue;
            }
            newest = std::max(newest, entry.version);
            std::size_t at = rows.size();
            if (!entry.ballot->by_op_id) {
                at = row_of.try_emplace({entry.ballot->item, entry.ballot->user}, at).first->second;
            }
            if (at == rows.size()) rows.emplace_back();
            rows[at].push_back(&entry);
        }
        std::vector<Suspect> suspects;
        std::optional<Error> failed;
        if (!rows.empty()) {
            HOTCOUNT_TRY(waiting_->stream.move_on(round.streams.space, shard, newest, deadline));
            HOTCOUNT_TRY_ASSIGN(const bool reserved,
                                waiting_->marks.reserve(round.streams, newest, deadline));
            if (!reserved) round.outdated = true;
            // A group commit writes the votes that it is given, however late.
            if (!reserved || deadline.passed()) return false;
        }
        // Again for the rows whose last vote was refused: an earlier one may be accepted. Versions keep
        // their order if the last one is written after all.
        while (!rows.empty() && !deadline.passed()) {
            std::vector<std::shared_ptr<sql::QueuedWrite>> writes;
            writes.reserve(rows.size());
            for (const VotesOfRow& votes : rows) {
                auto vote = std::make_shared<QueuedVote>(*votes.back()->ballot);
                vote->fence = {fence, &fence->text};
                writes.push_back(std::move(vote));
            }
            const auto results = waiting_->commit.get().submit_all(writes, deadline);
            std::vector<VotesOfRow> left;
            for (std::size_t i = 0; i < results.size(); ++i) {
                VotesOfRow& votes = rows[i];
                if (results[i]) {
                    for (const WaitingVote* vote : votes) settled.push_back(vote->id);
                    part.saved += static_cast<std::int64_t>(votes.size());
                    continue;
                }
                const Error& error = results[i].error();
                if (static_cast<const QueuedVote&>(*writes[i]).outside_fence) {
                    round.outdated = true;
                } else if (is_for_good(error)) {
                    // Without the item or the user, the earlier votes are refused too.
                    const bool all = error.facts && !error.facts->missing.empty();
                    do {
                        settled.push_back(votes.back()->id);
                        refused.push_back({votes.back(), error.message});
                        votes.pop_back();
                    } while (all && !votes.empty());
                    if (!votes.empty()) left.push_back(std::move(votes));
                } else if (sql::may_be_one_writes_fault(error)) {
                    suspects.push_back({shard, *votes.back(), error});
                    votes.pop_back();
                    if (!votes.empty()) left.push_back(std::move(votes));
                } else {
                    failed = error;
                }
                if (error.code == ErrorCode::outcome_unknown) {
                    unsure_until_ = waiting_->now() + VoteStream::kTakeOver;
                }
            }
            rows = std::move(left);
        }
        // Only now: if the process dies before, votes are written twice, which changes nothing.
        HOTCOUNT_TRY(waiting_->stream.settle(round.streams.space, shard, settled, refused,
                                             round.answer_by()));
        part.refused = static_cast<std::int64_t>(refused.size());
        const std::lock_guard lock(round.mutex);
        add(round.done, part);
        for (Suspect& suspect : suspects) round.suspects.push_back(std::move(suspect));
        if (failed) return *std::move(failed);
        return settled.size() == entries.size();
    }

    // Whether the error is this vote's in any state of the database: its item is missing, or its
    // count full.
    static bool is_for_good(const Error& error) {
        return error.code == ErrorCode::integrity || error.code == ErrorCode::overflow ||
               error.condition == SqlCondition::narrow_column;
    }

    // Suspects are set aside if the database accepts other votes. If not, they wait.
    Result<void> settle_suspects(Round& round) {
        for (const Suspect& suspect : round.suspects) {
            if (round.done.saved == 0) return suspect.error;
            const std::array refused{VoteStream::Refused{&suspect.entry, suspect.error.message}};
            HOTCOUNT_TRY(waiting_->stream.settle(round.streams.space, suspect.shard,
                                                 std::span{&suspect.entry.id, 1}, refused,
                                                 round.deadline));
            ++round.done.refused;
        }
        return {};
    }

    const std::shared_ptr<WaitingVotes> waiting_;
    const std::string consumer_{random_name()};
    std::timed_mutex round_mutex_;
    // The votes that this worker may hold of each stream, by shard. A round's threads have a shard
    // each.
    struct Left {
        std::string space{};
        bool some{false};
    };
    std::array<Left, VoteStream::kShards> left_{};
    std::atomic<std::size_t> first_shard_{0};  // The next round begins there.
    SteadyTime cleaned_{};                     // Under round_mutex_.
    std::atomic<SteadyTime> unsure_until_{SteadyTime{}};
    mutable std::mutex mutex_;
    Stats stats_{};
};

}  // namespace

Result<StreamMarks::Streams> WaitingVotes::streams(Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(StreamMarks::Streams streams, marks.streams(deadline));
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    if (known.space != streams.space) known.terms.fill(0);  // Their slots are others.
    known.space = streams.space;
    known.read = options.clock->steady_now();
    known.until = known.read + options.max_age;
    return streams;
}

Result<std::string> WaitingVotes::recent_space(Deadline deadline) {
    {
        Known& known = known_.get();
        const std::lock_guard lock(known.mutex);
        const SteadyTime now = options.clock->steady_now();
        if (!known.space.empty() && now < known.read + kAskAgain) return known.space;
    }
    HOTCOUNT_TRY_ASSIGN(StreamMarks::Streams now, streams(deadline));
    return std::move(now.space);
}

Result<std::string> WaitingVotes::space(Deadline deadline) {
    if (std::string known = known_space(); !known.empty()) return known;
    Known& known = known_.get();
    std::string before;
    {
        // One caller asks again, and the others use the old name meanwhile.
        const std::lock_guard lock(known.mutex);
        before = known.space;
        known.until = options.clock->steady_now() + kAskAgain;
    }
    const Duration left = deadline.remaining();
    auto found = streams(before.empty() ? deadline : Deadline::after(left / 2));
    if (found) return std::move(found->space);
    const std::lock_guard lock(known.mutex);
    // In a database that is away, tables cannot be created again, and votes need only Redis.
    if (!before.empty() && is_away(found.error().code)) return before;
    known.space.clear();
    return std::move(found).error();
}

std::string WaitingVotes::known_space() {
    const SteadyTime now = options.clock->steady_now();
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    return now < known.until ? known.space : std::string{};
}

VoteStream::Terms WaitingVotes::settled_terms() {
    Known& known = known_.get();
    const std::lock_guard lock(known.mutex);
    return known.terms;
}

Result<void> WaitingVotes::open(std::string_view space, std::size_t shard, SteadyTime seen,
                                Deadline deadline) {
    Known& known = known_.get();
    std::unique_lock lock(known.mutex);
    known.missing.insert(shard);
    const auto there = [&] {
        return known.opened[shard] > seen && known.terms[shard] == stream.term(space, shard);
    };
    const bool waited =
        wait_or_interrupt(known.changed, lock, deadline, [&] { return !known.opening || there(); });
    // A caller that still needs it asks again below.
    known.missing.erase(shard);
    if (there()) return {};
    if (!waited) {
        return make_error(ErrorCode::deadline,
                          "another call was making the item's stream until the deadline; nothing "
                          "was applied");
    }
    // Each time costs two commits, which all calls of a process wait for when it begins.
    std::set<std::size_t> shards = std::exchange(known.missing, {});
    shards.insert(shard);
    known.opening = true;
    lock.unlock();
    // A stream of a new primary may be there and behind the floor. Workers that have a page of the
    // former primary do not raise the floor any more: its `life` is over.
    VoteStream::Terms terms{};
    const auto open_all = [&](std::int64_t floor, std::int64_t life) -> Result<void> {
        for (const std::size_t each : shards) {
            HOTCOUNT_TRY(stream.open(space, each, floor, life, deadline));
            terms[each] = stream.term(space, each);
            if (terms[each] != 0) HOTCOUNT_TRY(stream.raise(space, each, floor, deadline));
        }
        return {};
    };
    auto opened = marks.open(space, deadline, open_all);
    lock.lock();
    known.opening = false;
    if (opened) {
        for (const std::size_t each : shards) {
            known.opened[each] = now();
            if (known.space == space) known.terms[each] = terms[each];
        }
    } else {
        // Perhaps the tables were created again.
        known.space.clear();
    }
    known.changed.notify_all();
    return opened;
}

std::unique_ptr<StreamVisitor> make_stream_visitor(std::shared_ptr<WaitingVotes> waiting) {
    return std::make_unique<StreamWorker>(std::move(waiting));
}

std::shared_ptr<SyncWorker> make_stream_worker(std::shared_ptr<WaitingVotes> waiting) {
    return std::make_shared<WorkerOfProcess<StreamWorker>>(std::move(waiting));
}

}  // namespace hotcount

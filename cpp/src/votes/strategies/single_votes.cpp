// naive and slotted: one transaction per vote.
#include <functional>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/portions.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <hotcount/slotted_counter.hpp>
#include <limits>

#include "sql_votes.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

class SingleVotes final : public SqlVotes {
  public:
    SingleVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options,
                std::shared_ptr<Replica> replica)
        : SqlVotes(std::move(votes_database), std::move(votes_options), {}, std::move(replica)),
          threads_([this] {
              return std::make_unique<VoterThreads>(database().name(), options().commit.workers);
          }) {}

    Result<Cast> write(const Ballot& ballot, Timeout timeout) override {
        return cast_within(ballot, database().deadline(timeout));
    }

    std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                         Timeout timeout) override {
        const Deadline until = time_to_send(database().deadline(timeout), ballots.size());
        std::vector<Result<Cast>> casts;
        casts.reserve(ballots.size());
        // A transaction that waits for no lock would be written however late.
        while (casts.size() < ballots.size() && !until.passed()) {
            casts.push_back(cast_within(ballots[casts.size()], until));
        }
        if (casts.size() < ballots.size()) casts.resize(ballots.size(), Result<Cast>{late()});
        return casts;
    }

    void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) override {
        VoterThreads& threads = threads_.get();
        if (auto room = check_room(threads); !room) return done(std::move(room).error());
        begin(threads, ballot, database().deadline(timeout), done);
    }

    void write_many_async(std::span<const Ballot> ballots,
                          std::function<void(std::vector<Result<Cast>>)> done,
                          Timeout timeout) override {
        const auto call = std::make_shared<LateCall>(
            ballots, time_to_send(database().deadline(timeout), ballots.size()), std::move(done));
        VoterThreads& threads = threads_.get();
        call->places.resize(threads.each.size());
        for (std::size_t i = 0; i < ballots.size(); ++i) {
            call->places[threads.place_of(ballots[i])].push_back(i);
        }
        call->open = threads.each.size();
        for (std::size_t place = 0; place < threads.each.size(); ++place) {
            go_on(threads, call, place, 0);
        }
    }

    Contract contract() const override {
        const bool slotted = options().strategy == VoteStrategy::slotted;
        return with_replica(
            Contract{std::string{to_string(options().strategy)},
                     slotted ? "the vote and its slot's count are committed in SQL"
                             : "the vote and the item's count are committed in SQL",
                     !slotted              ? "nothing acknowledged"
                     : folder() != nullptr ? "nothing acknowledged; " + lag_of_item_count(options())
                     : layout()->counts_in_items
                         ? "nothing acknowledged; a plain reader of item.vote_count sees it after "
                           "flush()"
                         : "nothing acknowledged",
                     true, true});
    }

  private:
    // Threads for calls that do not wait. A user's votes for an item go to one of them, so that they
    // keep their order.
    struct VoterThreads {
        VoterThreads(const std::string& name, std::size_t count) {
            // check_room() bounds what waits: a call that begins is taken with all of its votes.
            constexpr auto kUnbounded = std::numeric_limits<std::size_t>::max();
            for (std::size_t i = 0; i < count; ++i) {
                each.push_back(std::make_unique<WaitingCalls>(name, 1, kUnbounded));
            }
        }
        std::size_t place_of(const Ballot& ballot) const {
            const std::hash<sql::Id> hash;
            return (hash(ballot.item) * 31 + hash(ballot.user)) % each.size();
        }
        std::atomic<std::size_t> waiting{0};  // For any of them.
        std::vector<std::unique_ptr<WaitingCalls>> each{};
    };

    // A call of many votes for which no thread waits.
    struct LateCall {
        LateCall(std::span<const Ballot> votes, Deadline to_send,
                 std::function<void(std::vector<Result<Cast>>)> told)
            : ballots(votes.begin(), votes.end()),
              until(to_send),
              done(std::move(told)),
              casts(votes.size(), Cast{}) {}
        const std::vector<Ballot> ballots;
        const Deadline until;
        const std::function<void(std::vector<Result<Cast>>)> done;
        std::vector<Result<Cast>> casts;
        std::vector<std::vector<std::size_t>> places{};  // The places of each thread's votes.
        std::atomic<std::size_t> open{0};                // Threads that have votes left.
    };

    // Writes one vote of the call in this thread, and queues the next one behind other calls.
    void go_on(VoterThreads& threads, const std::shared_ptr<LateCall>& call, std::size_t thread,
               std::size_t begun) {
        const auto end = [call, thread](std::size_t from, const Result<Cast>& why) {
            const auto& places = call->places[thread];
            for (std::size_t i = from; i < places.size(); ++i) call->casts[places[i]] = why;
            if (call->open.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
            call->done(std::move(call->casts));
        };
        if (begun == call->places[thread].size()) return end(begun, Cast{});
        threads.each[thread]->run(
            call->until,
            [this, self = shared_from_this(), &threads, call, thread, begun, end] {
                if (call->until.passed()) return end(begun, late());
                const std::size_t place = call->places[thread][begun];
                call->casts[place] = cast_within(call->ballots[place], call->until);
                go_on(threads, call, thread, begun + 1);
            },
            [self = shared_from_this(), begun, end](Error error) { end(begun, std::move(error)); });
    }

    Error late() const {
        return make_error(
            ErrorCode::deadline,
            database().name() + ": the deadline passed before it was written; nothing was applied");
    }

    Result<void> check_room(const VoterThreads& threads) const {
        if (threads.waiting.load(std::memory_order_relaxed) < options().commit.max_queue) return {};
        return make_error(ErrorCode::capacity,
                          database().name() + ": " + std::to_string(options().commit.max_queue) +
                              " votes are waiting (max_queue); nothing was applied");
    }

    void begin(VoterThreads& threads, const Ballot& ballot, Deadline deadline,
               const Completion<Cast>& done) {
        threads.waiting.fetch_add(1, std::memory_order_relaxed);
        threads.each[threads.place_of(ballot)]->run(
            deadline,
            [this, self = shared_from_this(), &threads, ballot, deadline, done] {
                threads.waiting.fetch_sub(1, std::memory_order_relaxed);
                done(cast_within(ballot, deadline));
            },
            [self = shared_from_this(), &threads, done](Error error) {
                threads.waiting.fetch_sub(1, std::memory_order_relaxed);
                done(std::move(error));
            });
    }

    Result<Cast> cast_within(const Ballot& ballot, Deadline deadline) {
        auto cast = write_within(ballot, deadline);
        while (!cast && !sql::lost_session(cast.error()).empty()) {
            auto found = find_applied(ballot, cast.error(), deadline);
            if (!found) break;
            cast = *found ? Result<Cast>{**found} : write_within(ballot, deadline);
        }
        const bool may_count =
            cast ? cast->changed : cast.error().code == ErrorCode::outcome_unknown;
        if (may_count) note_cell(ballot.item);
        return cast;
    }

    // After a lost COMMIT: the vote as it was applied, or nullopt if it was not. An error: unknown.
    Result<std::optional<Cast>> find_applied(const Ballot& ballot, const Error& error,
                                             Deadline deadline) {
        using Found = sql::BatchWriter::Found;
        const auto vote = std::make_shared<QueuedVote>(ballot);
        const std::shared_ptr<sql::QueuedWrite> write = vote;
        HOTCOUNT_TRY_ASSIGN(
            const std::vector<Found> found,
            sql::read_after_loss(database(), deadline, sql::lost_session(error),
                                 [&](sql::Connection& connection) {
                                     return writer().find_applied(connection, std::span{&write, 1});
                                 }));
        if (found.front() == Found::unknown) return error;
        if (found.front() == Found::nothing_applied) return std::optional<Cast>{};
        return std::optional{vote->cast};
    }

    Result<Cast> write_within(const Ballot& ballot, Deadline deadline) {
        if (options().strategy == VoteStrategy::slotted) {
            HOTCOUNT_TRY_ASSIGN(const std::optional<Cast> cast,
                                writer().cast(database(), ballot, slot(), deadline));
            if (cast) return *cast;
        }
        return sql::transact(
            database(), deadline, [&](sql::Connection& connection) -> Result<Cast> {
                HOTCOUNT_TRY(
                    ensure_item(connection, *layout(), options().missing_item, ballot.item));
                HOTCOUNT_TRY_ASSIGN(const Cast cast, writer().set(connection, ballot));
                if (place() == CountPlace::cells) {
                    HOTCOUNT_TRY(require_item(connection, *layout(), ballot.item));
                }
                if (!cast.changed) return cast;
                HOTCOUNT_TRY_ASSIGN(const CountedByTriggers triggers,
                                    layout()->counted_by_triggers(connection));
                if (!triggers.has(ballot)) {
                    HOTCOUNT_TRY(count_vote(connection, ballot.item, cast));
                } else if (place() == CountPlace::item) {
                    HOTCOUNT_TRY(require_item(connection, *layout(), ballot.item));
                }
                return cast;
            });
    }

    std::int64_t slot() const { return choose_slot(SlotChoice::sticky, options().slots); }

    Result<void> count_vote(sql::Connection& connection, const sql::Id& item, const Cast& cast) {
        const auto difference = checked_subtract(cast.value, cast.previous);
        if (!difference) return count_overflow(item);
        if (options().strategy == VoteStrategy::slotted) {
            return bump_cell(connection, *layout(), item, slot(), *difference);
        }
        return bump_item(connection, *layout(), item, *difference);
    }

    ForkLocal<VoterThreads> threads_;
};

}  // namespace

std::shared_ptr<Votes> make_single_votes(std::shared_ptr<sql::Database> database,
                                         VotesOptions options, std::shared_ptr<Replica> replica) {
    return std::make_shared<SingleVotes>(std::move(database), std::move(options),
                                         std::move(replica));
}

}  // namespace hotcount

// naive and slotted: one transaction per vote.
#include <functional>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/counter/slot.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "dialects/mysql/vote_rows.hpp"
#include "dialects/postgres/single_vote.hpp"
#include "sql_votes.hpp"
#include "votes/tables/vote_rows.hpp"

namespace hotcount {
namespace {

class SingleVotes final : public SqlVotes {
  public:
    SingleVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options)
        : SqlVotes(std::move(votes_database), std::move(votes_options)),
          rows_(make_vote_rows(layout(), options())),
          one_(options().strategy == VoteStrategy::slotted &&
                       layout()->dialect() == sql::Dialect::mysql
                   ? std::make_unique<const MysqlOneVote>(options())
                   : nullptr),
          lanes_(
              [threads = options().commit.workers] { return std::make_unique<Lanes>(threads); }) {
        if (options().strategy == VoteStrategy::slotted &&
            database().dialect() == sql::Dialect::postgres) {
            const VoteNames names{options(), sql::Grammar{sql::Dialect::postgres}};
            in_one_statement_ = std::make_unique<PostgresSlottedVotes>(names, options());
        }
    }

    Result<Cast> write(const Ballot& ballot, Timeout timeout) override {
        return cast_within(ballot, database().deadline(timeout));
    }

    std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                         Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        std::vector<Result<Cast>> casts;
        casts.reserve(ballots.size());
        for (const Ballot& ballot : ballots) casts.push_back(cast_within(ballot, deadline));
        return casts;
    }

    void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) override {
        Lanes& lanes = lanes_.get();
        if (auto room = check_room(lanes); !room) return done(std::move(room).error());
        begin(lanes, ballot, database().deadline(timeout), std::move(done));
    }

    void write_many_async(std::span<const Ballot> ballots,
                          std::function<void(std::vector<Result<Cast>>)> done,
                          Timeout timeout) override {
        // One more than there are ballots: all are begun before the last may answer.
        struct Call {
            std::vector<Result<Cast>> casts;
            std::function<void(std::vector<Result<Cast>>)> done;
            std::atomic<std::size_t> open;
            void end_one() {
                if (open.fetch_sub(1, std::memory_order_acq_rel) == 1) done(std::move(casts));
            }
        };
        const Deadline deadline = database().deadline(timeout);
        const auto call = std::make_shared<Call>();
        call->casts.resize(ballots.size(), Cast{});
        call->done = std::move(done);
        call->open = ballots.size() + 1;
        Lanes& lanes = lanes_.get();
        const auto room = check_room(lanes);
        for (std::size_t i = 0; i < ballots.size(); ++i) {
            auto settle = [call, i](Result<Cast> cast) {
                call->casts[i] = std::move(cast);
                call->end_one();
            };
            if (room) {
                begin(lanes, ballots[i], deadline, std::move(settle));
            } else {
                settle(room.error());
            }
        }
        call->end_one();
    }

    Contract contract() const override {
        const bool slotted = options().strategy == VoteStrategy::slotted;
        return Contract{
            std::string{to_string(options().strategy)},
            slotted ? "the vote and its slot's count are committed in SQL"
                    : "the vote and the item's count are committed in SQL",
            slotted ? "nothing acknowledged; a plain reader of item.vote_count sees it after "
                      "flush()"
                    : "nothing acknowledged",
            true, true};
    }

  private:
    // A thread each. A user's votes for an item take one lane, so that they keep their order.
    struct Lanes {
        explicit Lanes(std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                pools.push_back(std::make_unique<WorkerPool>(1));
            }
        }
        WorkerPool& of(const Ballot& ballot) {
            const std::hash<sql::Id> hash;
            return *pools[(hash(ballot.item) * 31 + hash(ballot.user)) % pools.size()];
        }
        std::atomic<std::size_t> waiting{0};
        std::vector<std::unique_ptr<WorkerPool>> pools{};
    };

    Result<void> check_room(const Lanes& lanes) const {
        if (lanes.waiting.load(std::memory_order_relaxed) < options().commit.max_queue) return {};
        return make_error(ErrorCode::capacity,
                          database().name() + ": " + std::to_string(options().commit.max_queue) +
                              " votes are waiting (max_queue); nothing was applied");
    }

    void begin(Lanes& lanes, const Ballot& ballot, Deadline deadline, Completion<Cast> done) {
        WorkerPool& lane = lanes.of(ballot);
        if (auto started = lane.start(); !started) return done(std::move(started).error());
        lanes.waiting.fetch_add(1, std::memory_order_relaxed);
        lane.run(
            [this, self = shared_from_this(), &lanes, ballot, deadline, done = std::move(done)] {
                lanes.waiting.fetch_sub(1, std::memory_order_relaxed);
                done(cast_within(ballot, deadline));
            });
    }

    Result<Cast> cast_within(const Ballot& ballot, Deadline deadline) {
        if (in_one_statement_ != nullptr) {
            return in_one_statement_->cast(database(), ballot, deadline);
        }
        if (one_ != nullptr) {
            HOTCOUNT_TRY_ASSIGN(const std::optional<Cast> cast, cast_at_once(ballot, deadline));
            if (cast) return *cast;
        }
        return sql::transact(
            database(), deadline, [&](sql::Connection& connection) -> Result<Cast> {
                HOTCOUNT_TRY(
                    ensure_item(connection, *layout(), options().missing_item, ballot.item));
                HOTCOUNT_TRY_ASSIGN(const Cast cast, rows_->set(connection, ballot));
                if (cast.changed) HOTCOUNT_TRY(move_count(connection, ballot.item, cast));
                return cast;
            });
    }

    // None where it takes more than one statement.
    Result<std::optional<Cast>> cast_at_once(const Ballot& ballot, Deadline deadline) {
        return sql::transact_alone(
            database(), deadline, [&](sql::Connection& connection) -> Result<std::optional<Cast>> {
                HOTCOUNT_TRY_ASSIGN(const auto can, abilities_.of(connection));
                if (!can.compound) return std::optional<Cast>{};
                Cast cast = mysql_cast(0, ballot.value);
                HOTCOUNT_TRY_ASSIGN(const bool written, one_->write(connection, ballot, slot(),
                                                                    sql::Alone{deadline}, cast));
                return written ? std::optional{cast} : std::nullopt;
            });
    }

    std::int64_t slot() const { return choose_slot(SlotChoice::sticky, options().slots); }

    Result<void> move_count(sql::Connection& connection, const sql::Id& item, const Cast& cast) {
        const auto difference = checked_subtract(cast.value, cast.previous);
        if (!difference) return count_overflow(item);
        if (options().strategy == VoteStrategy::slotted) {
            return bump_cell(connection, *layout(), item, slot(), *difference);
        }
        return bump_item(connection, *layout(), item, *difference);
    }

    std::unique_ptr<VoteRows> rows_;
    // Null where the dialect is another one.
    std::unique_ptr<PostgresSlottedVotes> in_one_statement_;
    const std::unique_ptr<const MysqlOneVote> one_;
    ServerAbilities abilities_;
    ForkLocal<Lanes> lanes_;
};

}  // namespace

std::shared_ptr<Votes> make_single_votes(std::shared_ptr<sql::Database> database,
                                         VotesOptions options) {
    return std::make_shared<SingleVotes>(std::move(database), std::move(options));
}

}  // namespace hotcount

// naive and slotted: one transaction per vote.
#include <hotcount/base/check.hpp>
#include <hotcount/counter/slot.hpp>
#include <hotcount/sql/transaction.hpp>

#include "sql_votes.hpp"
#include "vote_rows.hpp"

namespace hotcount {
namespace {

class SingleVotes final : public SqlVotes {
  public:
    SingleVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options)
        : SqlVotes(std::move(votes_database), std::move(votes_options)),
          rows_(make_vote_rows(layout(), options())) {}

    Result<Cast> cast(const Ballot& ballot, Timeout timeout) override {
        return cast_within(ballot, database().deadline(timeout));
    }

    std::vector<Result<Cast>> cast_many(std::span<const Ballot> ballots, Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        std::vector<Result<Cast>> casts;
        casts.reserve(ballots.size());
        for (const Ballot& ballot : ballots) casts.push_back(cast_within(ballot, deadline));
        return casts;
    }

    Contract contract() const override {
        const bool slotted = options().strategy == VoteStrategy::slotted;
        return Contract{std::string{to_string(options().strategy)},
                        slotted ? "the vote and its slot's count are committed in SQL"
                                : "the vote and the item's count are committed in SQL",
                        slotted ? "nothing acknowledged; item.vote_count lags until flush()"
                                : "nothing acknowledged",
                        true, true};
    }

  private:
    Result<Cast> cast_within(const Ballot& ballot, Deadline deadline) {
        return sql::transact(
            database(), deadline, [&](sql::Connection& connection) -> Result<Cast> {
                HOTCOUNT_TRY(
                    ensure_item(connection, *layout(), options().missing_item, ballot.item));
                HOTCOUNT_TRY_ASSIGN(const Cast cast, rows_->set(connection, ballot));
                if (cast.changed) HOTCOUNT_TRY(move_count(connection, ballot.item, cast));
                return cast;
            });
    }

    Result<void> move_count(sql::Connection& connection, const sql::Id& item, const Cast& cast) {
        const auto difference = checked_subtract(cast.value, cast.previous);
        if (!difference) return count_overflow(item);
        if (options().strategy == VoteStrategy::slotted) {
            return bump_cell(connection, *layout(), item,
                             choose_slot(SlotChoice::sticky, options().slots), *difference);
        }
        HOTCOUNT_TRY_ASSIGN(
            const std::int64_t changed,
            connection.execute(layout()->bump_item, {*difference, sql::to_value(item)}));
        if (changed != 0) return {};
        // Not there, where a table of the application's has no foreign key; or full.
        bool there = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            there = true;
            return {};
        };
        HOTCOUNT_TRY(connection.query(layout()->count_in_item, {sql::to_value(item)}, see));
        return there ? count_overflow(item) : unknown_item(item);
    }

    std::unique_ptr<VoteRows> rows_;
};

}  // namespace

std::shared_ptr<Votes> make_single_votes(std::shared_ptr<sql::Database> database,
                                         VotesOptions options) {
    return std::make_shared<SingleVotes>(std::move(database), std::move(options));
}

}  // namespace hotcount

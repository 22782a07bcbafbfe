// The journal on PostgreSQL: a fold is one statement, which is a transaction of its own (journal.sql).
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

class PostgresJournal final : public Journal {
  public:
    PostgresJournal(std::shared_ptr<sql::Database> database, const VoteNames& n,
                    const VotesOptions& options, const sql::Statements& sql,
                    const sql::Statements& backlog)
        : database_(std::move(database)),
          pause_us_(microseconds_of(options.fold_interval)),
          fold_(sql.with("fold", {{"only", ""}})),
          fold_only_(sql.with("fold", {{"only", "1"}})),
          ask_(sql["ask"]),
          items_(sql["items"]),
          backlog_(backlog["backlog"]),
          look_(backlog["look"]),
          journal_(n.journal),
          may_vacuum_(sql["may_vacuum"]),
          vacuum_(sql["vacuum"]) {}

    Result<FoldedPage> fold(const FoldRequest& request, Deadline deadline) override {
        auto folded = sql::transact_alone(*database_, deadline, [&](sql::Connection& connection) {
            return fold_by(request, [&](const auto& fold, auto parameters, const auto* read) {
                return connection.run_alone(fold, parameters, read, sql::Alone{deadline, true});
            });
        });
        if (!folded) return explain_missing_table(std::move(folded).error());
        return folded;
    }

    Result<FoldedPage> fold_in(sql::Connection& connection, const FoldRequest& request) override {
        return fold_by(request, [&](const auto& fold, auto parameters, const auto* read) {
            return connection.run(fold, parameters, read);
        });
    }

    Result<void> ask(std::span<const sql::Id> items, Deadline deadline) override {
        const std::string all = array_literal(items);
        return sql::transact(*database_, deadline,
                             [&](sql::Connection& connection) -> Result<void> {
                                 HOTCOUNT_TRY(connection.execute(ask_, {std::string_view{all}}));
                                 return {};
                             });
    }

    Result<std::vector<sql::Id>> items(Deadline deadline) override {
        return read_items(*database_, items_, deadline);
    }

    Result<JournalBacklog> backlog(Deadline deadline) override {
        return read_backlog(*database_, backlog_, deadline);
    }

    Result<JournalLook> look(Deadline deadline) override {
        return read_look(*database_, look_, deadline);
    }

    Result<void> tidy(Deadline deadline) override {
        HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database_->writer(deadline));
        bool may = false;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            may = row.integer(0) != 0;
            return {};
        };
        const sql::Alone how{deadline};
        const std::array journal{sql::Value{std::string_view{journal_}}};
        HOTCOUNT_TRY(connection->read_alone(may_vacuum_, journal, &read, deadline));
        if (may) HOTCOUNT_TRY(connection->run_alone(vacuum_, {}, nullptr, how));
        return {};
    }

  private:
    // run(statement, parameters, visitor) runs the statement.
    template <class Run>
    Result<FoldedPage> fold_by(const FoldRequest& request, const Run& run) const {
        FoldedPage page;
        std::int64_t outcome = 0;
        std::int64_t number = 0;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            switch (row.integer(0)) {
                case 0:
                    outcome = row.integer(2);
                    number = row.integer(3);
                    break;
                case 1:
                    page.counts.push_back({row.id(1), row.integer(2), row.integer(3)});
                    break;
                default:
                    page.held.push_back(row.id(1));
                    break;
            }
            return {};
        };
        const bool named = !request.only.empty();
        const std::string items = array_literal(named ? request.only : request.but);
        const sql::Value parameters[] = {
            std::string_view{items}, std::int64_t{request.due_only ? 1 : 0},
            request.hurried ? short_pause_us_ : pause_us_, static_cast<std::int64_t>(request.most),
            request.hurried ? std::int64_t{1} : kRest};
        HOTCOUNT_TRY(
            run(named ? fold_only_ : fold_, std::span<const sql::Value>{parameters}, &read));
        page.outcome = static_cast<FoldedPage::Outcome>(outcome);
        if (page.outcome == FoldedPage::Outcome::not_due) {
            page.due_in = std::chrono::microseconds{number};
        } else {
            page.rows = static_cast<std::size_t>(number);
            page.more = page.rows >= request.most;
        }
        return page;
    }

    const std::shared_ptr<sql::Database> database_;
    const std::int64_t pause_us_;
    const std::int64_t short_pause_us_{std::min(pause_us_, microseconds_of(kShortPause))};
    const sql::Statement fold_;
    const sql::Statement fold_only_;
    const sql::Statement ask_;
    const sql::Statement items_;
    const sql::Statement backlog_;
    const sql::Statement look_;
    const std::string journal_;
    const sql::Statement may_vacuum_;
    const sql::Statement vacuum_;
};

}  // namespace

std::unique_ptr<Journal> make_postgres_journal(std::shared_ptr<sql::Database> database,
                                               const VotesOptions& options) {
    const VoteNames names{options, sql::postgres_grammar()};
    const auto sql =
        postgres_statements(sql::postgres::kJournalSql, names, options,
                            {{"longest_pause", std::to_string(microseconds_of(kLongestPause))}});
    return std::make_unique<PostgresJournal>(
        std::move(database), names, options, sql,
        backlog_statements(names, sql::postgres_grammar(), "bigint"));
}

}  // namespace hotcount

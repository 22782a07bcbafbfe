// The journal on PostgreSQL: a fold is one statement, which is a transaction of its own.
//
//   due     whether the counts are here, and how long it is until a fold is due; at once after a
//           fold that was later than now: the server's clock went back
//   alone   the fold's lock, of the transaction: only tried, so that nobody waits for a fold
//   here    the mark again, held: who moves the counts does not know that lock in older releases
//   gone    a page of rows, taken out
//   moved   their sums, in the cells of slot kFoldSlot
//   totals  the items' counts by all cells. The others are as the snapshot has them: only strategy
//           slotted writes to those, and it is read the same way by whoever reads while this runs
//   free    the items whose rows nobody holds; shown: their own counts
//   again   the other items, in the journal (these three only if the items have counts)
//   paced   when this fold began and how long it took, for all processes
//
// Each name has hc_ before it: without, one would hide the user's own table of that name.
//
// The journal was empty when it was vacuumed, so the planner expects one row of each part, and would
// compare each item with each: 2 to 3 s for 2,300 items. So no two parts are joined: an IN inside an
// IS is looked up in a hash table, whatever the planner expects.
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "ballots.hpp"
#include "dialect.hpp"
#include "sql/dialect.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

std::string mark_of(const VoteNames& n, const std::string& name) {
    return "(SELECT value FROM " + n.meta + " WHERE name = '" + name + "')";
}

// Copies the totals to the items that nobody holds, and asks for the others again.
std::string show_text(const VoteNames& n) {
    return "hc_free AS MATERIALIZED (SELECT " + n.id + " AS id FROM " + n.item + " WHERE " + n.id +
           " IN (SELECT item FROM hc_sums) ORDER BY " + n.id +
           " FOR NO KEY UPDATE SKIP LOCKED), hc_shown AS (UPDATE " + n.item + " AS i SET " +
           n.count + " = t.n FROM hc_totals AS t WHERE i." + n.id +
           " = t.item AND (t.item IN (SELECT id FROM hc_free)) IS TRUE RETURNING t.item), hc_again "
           "AS (INSERT INTO " +
           n.journal +
           " (item, diff) SELECT s.item, 0 FROM hc_sums AS s WHERE (s.item IN (SELECT id FROM "
           "hc_free)) IS NOT TRUE AND EXISTS (SELECT FROM " +
           n.item + " AS i WHERE i." + n.id + " = s.item) RETURNING item), ";
}

// ?1 the items of `which`, ?2 whether to fold only if it is due, ?3 the least pause in
// microseconds, ?4 the most rows, ?5 how many times what the last one took is the least pause too.
std::string fold_text(const VoteNames& n, const std::string& which) {
    const std::string slot = std::to_string(kFoldSlot);
    const std::string now = sql::postgres_grammar().now_microseconds();
    return "WITH hc_clock AS MATERIALIZED (SELECT " + now +
           " AS us), hc_pace AS MATERIALIZED (SELECT us, " + mark_of(n, "counted_in") + " = '" +
           std::string{to_string(CountPlace::journal)} + "' AS here, COALESCE(CAST(" +
           mark_of(n, "folded_at") + " AS bigint), 0) AS last, COALESCE(CAST(" +
           mark_of(n, "fold_took") +
           " AS bigint), 0) AS took FROM hc_clock), hc_due AS MATERIALIZED (SELECT here, CASE WHEN "
           "last > us THEN 0 ELSE last + GREATEST(CAST(?3 AS bigint), LEAST(CAST(?5 AS bigint) * "
           "took, " +
           std::to_string(microseconds_of(kLongestPause)) +
           ")) - us END AS wait FROM hc_pace), hc_alone AS MATERIALIZED (SELECT CASE "
           "WHEN "
           "here AND (CAST(?2 AS bigint) = 0 OR wait <= 0) THEN pg_try_advisory_xact_lock(" +
           fold_lock_key(n) +
           ") END AS mine FROM hc_due), hc_here AS MATERIALIZED (SELECT name FROM " + n.meta +
           " WHERE name = 'counted_in' AND value = '" +
           std::string{to_string(CountPlace::journal)} +
           "' AND (SELECT mine FROM hc_alone) FOR SHARE SKIP LOCKED), hc_page AS MATERIALIZED "
           "(SELECT "
           "ctid AS place FROM " +
           n.journal + " WHERE EXISTS (SELECT FROM hc_here) AND " + which +
           " LIMIT CAST(?4 AS bigint)), hc_gone AS (DELETE FROM " + n.journal +
           " WHERE ctid >= (SELECT MIN(place) FROM hc_page) AND ctid <= (SELECT MAX(place) FROM "
           "hc_page) AND (ctid IN (SELECT place FROM hc_page)) IS TRUE RETURNING item, diff), "
           "hc_sums AS MATERIALIZED (SELECT item, CAST(SUM(diff) AS bigint) AS d FROM hc_gone "
           "GROUP BY item), "
           "hc_moved AS (INSERT INTO " +
           n.cell + " (item, slot, n, ver) SELECT item, " + slot +
           ", d, us FROM hc_sums, hc_clock ORDER BY item ON CONFLICT (item, slot) DO UPDATE SET n "
           "= " +
           n.cell + ".n + excluded.n, ver = GREATEST(" + n.cell +
           ".ver + 1, excluded.ver) RETURNING item, n, ver), hc_totals AS MATERIALIZED (SELECT "
           "m.item, CAST(m.n + COALESCE((SELECT SUM(o.n) FROM " +
           n.cell + " AS o WHERE o.item = m.item AND o.slot <> " + slot +
           "), 0) AS bigint) AS n, m.ver FROM hc_moved AS m), " +
           (n.count.empty() ? std::string{} : show_text(n)) + "hc_took AS MATERIALIZED (SELECT " +
           now + " - us AS us FROM hc_clock WHERE (SELECT COUNT(*) FROM hc_totals)" +
           (n.count.empty() ? ""
                            : " + (SELECT COUNT(*) FROM hc_shown) + (SELECT COUNT(*) FROM "
                              "hc_again)") +
           " >= 0), hc_paced AS (UPDATE " + n.meta +
           " AS m SET value = CASE m.name WHEN 'folded_at' THEN CAST(c.us AS text) ELSE CAST(t.us "
           "AS text) END FROM hc_clock AS c, hc_took AS t WHERE m.name IN ('folded_at', "
           "'fold_took') AND "
           "EXISTS (SELECT FROM hc_gone)) SELECT 0, (SELECT item FROM hc_sums LIMIT 0), CASE WHEN "
           "here "
           "IS NOT TRUE THEN 3 WHEN CAST(?2 AS bigint) <> 0 AND wait > 0 THEN 2 WHEN NOT EXISTS "
           "(SELECT FROM hc_here) THEN 1 ELSE 0 END, CASE WHEN here AND CAST(?2 AS bigint) <> 0 "
           "AND "
           "wait > 0 THEN wait ELSE (SELECT COUNT(*) FROM hc_gone) END FROM hc_due UNION ALL "
           "SELECT 1, "
           "item, n, ver FROM hc_totals" +
           (n.count.empty() ? "" : " UNION ALL SELECT 2, item, 0, 0 FROM hc_again");
}

class PostgresJournal final : public Journal {
  public:
    PostgresJournal(std::shared_ptr<sql::Database> database, const VoteNames& n,
                    const VotesOptions& options)
        : database_(std::move(database)),
          pause_us_(microseconds_of(options.fold_interval)),
          fold_(fold_text(n, "item <> ALL (" + array_of(options.item_type, "?1") + ")")),
          fold_only_(fold_text(n, "item = ANY (" + array_of(options.item_type, "?1") + ")")),
          ask_("INSERT INTO " + n.journal + " (item, diff) SELECT " + n.id + ", 0 FROM " + n.item +
               " WHERE " + n.id + " = ANY (" + array_of(options.item_type, "?1") + ") AND " +
               mark_of(n, "counted_in") + " = '" + std::string{to_string(CountPlace::journal)} +
               "'"),
          items_("SELECT DISTINCT item FROM " + n.journal + " ORDER BY item LIMIT ?1"),
          backlog_(backlog_text(n, sql::postgres_grammar(), "bigint")),
          journal_(n.journal),
          // If the role may not vacuum, each try would write a warning into the server's log.
          may_vacuum_(
              "SELECT CAST(pg_has_role(relowner, 'USAGE') AS int) FROM pg_class WHERE oid = "
              "to_regclass(CAST(?1 AS text))"),
          // As others vacuum it, somebody has done it; and never a lock that keeps readers waiting.
          vacuum_("VACUUM (TRUNCATE FALSE, SKIP_LOCKED) " + n.journal) {}

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
    const std::string journal_;
    const sql::Statement may_vacuum_;
    const sql::Statement vacuum_;
};

}  // namespace

std::unique_ptr<Journal> make_postgres_journal(std::shared_ptr<sql::Database> database,
                                               const VotesOptions& options) {
    const VoteNames names{options, sql::postgres_grammar()};
    return std::make_unique<PostgresJournal>(std::move(database), names, options);
}

}  // namespace hotcount

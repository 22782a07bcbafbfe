// The journal on MariaDB and MySQL: a fold is a transaction of a few statements.
#include <algorithm>
#include <array>
#include <bit>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <map>
#include <optional>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/dialect.hpp"
#include "vote_rows.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// Items whose counts one UPDATE sets: its CASE compares each row with half of the items on average.
constexpr std::size_t kShown = 64;

// So many rows with successive ids are removed as a range.
constexpr std::size_t kRun = 8;

class MysqlJournal final : public Journal {
  public:
    MysqlJournal(std::shared_ptr<sql::Database> database, const VoteNames& n,
                 const VotesOptions& options, const sql::Statements& sql,
                 const sql::Statements& sync_pages, const sql::Statements& backlog)
        : database_(std::move(database)),
          pause_us_(microseconds_of(options.fold_interval)),
          keys_(options),
          alone_(sql["alone"]),
          place_(sql["place"]),
          page_(sql["page"]),
          page_of_(sql["page_of"]),
          page_but_(sql["page_but"]),
          left_(sql["left"]),
          left_but_(sql["left_but"]),
          left_of_(sql["left_of"]),
          move_(sql["move"]),
          remove_(sql["remove"]),
          remove_run_(sql["remove_run"]),
          take_(sql["take"]),
          wait_for_item_(sql["wait_for_item"]),
          exist_(sql["exist"]),
          totals_(sql["totals"]),
          again_(sql["again"]),
          pace_(sql["pace"]),
          items_(sql["items"]),
          backlog_(backlog["backlog"]),
          look_(backlog["look"]),
          shows_(!n.count.empty()),
          show_(sync_pages["set_counts"]) {}

    bool may_starve() const override { return true; }

    Result<FoldedPage> fold(const FoldRequest& request, Deadline deadline) override {
        auto folded = sql::transact(*database_, deadline, [&](sql::Connection& connection) {
            return fold_in(connection, request);
        });
        if (!folded) return explain_missing_table(std::move(folded).error());
        return folded;
    }

    Result<void> ask(std::span<const sql::Id> items, Deadline deadline) override {
        return sql::transact(
            *database_, deadline, [&](sql::Connection& connection) -> Result<void> {
                HOTCOUNT_TRY_ASSIGN(const std::string place, read_mark(connection, place_));
                if (place != to_string(CountPlace::journal)) return {};
                HOTCOUNT_TRY_ASSIGN(const std::vector<sql::Id> there,
                                    find(connection, exist_, items));
                return ask_again(connection, there);
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

    Result<void> tidy(Deadline) override { return {}; }  // InnoDB purges by itself.

  private:
    struct Row {
        std::int64_t id;
        sql::Id item;
        std::int64_t diff;
    };

    Result<FoldedPage> fold_in(sql::Connection& connection, const FoldRequest& request) override {
        FoldedPage page;
        std::int64_t now = 0;
        HOTCOUNT_TRY_ASSIGN(page.outcome, begin(connection, request, page.due_in, now));
        if (page.outcome != FoldedPage::Outcome::folded) return page;
        if (request.wait_for_item && request.only.size() == 1) {
            HOTCOUNT_TRY(connection.run(wait_for_item_,
                                        std::array{sql::to_value(request.only.front())}, nullptr));
        }
        HOTCOUNT_TRY_ASSIGN(const std::vector<Row> rows, take_rows(connection, request));
        page.rows = rows.size();
        page.more = rows.size() >= request.most;
        if (rows.empty()) {
            HOTCOUNT_TRY_ASSIGN(page.left, find_left(connection, request, page));
            HOTCOUNT_TRY_ASSIGN(page.held, find_passed_over(connection, request, page, {}));
            return page;
        }

        std::map<sql::Id, std::int64_t> sums;
        for (const Row& row : rows) {
            std::int64_t& sum = sums[row.item];
            const auto added = checked_add(sum, row.diff);
            if (!added) return count_overflow(row.item);
            sum = *added;
        }
        HOTCOUNT_TRY(move(connection, sums, now));
        HOTCOUNT_TRY(remove(connection, rows));
        HOTCOUNT_TRY_ASSIGN(page.left, find_left(connection, request, page));

        std::vector<sql::Id> items;
        items.reserve(sums.size());
        for (const auto& [item, sum] : sums) items.push_back(item);
        HOTCOUNT_TRY_ASSIGN(page.counts, read_totals(connection, items));
        if (shows_) {
            HOTCOUNT_TRY_ASSIGN(const std::vector<sql::Id> free, find(connection, take_, items));
            HOTCOUNT_TRY(show(connection, page.counts, free));
            HOTCOUNT_TRY_ASSIGN(page.held, find_held(connection, items, free));
            HOTCOUNT_TRY(ask_again(connection, page.held));
        }
        // Their rows are in the journal, so they are not asked for again.
        HOTCOUNT_TRY_ASSIGN(const auto passed, find_passed_over(connection, request, page, items));
        page.held.insert(page.held.end(), passed.begin(), passed.end());
        const std::string began = std::to_string(now);
        HOTCOUNT_TRY(connection.execute(pace_, {std::string_view{began}, now}));
        return page;
    }

    // The fold's lock and the mark.
    Result<FoldedPage::Outcome> begin(sql::Connection& connection, const FoldRequest& request,
                                      Duration& due_in, std::int64_t& now) {
        using Outcome = FoldedPage::Outcome;
        bool alone = false;
        std::int64_t left = 0;
        const sql::RowVisitor locked = [&](const sql::Row& row) -> Result<void> {
            alone = true;
            now = row.integer(1);
            const std::int64_t last = row.integer(0);
            const std::int64_t slow = std::min((request.hurried ? 1 : kRest) * row.integer(2),
                                               microseconds_of(kLongestPause));
            // A last fold in the future means that the server's clock went back: no pause is left.
            const std::int64_t pause = request.hurried ? short_pause_us_ : pause_us_;
            left = last > now ? 0 : last + std::max(pause, slow) - now;
            return {};
        };
        HOTCOUNT_TRY(connection.query(alone_, {}, locked));
        if (!alone) return Outcome::taken;
        if (request.due_only && left > 0) {
            due_in = std::chrono::microseconds{left};
            return Outcome::not_due;
        }
        HOTCOUNT_TRY_ASSIGN(const std::string place, read_mark(connection, place_));
        return place == to_string(CountPlace::journal) ? Outcome::folded : Outcome::elsewhere;
    }

    Result<std::vector<Row>> take_rows(sql::Connection& connection, const FoldRequest& request) {
        std::vector<Row> rows;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            rows.push_back({row.integer(0), row.id(1), row.integer(2)});
            return {};
        };
        const auto run = [&](BulkStatement& statement,
                             std::span<const sql::Id> items) -> Result<void> {
            const std::array most{
                sql::Value{static_cast<std::int64_t>(request.most - rows.size())}};
            const auto values = BulkStatement::padded_values(items, most);
            HOTCOUNT_TRY(connection.run(statement.of(values.size() - 1), values, &read));
            return {};
        };
        if (request.only.empty()) {
            const std::size_t but =
                BulkStatement::padded_portion(request.but.size());  // More are rare, and only slow.
            if (but > 0) {
                HOTCOUNT_TRY(run(page_but_, request.but.first(but)));
            } else {
                HOTCOUNT_TRY(
                    connection.query(page_, {static_cast<std::int64_t>(request.most)}, read));
            }
            return rows;
        }
        for (auto left = request.only; !left.empty() && rows.size() < request.most;) {
            const auto part = left.first(BulkStatement::padded_portion(left.size()));
            left = left.subspan(part.size());
            HOTCOUNT_TRY(run(page_of_, part));
        }
        return rows;
    }

    // A run of ids without a gap has no other rows in between. Its last row is deleted by id: a
    // range also locks the row after it, which may be a voter's.
    Result<void> remove(sql::Connection& connection, std::span<const Row> rows) {
        std::vector<sql::Id> ids;
        while (!rows.empty()) {
            std::size_t run = 1;
            while (run < rows.size() && rows[run].id == rows[run - 1].id + 1) ++run;
            const std::size_t apart = run >= kRun ? 1 : run;
            if (apart < run) {
                HOTCOUNT_TRY(connection.execute(remove_run_, {rows.front().id, rows[run - 2].id}));
            }
            for (const Row& row : rows.subspan(run - apart, apart)) ids.emplace_back(row.id);
            rows = rows.subspan(run);
        }
        return remove_.run_padded(connection, ids, nullptr);
    }

    Result<std::optional<JournalRange>> find_left(sql::Connection& connection,
                                                  const FoldRequest& request,
                                                  const FoldedPage& page) {
        std::optional<JournalRange> left;
        if (page.more || !request.only.empty()) return left;
        const std::span<const sql::Id> but = request.but;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            if (!row.is_null(0)) left = JournalRange{row.integer(0), row.integer(1)};
            return {};
        };
        if (but.empty()) {
            HOTCOUNT_TRY(connection.query(left_, {}, read));
        } else {
            const auto values =
                BulkStatement::padded_values(but.first(BulkStatement::padded_portion(but.size())));
            HOTCOUNT_TRY(connection.run(left_but_.of(values.size()), values, &read));
        }
        return left;
    }

    // Of a fold of some items whose page was not full: those that it has not `found`, but that have
    // committed rows. Another transaction has locked the rows, or they were committed since.
    Result<std::vector<sql::Id>> find_passed_over(sql::Connection& connection,
                                                  const FoldRequest& request,
                                                  const FoldedPage& page,
                                                  std::span<const sql::Id> found) {
        std::vector<sql::Id> rest;
        if (page.more) return rest;
        std::copy_if(request.only.begin(), request.only.end(), std::back_inserter(rest),
                     [&](const sql::Id& item) {
                         return !std::binary_search(found.begin(), found.end(), item);
                     });
        if (rest.empty()) return rest;
        return find(connection, left_of_, rest);
    }

    Result<void> move(sql::Connection& connection, const std::map<sql::Id, std::int64_t>& sums,
                      std::int64_t now) {
        std::vector<sql::Value> values;
        for (auto next = sums.begin(); next != sums.end();) {
            const auto left = static_cast<std::size_t>(std::distance(next, sums.end()));
            const std::size_t size = BulkStatement::portion(left);
            values.assign(1, sql::Value{now});
            for (std::size_t i = 0; i < size; ++i, ++next) {
                values.push_back(sql::to_value(next->first));
                values.emplace_back(next->second);
            }
            auto moved = connection.run(move_.of(size), values, nullptr);
            if (!moved) return std::move(moved).error();
        }
        return {};
    }

    Result<std::vector<FoldedCount>> read_totals(sql::Connection& connection,
                                                 std::span<const sql::Id> items) {
        HOTCOUNT_TRY_ASSIGN(const bool at_once, keys_.are_bytes(connection));
        std::vector<FoldedCount> counts;
        if (at_once) {
            const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
                return take_total(row, row.id(0), counts);
            };
            HOTCOUNT_TRY(totals_.run_padded(connection, items, &read));
            return counts;
        }
        // By the ids that they have here: the cell may have another spelling.
        for (const sql::Id& item : items) {
            const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
                return take_total(row, item, counts);
            };
            HOTCOUNT_TRY(connection.run(totals_.of(1), std::array{sql::to_value(item)}, &read));
        }
        return counts;
    }

    static Result<void> take_total(const sql::Row& row, sql::Id item,
                                   std::vector<FoldedCount>& counts) {
        if (!row.is_integer(2)) return count_overflow(item);
        counts.push_back({std::move(item), row.integer(1), row.integer(3)});
        return {};
    }

    Result<std::vector<sql::Id>> find_held(sql::Connection& connection,
                                           std::span<const sql::Id> items,
                                           std::span<const sql::Id> free) {
        std::vector<sql::Id> rest;
        std::set_difference(items.begin(), items.end(), free.begin(), free.end(),
                            std::back_inserter(rest));
        if (rest.empty()) return rest;
        return find(connection, exist_, rest);
    }

    Result<std::vector<sql::Id>> find(sql::Connection& connection, BulkStatement& statement,
                                      std::span<const sql::Id> items) {
        HOTCOUNT_TRY_ASSIGN(const bool at_once, keys_.are_bytes(connection));
        return mysql_find(connection, statement, items, at_once);
    }

    Result<void> show(sql::Connection& connection, std::span<const FoldedCount> counts,
                      std::span<const sql::Id> free) {
        std::vector<const FoldedCount*> shown;
        for (const FoldedCount& count : counts) {
            if (std::binary_search(free.begin(), free.end(), count.item)) shown.push_back(&count);
        }
        std::vector<sql::Value> values;
        for (std::size_t done = 0; done < shown.size(); done += kShown) {
            const std::size_t size = std::min(kShown, shown.size() - done);
            const std::size_t padded = std::bit_ceil(size);
            values.clear();
            for (std::size_t i = 0; i < padded; ++i) {
                const FoldedCount& count = *shown[done + std::min(i, size - 1)];
                values.push_back(sql::to_value(count.item));
                values.emplace_back(count.n);
            }
            HOTCOUNT_TRY(connection.run(show_.of(padded), values, nullptr));
        }
        return {};
    }

    Result<void> ask_again(sql::Connection& connection, std::span<const sql::Id> held) {
        std::vector<sql::Value> values;
        while (!held.empty()) {
            const auto part = held.first(BulkStatement::portion(held.size()));
            held = held.subspan(part.size());
            values.clear();
            for (const sql::Id& item : part) values.push_back(sql::to_value(item));
            HOTCOUNT_TRY(connection.run(again_.of(part.size()), values, nullptr));
        }
        return {};
    }

    const std::shared_ptr<sql::Database> database_;
    const std::int64_t pause_us_;
    const std::int64_t short_pause_us_{std::min(pause_us_, microseconds_of(kShortPause))};
    KeyColumns keys_;
    const sql::Statement alone_;
    const sql::Statement place_;
    const sql::Statement page_;
    BulkStatement page_of_;
    BulkStatement page_but_;
    const sql::Statement left_;
    BulkStatement left_but_;
    BulkStatement left_of_;
    BulkStatement move_;
    BulkStatement remove_;
    const sql::Statement remove_run_;
    BulkStatement take_;
    const sql::Statement wait_for_item_;
    BulkStatement exist_;
    BulkStatement totals_;
    BulkStatement again_;
    const sql::Statement pace_;
    const sql::Statement items_;
    const sql::Statement backlog_;
    const sql::Statement look_;
    const bool shows_;  // The items have counts.
    BulkStatement show_;
};

}  // namespace

std::unique_ptr<Journal> make_mysql_journal(std::shared_ptr<sql::Database> database,
                                            const VotesOptions& options) {
    const VoteNames names{options, sql::mysql_grammar()};
    return std::make_unique<MysqlJournal>(
        std::move(database), names, options,
        mysql_statements(sql::mysql::kJournalSql, names, options),
        mysql_statements(sql::mysql::kSyncPagesSql, names, options),
        backlog_statements(names, sql::mysql_grammar(), "SIGNED"));
}

}  // namespace hotcount

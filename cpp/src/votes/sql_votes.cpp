#include "sql_votes.hpp"

#include <algorithm>
#include <hotcount/base/check.hpp>
#include <hotcount/sql/transaction.hpp>

#include "checked_ballots.hpp"
#include "mysql_vote_rows.hpp"
#include "postgres_ballots.hpp"

namespace hotcount {
namespace {

// Items per transaction of a reconcile: bounds how long voters wait for it.
constexpr std::int64_t kReconcilePage = 1000;

const sql::RowVisitor kIgnoreRows = [](const sql::Row&) -> Result<void> { return {}; };

// The one value of a row that may be missing: empty then.
Result<std::string> read_mark(sql::Connection& connection, const sql::Statement& statement) {
    std::string mark;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        mark = row.text(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(statement, {}, read));
    return mark;
}

}  // namespace

Error explain_missing_table(Error error) {
    const bool missing = error.server_code == "1146" ||   // MySQL's ER_NO_SUCH_TABLE
                         error.server_code == "42P01" ||  // PostgreSQL's undefined_table
                         error.message.find("no such") != std::string::npos;
    if (error.code == ErrorCode::database && missing) {
        error.message += "; create_tables() makes what is missing";
    }
    return error;
}

SqlVotes::SqlVotes(std::shared_ptr<sql::Database> database, VotesOptions options)
    : database_(std::move(database)),
      options_(std::move(options)),
      layout_(std::make_shared<const Layout>(options_, database_->dialect())),
      openings_(options_, database_->dialect()),
      workers_([threads = options_.commit.workers] { return std::make_unique<Workers>(threads); }) {
    if (database_->dialect() == sql::Dialect::postgres) {
        const VoteNames names{options_, sql::Grammar{sql::Dialect::postgres}};
        create_items_.emplace(create_items(names, options_));
    }
}

Error count_overflow(const sql::Id& item) {
    return make_error(ErrorCode::overflow, "the count of item " + sql::to_string(item) +
                                               " would leave signed 64 bits; nothing was applied");
}

Error narrow_column(Error error) {
    if (error.code != ErrorCode::overflow) return error;
    const auto says = [&](std::string_view word) {
        return error.message.find(word) != std::string::npos;
    };
    // PostgreSQL names the type in every language; MySQL the column, and n is ours.
    const bool narrow = (error.server_code == "22003" && !says("bigint")) ||
                        (error.server_code == "1264" && !says("'n'"));
    if (narrow) error.code = ErrorCode::database;
    return error;
}

Error unknown_item(const sql::Id& item) {
    return make_error(ErrorCode::integrity,
                      "item " + sql::to_string(item) + " does not exist; nothing was applied");
}

Result<void> SqlVotes::create_tables(Timeout timeout, ExistingCounts existing) {
    const Deadline deadline = database_->deadline(timeout);
    // MySQL commits with every change of the schema: what follows is a transaction of its own there.
    const bool apart = database_->dialect() == sql::Dialect::mysql;
    if (apart) {
        HOTCOUNT_TRY(sql::transact(*database_, deadline, [&](sql::Connection& connection) {
            return openings_.look(connection, *layout_, existing);
        }));
        HOTCOUNT_TRY(sql::until_it_passes(*database_, deadline, [&]() -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database_->writer(deadline));
            HOTCOUNT_TRY_ASSIGN(const std::string type, mysql_item_type(*connection, options_));
            VoteNames names{options_, sql::Grammar{sql::Dialect::mysql}};
            if (!type.empty()) names.item_type = type;
            return connection->run_script(schema_text(names, sql::Grammar{sql::Dialect::mysql}) +
                                          more_schema(type));
        }));
    }
    return sql::transact(*database_, deadline, [&](sql::Connection& connection) -> Result<void> {
        if (!apart) HOTCOUNT_TRY(connection.run_script(schema()));
        const std::string_view strategy = to_string(options_.strategy);
        HOTCOUNT_TRY_ASSIGN(std::string mark, read_mark(connection, layout_->read_strategy));
        // Nobody is kept waiting by a process that only starts.
        if (mark == strategy) return {};
        if (!layout_->lock_all.empty()) {
            HOTCOUNT_TRY(connection.run_script(layout_->lock_all));
            HOTCOUNT_TRY_ASSIGN(mark, read_mark(connection, layout_->read_strategy));
            if (mark == strategy) return {};
        }
        HOTCOUNT_TRY_ASSIGN(const bool counted, is_counted(connection, *layout_));
        if (!counted) HOTCOUNT_TRY(openings_.settle(connection, existing));
        // Tables that were never counted here, or by a strategy that keeps other counts true.
        HOTCOUNT_TRY(reconcile_all(connection));
        const std::string_view place = to_string(count_place(options_.strategy));
        HOTCOUNT_TRY(connection.execute(layout_->write_marks, {place, strategy}));
        return take_over(connection);
    });
}

Result<bool> is_counted(sql::Connection& connection, const Layout& layout) {
    HOTCOUNT_TRY_ASSIGN(const std::string place, read_mark(connection, layout.read_place));
    return !place.empty();
}

Result<void> SqlVotes::take_over(sql::Connection&) { return {}; }

Result<void> SqlVotes::check_items(std::span<const sql::Id> items) const {
    for (const sql::Id& item : items) HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    return {};
}

// -- votes --------------------------------------------------------------------------------------

Result<Cast> SqlVotes::cast(const Ballot& ballot, Timeout timeout) {
    HOTCOUNT_TRY(check_ballot(ballot, options_));
    return write(ballot, timeout);
}

std::vector<Result<Cast>> SqlVotes::cast_many(std::span<const Ballot> ballots, Timeout timeout) {
    const CheckedBallots checked{ballots, options_};
    if (checked.all_good()) return write_many(ballots, timeout);
    return checked.merge(write_many(checked.good(), timeout));
}

void SqlVotes::cast_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) {
    if (auto checked = check_ballot(ballot, options_); !checked)
        return done(std::move(checked).error());
    write_async(ballot, std::move(done), timeout);
}

void SqlVotes::cast_many_async(std::span<const Ballot> ballots,
                               std::function<void(std::vector<Result<Cast>>)> done,
                               Timeout timeout) {
    CheckedBallots checked{ballots, options_};
    if (checked.all_good()) return write_many_async(ballots, std::move(done), timeout);
    const auto kept = std::make_shared<const CheckedBallots>(std::move(checked));
    write_many_async(
        kept->good(),
        [kept, done = std::move(done)](std::vector<Result<Cast>> results) {
            done(kept->merge(std::move(results)));
        },
        timeout);
}

Error wrong_place(const std::string& vote_table, std::string_view found, VoteStrategy strategy) {
    if (found.empty()) {
        return make_error(ErrorCode::config,
                          "table " + vote_table +
                              " is there, and what its items count is not known yet; "
                              "create_tables() finds out, also where schema() made the tables");
    }
    return make_error(ErrorCode::config, "table " + vote_table + " was last counted in its " +
                                             std::string{found} + ", strategy " +
                                             std::string{to_string(strategy)} + " counts in its " +
                                             std::string{to_string(count_place(strategy))} +
                                             "; create_tables() reconciles and switches over");
}

Result<void> check_place(sql::Connection& connection, const Layout& layout,
                         const VotesOptions& options, bool hold) {
    const std::string_view wanted = to_string(count_place(options.strategy));
    auto mark = read_mark(connection, hold ? layout.hold_place : layout.read_place);
    if (!mark) return explain_missing_table(std::move(mark).error());
    if (*mark != wanted) return wrong_place(options.vote_table, *mark, options.strategy);
    return {};
}

Result<void> SqlVotes::add_items(std::span<const sql::Id> items, Timeout timeout) {
    HOTCOUNT_TRY(check_items(items));
    // In order, or two that add the same items wait for each other.
    std::vector<sql::Id> sorted{items.begin(), items.end()};
    std::sort(sorted.begin(), sorted.end());
    const auto add = [&](sql::Connection& connection) -> Result<void> {
        if (create_items_) {
            auto added = connection.execute(*create_items_, {array_literal(sorted)});
            return added ? Result<void>{} : explain_missing_table(std::move(added).error());
        }
        for (const sql::Id& item : sorted) {
            auto added = connection.execute(layout_->add_item, {sql::to_value(item)});
            if (!added) return explain_missing_table(std::move(added).error());
        }
        return {};
    };
    return sql::transact(*database_, database_->deadline(timeout), add);
}

Result<std::int64_t> SqlVotes::read_count(sql::Connection& connection, const sql::Id& item) {
    std::int64_t value = 0;
    bool whole = true;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        whole = row.is_integer(0);
        value = row.integer(0);
        return {};
    };
    const sql::Statement& statement = count_place(options_.strategy) == CountPlace::item
                                          ? layout_->count_in_item
                                          : layout_->count_in_cells;
    HOTCOUNT_TRY(connection.query(statement, {sql::to_value(item)}, read));
    if (!whole) {
        return make_error(ErrorCode::overflow, "the count of item " + sql::to_string(item) +
                                                   " is not a signed 64-bit integer");
    }
    return value;
}

Result<std::vector<Count>> SqlVotes::count_many(std::span<const sql::Id> items, Timeout timeout,
                                                Consistency consistency) {
    (void)consistency;  // The count lives in the database: exact either way.
    HOTCOUNT_TRY(check_items(items));
    const auto read = [&](sql::Connection& connection) -> Result<std::vector<Count>> {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        std::vector<Count> counts;
        counts.reserve(items.size());
        const WallTime now = options_.clock->wall_now();
        for (const sql::Id& item : items) {
            HOTCOUNT_TRY_ASSIGN(const std::int64_t value, read_count(connection, item));
            counts.push_back(Count{value, true, now, "sql", 0});
        }
        return counts;
    };
    return sql::read_snapshot(*database_, database_->deadline(timeout), read);
}

Result<Count> SqlVotes::count(const sql::Id& item, Timeout timeout, Consistency consistency) {
    HOTCOUNT_TRY_ASSIGN(auto counts, count_many(std::span{&item, 1}, timeout, consistency));
    return std::move(counts.front());
}

Result<void> SqlVotes::run_async(std::function<void(Votes&)> work) {
    Workers& workers = workers_.get();
    if (workers.waiting.load(std::memory_order_relaxed) >= options_.commit.max_queue) {
        return make_error(ErrorCode::capacity,
                          database_->name() + ": " + std::to_string(options_.commit.max_queue) +
                              " calls are waiting (max_queue); nothing was applied");
    }
    HOTCOUNT_TRY(workers.pool.start());
    workers.waiting.fetch_add(1, std::memory_order_relaxed);
    workers.pool.run([self = shared_from_this(), &workers, work = std::move(work)] {
        workers.waiting.fetch_sub(1, std::memory_order_relaxed);
        work(*self);
    });
    return {};
}

void SqlVotes::count_async(const sql::Id& item, Completion<Count> done, Timeout timeout,
                           Consistency consistency) {
    const Deadline deadline = database_->deadline(timeout);
    auto begun = run_async([item, done, deadline, consistency](Votes& votes) {
        done(votes.count(item, deadline.remaining(), consistency));
    });
    if (!begun) done(std::move(begun).error());
}

void SqlVotes::count_many_async(std::span<const sql::Id> items, Completion<std::vector<Count>> done,
                                Timeout timeout, Consistency consistency) {
    const Deadline deadline = database_->deadline(timeout);
    auto begun = run_async([kept = std::vector<sql::Id>(items.begin(), items.end()), done, deadline,
                            consistency](Votes& votes) {
        done(votes.count_many(kept, deadline.remaining(), consistency));
    });
    if (!begun) done(std::move(begun).error());
}

// By what the statement that read them saw: voters who commit meanwhile move the count and the votes
// alike, so the difference stays right where the numbers do not. The item's row first, as voters lock.
Result<void> SqlVotes::repair(sql::Connection& connection, const Audited& row) {
    const sql::Value item = sql::to_value(row.item);
    if (count_place(options_.strategy) != CountPlace::cells) {
        const auto difference = checked_subtract(row.votes, row.stored);
        if (!difference) return count_overflow(row.item);
        HOTCOUNT_TRY(connection.execute(layout_->bump_item, {*difference, item}));
        return {};
    }
    const auto difference = checked_subtract(row.votes, row.cells);
    if (!difference) return count_overflow(row.item);
    HOTCOUNT_TRY(connection.query(layout_->lock_item, {item}, kIgnoreRows));
    if (*difference != 0) HOTCOUNT_TRY(bump_cell(connection, *layout_, row.item, 0, *difference));
    // Now that its row is held: a sum that had to wait for it would be an old one.
    HOTCOUNT_TRY(connection.execute(layout_->fold_item, {item}));
    return {};
}

Result<std::vector<Drift>> SqlVotes::reconcile_page(sql::Connection& connection,
                                                    std::span<const sql::Id> items,
                                                    const std::optional<sql::Id>& after,
                                                    bool dry_run, std::optional<sql::Id>& last) {
    std::vector<Audited> seen;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        for (int sum = 1; sum <= 3; ++sum) {
            if (!row.is_null(sum) && !row.is_integer(sum)) return count_overflow(row.id(0));
        }
        seen.push_back(Audited{row.id(0), row.integer(1), row.integer(2), row.integer(3)});
        return {};
    };
    if (!items.empty()) {
        for (const sql::Id& item : items) {
            HOTCOUNT_TRY(connection.query(layout_->audit_one, {sql::to_value(item)}, read));
        }
    } else if (after) {
        HOTCOUNT_TRY(
            connection.query(layout_->audit_after, {sql::to_value(*after), kReconcilePage}, read));
    } else {
        HOTCOUNT_TRY(connection.query(layout_->audit_first, {kReconcilePage}, read));
    }
    last.reset();
    if (!seen.empty()) last = seen.back().item;

    const bool in_cells = count_place(options_.strategy) == CountPlace::cells;
    // slotted leaves item.vote_count behind by design; that alone is no drift.
    const bool stored_lags = options_.strategy == VoteStrategy::slotted;
    std::vector<Drift> drifts;
    for (const Audited& row : seen) {
        if (in_cells && row.cells != row.votes) {
            drifts.push_back(Drift{row.item, row.cells, row.votes});
        } else if (row.stored != row.votes && !stored_lags) {
            drifts.push_back(Drift{row.item, row.stored, row.votes});
        } else {
            continue;
        }
        if (!dry_run) HOTCOUNT_TRY(repair(connection, row));
    }
    return drifts;
}

Result<void> SqlVotes::reconcile_all(sql::Connection& connection) {
    std::optional<sql::Id> after;
    do {
        std::optional<sql::Id> last;
        HOTCOUNT_TRY(reconcile_page(connection, {}, after, false, last));
        after = last;
    } while (after);
    return {};
}

Result<std::vector<Drift>> SqlVotes::reconcile(std::optional<std::span<const sql::Id>> items,
                                               bool dry_run, Timeout timeout) {
    const Deadline deadline = database_->deadline(timeout);
    std::vector<Drift> drifts;
    if (items && items->empty()) return drifts;
    if (items) HOTCOUNT_TRY(check_items(*items));
    std::optional<sql::Id> after;
    // In order, as voters lock.
    std::vector<sql::Id> sorted;
    if (items) sorted.assign(items->begin(), items->end());
    std::sort(sorted.begin(), sorted.end());
    std::span<const sql::Id> left{sorted};
    while (true) {
        const auto page = left.first(std::min<std::size_t>(left.size(), kReconcilePage));
        left = left.subspan(page.size());
        std::optional<sql::Id> last;
        const auto audit = [&](sql::Connection& connection) -> Result<std::vector<Drift>> {
            // One at a time, or two would add the same difference.
            if (!dry_run) HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, kIgnoreRows));
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            return reconcile_page(connection, page, after, dry_run, last);
        };
        HOTCOUNT_TRY_ASSIGN(auto found, dry_run ? sql::read_snapshot(*database_, deadline, audit)
                                                : sql::transact(*database_, deadline, audit));
        drifts.insert(drifts.end(), std::make_move_iterator(found.begin()),
                      std::make_move_iterator(found.end()));
        after = last;
        if (items ? left.empty() : !after) return drifts;
    }
}

Result<FlushReport> SqlVotes::flush(Timeout timeout) {
    // naive and batched bring item.vote_count up to date in every commit.
    if (options_.strategy != VoteStrategy::slotted) return FlushReport{0, 0, 0};
    if (database_->dialect() == sql::Dialect::mysql) {
        return flush_pages(database_->deadline(timeout));
    }
    const auto fold = [&](sql::Connection& connection) -> Result<FlushReport> {
        // One at a time: a fold that had to wait for another would write its older sums.
        HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, kIgnoreRows));
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t folded, connection.execute(layout_->fold_lagging));
        return FlushReport{folded, 0, 0};
    };
    return sql::transact(*database_, database_->deadline(timeout), fold);
}

// MySQL locks every cell that an UPDATE sums, and would keep the voters for all items waiting, where
// they do not meet in a deadlock. So the items that lag are found by reading, and folded in order.
Result<FlushReport> SqlVotes::flush_pages(Deadline deadline) {
    std::vector<sql::Id> lagging;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        lagging.push_back(row.id(0));
        return {};
    };
    const auto find = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_));
        HOTCOUNT_TRY(connection.query(layout_->fold_lagging, {}, see));
        return {};
    };
    HOTCOUNT_TRY(sql::read_snapshot(*database_, deadline, find));
    constexpr std::size_t kPage = 100;
    for (std::size_t done = 0; done < lagging.size(); done += kPage) {
        const auto page = std::span{lagging}.subspan(done, std::min(kPage, lagging.size() - done));
        const auto fold = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            for (const sql::Id& item : page) {
                // Summed once its row is held: of two that fold it the later has the later sum.
                HOTCOUNT_TRY(
                    connection.query(layout_->lock_item, {sql::to_value(item)}, kIgnoreRows));
                HOTCOUNT_TRY(connection.execute(layout_->fold_item, {sql::to_value(item)}));
            }
            return {};
        };
        HOTCOUNT_TRY(sql::transact(*database_, deadline, fold));
    }
    return FlushReport{static_cast<std::int64_t>(lagging.size()), 0, 0};
}

Result<std::shared_ptr<SyncWorker>> SqlVotes::sync_worker() {
    return make_error(ErrorCode::config, "strategy '" + std::string{to_string(options_.strategy)} +
                                             "' keeps no counts in a cache, so it has no sync "
                                             "worker; 'cached' has");
}

Result<void> ensure_item(sql::Connection& connection, const Layout& layout, MissingItem missing,
                         const sql::Id& item) {
    if (missing == MissingItem::refuse) return {};
    if (layout.dialect() == sql::Dialect::mysql) {
        // There, adding what exists takes its row from everybody else until the commit.
        bool there = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            there = true;
            return {};
        };
        HOTCOUNT_TRY(connection.query(layout.count_in_item, {sql::to_value(item)}, see));
        if (there) return {};
    }
    auto added = connection.execute(layout.add_item, {sql::to_value(item)});
    return added ? Result<void>{} : narrow_column(std::move(added).error());
}

Result<void> bump_cell(sql::Connection& connection, const Layout& layout, const sql::Id& item,
                       std::int64_t slot, std::int64_t difference) {
    const sql::Value id = sql::to_value(item);
    HOTCOUNT_TRY_ASSIGN(std::int64_t changed,
                        connection.execute(layout.bump_cell, {id, slot, difference}));
    if (changed == 0) {
        HOTCOUNT_TRY_ASSIGN(changed,
                            connection.execute(layout.insert_cell, {id, slot, difference}));
    }
    if (changed == 0) {
        // Somebody else has made it meanwhile; or it is full.
        HOTCOUNT_TRY_ASSIGN(changed, connection.execute(layout.bump_cell, {id, slot, difference}));
    }
    if (changed == 0) return count_overflow(item);
    return {};
}

}  // namespace hotcount

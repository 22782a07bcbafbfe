// Finds counts that disagree with the votes, and sets them right beside voters and folds.
//
// The difference between votes and counts is read in one statement and then added: voters who commit
// meanwhile move both alike, so the difference stays right although the numbers change. Only another
// reconcile would add it twice, so each transaction waits for the others' end before it reads. If
// there is a journal the difference goes there, and no voter waits for it.
#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql_votes.hpp"

namespace hotcount {
namespace {

// Items per transaction: bounds how long voters wait for it if there is no journal.
constexpr std::int64_t kPage = 1000;

const sql::RowVisitor kIgnoreRows = [](const sql::Row&) -> Result<void> { return {}; };

}  // namespace

Result<std::vector<SqlVotes::Audited>> SqlVotes::audit(sql::Connection& connection, Which which,
                                                       std::span<const sql::Id> items,
                                                       const std::optional<sql::Id>& after) {
    std::vector<Audited> seen;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        for (int sum = 1; sum <= 5; ++sum) {
            if (!row.is_null(sum) && !row.is_integer(sum)) return count_overflow(row.id(0));
        }
        seen.push_back(Audited{row.id(0), row.integer(1), row.integer(2), row.integer(3),
                               row.integer(4) > 0, row.integer(5)});
        return {};
    };
    if (which == Which::orphans) {
        HOTCOUNT_TRY(connection.query(layout_->audit_orphans, {}, read));
    } else if (which == Which::named) {
        for (const sql::Id& item : items) {
            HOTCOUNT_TRY(connection.query(layout_->audit_one, {sql::to_value(item)}, read));
        }
    } else if (after) {
        HOTCOUNT_TRY(connection.query(layout_->audit_after, {sql::to_value(*after), kPage}, read));
    } else {
        HOTCOUNT_TRY(connection.query(layout_->audit_first, {kPage}, read));
    }
    return seen;
}

Result<std::vector<Drift>> SqlVotes::compare(sql::Connection& connection,
                                             std::span<const Audited> seen, Which which,
                                             bool dry_run) {
    const bool in_cells = place() == CountPlace::cells || place() == CountPlace::journal;
    // slotted leaves item.vote_count behind by design; that alone is no drift.
    const bool stored_lags = options_.strategy == VoteStrategy::slotted || which == Which::orphans;
    std::vector<Drift> drifts;
    for (const Audited& row : seen) {
        const auto counted = checked_add(row.cells, row.pending);
        if (!counted) return count_overflow(row.item);
        if (in_cells && *counted != row.votes) {
            drifts.push_back(Drift{row.item, *counted, row.votes});
        } else if (in_cells ? !stored_lags && row.stored != row.cells && !row.asked
                            : row.stored != row.votes) {
            drifts.push_back(Drift{row.item, row.stored, row.votes});
        } else {
            continue;
        }
        if (!dry_run) HOTCOUNT_TRY(repair(connection, row));
    }
    return drifts;
}

Result<void> SqlVotes::repair(sql::Connection& connection, const Audited& row) {
    const sql::Value item = sql::to_value(row.item);
    if (place() == CountPlace::journal) {
        const auto counted = checked_add(row.cells, row.pending);
        const auto difference = counted ? checked_subtract(row.votes, *counted) : std::nullopt;
        if (!difference) return count_overflow(row.item);
        // 0 if item.vote_count alone is wrong: it asks for the fold.
        HOTCOUNT_TRY(connection.execute(layout_->append, {item, *difference}));
        return {};
    }
    // The item's row first, as voters lock.
    if (place() != CountPlace::cells) {
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

Result<std::vector<Drift>> SqlVotes::reconcile(std::optional<std::span<const sql::Id>> items,
                                               bool dry_run, Timeout timeout) {
    std::vector<Drift> drifts;
    if (items && items->empty()) return drifts;
    if (items) HOTCOUNT_TRY(check_items(*items));
    // In order, as voters lock.
    std::vector<sql::Id> sorted;
    if (items) sorted.assign(items->begin(), items->end());
    std::sort(sorted.begin(), sorted.end());
    std::span<const sql::Id> left{sorted};
    std::optional<sql::Id> after;
    Which which = items ? Which::named : Which::all;
    while (true) {
        // Each page has its own: a table of any size is got through, at most so long per page.
        const Deadline deadline = database_->deadline(timeout);
        const auto page = left.first(std::min<std::size_t>(left.size(), kPage));
        left = left.subspan(page.size());
        std::optional<sql::Id> last;
        const auto look = [&](sql::Connection& connection) -> Result<std::vector<Drift>> {
            // A statement of its own: what it waited for is seen by the next one.
            if (!dry_run) HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, kIgnoreRows));
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            HOTCOUNT_TRY_ASSIGN(const std::vector<Audited> seen,
                                audit(connection, which, page, after));
            last.reset();
            if (!seen.empty()) last = seen.back().item;
            return compare(connection, seen, which, dry_run);
        };
        HOTCOUNT_TRY_ASSIGN(auto found, dry_run ? sql::read_snapshot(*database_, deadline, look)
                                                : sql::transact(*database_, deadline, look));
        drifts.insert(drifts.end(), std::make_move_iterator(found.begin()),
                      std::make_move_iterator(found.end()));
        after = last;
        if (which == Which::named && !left.empty()) continue;
        if (which == Which::all && after) continue;
        if (which != Which::all || place() != CountPlace::journal) break;
        which = Which::orphans;
    }
    // Shown at once if nobody holds the items; else by a later fold.
    if (folder_ != nullptr && !dry_run && !drifts.empty()) {
        (void)folder_->fold_once(database_->deadline(timeout));
    }
    return drifts;
}

}  // namespace hotcount

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

// Told at the end: the others are as right as they would be without these.
Error count_refused(std::span<const sql::Id> items, bool dry_run) {
    std::string whose = "the count of item " + sql::to_string(items.front());
    if (items.size() > 1) whose += " and " + std::to_string(items.size() - 1) + " more";
    return make_error(ErrorCode::overflow, whose + " would leave signed 64 bits; all other items " +
                                               (dry_run ? "were looked at" : "were reconciled"))
        .about(&ErrorFacts::item, items.front());
}

}  // namespace

Result<void> SqlVotes::audit(sql::Connection& connection, Which which,
                             std::span<const sql::Id> items, const std::optional<sql::Id>& after,
                             AuditedPage& page) {
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        page.last = row.id(0);
        for (int sum = 1; sum <= 5; ++sum) {
            if (!row.is_null(sum) && !row.is_integer(sum)) {
                page.refused.push_back(row.id(0));
                return {};
            }
        }
        page.seen.push_back(Audited{row.id(0), row.integer(1), row.integer(2), row.integer(3),
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
    return {};
}

Result<void> SqlVotes::compare(sql::Connection& connection, AuditedPage& page, Which which,
                               bool dry_run) {
    const bool in_cells = place() == CountPlace::cells || place() == CountPlace::journal;
    // slotted leaves item.vote_count behind by design; that alone is no drift.
    const bool stored_lags = options_.strategy == VoteStrategy::slotted || which == Which::orphans;
    for (const Audited& row : page.seen) {
        const auto counted = checked_add(row.cells, row.pending);
        if (!counted) {
            page.refused.push_back(row.item);
            continue;
        }
        Drift drift{row.item, *counted, row.votes};
        if (!in_cells || *counted == row.votes) {
            const bool right = in_cells ? stored_lags || row.stored == row.cells || row.asked
                                        : row.stored == row.votes;
            if (right) continue;
            drift.counted = row.stored;
        }
        if (!dry_run) {
            HOTCOUNT_TRY_ASSIGN(const bool repaired, repair(connection, row));
            if (!repaired) {
                page.refused.push_back(row.item);
                continue;
            }
        }
        page.drifts.push_back(std::move(drift));
    }
    return {};
}

// False if a number on the way would leave 64 bits: nothing was changed.
Result<bool> SqlVotes::repair(sql::Connection& connection, const Audited& row) {
    const sql::Value item = sql::to_value(row.item);
    if (place() == CountPlace::journal) {
        const auto counted = checked_add(row.cells, row.pending);
        const auto difference = counted ? checked_subtract(row.votes, *counted) : std::nullopt;
        if (!difference) return false;
        // 0 if item.vote_count alone is wrong: it asks for the fold.
        HOTCOUNT_TRY(connection.execute(layout_->append, {item, *difference}));
        return true;
    }
    // The item's row first, as voters lock.
    if (place() != CountPlace::cells) {
        const auto difference = checked_subtract(row.votes, row.stored);
        if (!difference) return false;
        HOTCOUNT_TRY(connection.execute(layout_->bump_item, {*difference, item}));
        return true;
    }
    const auto difference = checked_subtract(row.votes, row.cells);
    if (!difference) return false;
    HOTCOUNT_TRY(connection.query(layout_->lock_item, {item}, sql::kIgnoreRows));
    if (*difference != 0) {
        if (auto bumped = bump_cell(connection, *layout_, row.item, 0, *difference); !bumped) {
            if (bumped.error().code == ErrorCode::overflow) return false;
            return std::move(bumped).error();
        }
    }
    // Now that its row is held: a sum that had to wait for it would be an old one.
    if (layout_->counts_in_items) HOTCOUNT_TRY(connection.execute(layout_->fold_item, {item}));
    return true;
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
    std::vector<sql::Id> refused;
    while (true) {
        // Each page has its own: a table of any size is got through, at most so long per page.
        const Deadline deadline = database_->deadline(timeout);
        const auto page = left.first(std::min<std::size_t>(left.size(), kPage));
        left = left.subspan(page.size());
        const auto look = [&](sql::Connection& connection) -> Result<AuditedPage> {
            // A statement of its own: what it waited for is seen by the next one.
            if (!dry_run)
                HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, sql::kIgnoreRows));
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            AuditedPage audited;
            HOTCOUNT_TRY(audit(connection, which, page, after, audited));
            HOTCOUNT_TRY(compare(connection, audited, which, dry_run));
            return audited;
        };
        HOTCOUNT_TRY_ASSIGN(AuditedPage found, dry_run
                                                   ? sql::read_snapshot(*database_, deadline, look)
                                                   : sql::transact(*database_, deadline, look));
        drifts.insert(drifts.end(), std::make_move_iterator(found.drifts.begin()),
                      std::make_move_iterator(found.drifts.end()));
        refused.insert(refused.end(), found.refused.begin(), found.refused.end());
        after = found.last;
        if (which == Which::named && !left.empty()) continue;
        if (which == Which::all && after) continue;
        if (which != Which::all || place() != CountPlace::journal) break;
        which = Which::orphans;
    }
    // Shown at once if nobody holds the items; else by a later fold.
    if (folder_ != nullptr && !dry_run && !drifts.empty()) {
        (void)folder_->fold_once(database_->deadline(timeout));
    }
    if (!refused.empty()) return count_refused(refused, dry_run);
    return drifts;
}

}  // namespace hotcount

// Finds counts that disagree with the votes, and sets them right beside voters and folds.
//
//   look     a page of items in one statement, without a lock
//   settle   only if a page has a difference: those items are read again in a transaction for which
//            other reconciles wait, and the difference found then is added
//
// The difference between votes and counts is read in one statement and then added. Votes that are
// committed meanwhile move both alike, so the difference stays right although the numbers change.
// Only another reconcile would add it twice, so the transaction first waits until no other one
// runs. If there is a journal the difference goes there, and no voter waits for it.
//
// A page is committed before the next one begins, so that a reconcile which was interrupted has done
// all that it says.
#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <set>

#include "sql_votes.hpp"
#include "votes/tables/vote_dialect.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {
namespace {

// Journal rows from which on a fold before the end is worth its cost.
constexpr std::size_t kWorthAFold = 20'000;

// Reported at the end: the other items are set right all the same.
Error count_refused(std::span<const sql::Id> items, bool dry_run) {
    std::string whose = "the count of item " + sql::to_string(items.front());
    if (items.size() > 1) whose += " and " + std::to_string(items.size() - 1) + " more";
    return make_error(ErrorCode::overflow, whose + " would leave signed 64 bits; all other items " +
                                               (dry_run ? "were looked at" : "were reconciled"))
        .about(&ErrorFacts::item, items.front());
}

template <class T>
void move_all(std::vector<T>& from, std::vector<T>& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

Duration since(SteadyTime began) { return std::chrono::steady_clock::now() - began; }

}  // namespace

// -- how far it is --------------------------------------------------------------------------------

bool SqlVotes::Reconciling::take(Findings&& page, std::size_t looked_at,
                                 std::optional<sql::Id> last) {
    move_all(page.drifts, found.drifts);
    move_all(page.differences, found.differences);
    move_all(page.refused, found.refused);
    items += looked_at;
    if (last) after = last;
    return !how.progress || how.progress({std::move(last), items, found.drifts.size()});
}

Error SqlVotes::Reconciling::stopped(Error error) const {
    if (items == 0) return error;
    error.message += "; " + std::to_string(items) + " items are done";
    if (after) {
        const std::string last = sql::to_string(*after);
        error.message += ", all up to " + last + ": after=" + last + " goes on from there";
    }
    return error;
}

void SqlVotes::PageSize::note(Duration took) {
    if (took < std::chrono::milliseconds{50}) now_ = std::min(now_ * 2, most_);
    if (took > std::chrono::milliseconds{200}) now_ = std::max<std::size_t>(now_ / 2, 1);
}

// -- a page ---------------------------------------------------------------------------------------

Result<SqlVotes::Findings> SqlVotes::find_drifts(sql::Connection& connection,
                                                 std::span<const sql::Id> items, bool dry_run) {
    Findings found;
    while (!items.empty()) {
        const auto part = items.first(std::min(Audit::kMost, items.size()));
        items = items.subspan(part.size());
        HOTCOUNT_TRY_ASSIGN(const Audit::Page page, audit_.look(connection, part));
        Findings here = compare(page, dry_run);
        move_all(here.drifts, found.drifts);
        move_all(here.differences, found.differences);
        move_all(here.refused, found.refused);
    }
    return found;
}

SqlVotes::Findings SqlVotes::compare(const Audit::Page& page, bool dry_run) const {
    Findings found;
    found.refused = page.refused;
    const bool in_cells = place() == CountPlace::cells || place() == CountPlace::journal;
    // slotted leaves item.vote_count behind by design; that alone is no drift.
    const bool stored_lags =
        options_.strategy == VoteStrategy::slotted || !layout_->counts_in_items;
    for (const AuditedItem& row : page.seen) {
        if (!row.exists) {
            compare_orphan(row, found);
            continue;
        }
        const auto counted = checked_add(row.cells, row.pending);
        if (!counted) {
            found.refused.push_back(row.item);
            continue;
        }
        Drift drift{row.item, *counted, row.votes};
        if (!in_cells || *counted == row.votes) {
            const bool right = in_cells ? stored_lags || row.stored == row.cells || row.asked
                                        : row.stored == row.votes;
            if (right) continue;
            drift.counted = row.stored;
        }
        // 0 if item.vote_count alone is wrong: in the journal it asks for the fold.
        const auto difference = checked_subtract(row.votes, in_cells ? *counted : row.stored);
        if (!difference && !dry_run) {
            found.refused.push_back(row.item);
            continue;
        }
        found.drifts.push_back(std::move(drift));
        found.differences.emplace_back(row.item, difference.value_or(0));
    }
    return found;
}

// An orphan's votes and opening balance cannot be restored, and its item's row may come back: they
// are reported, not deleted. Its counts follow the votes: otherwise an item that is created again
// would start with the old count.
void SqlVotes::compare_orphan(const AuditedItem& row, Findings& found) const {
    const bool in_cells = place() == CountPlace::cells || place() == CountPlace::journal;
    const auto counted = checked_add(row.cells, row.pending);
    const auto difference = counted ? checked_subtract(row.votes, *counted) : std::nullopt;
    if (!difference) {
        found.refused.push_back(row.item);
        return;
    }
    const bool miscounted = in_cells && *difference != 0;
    if (!row.has_votes && row.opening == 0 && !miscounted) return;
    found.drifts.push_back({row.item, in_cells ? *counted : 0, row.votes, true});
    if (miscounted) found.differences.emplace_back(row.item, *difference);
}

Result<SqlVotes::Findings> SqlVotes::settle_drifts(std::span<const Drift> drifts,
                                                   Deadline deadline) {
    std::vector<sql::Id> items;
    items.reserve(drifts.size());
    for (const Drift& drift : drifts) items.push_back(drift.item);
    return sql::transact(
        *database_, deadline, [&](sql::Connection& connection) -> Result<Findings> {
            // A statement of its own, so that the next one sees the changes for which it waited.
            HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, sql::kIgnoreRows));
            HOTCOUNT_TRY(connection.execute(layout_->note_settling));
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            HOTCOUNT_TRY_ASSIGN(Findings found, find_drifts(connection, items, false));
            HOTCOUNT_TRY(repair(connection, found));
            return found;
        });
}

Result<void> SqlVotes::repair(sql::Connection& connection, Findings& found) {
    if (place() == CountPlace::journal) return audit_.append(connection, found.differences);
    if (place() == CountPlace::item) {
        // Sorted, as all transactions lock items.
        std::vector<sql::Id> items;
        for (const auto& difference : found.differences) items.push_back(difference.first);
        HOTCOUNT_TRY(removal_.lock_items(connection, items));
        return audit_.add_to_items(connection, found.differences);
    }
    if (place() != CountPlace::cells) return {};
    for (const auto& [item, difference] : found.differences) {
        const sql::Value id = sql::to_value(item);
        if (difference != 0) {
            if (auto bumped = bump_cell(connection, *layout_, item, 0, difference); !bumped) {
                if (bumped.error().code != ErrorCode::overflow) return std::move(bumped).error();
                found.refused.push_back(item);
                std::erase_if(found.drifts,
                              [&item = item](const Drift& drift) { return drift.item == item; });
                continue;
            }
        }
        if (layout_->counts_in_items) HOTCOUNT_TRY(connection.execute(layout_->fold_item, {id}));
    }
    return {};
}

// -- all pages ------------------------------------------------------------------------------------

Result<std::vector<Drift>> SqlVotes::reconcile(std::optional<std::span<const sql::Id>> items,
                                               const ReconcileOptions& how, Timeout timeout) {
    if (items && how.after) return bad_option("after", "is for a reconcile of all items");
    if (items && items->empty()) return std::vector<Drift>{};
    if (items) HOTCOUNT_TRY(check_items(*items));
    if (how.after) HOTCOUNT_TRY(check_id(*how.after, options_.item_type, "after"));
    Reconciling run{how, timeout};
    auto done = items ? reconcile_named(*items, run) : reconcile_all(run);
    if (!done) return run.stopped(std::move(done).error());
    // The votes of cached are its truth.
    if (place() != CountPlace::cache) {
        if (how.dry_run && !run.found.drifts.empty()) differs_ = true;
        if (!how.dry_run && !items && !how.after) differs_ = false;
    }
    // Shown at once if the items are not locked; otherwise by a later fold.
    if (folder_ != nullptr && !how.dry_run && !run.found.differences.empty()) {
        (void)folder_->fold_once(database_->deadline(timeout));
    }
    if (!run.found.refused.empty()) return count_refused(run.found.refused, how.dry_run);
    return std::move(run.found.drifts);
}

// Settles the differences that `look` finds in one snapshot.
Result<SqlVotes::Findings> SqlVotes::reconcile_page(
    Reconciling& run, const std::function<Result<Findings>(sql::Connection&)>& look) {
    const Deadline deadline = database_->deadline(run.timeout);
    HOTCOUNT_TRY_ASSIGN(
        Findings found,
        sql::read_snapshot(*database_, deadline,
                           [&](sql::Connection& connection) -> Result<Findings> {
                               HOTCOUNT_TRY(check_place(connection, *layout_, options_));
                               return look(connection);
                           }));
    if (run.how.dry_run || found.differences.empty()) return found;
    HOTCOUNT_TRY_ASSIGN(Findings settled, settle_drifts(found.drifts, deadline));
    move_all(found.refused, settled.refused);
    run.appended += settled.differences.size();
    watch_journal();  // A look finds the rows of items that are locked until then.
    if (place() == CountPlace::journal && run.appended >= kWorthAFold) {
        note_appended(run.appended);
        run.appended = 0;
    }
    return settled;
}

Result<void> SqlVotes::reconcile_named(std::span<const sql::Id> items, Reconciling& run) {
    // In order, as voters lock; each once.
    std::vector<sql::Id> sorted{items.begin(), items.end()};
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    PageSize size{Audit::kMost};
    for (std::span<const sql::Id> left{sorted}; !left.empty();) {
        const auto page = left.first(std::min(size.now(), left.size()));
        left = left.subspan(page.size());
        const SteadyTime began = std::chrono::steady_clock::now();
        HOTCOUNT_TRY_ASSIGN(Findings found, reconcile_page(run, [&](sql::Connection& connection) {
                                return find_drifts(connection, page, run.how.dry_run);
                            }));
        size.note(since(began));
        if (!run.take(std::move(found), page.size(), {})) return {};
    }
    return {};
}

Result<void> SqlVotes::reconcile_all(Reconciling& run) {
    PageSize size{Audit::kMost};
    std::vector<sql::Id> ids;
    do {
        const SteadyTime began = std::chrono::steady_clock::now();
        const auto look = [&](sql::Connection& connection) -> Result<Findings> {
            HOTCOUNT_TRY_ASSIGN(ids, audit_.items(connection, run.after, size.now()));
            return find_drifts(connection, ids, run.how.dry_run);
        };
        HOTCOUNT_TRY_ASSIGN(Findings found, reconcile_page(run, look));
        if (ids.empty()) break;
        size.note(since(began));
        if (!run.take(std::move(found), ids.size(), ids.back())) return {};
    } while (true);
    HOTCOUNT_TRY(reconcile_orphans(run));
    return {};
}

Result<bool> SqlVotes::reconcile_orphans(Reconciling& run) {
    // An item may be left in several tables.
    std::set<sql::Id> told;
    const std::size_t tables = Audit::kTables - (layout_->vote_dialect().is_server() ? 0 : 1);
    for (std::size_t table = 0; table < tables; ++table) {
        PageSize size{Audit::kMostIds};
        std::optional<sql::Id> after;
        do {
            const SteadyTime began = std::chrono::steady_clock::now();
            Audit::Slice slice;
            const auto look = [&](sql::Connection& connection) -> Result<Findings> {
                HOTCOUNT_TRY_ASSIGN(slice,
                                    audit_.left_behind(connection, table, after, size.now()));
                std::erase_if(slice.orphans, [&](const sql::Id& id) { return told.contains(id); });
                return find_drifts(connection, slice.orphans, run.how.dry_run);
            };
            HOTCOUNT_TRY_ASSIGN(Findings found, reconcile_page(run, look));
            size.note(since(began));
            told.insert(slice.orphans.begin(), slice.orphans.end());
            after = slice.last;
            if (!run.take(std::move(found), 0, {})) return false;
        } while (after);
    }
    return true;
}

}  // namespace hotcount

// Takes votes out of the tables, and out of the counts in the same transactions: page by page, so
// that voters wait for a page at most, and whoever dies leaves whole pages behind.
#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql_votes.hpp"
#include "votes/tables/checked_ballots.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

using Row = VoteRemoval::Row;

std::vector<sql::Id> ids_of(std::span<const Row> votes) {
    std::vector<sql::Id> ids;
    ids.reserve(votes.size());
    for (const Row& vote : votes) ids.push_back(vote.id);
    return ids;
}

std::int64_t live(std::span<const Row> votes) {
    std::int64_t count = 0;
    for (const Row& vote : votes) count += vote.value != 0 ? 1 : 0;
    return count;
}

}  // namespace

// -- a user ---------------------------------------------------------------------------------------

Result<Erased> SqlVotes::erase_user(const sql::Id& user, Timeout timeout) {
    HOTCOUNT_TRY(check_id(user, options_.user_type, "user"));
    Erased erased{0, {}};
    HOTCOUNT_TRY_ASSIGN(const bool indexed,
                        sql::read_snapshot(*database_, database_->deadline(timeout),
                                           [&](sql::Connection& connection) {
                                               return removal_.has_user_index(connection);
                                           }));
    if (!indexed) erased.missing_index = removal_.user_index();
    std::optional<sql::Id> after_item;
    std::optional<VoteRemoval::Key> after_key;
    do {
        std::vector<sql::Id> items;
        std::optional<VoteRemoval::Key> slice_end;
        const auto find = [&](sql::Connection& connection) -> Result<void> {
            HOTCOUNT_TRY(check_place(connection, *layout_, options_));
            if (indexed) {
                HOTCOUNT_TRY_ASSIGN(items, removal_.items_of(connection, user, after_item));
                return {};
            }
            HOTCOUNT_TRY_ASSIGN(VoteRemoval::Slice slice,
                                removal_.slice_of(connection, user, after_key));
            items.clear();
            for (auto& key : slice.found) items.push_back(std::move(key.first));
            slice_end = std::move(slice.last);
            return {};
        };
        HOTCOUNT_TRY(sql::read_snapshot(*database_, database_->deadline(timeout), find));
        for (std::span<const sql::Id> left{items}; !left.empty();) {
            const auto page = left.first(std::min(left.size(), VoteRemoval::kPage));
            left = left.subspan(page.size());
            HOTCOUNT_TRY_ASSIGN(const std::int64_t votes,
                                sql::transact(*database_, database_->deadline(timeout),
                                              [&](sql::Connection& connection) {
                                                  return erase_page(connection, user, page);
                                              }));
            erased.votes += votes;
            note_appended(page.size());
        }
        after_key = std::move(slice_end);
        after_item = indexed && !items.empty() ? std::optional{items.back()} : std::nullopt;
    } while (after_item || after_key);
    after_removal(database_->deadline(timeout));
    return erased;
}

Result<std::int64_t> SqlVotes::erase_page(sql::Connection& connection, const sql::Id& user,
                                          std::span<const sql::Id> items) {
    HOTCOUNT_TRY(check_place(connection, *layout_, options_, true));
    const bool in_items = place() == CountPlace::item;
    // In the order in which voters of this database lock.
    const bool item_first = layout_->vote_dialect().grammar().shares_parents();
    if (in_items && item_first) HOTCOUNT_TRY(removal_.lock_items(connection, items));
    HOTCOUNT_TRY_ASSIGN(const std::vector<Row> votes,
                        removal_.lock_of_user(connection, user, items));
    const std::vector<sql::Id> held = ids_of(votes);
    switch (place()) {
        case CountPlace::journal:
            HOTCOUNT_TRY(removal_.uncount_in_journal(connection, votes));
            break;
        case CountPlace::item:
            if (!item_first) HOTCOUNT_TRY(removal_.lock_items(connection, held));
            HOTCOUNT_TRY(removal_.uncount_in_items(connection, user, held));
            break;
        case CountPlace::cells:
            HOTCOUNT_TRY(removal_.uncount_in_cells(connection, votes));
            break;
        case CountPlace::cache:
            HOTCOUNT_TRY(note_removed(connection, held));
            break;
    }
    HOTCOUNT_TRY(removal_.delete_of_user(connection, user, held));
    return live(votes);
}

// -- an item --------------------------------------------------------------------------------------

Result<std::int64_t> SqlVotes::remove_item(const sql::Id& item, bool delete_row, Timeout timeout) {
    HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    std::int64_t removed = 0;
    RemovedPage page;
    // Without any lock but the votes', until few are left.
    do {
        HOTCOUNT_TRY_ASSIGN(
            page, sql::transact(*database_, database_->deadline(timeout),
                                [&](sql::Connection& connection) -> Result<RemovedPage> {
                                    HOTCOUNT_TRY(check_place(connection, *layout_, options_, true));
                                    return remove_votes(connection, item);
                                }));
        removed += page.votes;
        note_appended(1);
    } while (page.full);
    // The rest, and what counted them. Voters may have been quicker: then once more.
    std::int64_t ver = 0;
    std::int64_t nobodys = 0;
    do {
        const auto finish = [&](sql::Connection& connection) -> Result<RemovedPage> {
            // Nobody folds or reconciles what is going to be gone: a difference that was read
            // before would be added to an item made again.
            if (layout_->vote_dialect().is_server()) {
                HOTCOUNT_TRY(connection.run_script(layout_->lock_fold));
            }
            HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, sql::kIgnoreRows));
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, true));
            HOTCOUNT_TRY(removal_.take_item(connection, item));
            HOTCOUNT_TRY_ASSIGN(const RemovedPage last, remove_votes(connection, item));
            if (last.full) return last;
            HOTCOUNT_TRY_ASSIGN(nobodys, removal_.delete_nobodys(connection, item));
            HOTCOUNT_TRY_ASSIGN(ver, removal_.delete_counts(connection, item));
            if (delete_row) HOTCOUNT_TRY(removal_.delete_item(connection, item));
            return last;
        };
        HOTCOUNT_TRY_ASSIGN(page, sql::transact(*database_, database_->deadline(timeout), finish));
        removed += page.votes;
    } while (page.full);
    removed += nobodys;
    // A copy of no votes, newer than all that folds have published or are about to.
    if (publish_) publish_(std::array{FoldedCount{item, 0, ver}});
    after_removal(database_->deadline(timeout));
    return removed;
}

Result<SqlVotes::RemovedPage> SqlVotes::remove_votes(sql::Connection& connection,
                                                     const sql::Id& item) {
    const bool in_item = place() == CountPlace::item;
    const bool item_first = layout_->vote_dialect().grammar().shares_parents();
    bool there = false;
    const auto lock_item = [&]() -> Result<void> {
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            there = true;
            return {};
        };
        HOTCOUNT_TRY(connection.query(layout_->lock_item, {sql::to_value(item)}, see));
        return {};
    };
    if (in_item && item_first) HOTCOUNT_TRY(lock_item());
    RemovedPage page;
    std::int64_t sum = 0;
    using Table = VoteRemoval::Table;
    std::size_t left = VoteRemoval::kPage;
    for (const Table table : {Table::of_users, Table::anonymous}) {
        if (left == 0) break;
        HOTCOUNT_TRY_ASSIGN(const std::vector<Row> votes,
                            removal_.lock_of_item(connection, table, item, left));
        HOTCOUNT_TRY(removal_.delete_of_item(connection, table, item, votes));
        left -= votes.size();
        page.votes += live(votes);
        for (const Row& vote : votes) sum += vote.value;
    }
    page.full = left == 0;
    if (in_item && !item_first) HOTCOUNT_TRY(lock_item());
    if (place() == CountPlace::cache) {
        HOTCOUNT_TRY(note_removed(connection, std::span{&item, 1}));
    } else if (sum != 0 && (there || !in_item)) {
        HOTCOUNT_TRY(move_count(connection, item, -sum));
    }
    return page;
}

// -- retracted votes ------------------------------------------------------------------------------

Result<std::int64_t> SqlVotes::prune(std::int64_t before, Timeout timeout) {
    std::int64_t pruned = 0;
    std::optional<VoteRemoval::Key> after;
    do {
        const Deadline deadline = database_->deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(
            const VoteRemoval::Slice slice,
            sql::read_snapshot(*database_, deadline, [&](sql::Connection& connection) {
                return removal_.retracted(connection, before, after);
            }));
        for (std::span<const VoteRemoval::Key> left{slice.found}; !left.empty();) {
            const auto page = left.first(std::min(left.size(), VoteRemoval::kPage));
            left = left.subspan(page.size());
            HOTCOUNT_TRY_ASSIGN(const std::int64_t deleted,
                                sql::transact(*database_, database_->deadline(timeout),
                                              [&](sql::Connection& connection) {
                                                  return removal_.delete_retracted(connection,
                                                                                   before, page);
                                              }));
            pruned += deleted;
        }
        after = slice.last;
    } while (after);
    return pruned;
}

}  // namespace hotcount

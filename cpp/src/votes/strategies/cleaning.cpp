// Deletes votes, and subtracts them from the counts in the same transactions: page by page, so that
// voters wait for one page at most, and a process that dies leaves whole pages behind.
#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql_votes.hpp"
#include "votes/tables/vote_dialect.hpp"
#include "votes/tables/vote_writer.hpp"

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

// The error after a page failed: it adds that the earlier pages are committed.
Error SqlVotes::after_pages(Error error, std::int64_t votes, const char* what) {
    if (votes == 0) return error;
    static constexpr std::string_view kKnown = "nothing was applied";
    if (const auto known = error.message.rfind(kKnown); known != std::string::npos) {
        error.message.replace(known, kKnown.size(), "nothing of this page was applied");
    }
    error.message += "; " + std::to_string(votes) + (votes == 1 ? " vote was " : " votes were ") +
                     what + " before it: call again for the rest";
    return error;
}

// In which order voters of this database lock.
bool SqlVotes::item_first() const { return layout_->vote_dialect().grammar().shares_parents(); }

// -- a user ---------------------------------------------------------------------------------------

Result<Erased> SqlVotes::erase_user(const sql::Id& user, Timeout timeout) {
    return erase_until(user, {}, timeout);
}

Result<Erased> SqlVotes::erase_until(const sql::Id& user, const VersionOfItem& until,
                                     Timeout timeout) {
    HOTCOUNT_TRY(check_id(user, options_.user_type, "user"));
    Erased erased{0, {}};
    auto done = erase_pages(user, until, erased, timeout);
    if (!done) return after_pages(std::move(done).error(), erased.votes, "erased");
    after_removal(database_->deadline(timeout));
    return erased;
}

Result<void> SqlVotes::erase_pages(const sql::Id& user, const VersionOfItem& until, Erased& erased,
                                   Timeout timeout) {
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
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::route));
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
                                                  return erase_page(connection, user, until, page);
                                              }));
            erased.votes += votes;
            note_appended(page.size());
        }
        after_key = std::move(slice_end);
        after_item = indexed && !items.empty() ? std::optional{items.back()} : std::nullopt;
    } while (after_item || after_key);
    return {};
}

Result<std::int64_t> SqlVotes::erase_page(sql::Connection& connection, const sql::Id& user,
                                          const VersionOfItem& until,
                                          std::span<const sql::Id> items) {
    HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
    const bool in_items = place() == CountPlace::item;
    if (in_items && item_first()) HOTCOUNT_TRY(removal_.lock_items(connection, items));
    HOTCOUNT_TRY_ASSIGN(std::vector<Row> votes, removal_.lock_of_user(connection, user, items));
    if (until) std::erase_if(votes, [&](const Row& vote) { return vote.version > until(vote.id); });
    const std::vector<sql::Id> held = ids_of(votes);
    HOTCOUNT_TRY_ASSIGN(const CountedByTriggers triggers, layout_->counted_by_triggers(connection));
    if (!triggers.deletes) HOTCOUNT_TRY(uncount(connection, user, votes, held));
    HOTCOUNT_TRY(removal_.delete_of_user(connection, user, held));
    return live(votes);
}

Result<void> SqlVotes::uncount(sql::Connection& connection, const sql::Id& user,
                               std::span<const Row> votes, std::span<const sql::Id> held) {
    switch (place()) {
        case CountPlace::journal:
            return removal_.uncount_in_journal(connection, votes);
        case CountPlace::item:
            if (!item_first()) HOTCOUNT_TRY(removal_.lock_items(connection, held));
            return removal_.uncount_in_items(connection, user, held);
        case CountPlace::cells:
            return removal_.uncount_in_cells(connection, votes);
        case CountPlace::cache:
            break;
    }
    return note_removed(connection, held);
}

// -- an item --------------------------------------------------------------------------------------

Result<std::int64_t> SqlVotes::remove_item(const sql::Id& item, bool delete_row, Timeout timeout) {
    return remove_until(item, delete_row, VoteRemoval::kAll, timeout);
}

Result<std::int64_t> SqlVotes::remove_until(const sql::Id& item, bool delete_row,
                                            std::int64_t until, Timeout timeout) {
    HOTCOUNT_TRY(check_id(item, options_.item_type, "item"));
    std::int64_t removed = 0;
    auto ver = remove_pages(item, delete_row, until, removed, timeout);
    if (!ver) return after_pages(std::move(ver).error(), removed, "removed");
    // A copy of no votes, newer than all that folds have published or are about to.
    if (publish_) publish_(std::array{FoldedCount{item, 0, *ver}});
    after_removal(database_->deadline(timeout));
    return removed;
}

Result<std::int64_t> SqlVotes::remove_pages(const sql::Id& item, bool delete_row,
                                            std::int64_t until, std::int64_t& removed,
                                            Timeout timeout) {
    RemovedPage page;
    // Without any lock but the votes', until few are left.
    do {
        const auto remove = [&](sql::Connection& connection) -> Result<RemovedPage> {
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
            return remove_votes(connection, item, false, until);
        };
        HOTCOUNT_TRY_ASSIGN(page, sql::transact(*database_, database_->deadline(timeout), remove));
        removed += page.votes;
        note_appended(1);
    } while (page.full);
    // The remaining votes and the counts. Once more if voters were quicker.
    std::int64_t ver = 0;
    do {
        const auto finish = [&](sql::Connection& connection) {
            return remove_rest(connection, item, delete_row, until, ver);
        };
        HOTCOUNT_TRY_ASSIGN(page, sql::transact(*database_, database_->deadline(timeout), finish));
        removed += page.votes;
    } while (page.full);
    return ver;
}

Result<SqlVotes::RemovedPage> SqlVotes::remove_rest(sql::Connection& connection,
                                                    const sql::Id& item, bool delete_row,
                                                    std::int64_t until, std::int64_t& ver) {
    // Blocks folds and reconciles: a difference that they have read before would be added to an
    // item that was created again.
    if (layout_->vote_dialect().is_server())
        HOTCOUNT_TRY(connection.run_script(layout_->lock_fold));
    HOTCOUNT_TRY(connection.query(layout_->reconcile_alone, {}, sql::kIgnoreRows));
    HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
    const bool vote_first = place() == CountPlace::item && !item_first();
    bool there = false;
    if (!vote_first) {
        HOTCOUNT_TRY_ASSIGN(there, removal_.take_item(connection, item));
    }
    HOTCOUNT_TRY_ASSIGN(RemovedPage last, remove_votes(connection, item, delete_row, until));
    if (last.full) return last;
    using ItemLock = VoteRemoval::ItemLock;
    ItemLock lock = ItemLock::taken;
    if (vote_first) {
        // Voters hold their votes while they wait for the item, so the item is locked after the
        // votes. Only a deletion needs FOR UPDATE, which may wait long while others vote.
        there = last.there;
        if (delete_row) {
            HOTCOUNT_TRY_ASSIGN(last.full, removal_.has_votes(connection, item));
            if (last.full) return last;
        } else {
            lock = ItemLock::held;
        }
    }
    HOTCOUNT_TRY_ASSIGN(ver, removal_.delete_counts(connection, item, there, lock));
    if (until != VoteRemoval::kAll && lock == ItemLock::taken) {
        // Later votes stay; no vote can be added to them now.
        HOTCOUNT_TRY_ASSIGN(const std::int64_t left, removal_.sum_of(connection, item));
        if (left != 0) HOTCOUNT_TRY(move_count(connection, item, left));
    }
    if (there) {
        if (delete_row) HOTCOUNT_TRY(removal_.delete_item(connection, item));
        return last;
    }
    // An item without a row has blocked no voter.
    HOTCOUNT_TRY_ASSIGN(const bool added, removal_.take_item(connection, item));
    if (!added) return last;
    return make_error(ErrorCode::database,
                      "item " + sql::to_string(item) + " was added while it was removed", {},
                      SqlCondition::transaction_conflict);
}

// The locks of voters, in the order in which voters of this database take them. The item as a last
// one is taken if its row is to go.
Result<SqlVotes::RemovedPage> SqlVotes::remove_votes(sql::Connection& connection,
                                                     const sql::Id& item, bool delete_row,
                                                     std::int64_t until) {
    const bool in_item = place() == CountPlace::item;
    RemovedPage page;
    if (in_item && item_first()) {
        HOTCOUNT_TRY_ASSIGN(page.there, removal_.hold_item(connection, item));
    }
    HOTCOUNT_TRY_ASSIGN(const CountedByTriggers triggers, layout_->counted_by_triggers(connection));
    std::int64_t sum = 0;
    using Table = VoteRemoval::Table;
    std::size_t left = VoteRemoval::kPage;
    for (const Table table : {Table::of_users, Table::anonymous}) {
        if (left == 0) break;
        HOTCOUNT_TRY_ASSIGN(const std::vector<Row> votes,
                            removal_.lock_of_item(connection, table, item, until, left));
        note_deleted(votes);
        HOTCOUNT_TRY(removal_.delete_of_item(connection, table, item, votes));
        left -= votes.size();
        page.votes += live(votes);
        if (table == Table::of_users ? triggers.deletes : triggers.anonymous_deletes) continue;
        for (const Row& vote : votes) sum += vote.value;
    }
    if (left > 0) {
        HOTCOUNT_TRY_ASSIGN(const auto without_user,
                            removal_.delete_without_user(connection, item, left));
        for (const auto& [value, found, deleted] : without_user) {
            left -= static_cast<std::size_t>(found);
            page.votes += value != 0 ? deleted : 0;
            if (!triggers.deletes) sum += value * deleted;
        }
    }
    page.full = left == 0;
    if (in_item && !item_first()) {
        HOTCOUNT_TRY_ASSIGN(page.there, delete_row ? removal_.take_item(connection, item)
                                                   : removal_.hold_item(connection, item));
    }
    if (place() == CountPlace::cache) {
        HOTCOUNT_TRY(note_removed(connection, std::span{&item, 1}));
    } else if (sum != 0 && (page.there || !in_item)) {
        HOTCOUNT_TRY(move_count(connection, item, -sum));
    }
    return page;
}

// -- retracted votes ------------------------------------------------------------------------------

Result<std::int64_t> SqlVotes::prune(std::int64_t before, Timeout timeout) {
    std::int64_t pruned = 0;
    auto done = prune_pages(before, pruned, timeout);
    if (!done) return after_pages(std::move(done).error(), pruned, "pruned");
    return pruned;
}

Result<void> SqlVotes::prune_pages(std::int64_t before, std::int64_t& pruned, Timeout timeout) {
    std::optional<VoteRemoval::Key> after;
    do {
        const Deadline deadline = database_->deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(
            const VoteRemoval::Slice slice,
            sql::read_snapshot(*database_, deadline,
                               [&](sql::Connection& connection) -> Result<VoteRemoval::Slice> {
                                   HOTCOUNT_TRY(check_place(connection, *layout_, options_,
                                                            PlaceCheck::route));
                                   return removal_.retracted(connection, before, after);
                               }));
        for (std::span<const VoteRemoval::Key> left{slice.found}; !left.empty();) {
            const auto page = left.first(std::min(left.size(), VoteRemoval::kPage));
            left = left.subspan(page.size());
            const auto remove = [&](sql::Connection& connection) -> Result<std::int64_t> {
                HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
                return removal_.delete_retracted(connection, before, page);
            };
            HOTCOUNT_TRY_ASSIGN(const std::int64_t deleted,
                                sql::transact(*database_, database_->deadline(timeout), remove));
            pruned += deleted;
        }
        after = slice.last;
    } while (after);
    return {};
}

}  // namespace hotcount

// Votes on MariaDB and MySQL. slotted is one compound statement on MariaDB. A batch of the other
// strategies is a transaction of a few statements, however many votes:
//
//   look      locks the items; votes for items that another transaction has locked are put aside
//   upsert    the votes; the existing ones are read back
//   journal   by how much each item's count moves
//   COMMIT    with the journal, in one compound statement, on MariaDB. MySQL has no such statement
//             outside of stored programs
//
// cached reads the epochs of the items instead, with the lock that keeps a recount away, and COMMIT
// with them. If two ids may be one item, it goes item by item.
//
// write_behind: before all that, the transaction locks stream_fence (stream_marks.hpp).
//
// On MariaDB a batch is first written without the look: if vote tables refer to the item table, the
// upsert itself finds missing items, and it waits for nothing. A held row or a missing item fails the
// batch; that batch, and all batches of the next 20 ms, are written with the look. Skipping the look
// made 1.3 times the votes over 10,000 items in batches of 16. The last statement then locks the mark
// instead: a move of the counts holds the same lock until it ends.
//
// There a vote alone is one compound statement, all of the above in one trip: with 12 processes of one
// thread on one item it makes 1.5 times the votes of four trips.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <hotcount/detail/sql/transaction.hpp>
#include <map>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/dialect.hpp"
#include "vote_rows.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/sync_pages.hpp"

namespace hotcount {
namespace {

class MysqlVoteWriter final : public VoteWriter {
    using IfHeld = MysqlVoteRows::IfHeld;

  public:
    MysqlVoteWriter(std::shared_ptr<const Layout> layout, const VoteNames& n,
                    const VotesOptions& options, const sql::Statements& rows,
                    const sql::Statements& sql, NoteAppended appended)
        : layout_(std::move(layout)),
          options_(options),
          cached_(options.strategy == VoteStrategy::cached),
          fenced_(options.strategy == VoteStrategy::write_behind),
          if_held_(options.strategy == VoteStrategy::batched || fenced_ ? IfHeld::fail
                                                                        : IfHeld::wait),
          appended_(std::move(appended)),
          of_users_(n, options),
          anonymous_(n.anonymous(sql::mysql_grammar()), anonymous_options(options)),
          keys_(options),
          new_items_(options_, n, layout_->vote_dialect()),
          lock_item_(rows["lock_item"]),
          keep_item_(rows["keep_item"]),
          look_past_(sql.with("look", {{"waits", ""}})),
          look_and_wait_(sql.with("look", {{"waits", sql::flag(true)}})),
          exist_(sql["exist"]),
          note_(sql["note"]),
          note_and_commit_(sql["note_and_commit"]),
          epochs_(sql["epochs"]),
          epochs_and_commit_(sql["epochs_and_commit"]) {}

    Result<Cast> set(sql::Connection& connection, const Ballot& ballot) override {
        HOTCOUNT_TRY(hold(connection, ballot));
        return rows_of(ballot).set(connection, ballot, if_held_);
    }

    Result<void> set_all(sql::Connection& connection, std::span<QueuedVote* const> votes) override {
        return set_rows(connection, votes, if_held_);
    }

    Result<std::optional<Cast>> cast(sql::Database& database, const Ballot& ballot,
                                     std::int64_t slot, Deadline deadline) override {
        return sql::transact_alone(
            database, deadline, [&](sql::Connection& connection) -> Result<std::optional<Cast>> {
                HOTCOUNT_TRY_ASSIGN(const bool compound, compound_.known_to(connection));
                if (!compound) return std::optional<Cast>{};
                Cast cast = mysql_cast(0, ballot.value);
                HOTCOUNT_TRY_ASSIGN(const bool written,
                                    rows_of(ballot).write_alone(connection, ballot, slot,
                                                                sql::Alone{deadline}, cast));
                return written ? std::optional{cast} : std::nullopt;
            });
    }

    bool commits_by_itself() const override { return true; }

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn& turn) override {
        HOTCOUNT_TRY_ASSIGN(const bool compound, compound_.known_to(connection));
        const bool open = connection.commit_is_open();
        if (cached_ && !open) {
            HOTCOUNT_TRY_ASSIGN(const bool at_once, keys_.are_bytes(connection));
            if (!at_once || batch.size() > SyncPages::kMost) {
                return leave_to_items(batch);
            }
        }
        if (cached_ && open) {
            // Without compound statements the epochs were read before the COMMIT.
            return compound ? read_epochs(connection, sorted_votes(batch), turn, true)
                            : connection.await_commit(turn.deadline());
        }
        bool skips_look = true;
        if (!cached_ && !fenced_ && batch.size() == 1 &&
            (open || (compound && turn.waits_for() == Duration{0} && turn.is_alone()))) {
            auto& vote = static_cast<QueuedVote&>(*batch.front());
            HOTCOUNT_TRY_ASSIGN(const bool written, write_one(connection, vote, turn));
            if (written) return after_commit(vote.cast.changed ? 1 : 0);
            skips_look = false;
            HOTCOUNT_TRY(connection.begin(turn.deadline()));
        } else if (open) {
            // The statement is not sent: the call waits for the COMMIT that is under way.
            HOTCOUNT_TRY_ASSIGN(const bool committed,
                                run_and_commit(connection, note_and_commit_.of(1), {}, turn));
            return committed ? after_commit(batch.size()) : moved_meanwhile();
        }
        std::vector<QueuedVote*> votes = sorted_votes(batch);
        if (skips_look) {
            HOTCOUNT_TRY_ASSIGN(skips_look, may_skip_look(connection, turn, compound));
        }
        HOTCOUNT_TRY(keep_within_fence(connection, *layout_, votes));
        if (skips_look && !votes.empty()) {
            HOTCOUNT_TRY_ASSIGN(const bool written, write_without_look(connection, votes, turn));
            if (written) return {};
            HOTCOUNT_TRY(connection.begin(turn.deadline()));
            HOTCOUNT_TRY(keep_within_fence(connection, *layout_, votes));
        }
        if (votes.empty()) {
            connection.rollback();
            return {};
        }
        return write_all(connection, votes, turn, compound);
    }

    Result<std::vector<Found>> find_applied(sql::Connection& connection, Batch batch) override {
        return find_applied_votes(connection, *layout_, batch, appended_);
    }

  private:
    // Folds hold many items for some 10 ms.
    static constexpr Duration kCareful = std::chrono::milliseconds{20};

    Result<void> after_commit(std::size_t appended) const {
        if (appended > 0 && appended_) appended_(appended);
        return {};
    }

    MysqlVoteRows& rows_of(const Ballot& ballot) {
        return ballot.by_op_id ? anonymous_ : of_users_;
    }

    // If the count goes elsewhere, the item's row stays as it is: a shared lock will do (the
    // foreign key's, if there is one), and voters for one item do not wait for each other.
    Result<void> hold(sql::Connection& connection, const Ballot& ballot) {
        const sql::Id& item = ballot.item;
        if (options_.strategy != VoteStrategy::naive) {
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
            if (options_.foreign_key) return {};
            bool there = false;
            const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
                there = true;
                return {};
            };
            HOTCOUNT_TRY(connection.query(keep_item_, {sql::to_value(item)}, see));
            return there ? Result<void>{} : mysql_missing_item(ballot);
        }
        std::optional<std::string> route;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            route = row.text(0);
            return {};
        };
        if (auto locked = connection.query(lock_item_, {sql::to_value(item)}, read); !locked) {
            return explain_missing_table(std::move(locked).error());
        }
        // No such item: the foreign key, if there is one, will refuse the vote.
        if (!route) return check_place(connection, *layout_, options_, PlaceCheck::hold_route);
        if (*route != vote_route(options_, layout_->dialect())) {
            return wrong_place(options_, *route, layout_->dialect());
        }
        return {};
    }

    Result<void> set_rows(sql::Connection& connection, std::span<QueuedVote* const> votes,
                          IfHeld if_held) {
        HOTCOUNT_TRY_ASSIGN(const bool compound, compound_.known_to(connection));
        const auto [of_users, anonymous] = by_table(votes);
        HOTCOUNT_TRY(of_users_.set_all(connection, of_users, if_held, compound));
        return anonymous_.set_all(connection, anonymous, if_held, compound);
    }

    static Result<void> leave_to_items(std::span<const std::shared_ptr<sql::QueuedWrite>> batch) {
        for (const auto& each : batch) {
            static_cast<QueuedCachedVote&>(*each).item_by_item = true;
            each->fate = sql::QueuedWrite::Fate::deferred;
        }
        return {};
    }

    // Reads the epochs of the written votes, then commits.
    Result<void> read_epochs(sql::Connection& connection, std::span<QueuedVote* const> votes,
                             sql::BatchTurn& turn, bool compound) {
        std::vector<sql::Id> items;
        for (const QueuedVote* vote : votes) {
            if (items.empty() || items.back() != vote->ballot.item) {
                items.push_back(vote->ballot.item);
            }
        }
        const std::vector<sql::Value> values = BulkStatement::padded_values(items);
        std::map<sql::Id, std::int64_t> epochs;
        std::shared_ptr<const std::string> space;
        bool committed = true;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            committed = committed && row.integer(0) != 0;
            if (!committed) return {};
            epochs.emplace(row.id(2), row.integer(1));
            if (space == nullptr) space = std::make_shared<const std::string>(row.text(3));
            return {};
        };
        if (!compound) {
            HOTCOUNT_TRY(connection.run(epochs_.of(values.size()), values, &see));
            if (!committed) connection.rollback();
        }
        if (committed && !connection.commit_is_open()) HOTCOUNT_TRY(turn.seal());
        if (compound) {
            HOTCOUNT_TRY(connection.run_alone(epochs_and_commit_.of(values.size()), values, &see,
                                              sql::Alone{turn.deadline()}));
        }
        if (!committed) {
            HOTCOUNT_TRY(connection.begin(turn.deadline()));
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
            connection.rollback();
        }
        for (QueuedVote* each : votes) {
            auto& vote = static_cast<QueuedCachedVote&>(*each);
            if (const auto found = epochs.find(vote.ballot.item); found != epochs.end()) {
                vote.space = space;
                vote.epoch = found->second;
                vote.item = found->first;
            }
            if (committed) continue;
            vote.item_by_item = true;
            vote.fate = sql::QueuedWrite::Fate::deferred;
        }
        return compound || !committed ? Result<void>{} : connection.commit();
    }

    // False if write_all() has to find the fault. A vote that waits for another transaction's vote
    // of the same user yields to other calls.
    Result<bool> write_one(sql::Connection& connection, QueuedVote& vote, sql::BatchTurn& turn) {
        const Ballot& ballot = vote.ballot;
        if (!connection.commit_is_open()) {
            vote.cast = mysql_cast(0, ballot.value);
            HOTCOUNT_TRY(turn.seal());
        }
        return rows_of(ballot).write_alone(connection, ballot, 0, turn.alone(false), vote.cast);
    }

    Result<bool> may_skip_look(sql::Connection& connection, sql::BatchTurn& turn, bool compound) {
        if (!compound || turn.is_retry() ||
            std::chrono::steady_clock::now().time_since_epoch().count() <
                careful_until_.load(std::memory_order_relaxed)) {
            return false;
        }
        return keys_.refer_to_items(connection);
    }

    // False if the batch needs the look; it was rolled back then.
    Result<bool> write_without_look(sql::Connection& connection, std::span<QueuedVote* const> votes,
                                    sql::BatchTurn& turn) {
        if (auto set = set_rows(connection, votes, IfHeld::fail); !set) {
            // ER_LOCK_WAIT_TIMEOUT, ER_NO_REFERENCED_ROW_2
            const std::string& code = set.error().server_code;
            if (code != "1205" && code != "1452") return set.error();
            const SteadyTime until = std::chrono::steady_clock::now() + kCareful;
            careful_until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
            connection.rollback();
            return false;
        }
        HOTCOUNT_TRY(note(connection, votes, turn, true));
        return true;
    }

    Result<void> write_all(sql::Connection& connection, std::vector<QueuedVote*> votes,
                           sql::BatchTurn& turn, bool compound) {
        std::vector<sql::Id> items;
        for (const QueuedVote* vote : votes) {
            if (items.empty() || items.back() != vote->ballot.item) {
                items.push_back(vote->ballot.item);
            }
        }
        const bool waits = turn.waits_for() > Duration{0};
        auto found = find(connection, items, waits, compound);
        if (!found && waits && waited_too_long(found.error())) {
            connection.rollback();
            for (QueuedVote* vote : votes) vote->fate = sql::QueuedWrite::Fate::shared_held;
            return {};
        }
        HOTCOUNT_TRY_ASSIGN(std::vector<sql::Id> missing, std::move(found));
        if (!missing.empty() && !waits) {
            HOTCOUNT_TRY(put_aside_held(connection, votes, missing));
        }
        if (!missing.empty()) HOTCOUNT_TRY(supply(connection, votes, missing));
        if (votes.empty()) {
            connection.rollback();
            return {};
        }
        if (auto set = set_rows(connection, votes, IfHeld::fail); !set)
            return gave_way(set.error());
        return note(connection, votes, turn, compound);
    }

    // ER_STATEMENT_TIMEOUT, ER_QUERY_TIMEOUT, or the session's own innodb_lock_wait_timeout.
    static bool waited_too_long(const Error& error) {
        return error.server_code == "1969" || error.server_code == "3024" ||
               error.server_code == "1205";
    }

    // A vote whose own row is locked is found by halving the batch, like a cancelled one.
    static Error gave_way(Error error) {
        // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_NOWAIT
        if (error.server_code == "1205" || error.server_code == "3572") {
            error.condition = SqlCondition::query_canceled;
        }
        return error;
    }

    // Locks the items, and the place of the counts. Returns the items that it did not get.
    Result<std::vector<sql::Id>> find(sql::Connection& connection,
                                      const std::vector<sql::Id>& items, bool waits,
                                      bool compound) {
        BulkStatement& look = waits ? look_and_wait_ : look_past_;
        HOTCOUNT_TRY_ASSIGN(bool at_once, keys_.are_bytes(connection));
        // MySQL may scan a small table, and would wait for other locked items as well.
        at_once = at_once && (compound || !waits);
        auto found = mysql_find(connection, look, items, at_once);
        if (!found) return explain_missing_table(std::move(found).error());
        std::vector<sql::Id> missing = without(items, *found);
        if (missing.size() == items.size()) {
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
        }
        return missing;
    }

    static std::vector<sql::Id> without(const std::vector<sql::Id>& items,
                                        const std::vector<sql::Id>& found) {
        std::vector<sql::Id> left;
        std::set_difference(items.begin(), items.end(), found.begin(), found.end(),
                            std::back_inserter(left));
        return left;
    }

    // Of the items that the look has skipped, the existing ones are locked by another transaction:
    // their votes are written later.
    Result<void> put_aside_held(sql::Connection& connection, std::vector<QueuedVote*>& votes,
                                std::vector<sql::Id>& missing) {
        HOTCOUNT_TRY_ASSIGN(const bool at_once, keys_.are_bytes(connection));
        HOTCOUNT_TRY_ASSIGN(const std::vector<sql::Id> held,
                            mysql_find(connection, exist_, missing, at_once));
        missing = without(missing, held);
        std::erase_if(votes, [&](QueuedVote* vote) {
            if (!std::binary_search(held.begin(), held.end(), vote->ballot.item)) return false;
            vote->fate = sql::QueuedWrite::Fate::shared_held;
            return true;
        });
        return {};
    }

    // Inserts the missing items, or refuses only their votes; the other votes go on.
    Result<void> supply(sql::Connection& connection, std::vector<QueuedVote*>& votes,
                        const std::vector<sql::Id>& missing) {
        if (options_.missing_item == MissingItem::create) {
            return new_items_.add(connection, missing);
        }
        std::erase_if(votes, [&](QueuedVote* vote) {
            const sql::Id& item = vote->ballot.item;
            if (!std::binary_search(missing.begin(), missing.end(), item)) return false;
            vote->error = mysql_missing_item(vote->ballot);
            return true;
        });
        return {};
    }

    Result<void> note(sql::Connection& connection, std::span<QueuedVote* const> votes,
                      sql::BatchTurn& turn, bool compound) {
        if (cached_) return read_epochs(connection, votes, turn, compound);
        std::vector<sql::Value> values;
        for (auto first = votes.begin(); first != votes.end();) {
            const sql::Id& item = (*first)->ballot.item;
            std::int64_t difference = 0;
            for (; first != votes.end() && (*first)->ballot.item == item; ++first) {
                difference += (*first)->cast.value - (*first)->cast.previous;
            }
            if (difference == 0) continue;
            values.push_back(sql::to_value(item));
            values.emplace_back(difference);
        }
        constexpr std::size_t kColumns = 2;
        std::span<const sql::Value> left{values};
        while (!left.empty()) {
            const std::size_t size = BulkStatement::portion(left.size() / kColumns);
            const auto now = left.first(size * kColumns);
            left = left.subspan(now.size());
            if (left.empty() && compound) {
                HOTCOUNT_TRY(turn.seal());
                HOTCOUNT_TRY_ASSIGN(
                    const bool committed,
                    run_and_commit(connection, note_and_commit_.of(size), now, turn));
                if (!committed) return counts_were_moved(connection, turn);
                return after_commit(values.size() / kColumns);
            }
            HOTCOUNT_TRY(connection.run(note_.of(size), now, nullptr));
        }
        // Without the look nothing has locked the mark yet.
        if (compound)
            HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
        HOTCOUNT_TRY(turn.seal());
        HOTCOUNT_TRY(connection.commit());
        return after_commit(values.size() / kColumns);
    }

    Result<void> counts_were_moved(sql::Connection& connection, sql::BatchTurn& turn) {
        HOTCOUNT_TRY(connection.begin(turn.deadline()));
        HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::hold_route));
        return moved_meanwhile();  // The caller rolls back.
    }

    // Treated as a deadlock: to be written again.
    static Error moved_meanwhile() {
        return make_error(ErrorCode::deadline,
                          "the counts were moved meanwhile; nothing was applied", "",
                          SqlCondition::transaction_conflict);
    }

    // False if the counts are kept elsewhere: rolled back.
    static Result<bool> run_and_commit(sql::Connection& connection, const sql::Statement& statement,
                                       std::span<const sql::Value> values, sql::BatchTurn& turn) {
        bool committed = true;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            committed = false;
            return {};
        };
        HOTCOUNT_TRY(connection.run_alone(statement, values, &see, sql::Alone{turn.deadline()}));
        return committed;
    }

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const bool cached_;
    const bool fenced_;
    const IfHeld if_held_;  // For votes in the caller's transaction.
    const NoteAppended appended_;
    MysqlVoteRows of_users_;
    MysqlVoteRows anonymous_;
    KeyColumns keys_;
    CompoundStatements compound_;
    NewItems new_items_;
    const sql::Statement lock_item_;
    const sql::Statement keep_item_;
    BulkStatement look_past_;
    BulkStatement look_and_wait_;
    BulkStatement exist_;
    BulkStatement note_;
    BulkStatement note_and_commit_;
    BulkStatement epochs_;
    BulkStatement epochs_and_commit_;
    // In steady_clock's own units: until then batches take a look first.
    std::atomic<SteadyTime::rep> careful_until_{0};
};

}  // namespace

std::unique_ptr<VoteWriter> make_mysql_vote_writer(std::shared_ptr<const Layout> layout,
                                                   const VotesOptions& options,
                                                   NoteAppended appended) {
    const VoteNames names{options, sql::mysql_grammar()};
    return std::make_unique<MysqlVoteWriter>(
        std::move(layout), names, options,
        mysql_statements(sql::mysql::kVoteRowsSql, names, options),
        mysql_statements(sql::mysql::kVoteBatchesSql, names, options), std::move(appended));
}

}  // namespace hotcount

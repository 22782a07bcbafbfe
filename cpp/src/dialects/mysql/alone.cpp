// A compound statement that is a transaction of its own: its answer is the commit's.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "connection.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {

namespace lib = libmariadb;

namespace {

// The interval at which a waiting statement is asked to yield.
constexpr Duration kBetweenQuestions = std::chrono::milliseconds{10};
// How often a cancel looks for the part of a compound statement that runs.
constexpr int kMostLooks = 6;
constexpr std::string_view kUnknownQueryId = "1957";  // ER_NO_SUCH_QUERY

bool commits_itself(const Statement& statement) {
    return statement.text().starts_with("BEGIN NOT ATOMIC");
}

// Whether a statement may be refused with this error in its COMMIT or after it. All other errors
// come from a statement before the COMMIT.
bool may_have_committed(const Error& error) {
    static constexpr std::array<std::string_view, 9> kCodes{
        "1021",  // ER_DISK_FULL
        "1026",  // ER_ERROR_ON_WRITE
        "1030",  // ER_GET_ERRNO: the storage engine's
        "1037",  // ER_OUTOFMEMORY
        "1180",  // ER_ERROR_DURING_COMMIT
        "1317",  // ER_QUERY_INTERRUPTED
        "1598",  // ER_BINLOG_LOGGING_IMPOSSIBLE
        "1969",  // ER_STATEMENT_TIMEOUT
        "3024",  // ER_QUERY_TIMEOUT
    };
    return std::find(kCodes.begin(), kCodes.end(), error.server_code) != kCodes.end();
}

}  // namespace

Result<std::int64_t> MysqlConnection::run_alone(const Statement& statement,
                                                std::span<const Value> parameters,
                                                const RowVisitor* visit, const Alone& how) {
    if (alone_ != nullptr) return settle_alone(visit, how);
    if (commit_is_open()) {
        HOTCOUNT_TRY(await_commit(how.deadline));
        return static_cast<std::int64_t>(0);
    }
    if (!commits_itself(statement)) {
        return Connection::run_alone(statement, parameters, visit, how);
    }
    if (broken_) return is_gone();
    // The statement may end a transaction with earlier ones: no other session can take over then.
    const bool ends = begun_ && ran_;
    if (!ends) HOTCOUNT_TRY(begin(how.deadline));
    for (int again = ends ? 1 : 0;; ++again) {
        auto prepared = prepare(statement);
        if (!prepared) {
            rollback();
            return std::move(prepared).error();
        }
        if (!(*prepared)->bind(library_, parameters)) {
            rollback();
            return make_error(
                ErrorCode::database,
                target_.name + ": a statement was given other parameters than it takes");
        }
        shared_.statements.fetch_add(1, std::memory_order_relaxed);
        alone_ = *prepared;
        cancelled_ = false;
        commit_refused_ = 0;
        sent_ = std::chrono::steady_clock::now();
        commit_waits_for_ = library_.stmt_execute_start(&commit_refused_, alone_->handle);
        auto changed = settle_alone(visit, how);
        if (commit_is_open()) return changed;
        if (!broken_ && (!changed || !target_.prepare)) forget(statement.id());
        // A session that lacks the statement has run nothing.
        if (changed || broken_ || again > 0 || !is_statement_gone(changed.error())) return changed;
        HOTCOUNT_TRY(begin(how.deadline));
    }
}

int MysqlConnection::go_on_with_commit(int ready) {
    if (alone_ != nullptr) {
        return library_.stmt_execute_cont(&commit_refused_, alone_->handle, ready);
    }
    return library_.real_query_cont(&commit_refused_, session_, ready);
}

// Waits for the answer. False if it did not come in time, although the statement was cancelled or is
// at its COMMIT.
bool MysqlConnection::await_alone(const Alone& how) {
    const auto now = std::chrono::steady_clock::now;
    alone_until_ = how.deadline.time();
    SteadyTime ask = how.gives_way && !cancelled_ ? now() + how.patience : SteadyTime::max();
    while (commit_waits_for_ != 0) {
        deadline_ = Deadline::at(std::min(ask, how.deadline.time()));
        if (const int ready = wait(commit_waits_for_); ready != 0) {
            commit_waits_for_ = go_on_with_commit(ready);
            continue;
        }
        if (how.deadline.passed()) break;
        ask = now() + kBetweenQuestions;
        if (!how.gives_way()) continue;
        cancelled_ = cancel_before_commit();
        ask = cancelled_ ? SteadyTime::max() : now() + how.patience;
    }
    deadline_ = how.deadline;
    if (commit_waits_for_ == 0) return true;
    if (!cancelled_) cancelled_ = cancel_before_commit();
    tidy_until_ = now() + kGrace;
    while (commit_waits_for_ != 0) {
        const int ready = wait(commit_waits_for_);
        if (ready == 0) break;
        commit_waits_for_ = go_on_with_commit(ready);
    }
    tidy_until_.reset();
    return commit_waits_for_ == 0;
}

// Best effort, from another session. A COMMIT is not cancelled: the outcome of a cancelled COMMIT
// is unknown, and a COMMIT that waits for a semi-synchronous replica would be answered as if the
// replica had the votes. KILL QUERY ID ends the part of the compound statement that was seen, and
// no later one.
//
// A row of PROCESSLIST is not read at one moment: the COMMIT's number may appear with the text of
// the part before it. A number that two looks have found belongs to the text of the second one.
bool MysqlConnection::cancel_before_commit() {
    static const Statement kLook{Statements{mysql::kSessionSql, {}}["part_that_runs"]};
    auto other = dial_beside();
    if (!other) return false;
    const std::array<Value, 1> parameters{static_cast<std::int64_t>(id_)};
    std::optional<std::int64_t> seen;
    for (int look = 0; look < kMostLooks; ++look) {
        std::optional<std::int64_t> part;
        const RowVisitor see = [&](const Row& row) -> Result<void> {
            if (row.is_null(1) || row.integer(1) != 0) return {};
            part = row.integer(0);
            between_parts_ = row.integer(2) != 0;
            return {};
        };
        if (!other->run_prepared(kLook, parameters, &see) || !part) return false;
        if (part != std::exchange(seen, part)) continue;
        const auto killed =
            other->tell("KILL QUERY ID " + std::to_string(*part), MysqlStage::statement);
        if (killed) return true;
        if (killed.error().server_code != kUnknownQueryId) return false;
    }
    return false;
}

Result<std::int64_t> MysqlConnection::settle_alone(const RowVisitor* visit, const Alone& how) {
    broken_ = false;
    if (!await_alone(how)) {
        broken_ = true;
        begun_ = false;
        leave_if_silent();
        return make_error(ErrorCode::outcome_unknown,
                          target_.name +
                              ": the deadline passed before the statement or its COMMIT was "
                              "answered; it may or may not be applied");
    }
    Prepared& prepared = *std::exchange(alone_, nullptr);
    begun_ = false;
    std::vector<std::vector<MysqlColumn>> rows;
    auto changed = take_results(prepared, rows);
    if (!changed) return alone_refused(std::move(changed).error());
    // The cancel may still be on its way, and hit the next statement.
    if (cancelled_) broken_ = true;
    HOTCOUNT_TRY(committed());
    if (visit != nullptr) {
        for (const auto& columns : rows) HOTCOUNT_TRY((*visit)(MysqlRow{columns}));
    }
    return changed;
}

// Takes all results of a compound statement: the rows of each, and the last number of changed rows.
// The statement has committed only when they have all arrived.
Result<std::int64_t> MysqlConnection::take_results(Prepared& prepared,
                                                   std::vector<std::vector<MysqlColumn>>& rows) {
    int refused = commit_refused_;
    while (true) {
        if (refused > 0) return failed(MysqlStage::alone, prepared);
        std::int64_t changed = 0;
        if (library_.stmt_field_count(prepared.handle) == 0) {
            changed = static_cast<std::int64_t>(library_.stmt_affected_rows(prepared.handle));
        } else {
            prepared.describe_rows(library_);
            if (!drive([&] { return library_.stmt_store_result_start(&refused, prepared.handle); },
                       [&](int ready) {
                           return library_.stmt_store_result_cont(&refused, prepared.handle, ready);
                       })) {
                return left_at_deadline(MysqlStage::alone);
            }
            if (refused != 0) return failed(MysqlStage::alone, prepared);
            const RowVisitor keep = [&](const Row&) -> Result<void> {
                rows.push_back(prepared.columns);
                return {};
            };
            HOTCOUNT_TRY(fetch(prepared, &keep));
            library_.stmt_free_result(prepared.handle);
        }
        if (library_.stmt_more_results(prepared.handle) == 0) return changed;
        if (!drive([&] { return library_.stmt_next_result_start(&refused, prepared.handle); },
                   [&](int ready) {
                       return library_.stmt_next_result_cont(&refused, prepared.handle, ready);
                   })) {
            return left_at_deadline(MysqlStage::alone);
        }
    }
}

// Rolls back the rest of the statement, and adds to the error whether anything was applied.
Error MysqlConnection::alone_refused(Error error) {
    if (broken_) return error;
    // A cancel between two parts may have come after the COMMIT: the text is the whole statement's.
    if (cancelled_ && !between_parts_ && error.condition == SqlCondition::query_canceled) {
        rollback();
        error.message =
            target_.name + ": the statement was cancelled in the middle and nothing was applied";
        return error;
    }
    const bool in_doubt = may_have_committed(error);
    if (in_doubt && !still_in_transaction()) {
        broken_ = true;
        error.code = ErrorCode::outcome_unknown;
        error.message += "; it may or may not be applied";
        return error;
    }
    rollback();
    if (in_doubt || error.code == ErrorCode::unavailable) error.message += "; nothing was applied";
    if (cancelled_) broken_ = true;  // The cancel may still hit the next statement.
    return error;
}

bool MysqlConnection::still_in_transaction() {
    static const Statement kAsk{"SELECT @@in_transaction"};
    bool open = false;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        open = row.integer(0) == 1;
        return {};
    };
    tidy_until_ = std::chrono::steady_clock::now() + kGrace;
    const bool asked = run_prepared(kAsk, {}, &see).ok();
    tidy_until_.reset();
    return asked && open;
}

// Another node's transaction may abort ours between two commands. The next command reports it
// (1213), unless it prepares a statement: later statements would then be a transaction of their
// own, without the earlier writes. A savepoint ends with its transaction.
Result<MysqlConnection::Prepared*> MysqlConnection::prepare_guarded(const Statement& statement) {
    HOTCOUNT_TRY(tell("SAVEPOINT hotcount_own", MysqlStage::statement));
    HOTCOUNT_TRY_ASSIGN(Prepared* const made, prepare_anew(statement));
    if (tell("RELEASE SAVEPOINT hotcount_own", MysqlStage::statement)) return made;
    if (broken_) return is_gone();
    return make_error(
        ErrorCode::deadline,
        target_.name + ": another node of the cluster ended the transaction; nothing was applied",
        "1213", SqlCondition::transaction_conflict);
}

}  // namespace hotcount::sql

#include "connection.hpp"

#include <charconv>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/pool.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {

bool is_serializable(const Connection& connection) {
    const auto* const own = dynamic_cast<const PostgresConnection*>(&connection);
    return own != nullptr && own->serializable();
}

// BEGIN is sent ahead of the first statement. It sets the isolation level, because the server's or
// the role's default may differ. It leaves READ WRITE or READ ONLY to that default.
const Statement& PostgresConnection::begin_statement() const {
    static const Statement committed{"BEGIN ISOLATION LEVEL READ COMMITTED"};
    static const Statement serializable{"BEGIN ISOLATION LEVEL SERIALIZABLE"};
    return options_.serializable ? serializable : committed;
}
const Statement& PostgresConnection::begin_read_statement() {
    static const Statement statement{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"};
    return statement;
}
const Statement& PostgresConnection::commit_statement() {
    static const Statement statement{"COMMIT"};
    return statement;
}

Result<void> PostgresConnection::begin(Deadline deadline) {
    HOTCOUNT_TRY(make_ready(deadline));
    deadline_ = deadline;
    writes_ = true;
    state_ = State::begun;
    return {};
}

Result<void> PostgresConnection::begin_read(Deadline deadline) {
    HOTCOUNT_TRY(begin(deadline));
    writes_ = false;
    return {};
}

Result<void> PostgresConnection::commit() {
    if (state_ == State::begun) {
        state_ = State::idle;  // Nothing was sent.
        return {};
    }
    if (state_ != State::open) {
        const bool failed = state_ == State::failed;
        rollback();
        return make_error(ErrorCode::database,
                          options_.name + (failed ? ": a statement of the transaction failed; it "
                                                    "was rolled back"
                                                  : ": there is no transaction to commit"));
    }
    if (!writes_) {
        // The answer is not needed: it is skipped before the next one is read.
        if (!queue(commit_statement(), {}, Expected::Kind::forgotten) || !queue_sync() ||
            pq_.PQflush(handle_) != 0) {
            give_up();
        }
        state_ = State::idle;
        return {};
    }
    if (deadline_.passed()) {
        rollback();
        return make_error(ErrorCode::deadline,
                          options_.name +
                              ": the deadline passed before COMMIT was sent; nothing "
                              "was applied");
    }
    // A message that ends the session and came before COMMIT is sent leaves no doubt about the
    // outcome.
    if (!looks_alive()) return lost_connection(false);
    if (!queue(commit_statement(), {}, Expected::Kind::statement) || !queue_sync()) {
        return lost_connection(false);
    }
    return await_commit(deadline_);
}

Result<void> PostgresConnection::await_commit(Deadline deadline) {
    if (standbys_.committed != nullptr) return await_standbys(deadline);
    wait_on_for_commit();
    bool answered = settle(deadline.time(), &deadline);
    if (!answered && !is_closed()) {
        answered = settle(std::chrono::steady_clock::now() + kGrace, nullptr);
    }
    if (!answered) {
        if (is_closed()) return lost_connection(true);
        link_ = Link::awaits_commit;
        state_ = State::idle;
        leave_if_silent();
        return make_error(ErrorCode::outcome_unknown,
                          options_.name +
                              ": the deadline passed while COMMIT was under way; it may "
                              "or may not be applied");
    }
    if (refusal_ != nullptr) {
        // If the session lacks the prepared COMMIT, the transaction is still open.
        state_ = statement_gone_ ? State::failed : State::idle;
        Error error = refused();
        rollback();
        return error;
    }
    state_ = State::idle;
    if (std::string_view{pq_.PQcmdStatus(answer_.get())} != "COMMIT") {
        return make_error(ErrorCode::database,
                          options_.name + ": the server rolled the transaction back");
    }
    return committed(deadline, false);
}

// `cancelled`: the server was asked to cancel the statement that has committed.
Result<void> PostgresConnection::committed(Deadline deadline, bool cancelled) {
    // If a standby was promoted before the commit, the commit is lost with the old primary.
    if (!session_.empty() && options_.shared->hosts.replaced(host_)) {
        replaced_ = true;
        return lost_connection(true);
    }
    options_.shared->primary.has_written(term_);
    if (standbys_.unsure) return await_standbys(deadline);
    // The settings of a pooler's session may hide the warning.
    if (cancelled && !keeps_prepared()) return await_standbys(deadline);
    options_.shared->transactions.fetch_add(1, std::memory_order_relaxed);
    return {};
}

// Commits a second transaction, which changes no table, and never cancels it. A standby that has
// the later commit has the earlier one.
Result<void> PostgresConnection::await_standbys(Deadline deadline) {
    wait_on_for_commit();
    if (standbys_.committed == nullptr) {
        standbys_.committed = std::move(answer_);
        standbys_.heard_warning = standbys_.unsure;
        if (!queue_empty_commit()) return lost_connection(true);
    }
    bool answered = false;
    bool ended_early = false;
    for (int again = 0;; ++again) {
        answered = settle(deadline.time(), &deadline);
        // The server answers at once if it waits for no standby.
        if (!answered && !is_closed() && !standbys_.heard_warning) {
            answered = settle(std::chrono::steady_clock::now() + kGrace, nullptr);
        }
        ended_early = standbys_.unsure ||
                      (refusal_ != nullptr && refused().condition == SqlCondition::query_canceled);
        if (!answered || !ended_early || again == kMaxAgain || deadline.passed()) break;
        // The server sends a session two signals for one cancel, and on a busy machine the second
        // may arrive only now. A cancel may have ended either wait.
        standbys_.heard_warning = standbys_.heard_warning || standbys_.unsure;
        if (!queue_empty_commit()) break;
    }
    if (!answered && !is_closed()) {
        link_ = Link::awaits_commit;
        return replicas_unsure();
    }
    answer_ = std::move(standbys_.committed);
    if (is_closed()) return lost_connection(true);
    if (ended_early || refusal_ != nullptr) {
        give_up();
        return replicas_unsure();
    }
    // Another client's cancel may have ended the first wait, and ours may still be under way.
    if (cancelled_) give_up();
    options_.shared->transactions.fetch_add(1, std::memory_order_relaxed);
    return {};
}

// Queues an empty commit. If no warning arrived, the statement commits only where the session's
// settings hide warnings. It is rare and therefore not prepared.
bool PostgresConnection::queue_empty_commit() {
    static const Statements sql{postgres::kSessionSql, {}};
    static const Statement kEmptyCommit{sql["empty_commit"]};
    static const Statement kEmptyCommitIfHidden{sql["empty_commit_if_hidden"]};
    return queue(standbys_.heard_warning ? kEmptyCommit : kEmptyCommitIfHidden, {},
                 Expected::Kind::question) &&
           queue_sync();
}

Error PostgresConnection::replicas_unsure() {
    return make_error(ErrorCode::outcome_unknown,
                      options_.name +
                          ": the server committed it, but no synchronous standby has confirmed "
                          "that; after a failover it may or may not be applied");
}

void PostgresConnection::rollback() {
    static const Statement kRollback{"ROLLBACK"};
    const bool sent = state_ == State::open || state_ == State::failed;
    state_ = State::idle;
    if (!sent || broken()) return;
    // The rollback releases locks. If it cannot be sent at once, the connection is given up.
    if (!queue(kRollback, {}, Expected::Kind::forgotten) || !queue_sync() ||
        pq_.PQflush(handle_) != 0) {
        give_up();
    }
}

Result<std::int64_t> PostgresConnection::run(const Statement& statement,
                                             std::span<const Value> parameters,
                                             const RowVisitor* visit) {
    HOTCOUNT_TRY_ASSIGN(const Deadline deadline, before_statement());
    HOTCOUNT_TRY(check_parameters(parameters));
    options_.shared->statements.fetch_add(1, std::memory_order_relaxed);
    const State before = state_;
    auto settled = send_and_settle(statement, parameters, deadline);
    // If the statement begins its transaction, it is repeated here, because nothing was run. Later
    // in a transaction, the caller repeats the whole transaction (is_transient()).
    for (int again = 0; !settled && statement_gone_ && before != State::open && again < kMaxAgain &&
                        !deadline.passed();
         ++again) {
        if (before == State::begun) {
            rollback();
            state_ = State::begun;
        }
        if (broken()) break;
        settled = send_and_settle(statement, parameters, deadline);
    }
    HOTCOUNT_TRY(settled);
    if (state_ == State::open) HOTCOUNT_TRY(unless_demoted());
    return take_rows(visit);
}

Result<void> PostgresConnection::check_parameters(std::span<const Value> parameters) const {
    for (const Value& parameter : parameters) {
        const auto* text = std::get_if<std::string_view>(&parameter);
        if (text != nullptr && text->find('\0') != std::string_view::npos) {
            return make_error(ErrorCode::config,
                              options_.name + ": a text of PostgreSQL cannot contain NUL");
        }
    }
    return {};
}

Result<std::int64_t> PostgresConnection::take_rows(const RowVisitor* visit) {
    const Answer answer = std::move(answer_);
    if (answer == nullptr) return lost_connection(state_ == State::idle);
    if (visit != nullptr) {
        const int rows = pq_.PQntuples(answer.get());
        PostgresRow row{pq_, answer.get()};
        for (; row.number() < rows; row.advance()) HOTCOUNT_TRY((*visit)(row));
    }
    const std::string_view changed = pq_.PQcmdTuples(answer.get());
    std::int64_t count = 0;
    std::from_chars(changed.data(), changed.data() + changed.size(), count);
    return count;
}

// The statement, and BEGIN ahead of it if it is the first of its transaction.
Result<void> PostgresConnection::send_and_settle(const Statement& statement,
                                                 std::span<const Value> parameters,
                                                 Deadline deadline) {
    statement_gone_ = false;
    if (state_ == State::begun) {
        const Statement& how = writes_ ? begin_statement() : begin_read_statement();
        if (!queue(how, {}, Expected::Kind::begin)) return lost_connection(false);
    }
    if (!queue(statement, parameters, Expected::Kind::statement) || !queue_sync()) {
        return lost_connection(false);
    }
    if (state_ == State::begun) state_ = State::open;
    return exchange(deadline);
}

// Outside of a transaction, brings the connection into a state in which it can send a statement;
// otherwise refuses a state in which it cannot. Returns the statement's deadline.
Result<Deadline> PostgresConnection::before_statement() {
    if (state_ == State::idle) {
        const Deadline deadline = Deadline::after(options_.statement_timeout);
        HOTCOUNT_TRY(make_ready(deadline));
        return deadline;
    }
    if (state_ == State::failed || link_ == Link::given_up) {
        return make_error(ErrorCode::database,
                          options_.name +
                              ": an earlier statement of the transaction failed; it can "
                              "only be rolled back");
    }
    if (deadline_.passed()) {
        return make_error(ErrorCode::deadline,
                          options_.name +
                              ": the deadline passed between two statements; nothing "
                              "was applied");
    }
    return deadline_;
}

Result<void> PostgresConnection::exchange(Deadline deadline) {
    if (!settle(deadline.time(), &deadline)) {
        if (is_closed()) return lost_connection(state_ == State::idle);
        return give_up_at_deadline();
    }
    if (refusal_ == nullptr) {
        if (standbys_.unsure && state_ == State::idle) return replicas_unsure();
        return {};
    }
    if (state_ != State::idle) state_ = State::failed;
    return refused();
}

// Asks the server to stop the statement, and waits up to kGrace for its answer.
Result<void> PostgresConnection::give_up_at_deadline() {
    const bool alone = state_ == State::idle;
    if (!alone) state_ = State::failed;
    cancel_in_background(pq_, handle_);
    const bool answered = settle(std::chrono::steady_clock::now() + kGrace, nullptr);
    if (answered && refusal_ != nullptr) {
        Error error = refused();
        // The server sends a session two signals for one cancel. Either may still arrive, and would
        // end the next statement.
        give_up();
        if (error.condition == SqlCondition::query_canceled) {
            error.message = options_.name +
                            ": the deadline passed in mid-statement; it was cancelled and nothing "
                            "was applied";
        }
        return error;
    }
    give_up();
    if (!answered) leave_if_silent();
    if (alone && answered && !standbys_.unsure) return {};
    if (alone) {
        return make_error(ErrorCode::outcome_unknown,
                          options_.name +
                              ": the deadline passed in mid-statement; it may or may "
                              "not be applied");
    }
    return make_error(ErrorCode::deadline,
                      options_.name +
                          ": the deadline passed in mid-statement; the connection was "
                          "given up and nothing was applied");
}

Error PostgresConnection::lost_connection(bool may_be_applied) {
    give_up();
    // The server's last message explains more than the closed connection.
    Error error = refusal_ != nullptr
                      ? refused()
                      : make_error(ErrorCode::unavailable,
                                   options_.name + ": " +
                                       (replaced_ ? "another host has become the primary"
                                                  : connection_message(pq_, handle_)));
    // A pooler without a free session has forwarded nothing.
    may_be_applied = may_be_applied && !is_out_of_room(error);
    if (state_ != State::idle) state_ = may_be_applied ? State::idle : State::failed;
    error.code = may_be_applied ? ErrorCode::outcome_unknown : ErrorCode::unavailable;
    error.message += may_be_applied ? "; the connection was lost before the answer: it may or may "
                                      "not be applied"
                                    : "; the connection was lost and nothing was applied";
    if (options_.shared->hosts.several()) {
        leave_host();
        if (may_be_applied) {
            error.about(&ErrorFacts::lost_session, session_);
        } else if (!is_out_of_room(error)) {
            error.condition = SqlCondition::host_lost;
        }
    }
    return error;
}

Error PostgresConnection::refused() {
    const Answer refusal = std::move(refusal_);
    Error error = postgres_failure(pq_, refusal.get(), options_.name);
    if (statement_gone_) {
        error.code = ErrorCode::unavailable;
        error.condition = SqlCondition::invalid_statement_name;
        error.message += "; nothing was applied";
    } else if (error.condition == SqlCondition::read_only && !options_.reads_only &&
               (writes_ || state_ == State::idle)) {
        error.code = ErrorCode::unavailable;
        error.message += "; the server is not the primary; nothing was applied";
        leave_host();
        give_up();
    }
    return error;
}

}  // namespace hotcount::sql

// run_alone() and read_alone(): a statement in a transaction of its own. If its answer is no error, the
// server has committed it.
#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>

#include "connection.hpp"

namespace hotcount::sql {
namespace {

// Interval of the calls of Alone::gives_way.
constexpr Duration kBetweenQuestions = std::chrono::milliseconds{10};
// A cancel needs a connection of its own, and a busy server answers it late. It is therefore sent
// before the deadline: by a tenth of the call's time, at most by kEarliestCancel. The answer is
// awaited for kGraceAlone after the deadline; without one the outcome is unknown.
constexpr Duration kEarliestCancel = std::chrono::milliseconds{100};
constexpr Duration kGraceAlone = std::chrono::milliseconds{200};
constexpr std::string_view kAdminShutdown = "57P01";
constexpr std::string_view kIdleSessionTimeout = "57P05";

}  // namespace

Result<std::int64_t> PostgresConnection::run_alone(const Statement& statement,
                                                   std::span<const Value> parameters,
                                                   const RowVisitor* visit, const Alone& how) {
    if (commit_is_open()) {
        HOTCOUNT_TRY(settle_alone(how, std::chrono::steady_clock::now()));
        return take_rows(visit);
    }
    HOTCOUNT_TRY(check_parameters(parameters));
    if (state_ == State::begun) {
        state_ = State::idle;  // begin() has sent nothing: the statement needs no transaction.
    } else {
        HOTCOUNT_TRY(make_ready(how.deadline));
    }
    if (how.deadline.passed()) {
        return make_error(ErrorCode::deadline,
                          options_.name +
                              ": the deadline passed before the statement was sent; nothing was "
                              "applied");
    }
    options_.shared->statements.fetch_add(1, std::memory_order_relaxed);
    writes_ = true;
    answer_.reset();
    refusal_.reset();
    const bool wraps = how.read_committed || options_.serializable;
    for (int again = 0;; ++again) {
        cancelled_ = false;
        statement_gone_ = false;
        if (!queue_alone(statement, parameters, wraps)) return lost_connection(false);
        auto settled = settle_alone(how, std::chrono::steady_clock::now());
        if (settled) return take_rows(visit);
        // If the session lacks the prepared statement, nothing was run, and it is sent again.
        const bool gone = statement_gone_;
        if (wraps && !broken()) {
            state_ = State::failed;
            rollback();
        }
        if (!gone || broken() || again == kMaxAgain || how.deadline.passed()) {
            return std::move(settled).error();
        }
    }
}

Result<std::int64_t> PostgresConnection::read_alone(const Statement& statement,
                                                    std::span<const Value> parameters,
                                                    const RowVisitor* visit, Deadline deadline) {
    HOTCOUNT_TRY(begin_read(deadline));
    const auto read = [&]() -> Result<std::int64_t> {
        HOTCOUNT_TRY(check_parameters(parameters));
        if (deadline.passed()) {
            return make_error(ErrorCode::deadline,
                              options_.name +
                                  ": the deadline passed before the statement was sent; nothing "
                                  "was applied");
        }
        options_.shared->statements.fetch_add(1, std::memory_order_relaxed);
        // As in an open transaction, so that no error is an unknown outcome.
        state_ = State::open;
        auto settled = send_and_settle(statement, parameters, deadline);
        for (int again = 0;
             !settled && statement_gone_ && !broken() && again < kMaxAgain && !deadline.passed();
             ++again) {
            state_ = State::open;
            settled = send_and_settle(statement, parameters, deadline);
        }
        HOTCOUNT_TRY(settled);
        HOTCOUNT_TRY(unless_demoted());
        return take_rows(visit);
    };
    auto answer = read();
    state_ = State::idle;  // The server has no open transaction.
    return answer;
}

bool PostgresConnection::queue_alone(const Statement& statement, std::span<const Value> parameters,
                                     bool wraps) {
    using Kind = Expected::Kind;
    return (!wraps || queue(begin_statement(), {}, Kind::begin)) &&
           queue(statement, parameters, Kind::statement) &&
           (!wraps || queue(commit_statement(), {}, Kind::commit)) && queue_sync();
}

// True if the server ended the session (pg_terminate_backend, a shutdown) before it answered the
// statement. It answers before it commits, so nothing was applied. Also true if the server ended an idle
// session while the statement was being sent. False for a pooler's error: that concerns the pooler's own
// connections, and the server may have run the statement.
bool PostgresConnection::was_ended_before_answer() const {
    if (refusal_ == nullptr || answer_ != nullptr || !keeps_prepared()) return false;
    const char* const state = pq_.PQresultErrorField(refusal_.get(), pq::kSqlState);
    return state != nullptr && (state == kAdminShutdown || state == kIdleSessionTimeout);
}

// Waits for the answer. Returns false if it did not arrive in time; the statement was then cancelled.
bool PostgresConnection::await_alone(const Alone& how, SteadyTime sent) {
    const SteadyTime deadline = how.deadline.time();
    const SteadyTime cancel_at =
        deadline - std::min(kEarliestCancel, Duration{deadline - sent} / 10);
    SteadyTime ask = how.gives_way && !cancelled_ ? sent + how.patience : SteadyTime::max();
    while (true) {
        if (settle(std::min(ask, cancelled_ ? deadline : cancel_at), &how.deadline)) return true;
        if (is_closed()) return false;
        const SteadyTime now = std::chrono::steady_clock::now();
        if (how.deadline.passed() || (!cancelled_ && now >= cancel_at)) break;
        ask = now + kBetweenQuestions;
        if (how.gives_way()) {
            cancel_in_background(pq_, handle_);
            cancelled_ = true;
            ask = SteadyTime::max();
        }
    }
    if (!cancelled_) cancel_in_background(pq_, handle_);
    cancelled_ = true;
    const SteadyTime now = std::chrono::steady_clock::now();
    return settle((interrupted() ? now : std::max(deadline, now)) + kGraceAlone, nullptr);
}

Result<void> PostgresConnection::settle_alone(const Alone& how, SteadyTime sent) {
    if (standbys_.committed != nullptr) return await_standbys(how.deadline);
    wait_on_for_commit();
    if (!await_alone(how, sent)) {
        if (is_closed()) return lost_connection(!was_ended_before_answer());
        link_ = Link::awaits_commit;
        leave_if_silent();
        return make_error(ErrorCode::outcome_unknown,
                          options_.name +
                              ": the deadline passed in mid-statement, and the server did not say "
                              "whether it was cancelled; it may or may not be applied");
    }
    if (refusal_ != nullptr) {
        Error error = refused();
        if (cancelled_ && error.condition == SqlCondition::query_canceled) {
            error.message = options_.name +
                            ": the statement was cancelled in the middle and nothing was applied";
            return error;
        }
        if (cancelled_) give_up();  // A late cancel could hit the connection's next statement.
        return error;
    }
    if (cancelled_) give_up();
    return committed(how.deadline, cancelled_);
}

}  // namespace hotcount::sql

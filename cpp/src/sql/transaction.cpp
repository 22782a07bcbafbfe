#include <hotcount/detail/sql/transaction.hpp>

#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>

#include "pool.hpp"

namespace hotcount::sql {

bool may_be_one_writes_fault(const Error& error) {
    switch (error.code) {
        case ErrorCode::integrity:
        case ErrorCode::overflow:
            return true;
        case ErrorCode::database:
        case ErrorCode::permission_denied:  // From a row policy or a trigger.
            return error.condition == SqlCondition::unspecified ||
                   error.condition == SqlCondition::narrow_column;
        default:
            return false;
    }
}

Error of_server(Error error, const std::string& name) {
    if (may_be_one_writes_fault(error)) {
        error.about(&ErrorFacts::server, name);
    } else {
        error.message.insert(0, name + ": ");
    }
    return error;
}

namespace {

bool is_read_only(const Error& error) {
    return error.code == ErrorCode::unavailable && error.condition == SqlCondition::read_only;
}
// Passes when other clients deallocate prepared statements.
bool lacks_statements(const Error& error) {
    return error.code == ErrorCode::unavailable &&
           error.condition == SqlCondition::too_many_statements;
}
bool lost_host(const Error& error) { return error.condition == SqlCondition::host_lost; }
// True for conditions that last longer than a transaction.
bool waits_for_server(const Error& error) {
    return is_read_only(error) || lacks_statements(error) || is_out_of_room(error);
}
// The next attempt prepares the statement again or stops preparing it, or uses another connection.
bool lost_session_state(const Error& error) {
    return error.code == ErrorCode::unavailable &&
           (error.condition == SqlCondition::invalid_statement_name ||
            error.condition == SqlCondition::idle_session_timeout);
}

}  // namespace

bool is_transient(const Error& error) {
    // The call may have succeeded, so only the caller may decide to repeat it.
    if (error.code == ErrorCode::outcome_unknown) return false;
    // A locked SQLite file is not transient: that call has already waited until its deadline.
    return error.condition == SqlCondition::transaction_conflict || waits_for_server(error) ||
           lost_session_state(error) || lost_host(error);
}

bool Retry::again(const Error& error) {
    if (!is_transient(error) || deadline_.passed()) return false;
    if (is_read_only(error) || lacks_statements(error)) refusal_ = error;
    const Backoff& range = waits_for_server(error) ? kServerBackoff : kLockBackoff;
    if (!pause_before_retry(range, attempts_ + 1, deadline_)) return false;
    ++attempts_;
    database_.count_retry();
    return true;
}

Error Retry::give_up(Error error) const {
    const bool late = error.code == ErrorCode::deadline;
    if (refusal_ && (late || (error.code == ErrorCode::unavailable && is_read_only(*refusal_)))) {
        error = *refusal_;
    }
    if (!is_transient(error)) return error;
    if (error.code != ErrorCode::unavailable) error.code = ErrorCode::deadline;
    static constexpr std::string_view kKnown = "; nothing was applied";
    if (error.message.ends_with(kKnown)) {
        error.message.resize(error.message.size() - kKnown.size());
    }
    error.message += "; the deadline passed after " + std::to_string(attempts_ + 1) +
                     " attempts; nothing was applied";
    return error;
}

bool pause_for_session(int attempt, Deadline deadline) {
    return pause_before_retry(kLockBackoff, attempt, deadline);
}

bool pause_before_retry(const Backoff& range, int failures, Deadline deadline) {
    if (deadline.passed()) return false;
    const Duration pause = range.draw(static_cast<unsigned>(failures));
    if (pause >= deadline.remaining()) return false;
    sleep_or_interrupt(pause);
    return !deadline.passed();
}

}  // namespace hotcount::sql

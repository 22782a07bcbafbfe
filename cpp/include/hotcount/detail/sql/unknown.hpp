// The outcome of a COMMIT whose answer was lost with its connection, if the URL names several hosts.
//
// The current primary is asked. If it is the same server, the lost session may still commit, so the
// read waits until that session has ended. On another server the lost session cannot commit. Changes
// that were not replicated are lost.
#pragma once

#include <hotcount/detail/sql/transaction.hpp>
#include <string>

namespace hotcount::sql {

/// The name of the session that was lost; empty if the error is of another kind, and the outcome
/// stays unknown.
inline std::string lost_session(const Error& error) {
    if (error.code != ErrorCode::outcome_unknown || error.facts == nullptr) return {};
    return error.facts->lost_session;
}

/// Waits before the next check of the session. False at the deadline.
bool pause_for_session(int attempt, Deadline deadline);

/// Calls read(Connection&) -> Result<T> in a transaction of its own, once the lost session cannot
/// commit any more. `read` locks the rows that it reads. On PostgreSQL the commit then waits for
/// synchronous standbys, as the lost session's would have. Any error means that the outcome stays
/// unknown.
template <class Read>
auto read_after_loss(Database& database, Deadline deadline, const std::string& session, Read&& read)
    -> decltype(read(std::declval<Connection&>())) {
    using Answer = decltype(read(std::declval<Connection&>()));
    for (int attempt = 1;; ++attempt) {
        bool open = true;
        Answer answer = transact(database, deadline, [&](Connection& connection) -> Answer {
            HOTCOUNT_TRY_ASSIGN(open, connection.has_session(session));
            if (!open) return read(connection);
            return make_error(ErrorCode::unavailable,
                              database.name() + ": the session that was lost has not ended");
        });
        // The read changes nothing, so it may be repeated.
        const bool lost = !answer && answer.error().code == ErrorCode::outcome_unknown;
        if ((!open && !lost) || !pause_for_session(attempt, deadline)) return answer;
    }
}

}  // namespace hotcount::sql

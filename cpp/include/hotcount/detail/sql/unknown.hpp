// What became of a COMMIT whose answer was lost with its connection, where the URL names several hosts.
//
// The host that takes writes now is asked. It may be the same server, where the lost session may still
// run and commit: so nothing is read before that session has ended. On another server no session of
// the old one can commit: of what was not replicated to it, nothing will be there.
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

/// Pauses before the next look whether the session has ended. False at the deadline.
bool pause_for_session(int attempt, Deadline deadline);

/// read(Connection&) -> Result<T> in a transaction of its own, once the session cannot commit any
/// more. It locks what it reads. On PostgreSQL the commit then waits for synchronous standbys, as
/// that of the lost session would have. Any error means that the outcome stays unknown.
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
        // A reading that was lost too may be repeated.
        const bool lost = !answer && answer.error().code == ErrorCode::outcome_unknown;
        if ((!open && !lost) || !pause_for_session(attempt, deadline)) return answer;
    }
}

}  // namespace hotcount::sql

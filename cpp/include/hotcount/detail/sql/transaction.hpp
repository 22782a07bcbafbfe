// Transactions that are retried after a transient error, such as a deadlock; and the outcome of a
// COMMIT without an answer.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <optional>
#include <string>
#include <utility>

namespace hotcount::sql {

/// Whether nothing was applied and a retry may succeed. True after a conflict with another
/// transaction (deadlock, serialisation failure, lock wait timeout), for a prepared statement that
/// the session has lost or the server has no room for, for a server or pooler without a free
/// session, for a server that is no longer a primary, and for the loss of one of several hosts.
bool is_transient(const Error& error);

/// Whether one write alone may have caused the error of its transaction: true for every refusal
/// of the database that is not known to concern all writes alike (the connection, the server's
/// resources, a lock, a table or column that is missing, rights on a table).
bool may_be_one_writes_fault(const Error& error);

/// Adds the server's name to the error. If one write alone may have caused the error, an
/// application may show the message to the user who wrote, so only the facts name the server.
Error of_server(Error error, const std::string& name);

/// Counts the failed attempts of one transaction and pauses between them.
class Retry {
  public:
    Retry(Database& database, Deadline deadline) : database_(database), deadline_(deadline) {}
    /// True if `error` is transient and there is time for another attempt. Pauses before it
    /// returns. The pause is random, so that two transactions do not collide again, from a range
    /// that grows to 26 ms, or to 0.5 s if the server is read-only or has no room.
    bool again(const Error& error);
    /// `error` as the caller gets it. A transient error becomes a deadline error, or stays
    /// unavailable. If an earlier attempt was refused, the caller gets that refusal instead: by a
    /// read-only server, when no other server was reached or the deadline passed; by a server
    /// without room for prepared statements, when the deadline passed. Nothing was applied.
    Error give_up(Error error) const;

  private:
    Database& database_;
    Deadline deadline_;
    int attempts_{0};
    // The last refusal of a server that was read-only or had no room for prepared statements.
    std::optional<Error> refusal_;
};

/// Calls attempt() -> Result<T>, and again after a transient error, until the deadline. An attempt
/// returns its lease before the pause, so that other callers can use the connection.
template <class Attempt>
auto until_it_passes(Database& database, Deadline deadline, Attempt&& attempt)
    -> decltype(attempt()) {
    Retry retry{database, deadline};
    while (true) {
        auto outcome = attempt();
        if (outcome) return outcome;
        if (!retry.again(outcome.error())) return retry.give_up(std::move(outcome).error());
    }
}

/// Leases a writer, begins, runs body(Connection&) -> Result<T> and commits. After a transient
/// error it starts again, until the deadline, so the body may run more than once.
template <class Body>
auto transact(Database& database, Deadline deadline, Body&& body)
    -> decltype(body(std::declval<Connection&>())) {
    using Answer = decltype(body(std::declval<Connection&>()));
    return until_it_passes(database, deadline, [&]() -> Answer {
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.writer(deadline));
        HOTCOUNT_TRY(connection->begin(deadline));
        Answer answer = body(*connection);
        if (!answer) return answer;
        HOTCOUNT_TRY(connection->commit());
        return answer;
    });
}

/// transact() for a body that begins and commits by itself, as with Connection::run_alone().
template <class Body>
auto transact_alone(Database& database, Deadline deadline, Body&& body)
    -> decltype(body(std::declval<Connection&>())) {
    using Answer = decltype(body(std::declval<Connection&>()));
    return until_it_passes(database, deadline, [&]() -> Answer {
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.writer(deadline));
        return body(*connection);
    });
}

/// Runs body(Connection&) -> Result<T>, which reads in one snapshot. After a transient error the
/// body runs again in another snapshot.
template <class Body>
auto read_snapshot(Database& database, Deadline deadline, Body&& body)
    -> decltype(body(std::declval<Connection&>())) {
    using Answer = decltype(body(std::declval<Connection&>()));
    return until_it_passes(database, deadline, [&]() -> Answer {
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.reader(deadline));
        HOTCOUNT_TRY(connection->begin_read(deadline));
        Answer answer = body(*connection);
        if (answer) HOTCOUNT_TRY(connection->commit());
        return answer;
    });
}

/// read_snapshot() for a body that reads with one Connection::read_alone().
template <class Body>
auto read_statement(Database& database, Deadline deadline, Body&& body)
    -> decltype(body(std::declval<Connection&>())) {
    using Answer = decltype(body(std::declval<Connection&>()));
    return until_it_passes(database, deadline, [&]() -> Answer {
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.reader(deadline));
        return body(*connection);
    });
}

// -- the outcome of a COMMIT whose answer was lost with its connection, if the URL names several hosts
//
// The current primary is asked. If it is the same server, the lost session may still commit, so the
// read waits until that session has ended. On another server the lost session cannot commit. Changes
// that were not replicated are lost.

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

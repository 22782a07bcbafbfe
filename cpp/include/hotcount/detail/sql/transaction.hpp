// One write transaction from begin to commit, done again if another one was in its way.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <optional>
#include <utility>

namespace hotcount::sql {

/// Whether the database gave up a transaction for reasons that pass: nothing was applied, and the
/// same again may succeed. Another transaction in the way (deadlock, serialisation failure, lock
/// wait timeout), a prepared statement that the session does not have any more or that the server has
/// no room for, a pooler whose sessions were all in use for too long, a server that is no primary any
/// more.
bool is_transient(const Error& error);

/// Whether one write alone may have brought this error upon its transaction: true for every refusal
/// of the database that is not known to concern all writes alike (the connection, the server's
/// resources, a lock, a table or column that is missing, rights on a table).
bool may_be_one_writes_fault(const Error& error);

/// The error with the name of its server. Where one write alone may have brought it about, an
/// application may show the message to whoever wrote, so it does not name the server: the facts do.
Error of_server(Error error, const std::string& name);

/// Counts the failed attempts of one transaction and pauses between them.
class Retry {
  public:
    Retry(Database& database, Deadline deadline) : database_(database), deadline_(deadline) {}
    /// True if `error` is transient and there is time for another attempt, after a pause that
    /// is drawn, so that two do not meet again, from a range that grows: to 26 ms, and to 0.5 s
    /// if the server only reads or has no room.
    bool again(const Error& error);
    /// `error` as the caller gets it: a transient one becomes a deadline error, or unavailable if
    /// it was the server's state. After a server that only read, an attempt that reached no
    /// other one ends as that refusal: it is the reason, and nothing was applied either way. So does
    /// one that was late after a refusal for want of room for statements.
    Error give_up(Error error) const;

  private:
    Database& database_;
    Deadline deadline_;
    int attempts_{0};
    // The last refusal of a server that only read, or had no room for prepared statements.
    std::optional<Error> refusal_;
};

/// attempt() -> Result<T>, and again if it fails for a transient reason, until the deadline. What it
/// leased is back by then: nobody waits for a connection that sleeps.
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

/// Leases a writer, begins, runs body(Connection&) -> Result<T>, commits; if that fails for a
/// transient reason, from the beginning, until the deadline. So the body may run more than once.
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

/// The same for a body that begins and commits by itself, as with Connection::run_alone().
template <class Body>
auto transact_alone(Database& database, Deadline deadline, Body&& body)
    -> decltype(body(std::declval<Connection&>())) {
    using Answer = decltype(body(std::declval<Connection&>()));
    return until_it_passes(database, deadline, [&]() -> Answer {
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.writer(deadline));
        return body(*connection);
    });
}

/// What body(Connection&) -> Result<T> reads in one snapshot; in another, from the beginning, where
/// the first was cut short for a transient reason. So the body may run more than once.
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

/// The same for a body that reads with one Connection::read_alone().
template <class Body>
auto read_statement(Database& database, Deadline deadline, Body&& body)
    -> decltype(body(std::declval<Connection&>())) {
    using Answer = decltype(body(std::declval<Connection&>()));
    return until_it_passes(database, deadline, [&]() -> Answer {
        HOTCOUNT_TRY_ASSIGN(const Lease connection, database.reader(deadline));
        return body(*connection);
    });
}

}  // namespace hotcount::sql

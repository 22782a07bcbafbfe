// The interface to SQL: connections, statements and transactions, whatever the database.
//
// A Database owns a bounded pool per process (renewed in a forked child). A Lease is one checked
// out connection; it goes back when it is destroyed, and a transaction still open then is rolled
// back. Database is safe from many threads; a Lease or Connection belongs to one at a time.
//
// Statements are objects with identity: a connection prepares each once and keeps it. Make them
// once per table layout, not per call.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database("sqlite:///example.db"));
//   static const sql::Statement kInsert{"INSERT INTO page (views) VALUES (?)"};
//   static const sql::Statement kSum{"SELECT sum(views) FROM page"};
//   const Deadline deadline = database->deadline({});
//   HOTCOUNT_TRY_ASSIGN(const sql::Lease lease, database->writer(deadline));
//   HOTCOUNT_TRY(lease->begin(deadline));  // Rolled back unless it comes to commit().
//   HOTCOUNT_TRY(lease->run_script("CREATE TABLE page (views INTEGER)"));
//   HOTCOUNT_TRY(lease->execute(kInsert, {std::int64_t{3}}));
//   HOTCOUNT_TRY(lease->query(kSum, {}, [](const sql::Row& row) -> Result<void> {
//       std::cout << row.integer(0) << '\n';  // 3
//       return {};
//   }));
//   HOTCOUNT_TRY(lease->commit());
//   @endcode
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/sql/dialect.hpp>
#include <hotcount/detail/sql/value.hpp>
#include <hotcount/result.hpp>
#include <hotcount/url.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hotcount::sql {

struct DatabaseOptions {
    /// Default time limit of a call, waiting for locks included. Longer rides out a slow
    /// neighbour; shorter frees the caller's thread sooner.
    Duration timeout{std::chrono::seconds{5}};
    /// Most connections that only read, open at once in this process. More readers at once, each
    /// up to 32 MB of page cache in SQLite, or a process of PostgreSQL's. In-memory SQLite always
    /// has exactly one connection for all.
    std::size_t max_readers{4};
    /// The same for those that write. More: strategies with a transaction per write wait less for
    /// one another if they write different rows, and fight more over rows that they share; the
    /// server's own bound is shared by all processes. Group commit uses one or two.
    /// SQLite always has exactly one.
    std::size_t max_writers{16};
    /// Keep statements prepared in the server's sessions. They are kept in no session that turns
    /// out to be shared with other clients (PgBouncer and the like), even if this is true. False
    /// spares the first transactions behind a pooler the discovery, and costs each statement the
    /// server's parsing and planning: on PostgreSQL in the same round trip, on MariaDB and MySQL
    /// in one more. SQLite's are in this process and stay prepared.
    bool prepare{true};
    /// A connection to a server that nobody used for so long is closed; the next call that lacks one
    /// opens another, which costs it some milliseconds: the handshake, the login, TLS, and its
    /// statements prepared anew. Longer: each takes one of the server's bounded sessions, a process
    /// of 5 to 10 MB with PostgreSQL, and what stands between ends it by itself some day: balancers
    /// after 60 to 350 s. None: never. SQLite's stay open.
    std::optional<Duration> idle_timeout{std::chrono::seconds{60}};
    /// Over TCP: a connection whose other end acknowledges nothing for so long is given up, so that
    /// a call with more time goes on with another one. A server that is busy does acknowledge.
    /// Shorter: a machine that stands still for a moment (a live migration) costs its connections,
    /// and a COMMIT on its way an unknown outcome; longer: a dead path is noticed later. One on
    /// which nothing is said is probed after 15 s and every 5 s, and given up after 20 to 30 s.
    Duration tcp_user_timeout{std::chrono::seconds{10}};
};

/// SQL text with an identity, so that each connection prepares it once.
class Statement {
  public:
    explicit Statement(std::string text);
    const std::string& text() const { return text_; }
    std::uint64_t id() const { return id_; }

  private:
    std::string text_;
    std::uint64_t id_;
};

/// Called once per result row.
using RowVisitor = std::function<Result<void>(const Row&)>;

/// How a statement runs that is a transaction of its own (Connection::run_alone()).
struct Alone {
    /// The statement is cancelled before it passes, early enough for the server to say so: on
    /// PostgreSQL a tenth of the time, at most 100 ms.
    Deadline deadline;
    /// READ COMMITTED also if the session's transactions are of another level by default. On
    /// PostgreSQL it costs BEGIN and COMMIT, which travel along.
    bool read_committed{false};
    /// Asked again and again once the statement has run for `patience`: true has it cancelled before
    /// its deadline. Empty: nobody is asked.
    std::function<bool()> gives_way{};
    Duration patience{std::chrono::milliseconds{50}};
};

class Connection {
  public:
    virtual ~Connection() = default;

    /// Starts a transaction that may write; the deadline also bounds every later statement of it.
    /// SQLite waits here for the database's write lock. The servers lock row by row, each statement
    /// sees what was committed before it (READ COMMITTED), and BEGIN may travel with the first
    /// statement.
    virtual Result<void> begin(Deadline deadline) = 0;
    /// Starts a transaction that reads one snapshot.
    virtual Result<void> begin_read(Deadline deadline) = 0;
    /// On failure nothing of the transaction was applied, unless the code is outcome_unknown: the
    /// connection broke, or the deadline passed, after COMMIT was sent and before it was answered.
    virtual Result<void> commit() = 0;
    /// Whether commit() failed only because its deadline passed: its answer is still to come, and
    /// await_commit() goes on waiting. Until it has, the connection is broken().
    virtual bool commit_is_open() const { return false; }
    /// The outcome of such a commit, waited for until another deadline.
    virtual Result<void> await_commit(Deadline deadline) {
        (void)deadline;
        return make_error(ErrorCode::database, "there is no commit to wait for");
    }
    virtual void rollback() = 0;
    virtual bool in_transaction() const = 0;
    /// True once the connection is of no more use: the pool closes it. What was begun on it is
    /// rolled back by the server.
    virtual bool broken() const { return false; }
    /// Whether it is of use after it was idle. `ask`: for so long that the other end is to show that
    /// it is there, within a second; else only what is known without a wait.
    virtual bool still_there(bool ask, Deadline deadline) {
        (void)ask;
        (void)deadline;
        return !broken();
    }

    /// Runs a statement, visits its rows, returns the number of rows it changed (MySQL: rows set to
    /// what they were do not count, and a row that an upsert updates counts twice). Outside of a
    /// transaction it is its own. After a failed statement SQLite's transaction, unless
    /// in_transaction() says otherwise, is as it was before it; the servers' can only be rolled
    /// back.
    virtual Result<std::int64_t> run(const Statement& statement, std::span<const Value> parameters,
                                     const RowVisitor* visit) = 0;

    /// Runs a statement as a transaction of its own, or as the whole of the one that was begun, and
    /// returns when that is committed; rows are visited then. On failure nothing was applied,
    /// unless the code is outcome_unknown. If `how` cancels the statement, its answer decides:
    /// success, or a deadline error with the server's code. One that gave way is waited for until
    /// the deadline. If there is no answer by then, commit_is_open(): the same call with another
    /// deadline waits on for it and sends nothing. SQLite: begin(), run() and commit(). MySQL
    /// likewise, but a compound statement (MariaDB's BEGIN NOT ATOMIC) is sent alone: it must end
    /// in COMMIT, and may end a transaction that has run something.
    virtual Result<std::int64_t> run_alone(const Statement& statement,
                                           std::span<const Value> parameters,
                                           const RowVisitor* visit, const Alone& how);

    /// Runs a statement that only reads, as a transaction of its own: it sees one snapshot, of what
    /// was committed before it was sent. In one round trip on the servers. On a connection for
    /// reading, outside of a transaction. It never ends as outcome_unknown, and there is nothing to
    /// roll back after it. PostgreSQL: at the level that the session's transactions have by default.
    virtual Result<std::int64_t> read_alone(const Statement& statement,
                                            std::span<const Value> parameters,
                                            const RowVisitor* visit, Deadline deadline);

    /// Whether the session of that name (ErrorFacts::lost_session) may still commit something that
    /// this connection's server then has. In a transaction.
    virtual Result<bool> has_session(std::string_view lost) {
        (void)lost;
        return true;
    }

    /// MySQL: how many rows of the INSERT ... ON DUPLICATE KEY UPDATE of several rows that ran last
    /// were there and were changed. -1 if it is not known.
    virtual std::int64_t duplicates() const { return -1; }

    Result<std::int64_t> execute(const Statement& statement,
                                 std::initializer_list<Value> parameters = {}) {
        return run(statement, std::span(parameters.begin(), parameters.size()), nullptr);
    }
    Result<std::int64_t> query(const Statement& statement, std::initializer_list<Value> parameters,
                               const RowVisitor& visit) {
        return run(statement, std::span(parameters.begin(), parameters.size()), &visit);
    }
    /// Runs text that is used once (schema changes; several statements, each ending in ";\n"): not
    /// kept prepared. MySQL commits with every change of the schema, before and after.
    virtual Result<void> run_script(const std::string& text) = 0;

    /// A number of this connection's own, for spreading writers over rows. Connections that ask one
    /// after the other get neighbouring numbers; the first one of a process is drawn.
    std::uint64_t place() const {
        if (place_ == 0) place_ = next_place();
        return place_;
    }

  private:
    static std::uint64_t next_place();
    mutable std::uint64_t place_{0};
};

/// A checked out connection, which goes back before its Database is destroyed.
class Lease {
  public:
    using Return = std::function<void(Connection*)>;
    Lease(Connection* connection, Return give_back)
        : connection_(connection), give_back_(std::move(give_back)) {}
    Lease(Lease&& other) noexcept
        : connection_(std::exchange(other.connection_, nullptr)),
          give_back_(std::move(other.give_back_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
        if (connection_ != nullptr) give_back_(connection_);
    }
    Connection& operator*() const { return *connection_; }
    Connection* operator->() const { return connection_; }

  private:
    Connection* connection_;
    Return give_back_;
};

struct WeakSetting;

class Database {
  public:
    virtual ~Database() = default;

    virtual Dialect dialect() const = 0;
    /// A connection that may write. First come, first served.
    virtual Result<Lease> writer(Deadline deadline) = 0;
    /// A connection for reading committed data.
    virtual Result<Lease> reader(Deadline deadline) = 0;
    /// Refuses further use; waits for nothing. Leases still out stay valid.
    virtual void close() = 0;
    /// Whether close() was called: open_database() then makes a new one.
    virtual bool closed() const = 0;

    struct Stats {
        std::uint64_t transactions;  ///< Write transactions committed.
        std::uint64_t statements;    ///< Statements run.
        std::uint64_t busy_waits;    ///< SQLite: times a lock of another process was waited for.
        std::uint64_t retries;       ///< Transactions begun again after a deadlock or the like.
    };
    virtual Stats stats() const = 0;

    /// For Retry (transaction.hpp).
    void count_retry() { retries_.fetch_add(1, std::memory_order_relaxed); }

    const std::string& name() const { return name_; }  ///< For messages: the file's path.
    /// Which settings of the server make a commit mean less than it should, in a sentence for a log;
    /// empty if none does, or if the server did not say. Asked once, when the database is opened.
    const std::string& durability_warning() const { return durability_warning_; }
    /// Reads settings as (name, value) and makes durability_warning() of those that are weak. Called
    /// by the dialect, before anybody shares this object. Never fails.
    void look_at_durability(const Statement& read, std::span<const WeakSetting> known);
    /// The server's refusal, if it had no room for another connection and no call got one since. Of
    /// several hosts: why none of them took writes.
    virtual std::optional<Error> out_of_room() { return {}; }
    const DatabaseOptions& options() const { return options_; }
    Deadline deadline(Timeout timeout) const {
        return Deadline::after(timeout.value_or(options_.timeout));
    }

  protected:
    Database(std::string name, DatabaseOptions options)
        : name_(std::move(name)), options_(options) {}
    std::uint64_t retries() const { return retries_.load(std::memory_order_relaxed); }

  private:
    std::string name_;
    DatabaseOptions options_;
    std::string durability_warning_;
    std::atomic<std::uint64_t> retries_{0};
};

/// Opens what the URL names and checks that it can be used. Databases of one normalised URL and
/// equal options are one object while anybody holds it (except sqlite:///:memory:).
Result<std::shared_ptr<Database>> open_database(std::string_view url, DatabaseOptions options = {});

}  // namespace hotcount::sql

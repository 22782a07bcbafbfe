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
    /// Maximum of connections that write. More: strategies with a transaction per write wait less
    /// for one another if they write different rows, and contend more for rows that they share; the
    /// server's own bound is shared by all processes. Group commit uses one or two.
    /// SQLite always has exactly one.
    std::size_t max_writers{16};
    /// Keep statements prepared in the server's sessions. They are kept in no session that turns
    /// out to be shared with other clients (PgBouncer and the like), even if this is true. False
    /// spares the first transactions behind a pooler the discovery, and costs each statement the
    /// server's parsing and planning: on PostgreSQL in the same round trip, on MariaDB and MySQL
    /// in one more. SQLite's are in this process and stay prepared.
    bool prepare{true};
    /// A connection to a server is closed when it has been idle for this long. The next call that
    /// needs one opens another, which costs it some milliseconds for the handshake, the login, TLS
    /// and preparing its statements. Longer: each idle connection takes one of the server's bounded
    /// sessions (on PostgreSQL a process of 5 to 10 MB), and load balancers end idle connections
    /// after 60 to 350 s. nullopt: never. SQLite's connections stay open.
    std::optional<Duration> idle_timeout{std::chrono::seconds{60}};
    /// Over TCP: a connection whose other end acknowledges nothing for this time is given up, so that
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

/// Settings for a statement that is a transaction of its own (Connection::run_alone()).
struct Alone {
    /// The statement is cancelled before the deadline, early enough for the server's answer to
    /// arrive: on PostgreSQL by a tenth of the time, at most 100 ms.
    Deadline deadline;
    /// READ COMMITTED even if the session's transactions have another level by default. On
    /// PostgreSQL this adds BEGIN and COMMIT to the same round trip.
    bool read_committed{false};
    /// Called repeatedly once the statement has run for `patience`. Returns true to cancel the
    /// statement before its deadline. Empty: the statement is not cancelled early.
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
    /// Whether commit() failed only because its deadline passed: the answer is still to come, and
    /// await_commit() waits for it. Until the answer has come, the connection is broken().
    virtual bool commit_is_open() const { return false; }
    /// Waits for the outcome of a commit for which commit_is_open(), until another deadline.
    virtual Result<void> await_commit(Deadline deadline) {
        (void)deadline;
        return make_error(ErrorCode::database, "there is no commit to wait for");
    }
    virtual void rollback() = 0;
    virtual bool in_transaction() const = 0;
    /// True once the connection is unusable: the pool closes it, and the server rolls back its open
    /// transaction.
    virtual bool broken() const { return false; }
    /// Whether an idle connection is still usable. `ask`: true after a long idle time; the server
    /// must then answer within 1 s. Otherwise only what is known without a wait counts.
    virtual bool still_there(bool ask, Deadline deadline) {
        (void)ask;
        (void)deadline;
        return !broken();
    }

    /// Runs a statement, visits its rows, and returns the number of rows it changed (MySQL: rows
    /// set to their old values do not count, and a row that an upsert updates counts twice).
    /// Without an open transaction the statement is a transaction of its own. A failed statement
    /// leaves SQLite's transaction as it was before, if in_transaction() is still true; a server's
    /// transaction can only be rolled back.
    virtual Result<std::int64_t> run(const Statement& statement, std::span<const Value> parameters,
                                     const RowVisitor* visit) = 0;

    /// Runs a statement as a transaction of its own, or as the only statement of the transaction
    /// that was begun. Returns after the commit, and visits the rows then. On failure nothing was
    /// applied, unless the code is outcome_unknown. If `how` cancels the statement, the server's
    /// answer decides: success, or a deadline error with the server's code. The answer is awaited
    /// until the deadline, also after gives_way() returned true. Without an answer by then,
    /// commit_is_open() is true: the same call with another deadline waits for it and sends
    /// nothing. SQLite and MySQL: begin(), run() and commit(). MariaDB's compound statement (BEGIN
    /// NOT ATOMIC) is sent alone: it must end in COMMIT, and may end a transaction that has run
    /// other statements.
    virtual Result<std::int64_t> run_alone(const Statement& statement,
                                           std::span<const Value> parameters,
                                           const RowVisitor* visit, const Alone& how);

    /// Runs a statement that only reads, as a transaction of its own, on a connection for reading
    /// and outside of a transaction. The statement sees one snapshot, with everything committed
    /// before it was sent. Takes one round trip on the servers. Never fails with outcome_unknown,
    /// and needs no rollback. PostgreSQL: at the session's default isolation level.
    virtual Result<std::int64_t> read_alone(const Statement& statement,
                                            std::span<const Value> parameters,
                                            const RowVisitor* visit, Deadline deadline);

    /// Whether the session of that name (ErrorFacts::lost_session) may still commit on this
    /// connection's server. Call it in a transaction.
    virtual Result<bool> has_session(std::string_view lost) {
        (void)lost;
        return true;
    }

    /// MySQL: the number of existing rows that the last INSERT ... ON DUPLICATE KEY UPDATE of
    /// several rows changed. -1 if it is not known.
    virtual std::int64_t duplicates() const { return -1; }

    Result<std::int64_t> execute(const Statement& statement,
                                 std::initializer_list<Value> parameters = {}) {
        return run(statement, std::span(parameters.begin(), parameters.size()), nullptr);
    }
    Result<std::int64_t> query(const Statement& statement, std::initializer_list<Value> parameters,
                               const RowVisitor& visit) {
        return run(statement, std::span(parameters.begin(), parameters.size()), &visit);
    }
    /// Runs text that is used once (schema changes; several statements, each ending in ";\n"),
    /// without preparing it. MySQL commits before and after each change of the schema.
    virtual Result<void> run_script(const std::string& text) = 0;

    /// A number of this connection, for spreading writers over rows. Consecutive first calls return
    /// consecutive numbers; the first number of a process is random.
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
    /// Ends waits for a lease with a closed error; leases still out stay valid. Waits for nothing.
    virtual void close() = 0;
    /// Whether close() was called: open_database() then makes a new one.
    virtual bool closed() const = 0;

    struct Stats {
        std::uint64_t transactions;  ///< Write transactions committed.
        std::uint64_t statements;    ///< Statements run.
        std::uint64_t busy_waits;    ///< SQLite: times a lock of another process was waited for.
        std::uint64_t retries;       ///< Transactions retried after a transient error.
    };
    virtual Stats stats() const = 0;

    /// For Retry (transaction.hpp).
    void count_retry() { retries_.fetch_add(1, std::memory_order_relaxed); }

    const std::string& name() const { return name_; }  ///< For messages: the file's path.
    /// A sentence for a log about the server's settings that weaken the durability of a commit.
    /// Empty if there are no such settings, or if the server did not return them. Read once, when
    /// the database is opened.
    const std::string& durability_warning() const { return durability_warning_; }
    /// Reads settings as (name, value) and makes durability_warning() from the weak ones. Called by
    /// the dialect, before this object is shared. Never fails.
    void look_at_durability(const Statement& read, std::span<const WeakSetting> known);
    /// The server's refusal of another connection, if no call got a connection since. With several
    /// hosts: why no host accepted writes.
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

/// Opens the database of the URL and checks that it is usable. Calls with the same normalised URL
/// and equal options share one object while it is in use (except for sqlite:///:memory:).
Result<std::shared_ptr<Database>> open_database(std::string_view url, DatabaseOptions options = {});

}  // namespace hotcount::sql

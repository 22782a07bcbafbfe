// One PostgreSQL session, over libpq in non-blocking pipeline mode.
//
//   begin, statement   Parse of both if new, Bind, Execute, Sync: one send, one answer
//   statement          Bind, Execute, Sync
//   commit             waits for the answer; after a transaction that only read, it does not
//   run_alone          Parse if new, Bind, Execute, Sync; inside BEGIN and COMMIT if the session's
//                      own isolation level is not the wanted one: one send, one answer
//   read_alone         Parse if new, Bind, Execute, Sync
//   rollback           sent; its answer is skipped when the next one is read
//
// A pooler may give each transaction another of the server's sessions (PgBouncer's transaction
// mode). So a transaction leaves no state in a session that the next one relies on or another
// client could trip over. BEGIN sets the isolation level. Settings that nothing else sets are
// libpq's startup parameters (client_encoding, application_name). A prepared statement's name is
// the hash of its text. If a session turns out to be shared, statements are sent without names from
// then on.
//
// Every wait ends at the deadline: a statement of a transaction is cancelled then, and if the
// server does not confirm that at once, the connection is given up.
#pragma once

#include <deque>
#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "authentication.hpp"
#include "libpq.hpp"
#include "sql/hosts.hpp"
#include "sql/server_sessions.hpp"

namespace hotcount::sql {

// -- PostgreSQL's errors as hotcount's ------------------------------------------------------------

/// The error code for an SQLSTATE, regardless of the message and of what had been sent.
ErrorCode classify_sqlstate(std::string_view state);
/// The condition on which callers decide how to go on; `said` is the server's sentence, without its
/// details.
SqlCondition condition_of_sqlstate(std::string_view state, std::string_view said);

/// Converts the server's error answer; `name` is the database's name. The server's text is
/// shortened and shows no password (hide_secrets()).
Error postgres_failure(const Libpq& pq, const pg_result* result, const std::string& name);
/// Whether the server ends the session with that answer.
bool ends_session(const Libpq& pq, const pg_result* result);

/// The error of a failed connection attempt. The connection must use PQERRORS_VERBOSE: only its
/// verbose text contains the SQLSTATE.
Error connect_failure(const Libpq& pq, const pg_conn* connection, const std::string& name);
/// The reason why a password was not sent. Follows the database's name.
inline constexpr const char* kClearTextRefused =
    ": the server asks for the password in clear text (its method is \"password\") and has not "
    "proved its identity: the password was not sent. Connect over verified TLS "
    "(?sslmode=verify-full&sslrootcert=FILE) or a Unix socket";
/// The connection's last error of its own as one line.
std::string connection_message(const Libpq& pq, const pg_conn* connection);

// -- connections -----------------------------------------------------------------------------------

/// State shared by the connections of one database.
struct PostgresShared {
    PostgresShared(const std::string& name, std::vector<std::string> its_hosts, HostUse use)
        : hosts(name, std::move(its_hosts), use) {}
    std::atomic<std::uint64_t> transactions{0};
    std::atomic<std::uint64_t> statements{0};
    /// Other clients share the server's sessions, so no statement is kept prepared there.
    std::atomic<bool> pooled{false};
    PrimaryWatch primary;
    InheritedSockets sockets;
    Hosts hosts;
};

/// The options of all connections of one database. Outlives the connections.
struct PostgresSessionOptions {
    const Libpq* pq;
    std::string name;  ///< The database's, for messages.
    /// libpq's connection parameters for each host, the password among them.
    std::vector<std::vector<std::pair<std::string, std::string>>> parameters;
    std::string statement_scope;  ///< Database, role and options: part of a statement's name.
    bool prepare;
    /// The URL itself asks for sessions that only read.
    bool reads_only;
    /// Transactions that write are SERIALIZABLE, and not READ COMMITTED.
    bool serializable;
    /// The server has authenticated itself before it may ask for the password, or libpq itself
    /// refuses to send the password in clear text.
    bool trusts_server;
    std::optional<Duration> connect_timeout;
    Duration statement_timeout;  ///< For statements outside of a transaction.
    PostgresShared* shared;
};

class PostgresConnection final : public Connection {
  public:
    explicit PostgresConnection(const PostgresSessionOptions& options)
        : options_(options), pq_(*options.pq) {}
    PostgresConnection(const PostgresConnection&) = delete;
    PostgresConnection& operator=(const PostgresConnection&) = delete;
    ~PostgresConnection() override { disconnect(); }

    bool serializable() const { return options_.serializable; }
    /// If the server has no room for another session: waits for room until the deadline, or fails
    /// at once (is_out_of_room()).
    Result<void> connect(Deadline deadline, bool waits_for_room = true);

    Result<void> begin(Deadline deadline) override;
    Result<void> begin_read(Deadline deadline) override;
    Result<void> commit() override;
    bool commit_is_open() const override { return link_ == Link::awaits_commit; }
    Result<void> await_commit(Deadline deadline) override;
    void rollback() override;
    bool in_transaction() const override { return state_ != State::idle; }
    bool broken() const override { return link_ != Link::usable; }
    bool still_there(bool ask, Deadline deadline) override;
    Result<std::int64_t> run(const Statement& statement, std::span<const Value> parameters,
                             const RowVisitor* visit) override;
    Result<std::int64_t> run_alone(const Statement& statement, std::span<const Value> parameters,
                                   const RowVisitor* visit, const Alone& how) override;
    Result<std::int64_t> read_alone(const Statement& statement, std::span<const Value> parameters,
                                    const RowVisitor* visit, Deadline deadline) override;
    Result<void> run_script(const std::string& text) override;
    Result<bool> has_session(std::string_view lost) override;

  private:
    enum class State : std::uint8_t {
        idle,    // No transaction.
        begun,   // Requested, not sent: BEGIN goes with the first statement.
        open,    // The server has begun it.
        failed,  // A statement failed: the transaction can only be rolled back.
    };
    // usable -> awaits_commit -> usable; from each of them to given_up and closed; a dial begins anew.
    enum class Link : std::uint8_t {
        usable,
        // COMMIT, or a statement that runs alone, was sent, and its deadline passed before the answer:
        // await_commit() and run_alone() wait on.
        awaits_commit,
        given_up,  // begin() connects again.
        closed,    // The server has closed the connection, and the current call must report it.
    };
    // What the next answer is for. The queue is in the order of sending.
    struct Expected {
        // question: a statement that is never prepared. commit: one that follows the statement.
        enum class Kind : std::uint8_t {
            prepare,
            begin,
            statement,
            question,
            commit,
            forgotten,
            sync
        } kind;
        std::uint64_t statement{0};  // The statement's id.
        bool by_name{false};
        bool known_before{false};  // If by_name: prepared by an earlier exchange.
    };
    // A statement as this session runs it.
    struct Known {
        std::string text;  // With the server's placeholders.
        std::string name;  // Empty: not known to be prepared.
    };
    struct ClearResult {
        const Libpq* pq;
        void operator()(pg_result* result) const { pq->PQclear(result); }
    };
    using Answer = std::unique_ptr<pg_result, ClearResult>;
    // What is known of the synchronous standbys of a statement that has committed.
    struct StandbyWait {
        bool unsure{false};         // A cancel ended the server's wait for them.
        bool heard_warning{false};  // The commit of await_standbys() was answered with a warning.
        // The statement's answer, while await_standbys() commits once more.
        Answer committed{nullptr, ClearResult{nullptr}};
    };

    // How long after its deadline a call may wait for the answer that settles its outcome: to a
    // cancel, or to a COMMIT that has been sent.
    static constexpr Duration kGrace = std::chrono::milliseconds{50};
    // A host that has been silent for this long when a call's deadline passes is dialled last.
    // During the wait for an answer, another host is asked at this interval whether it is the
    // primary now.
    static constexpr Duration kSilence = std::chrono::seconds{1};
    // read_only_sql_transaction
    static constexpr std::string_view kReadOnlyState = "25006";
    // How often a statement is sent again because the session lacks a prepared statement: once for
    // BEGIN, once for the statement, and once without a name.
    static constexpr int kMaxAgain = 3;
    // The most prepared statements of a session: no application has as many layouts. The next
    // statement deallocates all.
    static constexpr std::size_t kMaxPrepared = 256;
    // The most statements whose text and name are remembered. The next statement clears all,
    // because an application may create its layouts repeatedly.
    static constexpr std::size_t kMaxKnown = 1024;

    const Statement& begin_statement() const;
    static const Statement& begin_read_statement();
    static const Statement& commit_statement();

    // dial.cpp
    Result<void> dial(Deadline deadline);
    Result<void> dial_host(std::size_t host, Deadline deadline);
    Result<void> meet_host(Deadline deadline, SteadyTime began);
    Result<void> ask_once(const Statement& question, std::span<const Value> parameters,
                          Deadline deadline);
    Result<void> look_for_pooler(Deadline deadline);

    // session.cpp
    void disconnect();
    bool is_closed() const { return link_ == Link::closed; }
    // The next begin() connects again. A closed connection stays closed.
    void give_up() {
        if (link_ != Link::closed) link_ = Link::given_up;
    }
    void wait_on_for_commit() {
        if (link_ != Link::closed) link_ = Link::usable;
    }
    void watch_socket(int socket);
    Result<void> await_connection(Deadline deadline);
    Error late_connecting(Deadline deadline) const;
    bool guards_password() const;
    Result<int> authenticate_in_the_open(SteadyTime until, Deadline deadline);
    AuthenticationReader::Finding peek_into_tls(AuthenticationReader& reader);
    Result<void> check_finding(AuthenticationReader::Finding finding) const;
    Result<void> make_ready(Deadline deadline);
    bool looks_alive();
    bool says_reads_only() const;
    bool is_primary() const;
    bool is_current() const;
    Result<void> unless_demoted();
    void leave_host();
    void leave_if_silent();
    SteadyTime next_look() const;
    bool was_replaced(SteadyTime limit);

    Result<Deadline> before_statement();
    Result<void> exchange(Deadline deadline);
    Result<void> check_parameters(std::span<const Value> parameters) const;
    Result<std::int64_t> take_rows(const RowVisitor* visit);
    Result<void> give_up_at_deadline();
    Error lost_connection(bool may_be_applied);
    Error refused();
    Result<void> send_and_settle(const Statement& statement, std::span<const Value> parameters,
                                 Deadline deadline);
    // The password that libpq found in the URL, PGPASSWORD or a password file, for this host.
    std::string_view password() const {
        const char* const text = pq_.PQpass(handle_);
        return text != nullptr ? text : "";
    }
    bool keeps_prepared() const {
        return options_.prepare && !options_.shared->pooled.load(std::memory_order_relaxed);
    }

    // alone.cpp
    bool queue_alone(const Statement& statement, std::span<const Value> parameters, bool wraps);
    bool was_ended_before_answer() const;
    bool await_alone(const Alone& how, SteadyTime sent);
    Result<void> settle_alone(const Alone& how, SteadyTime sent);

    // False if libpq has no connection to queue on.
    bool queue(const Statement& statement, std::span<const Value> parameters, Expected::Kind kind);
    std::string name_of(const Known& known) const;
    bool prepare(const Statement& statement, Known& known);
    Known& know(const Statement& statement);
    void take_refusal(Answer answer, const Expected& of);
    void take_notice(const pg_result* notice);
    Result<void> committed(Deadline deadline, bool cancelled);
    Result<void> await_standbys(Deadline deadline);
    bool queue_empty_commit();
    Error replicas_unsure();
    bool queue_sync();
    // Sends what is queued and reads until every answer has arrived. False at `until`, when
    // `deadline` (if given) has passed or was interrupted, and when the connection is closed.
    bool settle(SteadyTime until, const Deadline* deadline);
    void read_answers();
    void take_answer(Answer answer);
    bool wait(short events, SteadyTime until, const Deadline* deadline);
    static bool wait_on(int socket, short events, SteadyTime until, const Deadline* deadline);

    const PostgresSessionOptions& options_;
    const Libpq& pq_;
    pg_conn* handle_{nullptr};
    int socket_{-1};
    State state_{State::idle};
    bool writes_{false};
    Link link_{Link::usable};
    bool noticed_{false};    // A notice arrived that belongs to no call.
    bool cancelled_{false};  // The server was asked to end the statement that runs alone.
    StandbyWait standbys_{};
    Deadline deadline_{Deadline::at(SteadyTime::max())};

    std::uint64_t term_{0};        // The primary's term (PrimaryWatch) at connection.
    bool began_read_only_{false};  // The server was read-only then.
    SteadyTime connected_{};
    std::size_t host_{0};    // Index among the URL's hosts.
    std::string session_{};  // With several hosts: its name (sql/transaction.hpp).
    SteadyTime sent_{};      // When something was last sent.
    SteadyTime looked_{};    // When another host was last looked for.
    bool replaced_{false};   // Another host is the primary now.
    std::unordered_map<std::uint64_t, Known> known_;  // By Statement::id().
    // Names prepared in the session. Statements of equal text, as of two objects over the same
    // tables, share one name.
    std::set<std::string> names_;
    std::uint64_t generation_{0};  // Part of new names: no name is prepared twice in a session.
    bool statement_gone_{false};   // The refusal: the session lacks the prepared statement.
    std::deque<Expected> expected_;
    bool answered_first_{false};  // expected_.front() has its answer; libpq's null is next.
    Answer answer_{nullptr, ClearResult{nullptr}};   // To the last statement.
    Answer refusal_{nullptr, ClearResult{nullptr}};  // The first error.
    std::vector<std::string> texts_;                 // Buffers of the parameters, reused by
    std::vector<const char*> pointers_;              // each statement.
};

/// Asks PostgreSQL to stop a statement. libpq's call for it blocks, on a connection of its own, so
/// it runs in a detached thread. Best effort: does nothing if too many such threads are blocked
/// already.
void cancel_in_background(const Libpq& pq, pg_conn* connection);

/// "hotcount_" and 32 hexadecimal digits: a hash (FNV-1a, 128 bits) of the statement's text and of
/// `scope`, which is everything else that changes the text's meaning. Behind a pooler one session
/// of the server serves many clients: equal names are equal statements, no matter which client
/// prepared them.
std::string statement_name(std::string_view scope, std::string_view text);

}  // namespace hotcount::sql

// One session of PostgreSQL's, over libpq in non-blocking pipeline mode.
//
//   begin, statement   Parse of both if new, Bind, Execute, Sync: one send, one answer
//   statement          Bind, Execute, Sync
//   commit             waits; of a transaction that only read, nobody waits for it
//   run_alone          Parse if new, Bind, Execute, Sync; BEGIN before and COMMIT behind it if
//                      the session's own level of isolation will not do: one send, one answer
//   read_alone         Parse if new, Bind, Execute, Sync
//   rollback           sent; its answer is skipped when the next one is read
//
// Between it and the server there may be a pooler that gives each transaction another of the
// server's sessions (PgBouncer's transaction mode), so nothing is left in a session that the next
// transaction relies on or another client could trip over: isolation goes with BEGIN, what is
// nowhere set is libpq's startup parameters (client_encoding, application_name), and a prepared
// statement's name is its text's hash. If a session turns out to be shared, statements go without
// names from then on.
//
// Every wait ends at the deadline: a statement of a transaction is cancelled then, and if the
// server does not say so at once, the connection is given up.
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

// -- PostgreSQL's errors as ours: what each leaves known ------------------------------------------

/// What an SQLSTATE means to a caller; the message and what was sent are not looked at.
ErrorCode classify_sqlstate(std::string_view state);
/// What it means to those who decide what to do next; `said` is the server's sentence, without its
/// details.
SqlCondition condition_of_sqlstate(std::string_view state, std::string_view said);

/// An error that the server answered with; `name` is the database's. What the server says is
/// shortened, and shows no password (hide_secrets()).
Error postgres_failure(const Libpq& pq, const pg_result* result, const std::string& name);
/// Whether the server ends the session with that answer.
bool ends_session(const Libpq& pq, const pg_result* result);

/// Why no connection came to be. With PQERRORS_VERBOSE, which is how its SQLSTATE is known.
Error connect_failure(const Libpq& pq, const pg_conn* connection, const std::string& name);
/// Why a password was not sent; to stand behind the database's name.
inline constexpr const char* kClearTextRefused =
    ": the server asks for the password in clear text (its method is \"password\") and has not "
    "shown who it is: the password was not sent. It may be over verified TLS "
    "(?sslmode=verify-full&sslrootcert=FILE), or a Unix socket";
/// The connection's last error of its own as one line.
std::string connection_message(const Libpq& pq, const pg_conn* connection);

// -- connections -----------------------------------------------------------------------------------

/// What the connections of one database have done and learned.
struct PostgresShared {
    PostgresShared(const std::string& name, std::vector<std::string> its_hosts, HostUse use)
        : hosts(name, std::move(its_hosts), use) {}
    std::atomic<std::uint64_t> transactions{0};
    std::atomic<std::uint64_t> statements{0};
    /// Other clients share the server's sessions: no statement is kept prepared in them.
    std::atomic<bool> pooled{false};
    PrimaryWatch primary;
    InheritedSockets sockets;
    Hosts hosts;
};

/// What all connections of one database are made with. Outlives them.
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
    /// It has shown who it is before it may ask for the password, or libpq itself sends that to
    /// nobody in clear text.
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
    /// If the server has no room for another session: waits for it until the deadline, or says so
    /// at once (is_out_of_room()).
    Result<void> connect(Deadline deadline, bool waits_for_room = true);

    Result<void> begin(Deadline deadline) override;
    Result<void> begin_read(Deadline deadline) override;
    Result<void> commit() override;
    bool commit_is_open() const override { return commit_is_open_; }
    Result<void> await_commit(Deadline deadline) override;
    void rollback() override;
    bool in_transaction() const override { return state_ != State::idle; }
    bool broken() const override { return broken_; }
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
        begun,   // Asked for, not sent: BEGIN goes with the first statement.
        open,    // The server has it.
        failed,  // A statement failed: it can only be rolled back.
    };
    // What an answer belongs to, in the order of sending.
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
        std::uint64_t statement{0};  // Its id.
        bool by_name{false};
        bool known_before{false};  // Prepared by an earlier exchange, if by name.
    };
    // A statement as this session runs it.
    struct Known {
        std::string text;  // With the server's placeholders.
        std::string name;  // Empty: it is not known whether it is prepared.
    };
    struct ClearResult {
        const Libpq* pq;
        void operator()(pg_result* result) const { pq->PQclear(result); }
    };
    using Answer = std::unique_ptr<pg_result, ClearResult>;

    // How long after its deadline a call may wait for what settles its outcome: the answer to a
    // cancel, or to a COMMIT that is on its way.
    static constexpr Duration kGrace = std::chrono::milliseconds{50};
    // A host that has not answered for so long when a call's deadline passes is dialled last. While
    // an answer is waited for, another host is asked as often whether it has become the primary.
    static constexpr Duration kSilence = std::chrono::seconds{1};
    // read_only_sql_transaction
    static constexpr std::string_view kReadOnlyState = "25006";
    // How often a statement is sent again because the session lacks it: once for the plan of BEGIN,
    // once for its own, and once without a name.
    static constexpr int kMaxAgain = 3;
    // Statements kept prepared in a session: more than any one application's layouts make. One more,
    // and all are deallocated.
    static constexpr std::size_t kMaxPrepared = 256;
    // Statements whose text and name are kept. One more, and all are looked up anew: an application
    // may make its layouts again and again.
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
    // Wherever libpq has found it: the URL, PGPASSWORD, a password file. Each host may have another.
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
    bool queue_nothing();
    Error replicas_unsure();
    bool queue_sync();
    // Sends what is queued and reads until every answer is there. False at `until`, if `deadline`
    // (if given) has passed or was interrupted, and if the connection is lost_.
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
    bool broken_{false};           // Of no more use; begin() connects anew.
    bool lost_{false};             // The other end is gone.
    bool noticed_{false};          // It said something that no call asked for.
    bool replicas_unsure_{false};  // It committed, and was cancelled as it waited for its standbys.
    bool heard_warning_{false};  // The commit that await_standbys() is about was answered with one.
    bool commit_is_open_{false};  // COMMIT was sent, and its deadline passed before the answer.
    bool cancelled_{false};       // The server was asked to end the statement that runs alone.
    Deadline deadline_{Deadline::at(SteadyTime::max())};

    std::uint64_t term_{0};        // The primary's (PrimaryWatch) when this was connected.
    bool began_read_only_{false};  // What the server said then.
    SteadyTime connected_{};
    std::size_t host_{0};                             // Of the URL's.
    std::string session_{};                           // With several hosts: its name (unknown.hpp).
    SteadyTime sent_{};                               // Something, for the last time.
    SteadyTime looked_{};                             // Whether another host is the primary.
    bool replaced_{false};                            // One is.
    std::unordered_map<std::uint64_t, Known> known_;  // By Statement::id().
    // Of what is prepared in the session. Statements of one text, as two objects over the same tables
    // have them, share one.
    std::set<std::string> names_;
    std::uint64_t generation_{0};  // Of names: none is prepared twice in a session.
    bool statement_gone_{false};   // The refusal is that the session lacks what we had prepared.
    std::deque<Expected> expected_;
    bool answered_first_{false};  // The first of them has its answer, and libpq's null is to come.
    Answer answer_{nullptr, ClearResult{nullptr}};   // To the statement.
    Answer refusal_{nullptr, ClearResult{nullptr}};  // The first error.
    // To a statement that has committed, while the synchronous standbys are waited for.
    Answer committed_{nullptr, ClearResult{nullptr}};
    std::vector<std::string> texts_;     // Parameters on their way, kept for their
    std::vector<const char*> pointers_;  // memory.
};

/// Asks PostgreSQL to stop a statement. libpq's call for it blocks, on a connection of its own, so it
/// runs in a thread of its own; nobody waits for it. Best effort: does nothing if too many such
/// threads are stuck already.
void cancel_in_background(const Libpq& pq, pg_conn* connection);

/// "hotcount_", 32 hexadecimal digits: a hash (FNV-1a, 128 bits) of the statement's text and of
/// `scope`, whatever else changes what the text means. Behind a pooler one session of the server
/// serves many clients: equal names there are equal statements, whoever prepared them.
std::string statement_name(std::string_view scope, std::string_view text);

}  // namespace hotcount::sql

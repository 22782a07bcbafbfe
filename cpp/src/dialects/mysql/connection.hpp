// One session with a MariaDB or MySQL server.
//
// Sessions that write have autocommit off, so a transaction starts with its first statement and
// BEGIN costs no round trip; a statement outside of one is followed by a COMMIT. Sessions that only
// read have it on: one statement is a snapshot and a round trip, and several take BEGIN and COMMIT.
// A compound statement (MariaDB's BEGIN NOT ATOMIC) that ends in COMMIT is a whole transaction in
// one round trip.
//
// The library only says what a call waits for, and this class waits, so each wait ends at its
// deadline. A session that is left in mid-statement is unusable. A second session ends it, because
// the server would go on waiting for a lock, hold its own locks, and not check whether the client
// is still connected.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <hotcount/sql.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "libmariadb.hpp"
#include "sql/hosts.hpp"
#include "sql/server_sessions.hpp"
#include "statement.hpp"

namespace hotcount::sql {

// -- mapping of error numbers of MariaDB, MySQL and their client library to hotcount's errors -----

/// How far a call had come when an error occurred.
enum class MysqlStage : std::uint8_t {
    connecting,
    statement,  ///< A statement of a transaction: nothing is applied without a COMMIT.
    alone,      ///< A statement that commits by itself: a change of the schema.
    commit,
};

/// `name` is the database's, for the message; `text` and `sqlstate` are the server's.
Error mysql_failure(const std::string& name, MysqlStage stage, unsigned number,
                    std::string_view sqlstate, std::string_view text);

/// The error for a server that wants the password in clear text, to which it was not sent; `method`
/// is the server's method, empty if it is not known.
Error password_kept(const std::string& name, const std::string& method);
/// The error for a server that has no cached answer to a challenge for this account
/// (caching_sha2_password's full authentication).
Error first_login_refused(const std::string& name);

/// Whether the client library made this error itself.
bool is_clients_own(unsigned number);
/// Whether the server refuses a write because it is read-only (--read-only): it was a primary, or
/// will become one. Such a COMMIT was rolled back.
bool says_reads_only(unsigned number, std::string_view text);
/// Whether the session does not have the prepared statement; nothing was run.
inline bool is_statement_gone(const Error& error) {
    return error.condition == SqlCondition::invalid_statement_name;
}
/// Whether the connection is of no more use after this error.
bool breaks_connection(unsigned number);

// -- connections -----------------------------------------------------------------------------------

/// Pauses between logins that a server refuses until the account has logged in over TLS once. MySQL
/// counts them as broken handshakes, and after max_connect_errors (100) in a row it refuses the host.
/// Thread-safe.
class FirstLogins {
  public:
    bool are_paused() const {
        return std::chrono::steady_clock::now().time_since_epoch().count() <
               until_.load(std::memory_order_relaxed);
    }
    /// The first ones are tried at once, later ones after 1, 2, 4 ... 30 s.
    void refuse() {
        const int more = refused_.fetch_add(1, std::memory_order_relaxed) - kAtOnce;
        if (more < 0) return;
        const auto pause = std::min(kLongest, std::chrono::seconds{1} * (1 << std::min(more, 5)));
        const SteadyTime until = std::chrono::steady_clock::now() + pause;
        until_.store(until.time_since_epoch().count(), std::memory_order_relaxed);
    }
    void accept() { refused_.store(0, std::memory_order_relaxed); }

  private:
    static constexpr int kAtOnce = 3;
    static constexpr std::chrono::seconds kLongest{30};
    std::atomic<int> refused_{0};
    std::atomic<SteadyTime::rep> until_{0};  // In steady_clock's own units.
};

/// State shared by the sessions of one database.
struct MysqlShared {
    MysqlShared(const std::string& name, std::vector<std::string> its_hosts, HostUse use)
        : hosts(name, std::move(its_hosts), use) {}
    std::atomic<std::uint64_t> transactions{0};
    std::atomic<std::uint64_t> statements{0};
    /// False once the server had no room for another prepared statement.
    std::atomic<bool> keeps_prepared{true};
    /// Closes the idle sessions, and with them their prepared statements in the server.
    std::function<void()> close_idle{};
    PrimaryWatch primary;
    InheritedSockets sockets;
    FirstLogins first_logins;
    Hosts hosts;
};

struct MysqlHost {
    std::string host;
    unsigned port{3306};
};

/// Where a session goes and as whom.
struct MysqlTarget {
    std::string name;  ///< For messages.
    std::vector<MysqlHost> hosts;
    HostUse use{HostUse::any};  ///< Of several.
    std::string socket;  ///< A path; empty: TCP, or the library's own path where host is empty too.
    std::string user;
    std::string password;
    std::string database;
    bool tls{false};
    bool tls_verify{true};
    std::string tls_ca;
    std::string tls_cert;
    std::string tls_key;
    std::string tls_fingerprint;                ///< Of the server's certificate; in hexadecimal.
    bool prepare{true};                         ///< Keep statements prepared.
    Duration timeout{std::chrono::seconds{5}};  ///< Of most calls.
    Duration tcp_user_timeout{std::chrono::seconds{10}};
    std::optional<Duration> idle_timeout{};  ///< After which the pool closes a session.
};

class MysqlConnection final : public Connection {
  public:
    /// `reads`: each transaction of it is one snapshot and cannot write.
    MysqlConnection(const libmariadb::Library& library, const MysqlTarget& target, bool reads,
                    MysqlShared& shared)
        : library_(library), target_(target), reads_(reads), shared_(shared) {}
    MysqlConnection(const MysqlConnection&) = delete;
    MysqlConnection& operator=(const MysqlConnection&) = delete;
    ~MysqlConnection() override;

    Result<void> connect(Deadline deadline);
    /// Sets the deadline of statements outside of a transaction, until begin() sets another.
    void set_deadline(Deadline deadline) { deadline_ = deadline; }

    Result<void> begin(Deadline deadline) override;
    Result<void> begin_read(Deadline deadline) override;
    Result<void> commit() override;
    bool commit_is_open() const override { return commit_waits_for_ != 0; }
    Result<void> await_commit(Deadline deadline) override;
    void rollback() override;
    bool in_transaction() const override { return begun_; }
    bool broken() const override { return broken_; }
    /// False also if the server has ended the session meanwhile; then broken().
    bool still_there(bool ask, Deadline deadline) override;
    Result<std::int64_t> run(const Statement& statement, std::span<const Value> parameters,
                             const RowVisitor* visit) override;
    Result<std::int64_t> run_alone(const Statement& statement, std::span<const Value> parameters,
                                   const RowVisitor* visit, const Alone& how) override;
    Result<std::int64_t> read_alone(const Statement& statement, std::span<const Value> parameters,
                                    const RowVisitor* visit, Deadline deadline) override;
    std::int64_t duplicates() const override;
    Result<void> run_script(const std::string& text) override;
    Result<bool> has_session(std::string_view lost) override;

  private:
    using Prepared = MysqlStatement;
    // Statements kept prepared per session. The server bounds the sum over all sessions (16,382).
    static constexpr std::size_t kMaxPrepared = 256;

    // How long a call may go on after its deadline to leave the server in order.
    static constexpr Duration kGrace = std::chrono::milliseconds{50};
    // As in PostgresConnection.
    static constexpr Duration kSilence = std::chrono::seconds{1};

    // A call whose socket was shut down ends within a few steps.
    static constexpr int kMaxSteps = 10'000;

    template <class Start, class Continue>
    bool drive(Start start, Continue go_on);
    int wait(int wanted);
    Error left_at_deadline(MysqlStage stage);
    Error failed(MysqlStage stage);
    Error failed(MysqlStage stage, const Prepared& prepared);

    Result<void> dial(Deadline deadline);
    Result<void> dial_host(std::size_t host, Deadline deadline);
    Result<void> check_node();
    bool is_with(const MysqlConnection& other) const;
    bool answers_again(SteadyTime limit);
    void leave_host();
    void leave_if_silent();
    bool was_replaced(SteadyTime limit);
    Result<void> committed();
    std::string name_of_session() const { return server_ + " " + std::to_string(id_); }
    SteadyTime next_look() const;
    const MysqlHost& host() const { return target_.hosts[host_]; }
    Result<std::int64_t> run_prepared(const Statement& statement, std::span<const Value> parameters,
                                      const RowVisitor* visit);
    Error unreached(int cause);
    Error refused(MysqlStage stage, unsigned number, const char* sqlstate, const char* text);
    Result<void> set_options(Deadline deadline, bool restricted, const std::string& no_key);
    Result<void> identify();
    Result<void> set_up();
    Result<void> tell(std::string_view text, MysqlStage stage);
    Result<void> be_patient(std::int64_t seconds);
    Result<Prepared*> prepare(const Statement& statement);
    Result<Prepared*> prepare_anew(const Statement& statement);
    Result<Prepared*> prepare_guarded(const Statement& statement);
    Result<std::int64_t> execute(Prepared& prepared, std::span<const Value> parameters,
                                 const RowVisitor* visit);
    Result<void> fetch(Prepared& prepared, const RowVisitor* visit);
    void forget(std::uint64_t id);
    std::unique_ptr<MysqlConnection> dial_beside() const;
    void kill_from_outside();
    int go_on_with_commit(int ready);
    bool await_alone(const Alone& how);
    bool cancel_before_commit();
    Result<std::int64_t> settle_alone(const RowVisitor* visit, const Alone& how);
    Result<std::int64_t> take_results(Prepared& prepared,
                                      std::vector<std::vector<MysqlColumn>>& rows);
    Error alone_refused(Error error);
    bool still_in_transaction();
    void abandon_commit();
    void leave_for_good(unsigned number);
    void watch_socket();
    void forget_socket();
    Error is_gone() const;
    void drop();

    const libmariadb::Library& library_;
    const MysqlTarget& target_;
    const bool reads_;
    MysqlShared& shared_;
    libmariadb::Session* session_{nullptr};
    int socket_{-1};
    std::uint64_t process_{0};  // fork_generation() at connection.
    unsigned long id_{0};       // The server's number for this session.
    std::string asked_method_;  // The server's method that asks for the password itself.
    std::string server_;        // The server of id_: another one has other numbers.
    bool reads_only_{false};    // Whether server_ was read-only at identified_.
    std::uint64_t product_{0};  // 1: MariaDB, 2: MySQL.
    std::size_t host_{0};       // Index among the URL's hosts.
    SteadyTime sent_{};         // When something was last sent.
    SteadyTime looked_{};       // When another host was last looked for.
    SteadyTime identified_{};

    std::list<Prepared> prepared_;  // The one used last is first.
    std::unordered_map<std::uint64_t, std::list<Prepared>::iterator> by_id_;

    Deadline deadline_{Deadline::at(SteadyTime::max())};
    bool begun_{false};
    bool ran_{false};            // The transaction has run a statement.
    bool in_cluster_{false};     // The server is a node of a Galera cluster.
    std::string node_;           // The node's address; only if the URL has several hosts.
    std::string nodes_;          // Addresses of all nodes that it sees.
    std::string view_;           // The number of that membership.
    SteadyTime dialled_{};       // When the dial of one of several hosts began.
    std::uint64_t term_{0};      // The primary's term (PrimaryWatch) at connection.
    bool only_rollback_{false};  // A statement of the transaction has failed.
    bool broken_{false};
    std::optional<Error> lost_by_{};  // The server's error that ended the session.
    // The library is in the middle of a COMMIT, or of a statement that commits by itself, and waits
    // for that; it writes its result there.
    int commit_waits_for_{0};
    int commit_refused_{0};
    Prepared* alone_{nullptr};  // The statement that commits by itself.
    SteadyTime alone_until_{};  // Its deadline; deadline_ is when to ask whether it gives way.
    bool cancelled_{false};     // A cancel was sent for alone_.
    // The cancel saw the text of the whole compound statement, which ran between two of its parts.
    bool between_parts_{false};
    // The deadline of cleanup and of questions about the server, which cannot be interrupted.
    std::optional<SteadyTime> tidy_until_{};
    std::int64_t patience_{0};
};

/// The server's limit for a session's waits, in whole seconds, for a call with that limit.
std::int64_t patience_for(Duration limit);

// Runs one of the library's calls to its end; false if it was cut off at the deadline.
template <class Start, class Continue>
bool MysqlConnection::drive(Start start, Continue go_on) {
    sent_ = std::chrono::steady_clock::now();
    int wanted = start();
    for (int steps = 0; wanted != 0; ++steps) {
        if (!broken_) {
            const int ready = wait(wanted);
            if (ready != 0) {
                wanted = go_on(ready);
                continue;
            }
            broken_ = true;
            // When the socket is shut down, the library gives up and closes it.
            const int socket = library_.get_socket(session_);
            if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
            forget_socket();
        }
        if (steps >= kMaxSteps) return false;
        wanted = go_on(libmariadb::kWaitTimeout);
    }
    return !broken_;
}

}  // namespace hotcount::sql

// One session of PostgreSQL's, over libpq in non-blocking pipeline mode.
//
//   begin, statement   Parse of both where new, Bind, Execute, Sync: one send, one answer
//   statement          Bind, Execute, Sync
//   commit             waits; of a transaction that only read, nobody waits for it
//   rollback           sent; its answer is skipped when the next one is read
//
// Every wait ends at the deadline: a statement of a transaction is cancelled then, and where the
// server does not say so at once, the connection is given up.
#pragma once

#include <deque>
#include <hotcount/sql/database.hpp>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inherited_sockets.hpp"
#include "libpq.hpp"

namespace hotcount::sql {

struct PostgresCounters {
    std::atomic<std::uint64_t> transactions{0};
    std::atomic<std::uint64_t> statements{0};
};

/// What all connections of one database share. Outlives them.
struct PostgresSessionOptions {
    const Libpq* pq;
    std::string name;  ///< The database's, for messages.
    /// libpq's connection parameters, the password among them.
    std::vector<std::pair<std::string, std::string>> parameters;
    std::optional<Duration> connect_timeout;
    Duration statement_timeout;  ///< For statements outside of a transaction.
    PostgresCounters* counters;
    InheritedSockets* sockets;
};

class PostgresConnection final : public Connection {
  public:
    explicit PostgresConnection(const PostgresSessionOptions& options)
        : options_(options), pq_(*options.pq) {}
    PostgresConnection(const PostgresConnection&) = delete;
    PostgresConnection& operator=(const PostgresConnection&) = delete;
    ~PostgresConnection() override { disconnect(); }

    Result<void> connect(Deadline deadline);

    Result<void> begin(Deadline deadline) override;
    Result<void> begin_read(Deadline deadline) override;
    Result<void> commit() override;
    void rollback() override;
    bool in_transaction() const override { return state_ != State::idle; }
    bool broken() const override { return broken_; }
    Result<std::int64_t> run(const Statement& statement, std::span<const Value> parameters,
                             const RowVisitor* visit) override;
    Result<void> run_script(const std::string& text) override;

  private:
    enum class State : std::uint8_t {
        idle,    // No transaction.
        begun,   // Asked for, not sent: BEGIN goes with the first statement.
        open,    // The server has it.
        failed,  // A statement failed: it can only be rolled back.
    };
    // What an answer belongs to, in the order of sending.
    struct Expected {
        enum class Kind : std::uint8_t { prepare, begin, statement, forgotten, sync } kind;
        std::uint64_t statement{0};  // Its id, for prepare.
    };
    struct ClearResult {
        const Libpq* pq;
        void operator()(pg_result* result) const { pq->PQclear(result); }
    };
    using Answer = std::unique_ptr<pg_result, ClearResult>;

    // Statements kept prepared per connection: more than any one application's layouts make.
    static constexpr std::size_t kMaxPrepared = 256;

    // postgres_session.cpp
    void disconnect();
    void watch_socket(int socket);
    Result<void> await_connection(Deadline deadline);
    Result<void> make_ready(Deadline deadline);
    bool looks_alive();

    Result<Deadline> before_statement();
    Result<void> exchange(Deadline deadline);
    Result<void> give_up_at_deadline();
    Error lost_connection(bool may_be_applied);
    Error refused();

    // False where libpq has no connection to queue on.
    bool queue(const Statement& statement, std::span<const Value> parameters, Expected::Kind kind);
    bool queue_sync();
    // Sends what is queued and reads until every answer is there. False at `until`, where `deadline`
    // (if given) has passed or was interrupted, and where the connection is lost_.
    bool settle(SteadyTime until, const Deadline* deadline);
    void read_answers();
    void take_answer(Answer answer);
    bool wait(short events, SteadyTime until, const Deadline* deadline);

    const PostgresSessionOptions& options_;
    const Libpq& pq_;
    pg_conn* handle_{nullptr};
    int socket_{-1};
    State state_{State::idle};
    bool writes_{false};
    bool broken_{false};  // Of no more use; begin() connects anew.
    bool lost_{false};    // The other end is gone.
    Deadline deadline_{Deadline::at(SteadyTime::max())};

    std::unordered_map<std::uint64_t, std::string> prepared_;  // Their names in the session.
    std::uint64_t names_{0};
    std::deque<Expected> expected_;
    bool answered_first_{false};  // The first of them has its answer, and libpq's null is to come.
    Answer answer_{nullptr, ClearResult{nullptr}};   // To the statement.
    Answer refusal_{nullptr, ClearResult{nullptr}};  // The first error.
    std::vector<std::string> texts_;                 // Parameters on their way, kept for their
    std::vector<const char*> pointers_;              // memory.
};

}  // namespace hotcount::sql

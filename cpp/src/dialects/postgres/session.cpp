// Session upkeep of PostgresConnection: liveness checks, scripts, cancels and disconnection.
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>

#include "connection.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

// Threads that send cancels. An unreachable server blocks a thread until its TCP times out.
constexpr int kMostCancelThreads = 16;
std::atomic<int> cancel_threads{0};

// How long still_there() waits for the server's answer.
constexpr Duration kAnswersWithin = std::chrono::seconds{1};
// The age at which a read-only session is replaced while the database looks for its primary.
constexpr Duration kLooksAgainAfter = std::chrono::seconds{1};

}  // namespace

void cancel_in_background(const Libpq& pq, pg_conn* connection) {
    if (cancel_threads.fetch_add(1) >= kMostCancelThreads) {
        cancel_threads.fetch_sub(1);
        return;
    }
    pg_cancel* const request = pq.PQgetCancel(connection);
    const auto send = [&pq, request] {
        std::array<char, 256> ignored{};
        pq.PQcancel(request, ignored.data(), static_cast<int>(ignored.size()));
        pq.PQfreeCancel(request);
        cancel_threads.fetch_sub(1);
    };
    if (!spawn_thread(send)) {
        pq.PQfreeCancel(request);
        cancel_threads.fetch_sub(1);
    }
}

void PostgresConnection::disconnect() {
    if (handle_ == nullptr) return;
    watch_socket(-1);
    pq_.PQfinish(handle_);
    handle_ = nullptr;
    known_.clear();
    names_.clear();
    statement_gone_ = false;
    give_up();
    expected_.clear();
    answered_first_ = false;
    answer_.reset();
    refusal_.reset();
    standbys_.committed.reset();
    state_ = State::idle;
}

// Registers the socket among those that a forked child must close; -1 registers none.
void PostgresConnection::watch_socket(int socket) {
    if (socket_ >= 0) options_.shared->sockets.remove(socket_);
    socket_ = socket;
    if (socket_ >= 0) options_.shared->sockets.add(socket_);
}

// Called before a transaction. Nothing has been sent yet, so a session that the server has ended
// (a restart, an idle timeout) is replaced.
Result<void> PostgresConnection::make_ready(Deadline deadline) {
    if (state_ != State::idle) rollback();
    noticed_ = false;
    // A server sends to an idle session only the error that ends it (idle_session_timeout, a
    // shutdown), shortly before it closes the connection. libpq reports that error as a notice.
    if (handle_ != nullptr && !broken() && is_current() && looks_alive() && !noticed_) return {};
    disconnect();
    return connect(deadline);
}

// Reads unsolicited messages, to detect that the session has ended.
bool PostgresConnection::looks_alive() {
    pollfd watched{pq_.PQsocket(handle_), POLLIN, 0};
    constexpr int kMostReads = 16;
    for (int i = 0; i<kMostReads&& ::poll(&watched, 1, 0)> 0; ++i) {
        const bool read = pq_.PQconsumeInput(handle_) != 0;
        read_answers();
        (void)pq_.PQisBusy(handle_);  // Parses the input.
        if (!read) link_ = Link::closed;
        if (is_closed()) return false;
    }
    return !is_closed() && pq_.PQstatus(handle_) == pq::kConnectionOk;
}

// From version 14 on the server reports this setting unasked, with the answer to the first
// statement after a change. A pooler does not report it.
bool PostgresConnection::says_reads_only() const {
    const char* const said = pq_.PQparameterStatus(handle_, "default_transaction_read_only");
    return said != nullptr && std::string_view{said} == "on";
}

bool PostgresConnection::is_primary() const {
    const char* const standby = pq_.PQparameterStatus(handle_, "in_hot_standby");
    return standby != nullptr && std::string_view{standby} == "off" && !says_reads_only();
}

// While the primary is looked for, a session that began read-only is replaced after
// kLooksAgainAfter, so that the host name is resolved again.
bool PostgresConnection::is_current() const {
    const PrimaryWatch& primary = options_.shared->primary;
    if (term_ != primary.term()) return false;
    return !began_read_only_ || !primary.is_looking() ||
           std::chrono::steady_clock::now() - connected_ < kLooksAgainAfter;
}

// Rows read since the server was demoted may be stale: other clients already vote at the new
// primary. So the session is given up, and the next read connects to the host to which the name
// resolves then. If that server is read-only from the start, its answer counts.
Result<void> PostgresConnection::unless_demoted() {
    const bool reads_only = says_reads_only();
    if (!reads_only) began_read_only_ = false;
    if (!reads_only || began_read_only_ || writes_ || link_ == Link::given_up) return {};
    leave_host();
    give_up();
    return make_error(ErrorCode::unavailable,
                      options_.name + ": the server is no longer the primary; nothing was applied",
                      std::string{kReadOnlyState}, SqlCondition::read_only);
}

// Gives up all sessions of this primary. The next one looks for the primary again.
void PostgresConnection::leave_host() {
    options_.shared->primary.refused_to_write(term_);
    if (options_.shared->hosts.several()) options_.shared->hosts.leave(host_);
}

// Called at a deadline without an answer: a row is locked, or the host is gone.
void PostgresConnection::leave_if_silent() {
    const bool silent = std::chrono::steady_clock::now() - sent_ >= kSilence;
    if (silent && options_.shared->hosts.several()) leave_host();
}

// Without `ask`, a session that the server has ended passes: begin() replaces it. With `ask`, the
// server must answer a Sync.
bool PostgresConnection::still_there(bool ask, Deadline deadline) {
    if (!ask) return !broken();
    if (handle_ == nullptr || broken() || !looks_alive() || !queue_sync()) return false;
    const SteadyTime until = std::chrono::steady_clock::now() + kAnswersWithin;
    if (settle(std::min(until, deadline.time()), &deadline)) return true;
    if (options_.shared->hosts.several()) leave_host();
    return false;
}

Result<void> PostgresConnection::run_script(const std::string& text) {
    HOTCOUNT_TRY_ASSIGN(const Deadline deadline, before_statement());
    // Reads the answers to earlier statements.
    HOTCOUNT_TRY(exchange(deadline));
    statement_gone_ = false;
    // Only the simple protocol takes several statements at once, and it has no pipeline mode.
    const std::string begin = begin_statement().text() + ";\n";
    const std::string sent = state_ == State::begun ? begin + text : text;
    if (state_ == State::begun) state_ = State::open;
    if (pq_.PQexitPipelineMode(handle_) == 0 || pq_.PQsendQuery(handle_, sent.c_str()) == 0) {
        return lost_connection(false);
    }
    Answer refusal{nullptr, ClearResult{&pq_}};
    while (true) {
        bool ended = false;
        while (!ended && pq_.PQisBusy(handle_) == 0) {
            Answer answer{pq_.PQgetResult(handle_), ClearResult{&pq_}};
            ended = answer == nullptr;
            if (ended) break;
            const int status = pq_.PQresultStatus(answer.get());
            if (status == pq::kCommandOk || status == pq::kTuplesOk) continue;
            if (ends_session(pq_, answer.get())) link_ = Link::closed;
            if (refusal == nullptr) refusal = std::move(answer);
        }
        if (is_closed()) {
            refusal_ = std::move(refusal);
            return lost_connection(state_ == State::idle);
        }
        if (ended) break;
        const int unsent = pq_.PQflush(handle_);
        const short events = static_cast<short>(unsent == 0 ? POLLIN : POLLIN | POLLOUT);
        if (unsent >= 0 && !wait(events, deadline.time(), &deadline)) {
            cancel_in_background(pq_, handle_);
            const bool alone = state_ == State::idle;
            give_up();
            if (!alone) state_ = State::failed;
            return make_error(
                alone ? ErrorCode::outcome_unknown : ErrorCode::deadline,
                options_.name + ": the deadline passed in mid-script" +
                    (alone ? "; it may or may not be applied" : "; nothing was applied"));
        }
        if (unsent < 0 || pq_.PQconsumeInput(handle_) == 0) link_ = Link::closed;
    }
    pq_.PQenterPipelineMode(handle_);
    if (refusal == nullptr) return {};
    if (state_ != State::idle) state_ = State::failed;
    refusal_ = std::move(refusal);
    return refused();
}

Result<bool> PostgresConnection::has_session(std::string_view lost) {
    static const Statement kSession{Statements{postgres::kSessionSql, {}}["has_session"]};
    bool has = true;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        has = row.text(0) == "t";
        return {};
    };
    HOTCOUNT_TRY(run(kSession, std::array{Value{lost}}, &see));
    return has;
}

// A 128-bit FNV-1a hash.
std::string statement_name(std::string_view scope, std::string_view text) {
    __extension__ using Hash = unsigned __int128;
    constexpr auto kPrime = (Hash{1} << 88U) + 0x13B;
    Hash hash = (Hash{0x6C62272E07BB0142} << 64U) + 0x62B821756295C58D;
    const auto add = [&](std::string_view part) {
        for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
        // A NUL, which no part contains, ends each part: different pairs are different input.
        hash *= kPrime;
    };
    add(scope);
    add(text);
    constexpr std::string_view kDigits = "0123456789abcdef";
    constexpr int kLength = 32;
    std::string name = "hotcount_";
    for (int i = kLength - 1; i >= 0; --i) {
        name += kDigits[static_cast<std::size_t>(hash >> (4U * static_cast<unsigned>(i))) & 0xFU];
    }
    return name;
}

}  // namespace hotcount::sql

// How a PostgresConnection is found alive or dead, runs scripts, and ends.
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

// A server that does not answer holds each until its TCP gives up.
constexpr int kMostThreads = 16;
std::atomic<int> running{0};

// If a server has not answered by then, it is better to try another session.
constexpr Duration kAnswersWithin = std::chrono::seconds{1};
// How long a session lasts that only reads, while a primary is looked for.
constexpr Duration kLooksAgainAfter = std::chrono::seconds{1};

}  // namespace

void cancel_in_background(const Libpq& pq, pg_conn* connection) {
    if (running.fetch_add(1) >= kMostThreads) {
        running.fetch_sub(1);
        return;
    }
    pg_cancel* const request = pq.PQgetCancel(connection);
    const auto send = [&pq, request] {
        std::array<char, 256> ignored{};
        pq.PQcancel(request, ignored.data(), static_cast<int>(ignored.size()));
        pq.PQfreeCancel(request);
        running.fetch_sub(1);
    };
    if (!spawn_thread(send)) {
        pq.PQfreeCancel(request);
        running.fetch_sub(1);
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
    commit_is_open_ = false;
    expected_.clear();
    answered_first_ = false;
    answer_.reset();
    refusal_.reset();
    committed_.reset();
    state_ = State::idle;
}

// Keeps track of the socket, which a forked child must close; -1 for none.
void PostgresConnection::watch_socket(int socket) {
    if (socket_ >= 0) options_.shared->sockets.remove(socket_);
    socket_ = socket;
    if (socket_ >= 0) options_.shared->sockets.add(socket_);
}

// Before a transaction: a server that was restarted, or hung up on a session that was idle, is
// connected to again, as nothing has been sent yet.
Result<void> PostgresConnection::make_ready(Deadline deadline) {
    if (state_ != State::idle) rollback();
    noticed_ = false;
    // All that is said to an idle session is that it ends (idle_session_timeout, a shutdown), a
    // moment before it does; libpq takes that for a notice.
    if (handle_ != nullptr && !broken_ && is_current() && looks_alive() && !noticed_) return {};
    disconnect();
    return connect(deadline);
}

// Reads what came unasked, to see whether the session has ended.
bool PostgresConnection::looks_alive() {
    pollfd watched{pq_.PQsocket(handle_), POLLIN, 0};
    constexpr int kMostReads = 16;
    for (int i = 0; i<kMostReads&& ::poll(&watched, 1, 0)> 0; ++i) {
        const bool read = pq_.PQconsumeInput(handle_) != 0;
        read_answers();
        (void)pq_.PQisBusy(handle_);  // Parses.
        if (!read) lost_ = true;
        if (lost_) return false;
    }
    return !lost_ && pq_.PQstatus(handle_) == pq::kConnectionOk;
}

// The server says it unasked, from version 14 on: with the answer to the first statement after the
// change. A pooler does not.
bool PostgresConnection::says_reads_only() const {
    const char* const said = pq_.PQparameterStatus(handle_, "default_transaction_read_only");
    return said != nullptr && std::string_view{said} == "on";
}

bool PostgresConnection::is_primary() const {
    const char* const standby = pq_.PQparameterStatus(handle_, "in_hot_standby");
    return standby != nullptr && std::string_view{standby} == "off" && !says_reads_only();
}

// While there is no primary, the name is looked up again and again.
bool PostgresConnection::is_current() const {
    const PrimaryWatch& primary = options_.shared->primary;
    if (term_ != primary.term()) return false;
    return !began_read_only_ || !primary.is_looking() ||
           std::chrono::steady_clock::now() - connected_ < kLooksAgainAfter;
}

// What was read since the server was demoted may be old: others vote at the new primary already. So
// the session is given up, and whoever reads asks the server that the name stands for now. If that one
// reads only too, its answer counts.
Result<void> PostgresConnection::unless_demoted() {
    const bool reads_only = says_reads_only();
    if (!reads_only) began_read_only_ = false;
    if (!reads_only || began_read_only_ || writes_ || broken_) return {};
    leave_host();
    broken_ = true;
    return make_error(ErrorCode::unavailable,
                      options_.name + ": the server is no primary any more; nothing was applied",
                      std::string{kReadOnlyState}, SqlCondition::read_only);
}

// All sessions are given up, and the next one looks for the primary anew.
void PostgresConnection::leave_host() {
    options_.shared->primary.refused_to_write(term_);
    if (options_.shared->hosts.several()) options_.shared->hosts.leave(host_);
}

// At a deadline, without an answer: a row that others hold, or a host that is gone.
void PostgresConnection::leave_if_silent() {
    const bool silent = std::chrono::steady_clock::now() - sent_ >= kSilence;
    if (silent && options_.shared->hosts.several()) leave_host();
}

// A session that the server has ended is replaced in begin(). Here it is for the other end to speak.
bool PostgresConnection::still_there(bool ask, Deadline deadline) {
    if (!ask) return !broken_;
    if (handle_ == nullptr || broken_ || !looks_alive() || !queue_sync()) return false;
    const SteadyTime until = std::chrono::steady_clock::now() + kAnswersWithin;
    if (settle(std::min(until, deadline.time()), &deadline)) return true;
    if (options_.shared->hosts.several()) leave_host();
    return false;
}

Result<void> PostgresConnection::run_script(const std::string& text) {
    HOTCOUNT_TRY_ASSIGN(const Deadline deadline, before_statement());
    // What was left of earlier answers.
    HOTCOUNT_TRY(exchange(deadline));
    statement_gone_ = false;
    // Several statements at once are for the simple protocol, which knows no pipeline.
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
            if (ends_session(pq_, answer.get())) lost_ = true;
            if (refusal == nullptr) refusal = std::move(answer);
        }
        if (lost_) {
            refusal_ = std::move(refusal);
            return lost_connection(state_ == State::idle);
        }
        if (ended) break;
        const int unsent = pq_.PQflush(handle_);
        const short events = static_cast<short>(unsent == 0 ? POLLIN : POLLIN | POLLOUT);
        if (unsent >= 0 && !wait(events, deadline.time(), &deadline)) {
            cancel_in_background(pq_, handle_);
            const bool alone = state_ == State::idle;
            broken_ = true;
            if (!alone) state_ = State::failed;
            return make_error(
                alone ? ErrorCode::outcome_unknown : ErrorCode::deadline,
                options_.name + ": the deadline passed in mid-script" +
                    (alone ? "; it may or may not be applied" : "; nothing was applied"));
        }
        if (unsent < 0 || pq_.PQconsumeInput(handle_) == 0) lost_ = true;
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

// FNV-1a.
std::string statement_name(std::string_view scope, std::string_view text) {
    __extension__ using Hash = unsigned __int128;
    constexpr auto kPrime = (Hash{1} << 88U) + 0x13B;
    Hash hash = (Hash{0x6C62272E07BB0142} << 64U) + 0x62B821756295C58D;
    const auto add = [&](std::string_view part) {
        for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
        // So that no two pairs of parts read the same: neither has a NUL.
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

// How a PostgresConnection comes to be, is found alive or dead, runs scripts, and ends.
#include <poll.h>

#include <hotcount/base/interrupt.hpp>

#include "postgres_cancel.hpp"
#include "postgres_connection.hpp"
#include "postgres_error.hpp"

namespace hotcount::sql {
namespace {

void ignore_notice(void*, const char*) {}

}  // namespace

void PostgresConnection::disconnect() {
    if (handle_ == nullptr) return;
    watch_socket(-1);
    pq_.PQfinish(handle_);
    handle_ = nullptr;
    prepared_.clear();
    expected_.clear();
    answered_first_ = false;
    answer_.reset();
    refusal_.reset();
    state_ = State::idle;
}

// The one that a forked child is to close; -1 for none.
void PostgresConnection::watch_socket(int socket) {
    if (socket_ >= 0) options_.sockets->remove(socket_);
    socket_ = socket;
    if (socket_ >= 0) options_.sockets->add(socket_);
}

Result<void> PostgresConnection::connect(Deadline deadline) {
    broken_ = false;
    lost_ = false;
    std::vector<const char*> names;
    std::vector<const char*> values;
    for (const auto& [name, value] : options_.parameters) {
        names.push_back(name.c_str());
        values.push_back(value.c_str());
    }
    names.push_back(nullptr);
    values.push_back(nullptr);
    handle_ = pq_.PQconnectStartParams(names.data(), values.data(), 0);
    if (handle_ == nullptr) {
        broken_ = true;
        return make_error(ErrorCode::capacity, options_.name + ": out of memory");
    }
    auto connected = await_connection(deadline);
    if (!connected) {
        disconnect();
        broken_ = true;
        return connected;
    }
    pq_.PQsetErrorVerbosity(handle_, pq::kErrorsDefault);
    pq_.PQsetnonblocking(handle_, 1);
    pq_.PQenterPipelineMode(handle_);
    return {};
}

Result<void> PostgresConnection::await_connection(Deadline deadline) {
    pq_.PQsetNoticeProcessor(handle_, &ignore_notice, nullptr);
    // So that the SQLSTATE stands in the message: libpq shows it nowhere else before a session.
    pq_.PQsetErrorVerbosity(handle_, pq::kErrorsVerbose);
    SteadyTime until = deadline.time();
    if (options_.connect_timeout) {
        until = std::min(until, std::chrono::steady_clock::now() + *options_.connect_timeout);
    }
    int progress = pq::kPollingWriting;
    if (pq_.PQstatus(handle_) == pq::kConnectionBad) progress = pq::kPollingFailed;
    while (progress != pq::kPollingOk) {
        if (progress == pq::kPollingFailed) return connect_failure(pq_, handle_, options_.name);
        watch_socket(pq_.PQsocket(handle_));
        if (!wait(progress == pq::kPollingReading ? POLLIN : POLLOUT, until, &deadline)) {
            if (!deadline.passed()) {
                return make_error(ErrorCode::unavailable,
                                  options_.name + ": no connection within connect_timeout");
            }
            return make_error(ErrorCode::deadline,
                              options_.name +
                                  ": the deadline passed while connecting; nothing was "
                                  "applied");
        }
        watch_socket(-1);  // It may try the next address, with another socket.
        progress = pq_.PQconnectPoll(handle_);
    }
    watch_socket(pq_.PQsocket(handle_));
    return {};
}

// Before a transaction: a server that was restarted, or hung up on a session that was idle, is
// connected to again, as nothing has been sent yet.
Result<void> PostgresConnection::make_ready(Deadline deadline) {
    if (state_ != State::idle) rollback();
    if (handle_ != nullptr && !broken_ && looks_alive()) return {};
    disconnect();
    return connect(deadline);
}

// Reads what came unasked, so that the end of the session is seen.
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

Result<void> PostgresConnection::run_script(const std::string& text) {
    HOTCOUNT_TRY_ASSIGN(const Deadline deadline, before_statement());
    // What was left of earlier answers.
    HOTCOUNT_TRY(exchange(deadline));
    // Several statements at once are for the simple protocol, which knows no pipeline.
    const std::string begin = "BEGIN ISOLATION LEVEL READ COMMITTED;\n";
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
    return postgres_failure(pq_, refusal.get(), options_.name);
}

}  // namespace hotcount::sql

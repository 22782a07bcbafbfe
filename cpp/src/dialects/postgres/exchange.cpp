// Sending and reading of PostgresConnection: prepared statements, the pipeline's queue, the
// answers.
#include <poll.h>

#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>

#include "connection.hpp"
#include "sql/dialect.hpp"

namespace hotcount::sql {

PostgresConnection::Known& PostgresConnection::know(const Statement& statement) {
    const auto found = known_.find(statement.id());
    if (found != known_.end()) return found->second;
    if (known_.size() >= kMaxKnown) known_.clear();
    Placed placed = place_parameters(statement.text(), Placeholders::dollar);
    return known_.emplace(statement.id(), Known{std::move(placed.text), {}}).first->second;
}

std::string PostgresConnection::name_of(const Known& known) const {
    std::string name = statement_name(options_.statement_scope, known.text);
    if (generation_ > 0) name += "_" + std::to_string(generation_);
    return name;
}

bool PostgresConnection::prepare(const Statement& statement, Known& known) {
    if (names_.size() >= kMaxPrepared) {
        if (pq_.PQsendQueryParams(handle_, "DEALLOCATE ALL", 0, nullptr, nullptr, nullptr, nullptr,
                                  0) == 0) {
            return false;
        }
        expected_.push_back({Expected::Kind::forgotten});
        for (auto& [id, each] : known_) each.name.clear();
        names_.clear();
        // The server may have refused to deallocate the old ones.
        ++generation_;
    }
    known.name = name_of(known);
    if (pq_.PQsendPrepare(handle_, known.name.c_str(), known.text.c_str(), 0, nullptr) == 0) {
        return false;
    }
    names_.insert(known.name);
    expected_.push_back({Expected::Kind::prepare, statement.id(), true, false});
    return true;
}

bool PostgresConnection::queue(const Statement& statement, std::span<const Value> parameters,
                               Expected::Kind kind) {
    if (expected_.empty()) {
        answer_.reset();
        refusal_.reset();
        statement_gone_ = false;
        standbys_.unsure = false;
    }
    // A `forgotten` statement ends a transaction: it must not fail because a name is missing.
    const bool by_name =
        keeps_prepared() && kind != Expected::Kind::forgotten && kind != Expected::Kind::question;
    Known& known = know(statement);
    if (by_name && known.name.empty()) {
        if (std::string name = name_of(known); names_.contains(name)) known.name = std::move(name);
    }
    const bool known_before = by_name && !known.name.empty();
    if (by_name && !known_before && !prepare(statement, known)) return false;
    // libpq wants each text to end in a NUL.
    texts_.clear();
    texts_.reserve(parameters.size());
    pointers_.clear();
    for (const Value& parameter : parameters) {
        if (const auto* number = std::get_if<std::int64_t>(&parameter)) {
            texts_.push_back(std::to_string(*number));
        } else if (const auto* text = std::get_if<std::string_view>(&parameter)) {
            texts_.emplace_back(*text);
        } else {
            pointers_.push_back(nullptr);
            continue;
        }
        pointers_.push_back(texts_.back().c_str());
    }
    const int count = static_cast<int>(pointers_.size());
    const int sent = by_name ? pq_.PQsendQueryPrepared(handle_, known.name.c_str(), count,
                                                       pointers_.data(), nullptr, nullptr, 0)
                             : pq_.PQsendQueryParams(handle_, known.text.c_str(), count, nullptr,
                                                     pointers_.data(), nullptr, nullptr, 0);
    if (sent == 0) return false;
    expected_.push_back({kind, statement.id(), by_name, known_before});
    return true;
}

bool PostgresConnection::queue_sync() {
    if (pq_.PQpipelineSync(handle_) == 0) return false;
    sent_ = std::chrono::steady_clock::now();
    expected_.push_back({Expected::Kind::sync});
    return true;
}

bool PostgresConnection::settle(SteadyTime until, const Deadline* deadline) {
    while (true) {
        read_answers();
        if (expected_.empty()) return !is_closed();
        if (is_closed()) return false;
        const int unsent = pq_.PQflush(handle_);
        if (unsent < 0) {
            // The server's last words may still be there.
            (void)pq_.PQconsumeInput(handle_);
            read_answers();
            link_ = Link::closed;
            return false;
        }
        const auto events = static_cast<short>(unsent == 0 ? POLLIN : POLLIN | POLLOUT);
        const SteadyTime look = next_look();
        if (!wait(events, std::min(until, look), deadline)) {
            const bool looks = look < until && std::chrono::steady_clock::now() >= look &&
                               (deadline == nullptr || !deadline->passed());
            if (!looks) return false;
            if (was_replaced(deadline == nullptr ? until : deadline->time())) {
                link_ = Link::closed;
                return false;
            }
        }
        if (pq_.PQconsumeInput(handle_) == 0) {
            read_answers();
            link_ = Link::closed;
            return expected_.empty() && refusal_ == nullptr;
        }
    }
}

void PostgresConnection::read_answers() {
    // libpq returns a null between two commands; at the end it returns nulls for ever.
    int nulls = 0;
    while (!expected_.empty() && nulls < 2 && pq_.PQisBusy(handle_) == 0) {
        Answer answer{pq_.PQgetResult(handle_), ClearResult{&pq_}};
        if (answer != nullptr) {
            nulls = 0;
            take_answer(std::move(answer));
        } else if (answered_first_) {
            // A commit that is refused at Sync is answered before Sync itself.
            answered_first_ = false;
            if (expected_.front().kind != Expected::Kind::sync) expected_.pop_front();
        } else {
            ++nulls;
        }
    }
}

void PostgresConnection::take_answer(Answer answer) {
    const int status = pq_.PQresultStatus(answer.get());
    if (status == pq::kPipelineSync) {
        while (!expected_.empty()) {
            const Expected::Kind kind = expected_.front().kind;
            expected_.pop_front();
            if (kind == Expected::Kind::sync) break;
        }
        answered_first_ = false;
        return;
    }
    answered_first_ = true;
    const Expected& of = expected_.front();
    if (status == pq::kCommandOk || status == pq::kTuplesOk) {
        if (of.kind == Expected::Kind::statement || of.kind == Expected::Kind::question) {
            answer_ = std::move(answer);
        }
        return;
    }
    take_refusal(std::move(answer), of);
}

void PostgresConnection::take_refusal(Answer answer, const Expected& of) {
    const auto known = known_.find(of.statement);
    if (of.kind == Expected::Kind::prepare) {
        if (known != known_.end()) {
            names_.erase(std::exchange(known->second.name, {}));
        } else {
            // Whichever it was, the next names are different.
            names_.clear();
            ++generation_;
        }
    }
    if (pq_.PQresultStatus(answer.get()) == pq::kPipelineAborted) return;  // For the one before it.
    const char* const field = pq_.PQresultErrorField(answer.get(), pq::kSqlState);
    const std::string_view state = field != nullptr ? field : "";
    const bool ends = ends_session(pq_, answer.get());
    if (ends) link_ = Link::closed;
    if (refusal_ != nullptr || (!ends && of.kind == Expected::Kind::forgotten)) return;
    refusal_ = std::move(answer);
    if (!of.by_name) return;
    if (state == "26000" || state == "42P05") {
        // One of our names is missing or taken: other clients use this session too.
        options_.shared->pooled.store(true, std::memory_order_relaxed);
        statement_gone_ = true;
    } else if (state == "0A000" && of.known_before && known != known_.end()) {
        // "cached plan must not change result type": the tables have changed since the statement
        // was prepared. Its name stays taken.
        known->second.name.clear();
        ++generation_;
        statement_gone_ = true;
    }
}

// A cancel cannot undo a COMMIT that waits for synchronous standbys: it ends the wait, and COMMIT is
// answered as if they had confirmed it. A notice of this function of the server's is all that tells.
void PostgresConnection::take_notice(const pg_result* notice) {
    noticed_ = true;
    const char* const function = pq_.PQresultErrorField(notice, pq::kSourceFunction);
    if (function != nullptr && std::string_view{function} == "SyncRepWaitForLSN") {
        standbys_.unsure = true;
    }
}

bool PostgresConnection::wait(short events, SteadyTime until, const Deadline* deadline) {
    return wait_on(pq_.PQsocket(handle_), events, until, deadline);
}

bool PostgresConnection::wait_on(int socket, short events, SteadyTime until,
                                 const Deadline* deadline) {
    pollfd watched{socket, events, 0};
    while (true) {
        const SteadyTime now = std::chrono::steady_clock::now();
        SteadyTime wake = std::min(until, now + std::chrono::hours{1});
        if (deadline != nullptr) wake = std::min(wake, next_check(*deadline));
        const Duration left = std::max(Duration{0}, Duration{wake - now});
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        const timespec pause{static_cast<std::time_t>(seconds.count()),
                             static_cast<long>((left - seconds).count())};
        const int ready = ppoll(&watched, 1, &pause, nullptr);
        if (ready > 0) return true;
        // A fork does not wait for connections to servers, so the hook may be asked here.
        if (deadline != nullptr) {
            check_interrupt();
            if (deadline->passed()) return false;
        }
        if (std::chrono::steady_clock::now() >= until) return false;
    }
}

}  // namespace hotcount::sql

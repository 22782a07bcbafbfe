// The server of a MysqlConnection: which one it is, and whether it is still the right one.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/readable.hpp"
#include "connection.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

// If a server has not answered by then, it is better to try another session.
constexpr Duration kAnswersWithin = std::chrono::seconds{1};
// After this time a session that reads asks its server again whether it takes writes.
constexpr Duration kAsksAgainAfter = std::chrono::seconds{1};

/// The number of times that a list with commas contains an address.
std::size_t times(const std::string& address, const std::string& list) {
    std::size_t found = 0;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        if (list.compare(at, end - at, address) == 0) ++found;
        at = end + 1;
    }
    return found;
}

}  // namespace

// A demoted server refuses writes and answers reads as before, so a session that reads asks it now
// and then. While the database looks for its primary, a session with a read-only server is dropped
// instead.
bool MysqlConnection::still_there(bool ask, Deadline deadline) {
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool asked_long_ago = now - identified_ > kAsksAgainAfter;
    const bool looks_again = reads_only_ && asked_long_ago && shared_.primary.is_looking();
    broken_ = broken_ || looks_again || term_ != shared_.primary.term() || readable_now(socket_);
    const bool asks_whether_demoted = reads_ && !reads_only_ && asked_long_ago;
    if (broken_ || !(ask || asks_whether_demoted)) return !broken_;
    tidy_until_ = std::min(now + kAnswersWithin, deadline.time());
    if (!(asks_whether_demoted ? identify() : tell("DO 0", MysqlStage::statement))) broken_ = true;
    tidy_until_.reset();
    if ((asks_whether_demoted && reads_only_) || (broken_ && shared_.hosts.several())) {
        leave_host();
        broken_ = true;
    }
    return !broken_;
}

// All sessions are given up, and the next one looks for the primary again.
void MysqlConnection::leave_host() {
    shared_.primary.refused_to_write(term_);
    if (shared_.hosts.several()) shared_.hosts.leave(host_);
}

// Called at a deadline without an answer: a row is locked, or the host is gone.
void MysqlConnection::leave_if_silent() {
    const bool silent = std::chrono::steady_clock::now() - sent_ >= kSilence;
    if (silent && shared_.hosts.several()) leave_host();
}

// When a session that waits, with one of several hosts, looks for another primary next.
SteadyTime MysqlConnection::next_look() const {
    if (id_ == 0 || tidy_until_ || !shared_.hosts.wants_writes()) return SteadyTime::max();
    return std::max(sent_, looked_) + kSilence;
}

// A primary that was stopped or cut off says nothing. If another host takes writes by now, no answer
// of this one counts. All nodes of a Galera cluster take writes, and a silent one may wait for a row: it
// is left if the others have gone on without it, and it does not answer a new session either.
bool MysqlConnection::was_replaced(SteadyTime limit) {
    const auto dial = [&](std::size_t host, Deadline until) -> Result<void> {
        MysqlConnection asked{library_, target_, false, shared_};
        HOTCOUNT_TRY(asked.dial_host(host, until));
        if (!in_cluster_ || (!is_with(asked) && !answers_again(limit))) return {};
        return make_error(ErrorCode::unavailable, target_.name + ": a node of its cluster");
    };
    const std::optional<bool> other = shared_.hosts.any_other(
        host_, limit, dial, in_cluster_ ? std::optional{dialled_} : std::nullopt);
    looked_ = std::chrono::steady_clock::now();
    if (!other) looked_ -= kSilence - Hosts::kAsksEvery;
    return other.value_or(false);
}

// Whether this session's node tells a new session that it is in its cluster.
bool MysqlConnection::answers_again(SteadyTime limit) {
    MysqlConnection again{library_, target_, false, shared_};
    const SteadyTime until = std::chrono::steady_clock::now() + kAnswersWithin;
    if (!again.dial_host(host_, Deadline::at(std::min(limit, until)))) return false;
    node_ = std::move(again.node_);
    nodes_ = std::move(again.nodes_);
    view_ = std::move(again.view_);
    return true;
}

// A commit was answered. A commit of a primary whose replica was promoted before is lost with it.
Result<void> MysqlConnection::committed() {
    if (id_ != 0 && !in_cluster_ && shared_.hosts.replaced(host_)) {
        broken_ = true;
        leave_host();
        Error error = make_error(ErrorCode::outcome_unknown,
                                 target_.name +
                                     ": another host has become the primary; it may or may not be "
                                     "applied");
        error.about(&ErrorFacts::lost_session, name_of_session());
        return error;
    }
    shared_.transactions.fetch_add(1, std::memory_order_relaxed);
    shared_.primary.has_written(term_);
    return {};
}

// One of several. MariaDB and MySQL have no name of a group of replicas: of the servers only the
// product is compared.
Result<void> MysqlConnection::dial_host(std::size_t host, Deadline deadline) {
    host_ = host;
    dialled_ = std::chrono::steady_clock::now();
    auto connected = dial(deadline);
    if (connected) connected = shared_.hosts.check_cluster(host, product_);
    // A node of Galera is not replaced by another that was found meanwhile.
    const SteadyTime since = in_cluster_ ? SteadyTime::max() : dialled_;
    if (connected) connected = shared_.hosts.takes(host, reads_only_, since);
    if (connected && in_cluster_) connected = check_node();
    if (connected) connected = set_up();
    if (!connected) drop();
    return connected;
}

// A node of Galera that is cut off, or joins, refuses statements on tables only: with 1047.
Result<void> MysqlConnection::check_node() {
    static const Statement kReady{Statements{mysql::kSessionSql, {}}["is_ready"]};
    bool is_ready = false;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        is_ready = row.integer(0) != 0;
        node_ = row.text(1);
        nodes_ = row.text(2);
        view_ = row.text(3);
        return {};
    };
    HOTCOUNT_TRY(run_prepared(kReady, {}, &see));
    if (is_ready) return {};
    constexpr unsigned kNotReady = 1047;
    return refused(MysqlStage::connecting, kNotReady, "08S01", "WSREP: wsrep_ready is OFF");
}

// Whether the other node's cluster still has this one. If all nodes have the same address, such as
// AUTO, only an unchanged membership shows that.
bool MysqlConnection::is_with(const MysqlConnection& other) const {
    if (times(node_, nodes_) == 1) return times(node_, other.nodes_) > 0;
    return view_ == other.view_;
}

// A session of another server cannot commit here any more: changes that were not replicated are lost.
Result<bool> MysqlConnection::has_session(std::string_view lost) {
    static const Statement kSession{Statements{mysql::kSessionSql, {}}["has_session"]};
    const std::string here = server_ + " ";
    std::int64_t id = 0;
    if (lost.starts_with(here)) {
        const std::string_view digits = lost.substr(here.size());
        std::from_chars(digits.data(), digits.data() + digits.size(), id);
    }
    bool has = true;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        has = row.integer(0) != 0;
        return {};
    };
    HOTCOUNT_TRY(run(kSession, std::array{Value{id}}, &see));
    return has;
}

}  // namespace hotcount::sql

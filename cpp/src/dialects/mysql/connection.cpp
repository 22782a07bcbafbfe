#include "connection.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/interrupt.hpp>

#include "sql/dialect.hpp"
#include "sql/server_sessions.hpp"

namespace hotcount::sql {

namespace lib = libmariadb;

namespace {

constexpr unsigned kTooManyPrepared = 1461;  // ER_MAX_PREPARED_STMT_COUNT_REACHED

// Milliseconds to poll for, rounded up; never more than a minute at a time.
int poll_time(SteadyTime until) {
    const auto now = std::chrono::steady_clock::now();
    if (until <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<SteadyTime::duration>(until - now, std::chrono::minutes{1}));
    return static_cast<int>(left.count());
}

}  // namespace

MysqlConnection::~MysqlConnection() { drop(); }

void MysqlConnection::drop() {
    if (session_ == nullptr) return;
    if (process_ == fork_generation()) {
        abandon_commit();
        forget_socket();
        library_.close(session_);
        for (Prepared& prepared : prepared_) prepared.close(library_);
    }
    // In a child the session is the parent's, and stays as it is; the socket is closed already.
    prepared_.clear();
    by_id_.clear();
    session_ = nullptr;
    socket_ = -1;
}

// Called when the library has closed its socket, or will: the number may be another file's at once.
void MysqlConnection::forget_socket() {
    if (socket_ >= 0) shared_.sockets.remove(socket_);
    socket_ = -1;
}

// Keeps track of the library's socket: a forked child must close it, and a program that we start
// must not have it at all, which the library does not make sure of.
void MysqlConnection::watch_socket() {
    const int socket = library_.get_socket(session_);
    if (socket == socket_) return;
    forget_socket();
    if (socket < 0) return;
    (void)::fcntl(socket, F_SETFD, FD_CLOEXEC);
    set_tcp_limits(socket, target_.tcp_user_timeout);
    socket_ = socket;
    shared_.sockets.add(socket_);
}

// Returns which of the wanted events came; 0 at the deadline.
int MysqlConnection::wait(int wanted) {
    pollfd waited{library_.get_socket(session_), 0, 0};
    if ((wanted & lib::kWaitRead) != 0) waited.events |= POLLIN;
    if ((wanted & lib::kWaitWrite) != 0) waited.events |= POLLOUT;
    if ((wanted & lib::kWaitException) != 0) waited.events |= POLLPRI;
    while (true) {
        const SteadyTime until = tidy_until_ ? *tidy_until_ : next_check(deadline_);
        const int ready = ::poll(&waited, 1, poll_time(std::min(until, next_look())));
        if (ready > 0 || (ready < 0 && errno != EINTR)) break;
        if (tidy_until_) {
            if (std::chrono::steady_clock::now() >= *tidy_until_) return 0;
            continue;
        }
        // No lock is held, and a fork does not wait for this session.
        check_interrupt();
        if (deadline_.passed()) return 0;
        // The library reads the end of the stream then.
        const bool looks = std::chrono::steady_clock::now() >= next_look();
        if (looks && was_replaced(alone_ != nullptr ? alone_until_ : deadline_.time()))
            ::shutdown(waited.fd, SHUT_RDWR);
    }
    int come = 0;
    // If something is wrong with the socket, its next use shows it.
    const bool wrong = (waited.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    if ((waited.revents & POLLIN) != 0 || wrong) come |= lib::kWaitRead & wanted;
    if ((waited.revents & POLLOUT) != 0 || wrong) come |= lib::kWaitWrite & wanted;
    if ((waited.revents & POLLPRI) != 0) come |= lib::kWaitException & wanted;
    return come != 0 ? come : wanted & ~lib::kWaitTimeout;
}

Error MysqlConnection::left_at_deadline(MysqlStage stage) {
    broken_ = true;
    if (stage != MysqlStage::connecting) leave_if_silent();
    if (stage == MysqlStage::connecting) {
        return make_error(
            ErrorCode::deadline,
            target_.name + ": the deadline passed while connecting; nothing was applied");
    }
    if (stage == MysqlStage::commit || stage == MysqlStage::alone) {
        return make_error(ErrorCode::outcome_unknown,
                          target_.name + ": the deadline passed before " +
                              (stage == MysqlStage::commit ? "COMMIT" : "the statement") +
                              " was answered; it may or may not be applied");
    }
    kill_from_outside();
    return make_error(ErrorCode::deadline,
                      target_.name + ": the deadline passed in mid-statement; nothing was applied");
}

void MysqlConnection::leave_for_good(unsigned number) {
    broken_ = true;
    // Errors of the library's own close the socket.
    if (is_clients_own(number)) forget_socket();
}

Error MysqlConnection::refused(MysqlStage stage, unsigned number, const char* sqlstate,
                               const char* text) {
    if (breaks_connection(number)) leave_for_good(number);
    // Every other session leads to that server too.
    if (says_reads_only(number, text)) {
        broken_ = true;
        leave_host();
    }
    Error error = mysql_failure(target_.name, stage, number, sqlstate, text);
    if (stage != MysqlStage::connecting && breaks_connection(number) && shared_.hosts.several()) {
        leave_host();
        // Another node of a Galera cluster may still commit the lost session's COMMIT, and the new
        // host cannot tell when: the outcome stays unknown, without waiting for it.
        if (error.code == ErrorCode::outcome_unknown && !in_cluster_) {
            error.about(&ErrorFacts::lost_session, name_of_session());
        } else if (error.code == ErrorCode::unavailable) {
            error.condition = SqlCondition::host_lost;
        }
    }
    if (broken_ && !lost_by_ && error.code == ErrorCode::unavailable) lost_by_ = error;
    if (stage == MysqlStage::connecting &&
        std::string_view{text}.find("restricted_auth") != std::string_view::npos) {
        error = password_kept(target_.name, asked_method_);
    }
    return error;
}

Error MysqlConnection::failed(MysqlStage stage) {
    return refused(stage, library_.error_number(session_), library_.sqlstate(session_),
                   library_.error(session_));
}

Error MysqlConnection::failed(MysqlStage stage, const Prepared& prepared) {
    return refused(stage, library_.stmt_error_number(prepared.handle),
                   library_.stmt_sqlstate(prepared.handle), library_.stmt_error(prepared.handle));
}

Error MysqlConnection::is_gone() const {
    static constexpr std::string_view kKnown = "; nothing was applied";
    std::string text = target_.name + ": the connection was lost before";
    if (lost_by_) {
        std::string_view why = lost_by_->message;
        if (why.starts_with(target_.name + ": ")) why.remove_prefix(target_.name.size() + 2);
        if (why.ends_with(kKnown)) why.remove_suffix(kKnown.size());
        text += ": " + std::string{why};
    }
    return make_error(
        ErrorCode::unavailable, text + std::string{kKnown},
        lost_by_ ? lost_by_->server_code : std::string{},
        shared_.hosts.several() ? SqlCondition::host_lost : SqlCondition::unspecified);
}

// Another session with the same server, dialled within kGrace; null if there is none.
std::unique_ptr<MysqlConnection> MysqlConnection::dial_beside() const {
    if (id_ == 0 || server_.empty()) return nullptr;
    auto other = std::make_unique<MysqlConnection>(library_, target_, true, shared_);
    other->host_ = host_;
    const Deadline until = Deadline::after(kGrace);
    other->tidy_until_ = until.time();
    // A load balancer may lead to another server, on which the number is another client's session.
    if (!other->dial(until) || other->server_ != server_) return nullptr;
    return other;
}

// Best effort: a statement that it misses ends by innodb_lock_wait_timeout.
void MysqlConnection::kill_from_outside() {
    auto other = dial_beside();
    if (other) (void)other->tell("KILL " + std::to_string(id_), MysqlStage::statement);
}

Result<void> MysqlConnection::begin(Deadline deadline) {
    deadline_ = deadline;
    if (deadline.passed()) {
        return make_error(ErrorCode::deadline,
                          target_.name + ": the deadline passed; nothing was applied");
    }
    begun_ = true;
    ran_ = false;
    only_rollback_ = false;
    const std::int64_t wanted = patience_for(deadline.remaining());
    if (wanted <= patience_) return {};
    auto told = be_patient(wanted);
    if (!told) begun_ = false;
    return told;
}

Result<void> MysqlConnection::begin_read(Deadline deadline) {
    HOTCOUNT_TRY(begin(deadline));
    // On a session that writes, the settings hold for the next transaction, which begins by itself.
    auto told = tell(
        reads_ ? "START TRANSACTION" : "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        MysqlStage::statement);
    if (!told) begun_ = false;
    return told;
}

Result<void> MysqlConnection::commit() {
    if (only_rollback_) {
        rollback();
        return make_error(ErrorCode::database, target_.name +
                                                   ": a statement of this transaction has failed; "
                                                   "it was rolled back");
    }
    if (deadline_.passed()) {
        rollback();
        return make_error(ErrorCode::deadline,
                          target_.name +
                              ": the deadline passed before COMMIT was sent; nothing "
                              "was applied");
    }
    static constexpr std::string_view kCommit{"COMMIT"};
    if (reads_) {
        auto ended = tell(kCommit, MysqlStage::statement);
        begun_ = false;
        if (!ended && !broken_) rollback();
        return ended;
    }
    shared_.statements.fetch_add(1, std::memory_order_relaxed);
    commit_refused_ = 0;
    sent_ = std::chrono::steady_clock::now();
    commit_waits_for_ =
        library_.real_query_start(&commit_refused_, session_, kCommit.data(), kCommit.size());
    return await_commit(deadline_);
}

Result<void> MysqlConnection::await_commit(Deadline deadline) {
    deadline_ = deadline;
    begun_ = false;
    while (commit_waits_for_ != 0) {
        const int ready = wait(commit_waits_for_);
        if (ready == 0) return left_at_deadline(MysqlStage::commit);
        commit_waits_for_ = go_on_with_commit(ready);
    }
    broken_ = false;
    if (commit_refused_ != 0) {
        Error refusal = failed(MysqlStage::commit);
        // A transaction that the server refused may still be open.
        if (!broken_) rollback();
        return refusal;
    }
    return committed();
}

// When the socket is shut down, the library gives up and closes it.
void MysqlConnection::abandon_commit() {
    if (commit_waits_for_ == 0) return;
    const int socket = library_.get_socket(session_);
    if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
    forget_socket();
    for (int steps = 0; commit_waits_for_ != 0 && steps < kMaxSteps; ++steps) {
        commit_waits_for_ = go_on_with_commit(lib::kWaitTimeout);
    }
    commit_waits_for_ = 0;
    alone_ = nullptr;
}

void MysqlConnection::rollback() {
    begun_ = false;
    only_rollback_ = false;
    if (broken_) return;
    // If this succeeds the locks go at once, otherwise with the session.
    tidy_until_ = std::chrono::steady_clock::now() + kGrace;
    if (!tell("ROLLBACK", MysqlStage::statement)) broken_ = true;
    tidy_until_.reset();
}

// Runs text and throws its rows away.
Result<void> MysqlConnection::tell(std::string_view text, MysqlStage stage) {
    shared_.statements.fetch_add(1, std::memory_order_relaxed);
    int refused = 0;
    const bool in_time = drive(
        [&] { return library_.real_query_start(&refused, session_, text.data(), text.size()); },
        [&](int ready) { return library_.real_query_cont(&refused, session_, ready); });
    if (!in_time) return left_at_deadline(stage);
    if (refused != 0) return failed(stage);
    if (library_.field_count(session_) == 0) return {};
    lib::Rows* rows = nullptr;
    const bool stored =
        drive([&] { return library_.store_result_start(&rows, session_); },
              [&](int ready) { return library_.store_result_cont(&rows, session_, ready); });
    if (rows != nullptr) library_.free_result(rows);
    if (!stored) return left_at_deadline(stage);
    if (rows == nullptr) return failed(stage);
    return {};
}

Result<MysqlConnection::Prepared*> MysqlConnection::prepare(const Statement& statement) {
    if (const auto found = by_id_.find(statement.id()); found != by_id_.end()) {
        prepared_.splice(prepared_.begin(), prepared_, found->second);
        return &prepared_.front();
    }
    if (!in_cluster_ || !begun_ || !ran_) return prepare_anew(statement);
    return prepare_guarded(statement);
}

Result<MysqlConnection::Prepared*> MysqlConnection::prepare_anew(const Statement& statement) {
    if (prepared_.size() >= kMaxPrepared) forget(prepared_.back().id);
    Placed placed = place_parameters(statement.text(), Placeholders::in_order);
    Prepared made;
    made.id = statement.id();
    made.order = std::move(placed.parameters);
    made.handle = library_.stmt_init(session_);
    if (made.handle == nullptr) {
        broken_ = true;
        return make_error(ErrorCode::capacity, target_.name + ": no memory");
    }
    int refused = 0;
    const auto try_once = [&] {
        return drive(
            [&] {
                return library_.stmt_prepare_start(&refused, made.handle, placed.text.data(),
                                                   placed.text.size());
            },
            [&](int ready) { return library_.stmt_prepare_cont(&refused, made.handle, ready); });
    };
    bool in_time = try_once();
    if (in_time && refused != 0 && library_.stmt_error_number(made.handle) == kTooManyPrepared) {
        // The server has no room for more prepared statements, over all clients. From now on this
        // database's sessions keep none, and the statements of this one are closed to make room.
        shared_.keeps_prepared.store(false, std::memory_order_relaxed);
        shared_.close_idle();
        while (!prepared_.empty()) forget(prepared_.back().id);
        in_time = try_once();
    }
    if (!in_time || refused != 0) {
        Error error =
            in_time ? failed(MysqlStage::statement, made) : left_at_deadline(MysqlStage::statement);
        made.close(library_);
        return error;
    }
    made.describe(library_);
    prepared_.push_front(std::move(made));
    by_id_.emplace(statement.id(), prepared_.begin());
    return &prepared_.front();
}

void MysqlConnection::forget(std::uint64_t id) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    found->second->close(library_);
    prepared_.erase(found->second);
    by_id_.erase(found);
}

Result<std::int64_t> MysqlConnection::run(const Statement& statement,
                                          std::span<const Value> parameters,
                                          const RowVisitor* visit) {
    if (broken_) return is_gone();
    if (only_rollback_) {
        return make_error(ErrorCode::database,
                          target_.name +
                              ": a statement of this transaction has failed; it can "
                              "only be rolled back");
    }
    const bool alone = !begun_;
    auto ran = run_prepared(statement, parameters, visit);
    // A session that lacks the statement has run nothing. In a transaction another session may have
    // replaced the one that ran the earlier statements: the caller that runs the transaction
    // repeats it.
    if (!ran && !broken_ && is_statement_gone(ran.error()) && !(begun_ && ran_)) {
        ran = run_prepared(statement, parameters, visit);
    }
    ran_ = true;
    if (!ran && begun_) only_rollback_ = true;
    if (alone && !broken_ && !reads_) {
        if (!ran) {
            rollback();
        } else {
            HOTCOUNT_TRY(tell("COMMIT", MysqlStage::commit));
        }
    }
    return ran;
}

Result<std::int64_t> MysqlConnection::read_alone(const Statement& statement,
                                                 std::span<const Value> parameters,
                                                 const RowVisitor* visit, Deadline deadline) {
    if (!reads_) return Connection::read_alone(statement, parameters, visit, deadline);
    HOTCOUNT_TRY(begin(deadline));
    begun_ = false;
    return run(statement, parameters, visit);
}

Result<std::int64_t> MysqlConnection::run_prepared(const Statement& statement,
                                                   std::span<const Value> parameters,
                                                   const RowVisitor* visit) {
    HOTCOUNT_TRY_ASSIGN(Prepared* const prepared, prepare(statement));
    shared_.statements.fetch_add(1, std::memory_order_relaxed);
    auto changed = execute(*prepared, parameters, visit);
    // After an error the server may lack the statement: the next call prepares it again.
    const bool keeps = target_.prepare && shared_.keeps_prepared.load(std::memory_order_relaxed);
    if (!broken_ && !keeps) {
        while (!prepared_.empty()) forget(prepared_.back().id);
    } else if (!broken_ && !changed) {
        forget(statement.id());
    }
    return changed;
}

Result<std::int64_t> MysqlConnection::execute(Prepared& prepared, std::span<const Value> parameters,
                                              const RowVisitor* visit) {
    if (!prepared.bind(library_, parameters)) {
        return make_error(ErrorCode::database,
                          target_.name + ": a statement was given other parameters than it takes");
    }
    int refused = 0;
    const bool in_time = drive(
        [&] { return library_.stmt_execute_start(&refused, prepared.handle); },
        [&](int ready) { return library_.stmt_execute_cont(&refused, prepared.handle, ready); });
    if (!in_time) return left_at_deadline(MysqlStage::statement);
    if (refused != 0) return failed(MysqlStage::statement, prepared);
    if (prepared.columns.empty()) {
        return static_cast<std::int64_t>(library_.stmt_affected_rows(prepared.handle));
    }
    const bool stored =
        drive([&] { return library_.stmt_store_result_start(&refused, prepared.handle); },
              [&](int ready) {
                  return library_.stmt_store_result_cont(&refused, prepared.handle, ready);
              });
    if (!stored) return left_at_deadline(MysqlStage::statement);
    if (refused != 0) return failed(MysqlStage::statement, prepared);
    const Result<void> fetched = fetch(prepared, visit);
    library_.stmt_free_result(prepared.handle);
    if (!fetched) return fetched.error();
    return static_cast<std::int64_t>(0);
}

std::int64_t MysqlConnection::duplicates() const {
    // "Records: 64  Duplicates: 3  Warnings: 0"
    const char* const said = library_.info(session_);
    const std::string_view info = said != nullptr ? said : "";
    constexpr std::string_view kWord = "Duplicates: ";
    const auto found = info.find(kWord);
    std::int64_t number = -1;
    if (found != std::string_view::npos) {
        const std::string_view digits = info.substr(found + kWord.size());
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    }
    return number;
}

// The rows are here already: nothing below waits.
Result<void> MysqlConnection::fetch(Prepared& prepared, const RowVisitor* visit) {
    if (visit == nullptr) return {};
    const MysqlRow row{prepared.columns};
    while (true) {
        const int got = library_.stmt_fetch(prepared.handle);
        if (got == lib::kNoData) return {};
        if (got != 0 && got != lib::kTruncated) return failed(MysqlStage::statement, prepared);
        prepared.complete(library_);
        HOTCOUNT_TRY((*visit)(row));
    }
}

Result<void> MysqlConnection::run_script(const std::string& text) {
    if (broken_) return is_gone();
    for (std::size_t start = 0; start < text.size();) {
        const std::size_t found = end_of_statement(text, start);
        const std::string_view one = std::string_view{text}.substr(start, found - start);
        start = found + 1;
        if (one.find_first_not_of("; \n") == std::string_view::npos) continue;
        auto told = tell(one, begun_ ? MysqlStage::statement : MysqlStage::alone);
        if (!told) {
            if (begun_) {
                only_rollback_ = true;
            } else {
                rollback();
            }
            return told;
        }
    }
    if (!begun_) return tell("COMMIT", MysqlStage::commit);
    return {};
}

}  // namespace hotcount::sql

#include "dialect.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <hotcount/detail/sql/settings.hpp>
#include <thread>
#include <tuple>
#include <unordered_map>

#include "file_guard.hpp"
#include "sql/dialect.hpp"
#include "sql/pool.hpp"

namespace hotcount::sql {
namespace {

struct Counters {
    std::atomic<std::uint64_t> transactions{0};
    std::atomic<std::uint64_t> statements{0};
    std::atomic<std::uint64_t> busy_waits{0};
};

class SqliteRow final : public Row {
  public:
    explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}
    bool is_null(int column) const override {
        return sqlite3_column_type(statement_, column) == SQLITE_NULL;
    }
    bool is_integer(int column) const override {
        return sqlite3_column_type(statement_, column) == SQLITE_INTEGER;
    }
    std::int64_t integer(int column) const override {
        return sqlite3_column_int64(statement_, column);
    }
    std::string_view text(int column) const override {
        const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
        if (bytes == nullptr) return {};
        return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
    }

  private:
    sqlite3_stmt* statement_;
};

class SqliteConnection final : public Connection {
  public:
    SqliteConnection(std::string name, Counters& counters)
        : name_(std::move(name)), counters_(counters) {}
    SqliteConnection(const SqliteConnection&) = delete;
    SqliteConnection& operator=(const SqliteConnection&) = delete;

    ~SqliteConnection() override {
        for (const auto& [id, statement] : prepared_) sqlite3_finalize(statement);
        end_write();
        if (guard_ != nullptr) {
            guard_->leave(handle_);
        } else {
            sqlite3_close(handle_);
        }
    }

    Result<void> open(const std::string& path, int flags, Deadline deadline);

    Result<void> begin(Deadline deadline) override;
    Result<void> begin_read(Deadline deadline) override {
        deadline_ = deadline;
        static const Statement kBegin{"BEGIN"};
        if (guard_ != nullptr) endings_ = guard_->watch_locks();
        HOTCOUNT_TRY(run(kBegin, {}, nullptr));
        return {};
    }

    Result<void> commit() override {
        static const Statement kCommit{"COMMIT"};
        // A commit is not interrupted: its outcome would be unknown.
        deadline_ = Deadline::at(SteadyTime::max());
        const bool writes = sqlite3_txn_state(handle_, nullptr) == SQLITE_TXN_WRITE;
        auto committed = run(kCommit, {}, nullptr);
        if (committed) {
            HOTCOUNT_TRY(look_at_files(writes));
            if (writes) counters_.transactions.fetch_add(1, std::memory_order_relaxed);
            return {};
        }
        Error error = std::move(committed).error();
        const int code = last_code_ & 0xff;
        if (in_transaction()) rollback();
        // The frames may be in the WAL although the sync failed: a recovery might find them.
        if (code == SQLITE_IOERR) error.code = ErrorCode::outcome_unknown;
        return error;
    }

    void rollback() override {
        static const Statement kRollback{"ROLLBACK"};
        deadline_ = Deadline::at(SteadyTime::max());
        if (in_transaction()) (void)run(kRollback, {}, nullptr);
        end_write();
    }

    bool in_transaction() const override { return sqlite3_get_autocommit(handle_) == 0; }

    Result<std::int64_t> run(const Statement& statement, std::span<const Value> parameters,
                             const RowVisitor* visit) override;

    Result<void> run_script(const std::string& text) override {
        const int code = sqlite3_exec(handle_, text.c_str(), nullptr, nullptr, nullptr);
        if (code != SQLITE_OK) return failure(code);
        return {};
    }

  private:
    // Statements kept prepared per connection: more than any one application's layouts make.
    static constexpr std::size_t kMaxPrepared = 256;
    // How often a running statement looks at its deadline, in virtual machine steps (about 1 ms).
    static constexpr int kProgressSteps = 20'000;

    Result<void> look_at_files(bool written);
    Error lost(ErrorCode code, std::string_view known) const;
    void end_write() {
        if (std::exchange(holds_write_, false)) guard_->release_write();
    }

    // Ends a transaction that has written nothing and may have lost its lock. Not by ROLLBACK: that
    // clears the WAL's index behind the last commit, where another process may be entering frames.
    void end_empty() {
        static const Statement kEnd{"COMMIT"};
        deadline_ = Deadline::at(SteadyTime::max());
        (void)run(kEnd, {}, nullptr);
    }
    Result<void> look_at_triggers();
    static int on_busy(void* self, int attempt);
    static int on_progress(void* self);

    Result<sqlite3_stmt*> prepare(const Statement& statement);
    Error failure(int code) {
        last_code_ = code;
        return sqlite_failure(handle_, sqlite3_extended_errcode(handle_), name_);
    }

    std::string name_;
    Counters& counters_;
    sqlite3* handle_{nullptr};
    std::shared_ptr<FileGuard> guard_;  // Null until the file has a WAL.
    std::uint64_t endings_{0};          // FileGuard::watch_locks() when the read began.
    bool is_wal_{false};
    bool holds_write_{false};
    std::unordered_map<std::uint64_t, sqlite3_stmt*> prepared_;
    Deadline deadline_{Deadline::at(SteadyTime::max())};
    int last_code_{SQLITE_OK};
    std::int64_t schema_version_{-1};  // The schema whose triggers were read last.
};

int SqliteConnection::on_busy(void* self, int attempt) {
    auto& connection = *static_cast<SqliteConnection*>(self);
    connection.counters_.busy_waits.fetch_add(1, std::memory_order_relaxed);
    const Duration left = connection.deadline_.remaining();
    if (left == Duration{0}) return 0;
    // Another process holds the lock and cannot wake this one. Short naps first: a commit takes 0.1
    // ms.
    const Duration nap = std::chrono::microseconds{std::min(100 << std::min(attempt, 6), 5000)};
    std::this_thread::sleep_for(std::min(nap, left));
    return 1;
}

Result<void> SqliteConnection::begin(Deadline deadline) {
    static const Statement kBegin{"BEGIN IMMEDIATE"};
    for (;;) {
        deadline_ = deadline;
        HOTCOUNT_TRY(run(kBegin, {}, nullptr));
        if (guard_ == nullptr && is_wal_) {
            guard_ = FileGuard::join(handle_);
            end_empty();
            if (guard_ == nullptr) return lost(ErrorCode::database, "nothing was applied");
            // The new guard did not watch the lock since BEGIN, so the transaction begins again.
            continue;
        }
        if (guard_ == nullptr || guard_->hold_write()) break;
        end_empty();
        deadline_ = deadline;
        if (on_busy(this, 0) == 0) {
            return make_error(ErrorCode::deadline,
                              name_ +
                                  ": the deadline passed while another connection held the "
                                  "lock; nothing was applied",
                              "SQLITE_BUSY", SqlCondition::of_all_writes);
        }
    }
    holds_write_ = guard_ != nullptr;
    auto looked = look_at_triggers();
    if (!looked) rollback();
    return looked;
}

Result<void> SqliteConnection::look_at_triggers() {
    static const Statement kVersion{"PRAGMA schema_version"};
    std::int64_t found = 0;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        found = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(query(kVersion, {}, see));
    if (found == schema_version_) return {};
    const std::int64_t version = found;
    HOTCOUNT_TRY(query(other_triggers(), {kVoteTrigger}, see));
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_TRIGGER, static_cast<int>(found), nullptr);
    schema_version_ = version;
    return {};
}

// After a COMMIT: if the files are no longer the database's, the rows written or read are void.
Result<void> SqliteConnection::look_at_files(bool written) {
    if (guard_ == nullptr) {
        // Without a WAL only the file itself can go.
        int moved = 0;
        if (written) {
            (void)sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
        }
        if (moved != 0) return lost(ErrorCode::outcome_unknown, "the outcome is unknown");
        guard_ = FileGuard::join(handle_);
        return {};
    }
    end_write();
    if (!guard_->files()) {
        return written ? lost(ErrorCode::outcome_unknown, "the outcome is unknown")
                       : lost(ErrorCode::database, "what was read may be old");
    }
    if (written || (guard_->kept_locks() && guard_->watch_locks() == endings_)) return {};
    return make_error(ErrorCode::unavailable,
                      name_ +
                          ": another SQLite library in this process closed the file during "
                          "the read; read again",
                      {}, SqlCondition::transaction_conflict);
}

Error SqliteConnection::lost(ErrorCode code, std::string_view known) const {
    const char* const gone = guard_ != nullptr ? guard_->lost() : "";
    std::string message = name_ + ": " + (*gone != '\0' ? gone : "the file or its WAL") +
                          " was removed or replaced while it was open";
    return make_error(code, std::move(message) + "; " + std::string{known}, {},
                      SqlCondition::of_all_writes);
}

int SqliteConnection::on_progress(void* self) {
    return static_cast<SqliteConnection*>(self)->deadline_.passed() ? 1 : 0;
}

Result<void> SqliteConnection::open(const std::string& path, int flags, Deadline deadline) {
    deadline_ = deadline;
    const int code = sqlite3_open_v2(path.c_str(), &handle_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
    if (code != SQLITE_OK) {
        Error error = sqlite_failure(handle_, code, name_);
        // The system's errno is more precise than "unable to open database file".
        if (handle_ != nullptr && sqlite3_system_errno(handle_) == EACCES) {
            error.code = ErrorCode::permission_denied;
        }
        return error;
    }
    sqlite3_extended_result_codes(handle_, 1);
    sqlite3_busy_handler(handle_, &on_busy, this);
    sqlite3_progress_handler(handle_, kProgressSteps, &on_progress, this);
    if ((flags & SQLITE_OPEN_READWRITE) != 0) {
        if (sqlite3_db_readonly(handle_, "main") == 0) {
            const RowVisitor see = [this](const Row& row) -> Result<void> {
                is_wal_ = row.text(0) == "wal";
                return {};
            };
            static const Statement kMode{"PRAGMA journal_mode=WAL"};
            HOTCOUNT_TRY(run(kMode, {}, &see));
        }
        // A batch of votes touches hundreds of pages of a large table; with SQLite's own 2 MB of
        // cache each was read again: 54k votes/s became 111k in transactions of 256.
        // A checkpoint every 8,000 pages (32 MB of WAL) instead of 1,000: a page that many votes
        // share is copied once for eight times as many of them, and the 99th percentile, which is
        // the commit that checkpoints, halves.
        HOTCOUNT_TRY(
            run_script("PRAGMA synchronous=FULL; PRAGMA cache_size=-32000; "
                       "PRAGMA wal_autocheckpoint=8000"));
    }
    return run_script("PRAGMA foreign_keys=ON");
}

Result<sqlite3_stmt*> SqliteConnection::prepare(const Statement& statement) {
    if (const auto found = prepared_.find(statement.id()); found != prepared_.end()) {
        return found->second;
    }
    if (prepared_.size() >= kMaxPrepared) {
        for (const auto& [id, old] : prepared_) sqlite3_finalize(old);
        prepared_.clear();
    }
    sqlite3_stmt* made = nullptr;
    const int code = sqlite3_prepare_v3(handle_, statement.text().data(),
                                        static_cast<int>(statement.text().size()),
                                        SQLITE_PREPARE_PERSISTENT, &made, nullptr);
    if (code != SQLITE_OK) return failure(code);
    prepared_.emplace(statement.id(), made);
    return made;
}

Result<std::int64_t> SqliteConnection::run(const Statement& statement,
                                           std::span<const Value> parameters,
                                           const RowVisitor* visit) {
    if (guard_ != nullptr && *guard_->lost() != '\0' && !in_transaction()) {
        return lost(ErrorCode::database, "nothing was applied");
    }
    HOTCOUNT_TRY_ASSIGN(sqlite3_stmt* const prepared, prepare(statement));
    counters_.statements.fetch_add(1, std::memory_order_relaxed);
    int index = 0;
    for (const Value& parameter : parameters) {
        ++index;
        if (const auto* number = std::get_if<std::int64_t>(&parameter)) {
            sqlite3_bind_int64(prepared, index, *number);
        } else if (const auto* text = std::get_if<std::string_view>(&parameter)) {
            sqlite3_bind_text(prepared, index, text->data(), static_cast<int>(text->size()),
                              SQLITE_STATIC);
        } else {
            sqlite3_bind_null(prepared, index);
        }
    }
    Result<void> visited;
    int code = sqlite3_step(prepared);
    if (code == SQLITE_ROW && visit != nullptr) {
        const SqliteRow row{prepared};
        while (code == SQLITE_ROW && visited.ok()) {
            visited = (*visit)(row);
            code = sqlite3_step(prepared);
        }
    }
    // Without a visitor the rest of the rows is of no interest, but a write must run to its end.
    while (code == SQLITE_ROW) code = sqlite3_step(prepared);
    const std::int64_t changed = sqlite3_changes(handle_);
    if (code != SQLITE_DONE) {
        Error error = failure(sqlite3_extended_errcode(handle_));
        sqlite3_reset(prepared);
        if (!in_transaction()) end_write();
        return error;
    }
    sqlite3_reset(prepared);
    if (!visited) return std::move(visited).error();
    return changed;
}

class SqliteDatabase final : public Database, ForkAware {
  public:
    SqliteDatabase(std::string name, std::string path, int flags, DatabaseOptions options);
    ~SqliteDatabase() override;

    Dialect dialect() const override { return sqlite_grammar().dialect(); }
    Result<Lease> writer(Deadline deadline) override { return writers_.lease(deadline); }
    Result<Lease> reader(Deadline deadline) override {
        return in_memory_ ? writers_.lease(deadline) : readers_.lease(deadline);
    }
    void close() override {
        closed_.store(true, std::memory_order_release);
        writers_.close();
        readers_.close();
    }
    bool closed() const override { return closed_.load(std::memory_order_acquire); }
    Stats stats() const override {
        return Stats{counters_.transactions.load(std::memory_order_relaxed),
                     counters_.statements.load(std::memory_order_relaxed),
                     counters_.busy_waits.load(std::memory_order_relaxed), retries()};
    }

  private:
    // SQLite keeps a process-wide table of the locks it holds on each file. A child would inherit
    // it, believe in locks that only its parent has, and corrupt the file. So no connection to a
    // file is open while the process forks; a database in memory is simply copied.
    void before_fork() override {
        const AtFork connections = in_memory_ ? AtFork::keep : AtFork::close;
        writers_.freeze(connections);
        readers_.freeze(connections);
    }
    void after_fork(bool in_child) override {
        readers_.thaw(in_child);
        writers_.thaw(in_child);
    }

    Pool::Open opener(int flags) {
        return [this, flags](Deadline deadline) -> Result<std::unique_ptr<Connection>> {
            auto connection = std::make_unique<SqliteConnection>(name(), counters_);
            HOTCOUNT_TRY(connection->open(path_, flags, deadline));
            return std::unique_ptr<Connection>{std::move(connection)};
        };
    }

    const std::string path_;
    const bool in_memory_;
    std::atomic<bool> closed_{false};
    Counters counters_;
    Pool writers_;
    Pool readers_;
};

SqliteDatabase::SqliteDatabase(std::string name, std::string path, int flags,
                               DatabaseOptions options)
    : Database(std::move(name), options),
      path_(std::move(path)),
      in_memory_(path_ == ":memory:"),
      writers_(this->name(), 1, opener(flags)),
      // A reader may not create the file, but must be able to write the WAL's index.
      readers_(this->name(), options.max_readers, opener(flags & ~SQLITE_OPEN_CREATE)) {
    FileGuard::start_watching_forks();
    start_watching_forks();
}

// Said once for each file, with the settings that weaken a commit.
void warn_of_other_libraries(Database& database) {
    std::string files;
    for (const std::string& each : other_sqlite_libraries()) {
        files += (files.empty() ? "" : ", ") + each;
    }
    if (files.empty()) return;
    for (std::size_t at = 0; (at = files.find('\'', at)) != std::string::npos; at += 2) {
        files.insert(at, 1, '\'');
    }
    static constexpr std::string_view kName = "other SQLite libraries in this process";
    static constexpr std::array kSettings = {
        WeakSetting{kName, [](std::string_view) { return true; },
                    "if one of them opens this file too, what it writes may damage "
                    "the file; open it with one library only"}};
    database.look_at_durability(Statement{"SELECT '" + std::string{kName} + "', '" + files + "'"},
                                kSettings);
}

SqliteDatabase::~SqliteDatabase() { stop_watching_forks(); }

Result<std::shared_ptr<Database>> open_sqlite(const Url& url, DatabaseOptions options) {
    if (!url.host.empty() || url.port || !url.user.empty() || !url.password.empty()) {
        return make_error(ErrorCode::config,
                          "URL: sqlite takes no host; three slashes for a relative path "
                          "(sqlite:///file.db), four for an absolute one: " +
                              url.str());
    }
    HOTCOUNT_TRY(load_sqlite());
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    for (const auto& [option, value] : url.query) {
        if (option != "mode") {
            return make_error(ErrorCode::config, "URL: unknown option '" + printable(option) +
                                                     "' for sqlite; it takes: mode")
                .about(&ErrorFacts::option, option);
        }
        if (value == "ro") {
            flags = SQLITE_OPEN_READONLY;
        } else if (value == "rw") {
            flags = SQLITE_OPEN_READWRITE;
        } else if (value != "rwc") {
            return make_error(ErrorCode::config,
                              "URL: option mode is none of ro, rw, rwc (create, default)");
        }
    }
    // As in SQLAlchemy: the path follows the third slash; without a path the database is in memory.
    std::string path = url.path.empty() ? ":memory:" : url.path.substr(1);
    // Debian builds SQLite to read "file:..." as a URI of its own, options and all.
    if (path.starts_with("file:")) path.insert(0, "./");
    const auto make = [&](const std::string& name) -> Result<std::shared_ptr<Database>> {
        auto database = std::make_shared<SqliteDatabase>(name, path, flags, options);
        // Opened now rather than at the first call, so that a bad path fails where it is given.
        HOTCOUNT_TRY(database->writer(Deadline::after(options.timeout)));
        if (path != ":memory:") warn_of_other_libraries(*database);
        return std::shared_ptr<Database>{std::move(database)};
    };
    if (path == ":memory:") return make("sqlite :memory:");
    if (path.empty()) return make_error(ErrorCode::config, "URL: sqlite:/// lacks the file's path");

    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        return make_error(ErrorCode::config, "sqlite: " + path + " is a directory, not a file");
    }
    const auto folder = std::filesystem::absolute(path, ignored).parent_path();
    if (!std::filesystem::is_directory(folder, ignored)) {
        return make_error(ErrorCode::config, "sqlite: the folder of " + path + " does not exist");
    }
    const std::string canonical = std::filesystem::weakly_canonical(path, ignored).string();
    using Key = std::tuple<std::string, int, Duration::rep, std::size_t>;
    static auto* const databases = new SharedObjects<Key, Database>;
    return databases->find_or_make(
        Key{canonical, flags, options.timeout.count(), options.max_readers},
        [&] { return make("sqlite " + path); });
}

}  // namespace

Driver sqlite_driver() { return {{{"sqlite"}}, open_sqlite, sqlite_grammar()}; }

}  // namespace hotcount::sql

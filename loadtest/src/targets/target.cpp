#include "target.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <hotcount/url.hpp>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "load/run_folder.hpp"
#include "store_handle.hpp"
#include "store_targets.hpp"

namespace hotcount::loadtest {
namespace {

// Setting up is not under test: a slow disk may take its time to make the tables.
constexpr Duration kSetUpTimeout = std::chrono::minutes{2};
constexpr std::uint64_t kItemsAtOnce = 100'000;

Result<VoteStrategy> strategy_named(const std::string& name) {
    for (const VoteStrategy strategy : {VoteStrategy::naive, VoteStrategy::slotted,
                                        VoteStrategy::batched, VoteStrategy::cached}) {
        if (to_string(strategy) == name) return strategy;
    }
    return make_error(ErrorCode::config, fmt::format("strategy '{}' is not known", name));
}

Result<std::string> first_row(sql::Connection& connection, const char* text, int column = 0) {
    const sql::Statement statement(text);
    std::string found;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        found = row.text(column);
        return {};
    };
    HOTCOUNT_TRY(connection.query(statement, {}, read));
    return found;
}

/// Where the votes are kept and how durably, in one line for people. The connection that writes is
/// asked, because in SQLite the settings belong to the connection and not to the file.
Result<std::string> describe_file(sql::Database& database, const std::filesystem::path& file) {
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kSetUpTimeout)));
    HOTCOUNT_TRY_ASSIGN(const std::string journal, first_row(*writer, "PRAGMA journal_mode"));
    HOTCOUNT_TRY_ASSIGN(const std::string level, first_row(*writer, "PRAGMA synchronous"));
    constexpr const char* kLevels[] = {"OFF", "NORMAL", "FULL", "EXTRA"};
    const bool known = level.size() == 1 && level[0] >= '0' && level[0] <= '3';
    const std::string file_system = file_system_of(file);
    const bool in_memory = file_system == "tmpfs" || file_system == "ramfs";
    return fmt::format("SQLite file on {}{}, journal_mode={}, synchronous={}", file_system,
                       in_memory ? " (memory: a commit costs no flush to a disk)" : "", journal,
                       known ? kLevels[level[0] - '0'] : "?");
}

Result<std::string> describe_server(sql::Database& database) {
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kSetUpTimeout)));
    if (sql::to_string(database.dialect()) == "postgresql") {
        HOTCOUNT_TRY_ASSIGN(const std::string version, first_row(*writer, "SHOW server_version"));
        HOTCOUNT_TRY_ASSIGN(const std::string fsync, first_row(*writer, "SHOW fsync"));
        HOTCOUNT_TRY_ASSIGN(const std::string commit,
                            first_row(*writer, "SHOW synchronous_commit"));
        return fmt::format("PostgreSQL {}, fsync={}, synchronous_commit={}", version, fsync,
                           commit);
    }
    HOTCOUNT_TRY_ASSIGN(const std::string version, first_row(*writer, "SELECT VERSION()"));
    HOTCOUNT_TRY_ASSIGN(
        const std::string flush,
        first_row(*writer, "SHOW VARIABLES LIKE 'innodb_flush_log_at_trx_commit'", 1));
    return fmt::format("{}, innodb_flush_log_at_trx_commit={}", version, flush);
}

/// The run's prefix and a name, as a table may be called.
std::string table_name(std::string_view prefix, std::string_view name) {
    std::string table{prefix};
    std::replace_if(
        table.begin(), table.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return table + std::string{name};
}

/// Takes a run's tables away, those of all strategies.
Result<void> drop_tables(sql::Database& database, const VotesOptions& options) {
    const auto quoted = [](const std::string& name) { return sql::quote_identifier(name); };
    std::string script;
    for (const char* const view : {"_live", "_count"}) {
        script += "DROP VIEW IF EXISTS " + quoted(options.vote_table + view) + ";\n";
    }
    for (const char* const suffix :
         {"_cell", "_journal", "_meta", "_sync", "_recount", "_anonymous", ""}) {
        script += "DROP TABLE IF EXISTS " + quoted(options.vote_table + suffix) + ";\n";
    }
    script += "DROP TABLE IF EXISTS " + quoted(options.item_table) + ";\n";
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kSetUpTimeout)));
    return writer->run_script(script);
}

class VotesTarget final : public Target {
  public:
    /// `mode`: rwc makes the database's file, rw wants it to be there.
    static Result<std::unique_ptr<VotesTarget>> open(const TrialSettings& settings,
                                                     const Strategy& strategy,
                                                     const std::filesystem::path& folder,
                                                     const char* mode) {
        const bool on_server = on_database_server(settings.database_url);
        std::string url = settings.database_url.empty() ? sqlite_url(folder / kDatabaseFile)
                                                        : settings.database_url;
        VotesOptions options;
        HOTCOUNT_TRY_ASSIGN(options.strategy, strategy_named(strategy.way));
        sql::DatabaseOptions connections;
        if (on_server) {
            // Tables of the run's own; and a connection for each caller, as the strategies with a
            // transaction per vote want it.
            options.item_table = table_name(settings.key_prefix, "item");
            options.vote_table = table_name(settings.key_prefix, "vote");
            connections.max_writers = settings.workers;
        } else {
            url += std::string{"?mode="} + mode;
        }
        std::optional<StoreHandle> store;
        if (strategy.store != StoreKind::sql) {
            HOTCOUNT_TRY_ASSIGN(store, StoreHandle::open(settings, strategy.store));
        }
        HOTCOUNT_TRY_ASSIGN(auto database, sql::open_database(url, connections));
        HOTCOUNT_TRY_ASSIGN(auto votes,
                            Votes::make(database, options, store ? store->cache() : VoteCache{}));
        HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
        std::filesystem::path file = on_server ? "" : parsed.path.substr(1);
        return std::unique_ptr<VotesTarget>(new VotesTarget(
            std::move(database), std::move(votes), std::move(file), std::move(store), settings));
    }

    Result<void> set_up(std::uint64_t items) {
        HOTCOUNT_TRY(votes_->create_tables(kSetUpTimeout));
        HOTCOUNT_TRY(refuse_used_tables(*database_, votes_->options()));
        for (std::uint64_t first = 1; first <= items; first += kItemsAtOnce) {
            std::vector<sql::Id> ids;
            for (std::uint64_t id = first; id <= items && id < first + kItemsAtOnce; ++id) {
                ids.emplace_back(static_cast<std::int64_t>(id));
            }
            HOTCOUNT_TRY(votes_->add_items(ids, kSetUpTimeout));
        }
        HOTCOUNT_TRY_ASSIGN(
            place_, file_.empty() ? describe_server(*database_) : describe_file(*database_, file_));
        if (store_) place_ += "; counted in " + store_->place();
        return {};
    }

    Driver& driver() override { return driver_; }
    Contract contract() const override { return votes_->contract(); }
    std::string place() const override { return place_; }
    UnvoteValue unvote() const override { return UnvoteValue::set_zero; }
    TargetStats stats() const override {
        const sql::Database::Stats stats = database_->stats();
        return {stats.transactions, stats.statements, stats.busy_waits};
    }

    /// A worker saves the counts of a cache during the load, as it would in service.
    Result<void> begin() override {
        if (!store_) return {};
        HOTCOUNT_TRY_ASSIGN(auto worker, votes_->sync_worker());
        worker_ = std::jthread([worker = std::move(worker)](const std::stop_token& ended) {
            std::mutex mutex;
            std::condition_variable_any wake;
            // What it could not save, the flush before the audit reports.
            (void)worker->run([&](Duration pause) {
                std::unique_lock lock(mutex);
                return wake.wait_for(lock, ended, pause, [] { return false; }) ||
                       ended.stop_requested();
            });
        });
        return {};
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        worker_ = {};
        HOTCOUNT_TRY(votes_->flush(kSetUpTimeout));
        return audit_votes(ledger, *database_, *votes_);
    }
    Result<void> clean_up() override {
        if (store_) HOTCOUNT_TRY(store_->remove_keys());
        if (!file_.empty() || keep_tables_) return {};
        return drop_tables(*database_, votes_->options());
    }

  private:
    VotesTarget(std::shared_ptr<sql::Database> database, std::shared_ptr<Votes> votes,
                std::filesystem::path file, std::optional<StoreHandle> store,
                const TrialSettings& settings)
        : database_(std::move(database)),
          votes_(votes),
          file_(std::move(file)),
          store_(std::move(store)),
          keep_tables_(settings.keep_keys),
          driver_(votes, settings.timeout) {}

    std::shared_ptr<sql::Database> database_;
    std::shared_ptr<Votes> votes_;
    std::filesystem::path file_;  // Empty on a server.
    std::optional<StoreHandle> store_;
    bool keep_tables_;
    VotesDriver driver_;
    std::string place_{};
    std::jthread worker_{};  // Last: it ends before what it works on.
};

}  // namespace

Result<std::unique_ptr<Target>> make_target(const TrialSettings& settings,
                                            const std::filesystem::path& folder) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (strategy.workload != WorkloadKind::votes) return make_store_target(settings, strategy);
    HOTCOUNT_TRY_ASSIGN(auto votes, VotesTarget::open(settings, strategy, folder, "rwc"));
    HOTCOUNT_TRY(votes->set_up(settings.traffic.items));
    return std::unique_ptr<Target>(std::move(votes));
}

Result<std::unique_ptr<Target>> reopen_target(const TrialSettings& settings,
                                              const std::filesystem::path& folder) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (strategy.store != StoreKind::sql) return reopen_store_target(settings, strategy);
    HOTCOUNT_TRY_ASSIGN(auto votes, VotesTarget::open(settings, strategy, folder, "rw"));
    return std::unique_ptr<Target>(std::move(votes));
}

}  // namespace hotcount::loadtest

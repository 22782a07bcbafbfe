#include "sql_place.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <hotcount/url.hpp>
#include <mutex>
#include <stop_token>
#include <utility>

#include "load/run_folder.hpp"

namespace hotcount::loadtest {
namespace {

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

/// The connection that writes is
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
    // MariaDB says 10.11.19-MariaDB-0+deb12u1, MySQL its number alone.
    const std::size_t name = version.find("-MariaDB");
    return fmt::format("{} {}, innodb_flush_log_at_trx_commit={}",
                       name == std::string::npos ? "MySQL" : "MariaDB", version.substr(0, name),
                       flush);
}

}  // namespace

std::string table_name(std::string_view prefix, std::string_view name) {
    std::string table{prefix};
    std::replace_if(
        table.begin(), table.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return table + std::string{name};
}

std::span<const std::pair<const char*, std::string VotesOptions::*>> table_options() {
    using O = VotesOptions;
    static constexpr std::pair<const char*, std::string O::*> kOptions[] = {
        {"item-table", &O::item_table},    {"item-id", &O::item_id},
        {"item-count", &O::item_count},    {"vote-table", &O::vote_table},
        {"vote-item", &O::vote_item},      {"vote-user", &O::vote_user},
        {"vote-value", &O::vote_value},    {"vote-previous", &O::vote_previous},
        {"vote-version", &O::vote_version}};
    return kOptions;
}

Contract readable(Contract contract, const std::string& key_prefix) {
    const auto replace_all = [](std::string& text, const std::string& what, std::string_view by) {
        for (auto at = text.find(what); at != std::string::npos;
             at = text.find(what, at + by.size())) {
            text.replace(at, what.size(), by);
        }
    };
    const std::string item_count = table_name(key_prefix, "item.vote_count");
    const std::string tables = table_name(key_prefix, "");
    for (std::string* const text : {&contract.acknowledged, &contract.may_lose}) {
        replace_all(*text, item_count, "the item's vote_count");
        if (!tables.empty()) replace_all(*text, tables, "");
    }
    return contract;
}

Result<SqlPlace> open_place(const TrialSettings& settings, const std::filesystem::path& folder,
                            bool fresh, std::size_t writers) {
    std::string url =
        settings.database_url.empty() ? sqlite_url(folder / kDatabaseFile) : settings.database_url;
    sql::DatabaseOptions options;
    SqlPlace place;
    if (on_database_server(url)) {
        if (writers > 0) options.max_writers = writers;
    } else {
        HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
        place.file = parsed.path.substr(1);
        url += fresh ? "?mode=rwc" : "?mode=rw";
    }
    HOTCOUNT_TRY_ASSIGN(place.database, sql::open_database(url, options));
    return place;
}

SqlTarget::SqlTarget(const TrialSettings& settings, SqlPlace sql)
    : settings_(settings), sql_(std::move(sql)) {}

TargetStats SqlTarget::stats() const {
    const auto of = [](const sql::Database& database) -> TargetStats {
        const sql::Database::Stats stats = database.stats();
        return {stats.transactions, stats.statements, stats.busy_waits};
    };
    TargetStats sum = of(*sql_.database);
    for (const auto& node : sql_.nodes) {
        const TargetStats one = of(*node);
        sum = {sum.transactions + one.transactions, sum.statements + one.statements,
               sum.busy_waits + one.busy_waits};
    }
    return sum;
}

Result<void> SqlTarget::describe_place(const std::string& more) {
    HOTCOUNT_TRY_ASSIGN(place_, sql_.file.empty() ? describe_server(*sql_.database)
                                                  : describe_file(*sql_.database, sql_.file));
    place_ += more;
    return {};
}

Result<void> SqlTarget::drop(const std::string& name,
                             const std::vector<std::string>& table_suffixes,
                             const std::vector<std::string>& view_suffixes) const {
    if (!sql_.file.empty() || settings_.leaves_tables()) return {};
    std::string script;
    for (const auto& [kind, suffixes] :
         {std::pair{"VIEW", &view_suffixes}, std::pair{"TABLE", &table_suffixes}}) {
        for (const std::string& suffix : *suffixes) {
            script +=
                fmt::format("DROP {} IF EXISTS {};\n", kind, sql::quote_identifier(name + suffix));
        }
    }
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer,
                        sql_.database->writer(Deadline::after(kSetUpTimeout)));
    return writer->run_script(script);
}

std::jthread run_in_thread(std::shared_ptr<SyncWorker> worker) {
    return std::jthread([worker = std::move(worker)](const std::stop_token& ended) {
        std::mutex mutex;
        std::condition_variable_any wake;
        (void)worker->run([&](Duration pause) {
            std::unique_lock lock(mutex);
            return wake.wait_for(lock, ended, pause, [] { return false; }) ||
                   ended.stop_requested();
        });
    });
}

}  // namespace hotcount::loadtest

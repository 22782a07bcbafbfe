#include "database_place.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "load/run_folder.hpp"

namespace hotcount::loadtest {
namespace {

constexpr Duration kTimeout = std::chrono::minutes{2};

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

}  // namespace

Result<std::string> describe_file(sql::Database& database, const std::filesystem::path& file) {
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kTimeout)));
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
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kTimeout)));
    if (database.dialect() == sql::Dialect::postgres) {
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

std::string table_name(std::string_view prefix, std::string_view name) {
    std::string table{prefix};
    std::replace_if(
        table.begin(), table.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return table + std::string{name};
}

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
    HOTCOUNT_TRY_ASSIGN(const sql::Lease writer, database.writer(Deadline::after(kTimeout)));
    return writer->run_script(script);
}

}  // namespace hotcount::loadtest

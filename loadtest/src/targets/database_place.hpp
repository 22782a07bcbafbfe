// Where votes are kept, and how durably: a SQLite file, or tables on a server.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <string_view>

namespace hotcount::loadtest {

/// In one line for people; asked of the connection that writes, because in SQLite the settings are
/// its own, not the file's.
Result<std::string> describe_file(sql::Database& database, const std::filesystem::path& file);
Result<std::string> describe_server(sql::Database& database);

/// The run's prefix and a name, as a table may be called.
std::string table_name(std::string_view prefix, std::string_view name);
/// Takes a run's tables away, those of all strategies.
Result<void> drop_tables(sql::Database& database, const VotesOptions& options);

}  // namespace hotcount::loadtest

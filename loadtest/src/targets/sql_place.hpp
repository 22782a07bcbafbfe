// Where a run's tables are, for targets on SQL.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <string>
#include <string_view>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// Setting up is not under test: a slow disk may take its time to make the tables.
inline constexpr Duration kSetUpTimeout = std::chrono::minutes{2};

/// Where the tables are kept and how durably, in one line for people. `file` is SQLite's, empty on a
/// server.
Result<std::string> describe_database(sql::Database& database, const std::filesystem::path& file);

/// The run's prefix and a name, as a table may be called.
std::string table_name(std::string_view prefix, std::string_view name);

}  // namespace hotcount::loadtest

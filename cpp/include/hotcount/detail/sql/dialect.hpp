// The SQL dialects by name, and how statements quote names.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <string>
#include <string_view>

namespace hotcount::sql {

/// `mysql` is MariaDB and MySQL.
enum class Dialect : std::uint8_t { sqlite, postgres, mysql };
/// "sqlite", "postgresql", "mysql".
std::string_view to_string(Dialect dialect);
/// The dialect of a name that to_string() returns, or of "mariadb". A config error for another.
Result<Dialect> dialect_of(std::string_view name);

/// `name` quoted for SQL: "na""me". MySQL's connections run in ANSI_QUOTES mode.
std::string quote_identifier(std::string_view name);

}  // namespace hotcount::sql

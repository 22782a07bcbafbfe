// The SQL dialects by name, and how statements quote names.
#pragma once

#include <hotcount/result.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::sql {

class Grammar;

/// One of the SQL dialects of this build. MariaDB and MySQL are one. As cheap to copy as a pointer.
class Dialect {
  public:
    explicit Dialect(const Grammar& grammar) : grammar_(&grammar) {}
    const Grammar& grammar() const { return *grammar_; }
    friend bool operator==(const Dialect&, const Dialect&) = default;

  private:
    const Grammar* grammar_;  // There is one object for each dialect.
};
/// "sqlite", "postgresql", "mysql".
std::string_view to_string(Dialect dialect);
/// The dialect of such a name, or of "mariadb". A config error for another.
Result<Dialect> dialect_of(std::string_view name);
/// The names that dialect_of() takes.
std::vector<std::string_view> dialect_names();
/// The schemes of URLs that open_database() takes.
std::vector<std::string_view> database_schemes();

/// `name` quoted for SQL: "na""me". MySQL's connections run in ANSI_QUOTES mode.
std::string quote_identifier(std::string_view name);

}  // namespace hotcount::sql

// What the SQL dialects write differently, so that a table layout's statements are written once.
//
// Statements number their placeholders from 1 (?1, ?2; each may stand several times) and quote
// every name with quote_identifier(): SQLite's own form. A connection translates the placeholders
// when it prepares; MySQL's run in ANSI_QUOTES mode. `mysql` is MariaDB and MySQL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::sql {

enum class Dialect : std::uint8_t { sqlite, postgres, mysql };
/// "sqlite", "postgresql", "mysql".
std::string_view to_string(Dialect dialect);

enum class ColumnType : std::uint8_t {
    integer,  ///< Signed, 64 bits.
    text,     ///< Compared byte by byte; up to 1,000 bytes in MySQL.
    uuid,
};

/// `name` quoted for SQL: "na""me".
std::string quote_identifier(std::string_view name);

/// The words that differ. Stateless but for the dialect; cheap to copy.
class Grammar {
  public:
    explicit Grammar(Dialect dialect) : dialect_(dialect) {}
    Dialect dialect() const { return dialect_; }

    std::string type(ColumnType type) const;
    /// What follows a table's closing parenthesis.
    std::string table_end() const;
    /// CREATE VIEW, replacing an older one or doing nothing where it is there.
    std::string create_view(std::string_view name) const;

    // After INSERT ... VALUES (...); columns come quoted.
    /// Does nothing where `key`, one of the unique columns, is taken.
    std::string or_nothing(std::string_view key) const;
    /// Updates instead where the unique columns `key` are taken: assignments follow. A bare column
    /// in them is the row's in MySQL only: write own(table, column).
    std::string or_update(std::string_view key) const;
    /// In those assignments: the row's own value, and the one that was to be inserted.
    std::string own(std::string_view table, std::string_view column) const;
    std::string excluded(std::string_view column) const;

    /// a and b differ, NULL being a value like others.
    std::string differ(std::string_view a, std::string_view b) const;
    std::string greater(std::string_view a, std::string_view b) const;
    /// " AND ..." that is false where the sum leaves 64 bits: SQLite makes it a real without a
    /// word. The servers refuse it: an overflow error.
    std::string and_fits(std::string_view sum) const;
    /// After a SELECT in a writing transaction: keeps the rows as they are until its end, for
    /// oneself or shared. SQLite has one writer at a time.
    std::string for_update() const;
    std::string for_share() const;

  private:
    Dialect dialect_;
};

/// A statement's text with a dialect's own placeholders, and which parameter each stands for, from
/// 0, in order. Placeholders inside quotes stay as they are.
struct Placed {
    std::string text;
    std::vector<std::size_t> parameters;
};
/// postgres: $1, $2, numbered as they are, so `parameters` is empty. mysql: ?, one after another.
Placed place_parameters(std::string_view text, Dialect dialect);

}  // namespace hotcount::sql

// The interface of a SQL dialect: the clauses, expressions and abilities that differ.
//
// A statement is written once for all dialects. It numbers its placeholders from 1 (?1, ?2; each may
// stand several times) and quotes every name with quote_identifier(): SQLite's own form. A
// connection translates the placeholders when it prepares the statement; MySQL's connections run in
// ANSI_QUOTES mode. The words that differ stand in each dialect's words.sql.
//
// drivers() is declared here and defined above, in dialects/registry.cpp, which lists the dialects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <hotcount/detail/sql/dialect.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::sql {

/// For statements whose locks or changes matter, not their rows.
inline const RowVisitor kIgnoreRows = [](const Row&) -> Result<void> { return {}; };

enum class ColumnType : std::uint8_t {
    integer,  ///< Signed, 64 bits.
    text,     ///< Compared byte by byte; up to 1,000 bytes in MySQL.
    uuid,
    full_key,   ///< As text; up to 2,000 bytes in MySQL.
    long_text,  ///< For no index; up to 16 MB in MySQL.
};

/// The words of one dialect: clauses and expressions from dialects/NAME/sql/words.sql. A .sql file
/// writes them as {for_update} or {greater(a, b)}, if its Statements are given words(). Some have a
/// function as well, for statements that C++ composes; a function that returns a clause puts a
/// space before it, unless the clause is empty. These have no function:
///
///   create_view         CREATE VIEW, which replaces an older one or does nothing if the view exists
///   integer_cast, text_cast   The types of CAST(... AS type).
///   is_standby          1 while the server reports that it applies another's changes and takes no
///                       writes; evaluated after the rows of its SELECT have been found
///   server_identity     A text without spaces that no copy of this server has.
///   pair_after          The pair of columns {1}, {2} follows the pair of values {3}, {4} in the order
///                       of an index over both columns, in the form for which the database begins
///                       there.
///   for_no_key_update   As for_update, but other transactions may still refer to the rows by a
///                       foreign key, if the dialect can.
///   for_key_share       Keeps the rows from being deleted; other transactions may change columns
///                       that no foreign key refers to, if the dialect can say so.
///
/// Stateless, one object per dialect, thread-safe. Names of columns come quoted.
class Grammar {
  public:
    virtual ~Grammar() = default;
    Dialect dialect() const { return Dialect{*this}; }
    /// "sqlite", "postgresql", "mysql".
    virtual std::string_view name() const = 0;
    /// The text of words.sql.
    virtual std::string_view words() const = 0;

    // -- tables ---------------------------------------------------------------------------------
    /// {integer}, {text}, {uuid}, {full_key}, {long_text}
    std::string type(ColumnType type) const;
    /// The text after a table's closing parenthesis.
    std::string table_end() const { return clause("table_end"); }
    /// A SELECT of how many tables or views have the name that the parameters stand for; the schema
    /// may be empty.
    std::string find_table(const std::string& schema, const std::string& table) const {
        return word("find_table", {schema, table});
    }
    /// Whether tables have schemas: `app.item`.
    virtual bool has_schemas() const { return true; }
    /// Blocks the creation of tables by other transactions until this one ends; may be empty.
    std::string lock_schema() const { return word("lock_schema"); }
    /// Whether every change of the schema commits the transaction.
    virtual bool schema_changes_commit() const { return false; }
    /// Whether there is CREATE INDEX IF NOT EXISTS. Else a table's indexes are made with it: KEY.
    virtual bool creates_indexes_apart() const { return true; }
    /// Whether text columns take UTF-8 only.
    virtual bool text_is_utf8() const { return false; }

    // -- after INSERT ... VALUES (...) ----------------------------------------------------------
    /// Does nothing if `key`, one of the unique columns, is taken.
    std::string or_nothing(const std::string& key) const { return clause("or_nothing", {key}); }
    /// Updates instead if the unique columns `key` are taken: assignments follow. A bare column in
    /// them is the row's in MySQL only: write own(table, column), in a file {table}.column.
    std::string or_update(const std::string& key) const { return clause("or_update", {key}) + " "; }
    /// In those assignments: the existing row's value, and the value that was to be inserted.
    static std::string own(const std::string& table, const std::string& column) {
        return table + "." + column;
    }
    std::string excluded(const std::string& column) const { return word("excluded", {column}); }
    /// Whether or_nothing() locks the existing row exclusively until the commit.
    virtual bool or_nothing_locks() const { return false; }

    /// The beginning of an INSERT or DELETE of ours on a vote table, by which triggers recognize
    /// the library's statements. Empty where they recognize them in another way.
    std::string own_write() const;

    // -- expressions ----------------------------------------------------------------------------
    /// a and b differ; NULL equals NULL.
    std::string differ(const std::string& a, const std::string& b) const {
        return word("differ", {a, b});
    }
    std::string greater(const std::string& a, const std::string& b) const {
        return word("greater", {a, b});
    }
    /// The database's clock in microseconds since 1970.
    std::string now_microseconds() const { return word("now_microseconds"); }
    /// Whether SUM is exact beyond 64 bits, and a sum that a column does not take is refused.
    /// SQLite's SUM fails if a part of it leaves 64 bits, and its + makes a real of it.
    virtual bool sums_in_decimals() const { return true; }
    /// " AND ..." that is false if the sum leaves 64 bits; empty if the database refuses such a sum.
    std::string and_fits(const std::string& sum) const { return clause("and_fits", {sum}); }
    /// The sum of a column that may be NULL and of `more`; an error if it leaves 64 bits.
    std::string checked_sum(const std::string& column, const std::string& more) const {
        return word("checked_sum", {column, more});
    }
    /// A parameter in a place that does not tell the database its type. In a file
    /// {typed(?1, bigint)}, with PostgreSQL's name of the type, which parameter_type() returns.
    std::string typed(const std::string& parameter, ColumnType type) const {
        return word("typed", {parameter, std::string{parameter_type(type)}});
    }
    static std::string_view parameter_type(ColumnType type);

    // -- after a SELECT in a transaction that writes ----------------------------------------------
    /// Keeps the rows as they are until the transaction ends. Empty if there is one writer at a time.
    std::string for_update() const { return clause("for_update"); }
    /// Keeps the rows as they are until the transaction ends; a shared lock.
    std::string for_share() const { return clause("for_share"); }
    /// The hint after a table that a locking read finds by its key, where the server might scan it.
    std::string by_primary_key() const { return clause("by_primary_key"); }
    /// Whether the locks are not empty.
    virtual bool locks_rows() const { return true; }
    /// Whether Connection::read_alone() reads at the session's default isolation level. At
    /// SERIALIZABLE a read outside of our transactions could make other transactions fail.
    virtual bool reads_alone_at_session_level() const { return false; }

    // -- abilities that matter to statements in sessions of the application's own -----------------
    /// The quotation mark of names in a session with default settings.
    virtual char session_quote() const { return '"'; }
    /// An expression for the session's mode if numbers and texts are cut to fit in a lenient one, and
    /// an update that finds no row locks the gap. Else empty.
    virtual std::string_view session_mode() const { return {}; }
    /// Whether a foreign key's check locks the row that it refers to against for_update(), until the
    /// transaction ends.
    virtual bool shares_parents() const { return false; }
    virtual bool has_returning() const { return true; }
    /// Whether INSERT may stand in WITH.
    virtual bool writes_in_queries() const { return false; }

    /// Queries of (name, value) that say how the server is set (settings.hpp). One that is refused
    /// is left out.
    virtual std::vector<std::string> settings() const = 0;

  private:
    std::string word(std::string_view name, const std::vector<std::string>& arguments = {}) const;
    std::string clause(std::string_view name, const std::vector<std::string>& arguments = {}) const;
};

/// How a dialect writes the placeholder ?2.
enum class Placeholders : std::uint8_t {
    as_written,  ///< ?2
    dollar,      ///< $2
    in_order,    ///< ? for each: they are bound by position.
};
/// A statement's text with a dialect's own placeholders. Placeholders inside quotes stay as they are.
struct Placed {
    std::string text;
    /// in_order: the index, from 0, of each placeholder's parameter. Else empty.
    std::vector<std::size_t> parameters;
};
Placed place_parameters(std::string_view text, Placeholders placeholders);

/// The scheme of a URL.
struct Scheme {
    std::string_view name;
    bool alias{false};  ///< Errors that list the schemes leave it out.
};

/// One dialect: how a URL names it, and how it is opened.
struct Driver {
    std::vector<Scheme> schemes;
    Result<std::shared_ptr<Database>> (*open)(const Url&, DatabaseOptions);
    const Grammar& grammar;
    /// Whether a database that this opened has found a pooler between itself and the server.
    bool (*is_pooled)(const Database&) = [](const Database&) { return false; };
};
/// All dialects of this build.
std::span<const Driver> drivers();

// -- durability of a commit -----------------------------------------------------------------------

/// A server's setting that can weaken the durability of a commit.
struct WeakSetting {
    std::string_view name;
    bool (*is_weak)(std::string_view value);
    std::string_view cost;         ///< The consequence, for a log.
    std::string_view only_with{};  ///< Another setting, which must be on.
};
bool is_off(std::string_view setting);

/// The costs, each on its own.
inline constexpr std::string_view kLosesCommits = "the last commits may be lost in a crash";
inline constexpr std::string_view kCorrupts = "a crash of the machine may corrupt the database";

/// The oldest server of a product that has all that our statements say.
struct OldestServer {
    std::string_view product;
    std::array<int, 3> version;
};

/// A config error that names both versions if the server is older. `version` is the server's text,
/// "10.11.19-MariaDB-log". A text without a number passes: some proxies have versions of their own.
Result<void> check_version(const std::string& database, std::string_view version,
                           const OldestServer& oldest);

/// The name of a table as an option gives it: `item`, `app.item`, or with a dot in a name of its own
/// `app."my.item"`.
struct TableName {
    std::string schema{};  ///< In MySQL a database. Empty: where the connection looks first.
    std::string name{};

    /// A config error that names `option` unless each part is a name that all dialects take. A part
    /// that begins with a quotation mark ends with one; within, two of them stand for one.
    static Result<TableName> parse(std::string_view option, std::string_view text);
    /// Of a text that parse() accepts.
    static TableName of(std::string_view text);

    /// The table in the same schema whose name is this one with `suffix`.
    TableName beside(std::string_view suffix) const;
    /// The name as SQL, quoted.
    std::string sql() const;
    /// The text from which parse() makes this name.
    std::string text() const;
};

}  // namespace hotcount::sql

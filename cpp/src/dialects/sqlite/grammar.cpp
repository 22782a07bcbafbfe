#include "dialect.hpp"
#include "sql/dialect.hpp"

namespace hotcount::sql {
namespace {

class SqliteGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "sqlite"; }

    std::string type(ColumnType type) const override {
        return type == ColumnType::integer ? "INTEGER" : "TEXT";
    }
    std::string table_end() const override { return " WITHOUT ROWID"; }
    std::string create_view(std::string_view name) const override {
        return "CREATE VIEW IF NOT EXISTS " + std::string{name};
    }
    std::string find_table(const std::string& schema, const std::string& name) const override {
        return "SELECT COUNT(*) FROM sqlite_master WHERE " + schema + " = '' AND name = " + name;
    }
    bool has_schemas() const override { return false; }
    std::string differ(std::string_view a, std::string_view b) const override {
        return std::string{a} + " IS NOT " + std::string{b};
    }
    std::string greater(std::string_view a, std::string_view b) const override {
        return "MAX(" + std::string{a} + ", " + std::string{b} + ")";
    }
    std::string now_microseconds() const override {
        return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)";
    }
    bool sums_in_decimals() const override { return false; }
    std::string and_fits(std::string_view sum) const override {
        return " AND typeof(" + std::string{sum} + ") = 'integer'";
    }
    // Nothing but abs() of the least integer raises an error in an expression.
    std::string checked_sum(std::string_view column, std::string_view more) const override {
        const std::string sum = Grammar::checked_sum(column, more);
        return "CASE WHEN typeof(" + sum + ") = 'integer' THEN " + sum +
               " ELSE abs((-9223372036854775807 - 1)) END";
    }
    // One writer at a time.
    std::string for_update() const override { return {}; }
    std::string for_share() const override { return {}; }
    std::vector<std::string> settings() const override {
        return {
            "SELECT 'version', sqlite_version()",
            "SELECT 'journal_mode', CAST(journal_mode AS TEXT) FROM pragma_journal_mode",
            "SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous",
        };
    }
};

}  // namespace

// Each pair of vote tables has two that are called after a deletion.
const Statement& other_triggers() {
    static const Statement kOthers{
        "SELECT COALESCE(SUM(instr(sql, ?1) = 0), 0) > 0 OR COALESCE(SUM(instr(sql, ?1 || "
        "'deleted') > 0), 0) > 2 FROM sqlite_master WHERE type = 'trigger'"};
    return kOthers;
}

const Grammar& sqlite_grammar() {
    static const SqliteGrammar kGrammar;
    return kGrammar;
}

}  // namespace hotcount::sql

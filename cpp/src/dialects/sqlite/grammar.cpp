#include "sql/dialect.hpp"

#include "dialect.hpp"
#include "hotcount_embedded/dialects/sqlite/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

class SqliteGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "sqlite"; }
    std::string_view words() const override { return sqlite::kWordsSql; }

    bool has_schemas() const override { return false; }
    bool sums_in_decimals() const override { return false; }
    bool locks_rows() const override { return false; }
    std::vector<std::string> settings() const override {
        return {
            "SELECT 'version', sqlite_version()",
            "SELECT 'journal_mode', CAST(journal_mode AS TEXT) FROM pragma_journal_mode",
            "SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous",
        };
    }
};

}  // namespace

const Statements& sqlite_catalog() {
    static const Statements kCatalog{sqlite::kCatalogSql,
                                     {{"mark", "'" + std::string{kVoteTrigger} + "'"}}};
    return kCatalog;
}

const Statement& other_triggers() {
    static const Statement kOthers{sqlite_catalog()["other_triggers"]};
    return kOthers;
}

const Grammar& sqlite_grammar() {
    static const SqliteGrammar kGrammar;
    return kGrammar;
}

}  // namespace hotcount::sql

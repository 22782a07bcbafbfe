#include "sql/dialect.hpp"

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

class MysqlGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "mysql"; }
    std::string_view words() const override { return mysql::kWordsSql; }

    bool schema_changes_commit() const override { return true; }
    bool creates_indexes_apart() const override { return false; }
    bool or_nothing_locks() const override { return true; }
    char session_quote() const override { return '`'; }
    std::string_view session_mode() const override { return "@@sql_mode"; }
    bool shares_parents() const override { return true; }
    bool has_returning() const override { return false; }
    std::vector<std::string> settings() const override {
        const Statements session{mysql::kSessionSql, {}};
        return {session["settings_of_server"], session["settings_of_session"],
                session["state_of_galera"], "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
                "SHOW SESSION STATUS LIKE 'Ssl_cipher'"};
    }
};

}  // namespace

const Statements& mysql_catalog() {
    static const Statements kCatalog{mysql::kCatalogSql, {}};
    return kCatalog;
}

const Grammar& mysql_grammar() {
    static const MysqlGrammar kGrammar;
    return kGrammar;
}

}  // namespace hotcount::sql

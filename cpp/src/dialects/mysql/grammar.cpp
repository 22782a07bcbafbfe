#include "sql/dialect.hpp"

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"

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
    // A variable that the server does not have is no error in SHOW.
    std::vector<std::string> settings() const override {
        return {
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', "
            "'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', 'sync_binlog', "
            "'max_connections', 'read_only', 'wsrep_on')",
            "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', "
            "'transaction_isolation')",
            "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
            "SHOW SESSION STATUS LIKE 'Ssl_cipher'",
        };
    }
};

}  // namespace

const Grammar& mysql_grammar() {
    static const MysqlGrammar kGrammar;
    return kGrammar;
}

}  // namespace hotcount::sql

#include "dialect.hpp"
#include "sql/dialect.hpp"

namespace hotcount::sql {
namespace {

class MysqlGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "mysql"; }

    std::string type(ColumnType type) const override {
        switch (type) {
            case ColumnType::integer:
                return "BIGINT";
            case ColumnType::uuid:
                return "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin";
            case ColumnType::full_key:
                return "VARBINARY(2000)";
            case ColumnType::long_text:
                return "MEDIUMBLOB";
            case ColumnType::text:
                break;
        }
        // To the default collation 'a' and 'A' are one key; to utf8mb4_bin 'a' and 'a ' are; and what
        // does neither has one name in MariaDB and another in MySQL.
        return "VARBINARY(1000)";
    }
    // In the older formats, which innodb_default_row_format may ask for, keys end at 767 bytes.
    std::string table_end() const override { return " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"; }
    std::string find_table(const std::string& schema, const std::string& name) const override {
        return "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = "
               "COALESCE(NULLIF(" +
               schema + ", ''), DATABASE()) AND TABLE_NAME = " + name;
    }
    bool schema_changes_commit() const override { return true; }
    bool creates_indexes_apart() const override { return false; }
    // Not INSERT IGNORE, which also swallows a missing foreign key and a value out of range.
    std::string or_nothing(std::string_view key) const override {
        return " ON DUPLICATE KEY UPDATE " + std::string{key} + " = " + std::string{key};
    }
    std::string or_update(std::string_view) const override { return " ON DUPLICATE KEY UPDATE "; }
    std::string excluded(std::string_view column) const override {
        return "VALUES(" + std::string{column} + ")";
    }
    bool or_nothing_locks() const override { return true; }
    std::string differ(std::string_view a, std::string_view b) const override {
        return "NOT (" + std::string{a} + " <=> " + std::string{b} + ")";
    }
    std::string integer_cast() const override { return "SIGNED"; }
    std::string text_cast() const override { return "CHAR"; }
    // When the statement began, and for how long it has run: it may have waited for a row. Only
    // SYSDATE() goes on meanwhile, and in local time: at the end of summer time it repeats an hour.
    // Clocks jump by multiples of half an hour, so the remainder takes a jump out. It takes the clock
    // of a machine for set back by up to a minute.
    std::string now_microseconds() const override {
        return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + MOD(TIMESTAMPDIFF("
               "MICROSECOND, NOW(6), SYSDATE(6)) + 7260000000, 1800000000) - 60000000)";
    }
    // A number, and from MariaDB 12 on a word.
    std::string is_standby() const override {
        return "CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')";
    }
    // Servers that replicate have different ones.
    std::string server_identity() const override { return "CAST(@@global.server_id AS CHAR)"; }
    // (a, b) > (x, y) would read the index from its beginning.
    std::string pair_after(std::string_view a, std::string_view b, std::string_view x,
                           std::string_view y) const override {
        const std::string first{a};
        const std::string than{x};
        return "(" + first + " > " + than + " OR (" + first + " = " + than + " AND " +
               std::string{b} + " > " + std::string{y} + "))";
    }
    std::string by_primary_key() const override { return " FORCE INDEX (PRIMARY)"; }
    std::string for_share() const override { return " LOCK IN SHARE MODE"; }
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

#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

class PostgresGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "postgresql"; }

    std::string type(ColumnType type) const override {
        switch (type) {
            case ColumnType::integer:
                return "BIGINT";
            case ColumnType::uuid:
                return "UUID";
            case ColumnType::text:
            case ColumnType::full_key:
            case ColumnType::long_text:
                break;
        }
        // "C": bytes are compared, whatever the database's own collation.
        return "TEXT COLLATE \"C\"";
    }
    // Room on each page for the next versions of its rows: an update that moves no index entry
    // leaves nothing for VACUUM.
    std::string table_end() const override { return " WITH (fillfactor = 50)"; }
    std::string find_table(const std::string& schema, const std::string& name) const override {
        return "SELECT COUNT(to_regclass(CASE CAST(" + schema +
               " AS text) WHEN '' THEN '' ELSE quote_ident(CAST(" + schema +
               " AS text)) || '.' END || quote_ident(CAST(" + name + " AS text))))";
    }
    // Two that create at once would meet in the catalogue.
    std::string lock_schema() const override {
        return "SELECT pg_advisory_xact_lock(hashtext('hotcount schema'));\n";
    }
    bool text_is_utf8() const override { return true; }
    std::string differ(std::string_view a, std::string_view b) const override {
        return std::string{a} + " IS DISTINCT FROM " + std::string{b};
    }
    std::string now_microseconds() const override {
        return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)";
    }
    std::string is_standby() const override { return "CAST(pg_is_in_recovery() AS integer)"; }
    // Its system identifier is that of its standbys, and not every service tells the timeline.
    std::string server_identity() const override {
        return "CAST(CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS bigint) AS "
               "text)";
    }
    std::string for_no_key_update() const override { return " FOR NO KEY UPDATE"; }
    std::string for_share() const override { return " FOR SHARE"; }
    std::string for_key_share() const override { return " FOR KEY SHARE"; }
    bool reads_alone_at_session_level() const override { return true; }
    std::string typed(std::string_view parameter, ColumnType type) const override {
        const char* const name = type == ColumnType::integer ? "bigint"
                                 : type == ColumnType::uuid  ? "uuid"
                                                             : "text";
        return "CAST(" + std::string{parameter} + " AS " + name + ")";
    }
    bool writes_in_queries() const override { return true; }
    std::string_view own_write() const override { return "WITH hc_own AS (SELECT 1) "; }
    std::vector<std::string> settings() const override {
        const Statements sql{postgres::kSessionSql, {}};
        std::vector<std::string> queries;
        for (const char* name :
             {"settings", "in_recovery", "tls", "sessions", "replicas", "replica_lag"}) {
            queries.push_back(sql[name]);
        }
        return queries;
    }
};

}  // namespace

const Grammar& postgres_grammar() {
    static const PostgresGrammar kGrammar;
    return kGrammar;
}

}  // namespace hotcount::sql

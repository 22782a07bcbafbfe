#include "sql/dialect.hpp"
#include "sql/statements.hpp"

#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"

namespace hotcount::sql {
namespace {

class PostgresGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "postgresql"; }
    std::string_view words() const override { return postgres::kWordsSql; }

    bool text_is_utf8() const override { return true; }
    bool reads_alone_at_session_level() const override { return true; }
    bool writes_in_queries() const override { return true; }
    std::vector<std::string> settings() const override {
        const Statements sql{postgres::kSessionSql, {}};
        std::vector<std::string> queries;
        for (const char* name : {"settings", "in_recovery", "tls", "sessions", "replicas",
                                 "synchronous_replicas", "replica_lag"}) {
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

#include <hotcount/detail/sql/settings.hpp>
#include <hotcount/detail/sql/transaction.hpp>

#include "dialect.hpp"
#include "statements.hpp"

namespace hotcount::sql {

Result<Settings> read_settings(Database& database, Deadline deadline) {
    Settings settings;
    const Grammar& grammar = database.dialect().grammar();
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        if (!row.is_null(1))
            settings.insert_or_assign(std::string{row.text(0)}, std::string{row.text(1)});
        return {};
    };
    HOTCOUNT_TRY_ASSIGN(const Lease lease, database.writer(deadline));
    for (const std::string& query : grammar.settings()) {
        const auto read = lease->query(Statement{query}, {}, see);
        // This version may lack the view or the setting, or the login may not read it.
        if (!read && lease->broken()) return read.error();
    }
    if (settings.empty()) {
        return make_error(ErrorCode::unavailable,
                          database.name() + ": none of its settings can be read");
    }
    for (const Driver& driver : drivers()) {
        if (&driver.grammar == &grammar && driver.is_pooled(database)) settings["pooled"] = "on";
    }
    return settings;
}

namespace {

const Statement& try_write_of(const Grammar& grammar) {
    static const auto kAll = [] {
        std::map<const Grammar*, Statement> all;
        for (const Driver& driver : drivers()) {
            all.emplace(&driver.grammar,
                        Statement{Statements{driver.grammar.words(), {}}["try_write"]});
        }
        return all;
    }();
    return kAll.at(&grammar);
}

}  // namespace

Result<void> check_ready(Database& database, Access access, Deadline deadline) {
    static const Statement kSelect{"SELECT 1"};
    if (access == Access::reads) {
        HOTCOUNT_TRY(read_statement(database, deadline, [&](Connection& connection) {
            return connection.read_alone(kSelect, {}, nullptr, deadline);
        }));
        return {};
    }
    HOTCOUNT_TRY_ASSIGN(const Lease lease, database.writer(deadline));
    HOTCOUNT_TRY(lease->begin(deadline));
    bool reads_only = false;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        reads_only = row.integer(0) != 0;
        return {};
    };
    const auto tried = lease->query(try_write_of(database.dialect().grammar()), {}, see);
    lease->rollback();
    HOTCOUNT_TRY(tried);
    if (!reads_only) {
        // A rollback does not check whether SQLite's file was removed or replaced. This read does.
        HOTCOUNT_TRY(lease->read_alone(kSelect, {}, nullptr, deadline));
        return {};
    }
    return make_error(ErrorCode::unavailable,
                      database.name() + ": the server is a standby or read-only", {},
                      SqlCondition::read_only);
}

}  // namespace hotcount::sql

#include <hotcount/detail/sql/settings.hpp>

#include "dialect.hpp"

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
        // A view or a word that this version lacks, or that the login may not read.
        if (!read && lease->broken()) return read.error();
    }
    if (settings.empty()) {
        return make_error(ErrorCode::unavailable, database.name() + " tells none of its settings");
    }
    for (const Driver& driver : drivers()) {
        if (&driver.grammar == &grammar && driver.is_pooled(database)) settings["pooled"] = "on";
    }
    return settings;
}

}  // namespace hotcount::sql

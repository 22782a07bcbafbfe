// What the tables of votes still lack, as statements that somebody runs by hand.
#include <algorithm>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql/table_name.hpp"
#include "sql_votes.hpp"
#include "votes/tables/adoption.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

void replace(std::string& text, const std::string& what, const std::string& by) {
    if (const auto at = text.find(what); at != std::string::npos) text.replace(at, what.size(), by);
}

}  // namespace

std::string SqlVotes::count_text(bool counted, bool empty_cells, ExistingCounts existing) const {
    const VoteDialect& dialect = layout_->vote_dialect();
    const VoteNames names{options_, dialect.grammar()};
    const bool keeps = existing == ExistingCounts::keep;
    if (options_.strategy == VoteStrategy::cached) {
        return "-- Then call create_tables(), which hands the counts to the cache.\n";
    }
    if (place() == CountPlace::journal && !counted && empty_cells) {
        return "-- The counts, of one moment; voters go on. What the application writes later "
               "without hotcount\n-- is not counted: call reconcile() when all processes use "
               "hotcount. It keeps nobody waiting.\n" +
               fill_text(names, dialect, options_.strategy, keeps);
    }
    std::string marks = layout_->write_marks.text();
    replace(marks, "?1", literal(std::string{to_string(place())}));
    replace(marks, "?2", literal(std::string{to_string(options_.strategy)}));
    std::string text = "-- Nobody votes meanwhile: for as long as it takes to read both tables.\n" +
                       dialect.adopter().begin() + layout_->lock_fold + layout_->lock_all;
    if (!counted && dialect.is_server()) text += dialect.lock_items(names) + ";\n";
    if (!counted && keeps && layout_->counts_in_items) text += openings_.keep_text() + ";\n";
    return text + layout_->settle + marks + ";\nCOMMIT;\n";
}

Result<std::string> SqlVotes::migration(Timeout timeout, ExistingCounts existing) {
    const VoteDialect& dialect = layout_->vote_dialect();
    const auto look = [&](sql::Connection& connection) -> Result<std::string> {
        HOTCOUNT_TRY_ASSIGN(const std::vector<std::string> missing, missing_tables(connection));
        const auto is_missing = [&](const std::string& table) {
            return std::find(missing.begin(), missing.end(), table) != missing.end();
        };
        VoteNames names{options_, dialect.grammar()};
        bool marked = false;
        bool counted = false;
        bool empty_cells = true;
        if (!is_missing(names.meta)) {
            HOTCOUNT_TRY_ASSIGN(marked, is_marked(connection));
            HOTCOUNT_TRY_ASSIGN(counted, is_counted(connection, *layout_));
        }
        if (!is_missing(names.cell) && !counted) {
            const sql::Statement any{"SELECT COUNT(*) FROM (SELECT 1 FROM " + names.cell +
                                     " LIMIT 1) AS hc_c"};
            const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
                empty_cells = row.integer(0) == 0;
                return {};
            };
            HOTCOUNT_TRY(connection.query(any, {}, see));
        }
        Adoption adoption{options_, dialect};
        HOTCOUNT_TRY(adoption.look(connection));
        if (!counted && (adoption.items_have_counts() || !layout_->counts_in_items)) {
            HOTCOUNT_TRY(openings_.check(connection, existing, adoption.votes_have_values()));
        }
        HOTCOUNT_TRY_ASSIGN(const std::string type, dialect.item_type(connection, options_));
        if (!type.empty()) names.item_type = type;

        std::string altering = adoption.alterations();
        std::string views;
        for (const SchemaPart& part : schema_parts(names, dialect)) {
            if (is_missing(part.name)) (part.is_view ? views : altering) += part.text;
        }
        const auto votes = sql::TableName::of(options_.vote_table);
        for (const std::string& suffix : more_tables()) {
            if (!is_missing(votes.beside(suffix).sql())) continue;
            altering += more_schema(type);
            break;
        }
        altering += adoption.reference() + views;
        if (!altering.empty()) altering = dialect.adopter().begin_altering() + altering;
        return dialect.adopter().for_client(
            altering + (marked ? "" : count_text(counted, empty_cells, existing)));
    };
    return sql::read_snapshot(*database_, database_->deadline(timeout), look);
}

}  // namespace hotcount

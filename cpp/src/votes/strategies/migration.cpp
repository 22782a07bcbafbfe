// Votes::migration(): the statements that the tables still need, to be run by hand.
#include <algorithm>
#include <hotcount/detail/sql/transaction.hpp>

#include "hotcount_embedded/votes/sql.hpp"
#include "sql/dialect.hpp"
#include "sql_votes.hpp"
#include "votes/cache/stream_marks.hpp"
#include "votes/tables/adoption.hpp"
#include "votes/tables/outside_triggers.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

// For a column that is added to items with counts: a journal row of 0 makes a fold fill it.
std::string lagging_text(const sql::Statements& sql, const Adopter& adopter) {
    return "-- The new column gets the counts from the next fold.\n" + adopter.begin() +
           sql["ask_folds"] + "COMMIT;\n";
}

}  // namespace

std::string SqlVotes::count_text(bool counted, bool empty_cells, ExistingCounts existing) const {
    const VoteDialect& dialect = layout_->vote_dialect();
    const VoteNames names{options_, dialect.grammar()};
    const bool keeps = existing == ExistingCounts::keep;
    if (options_.strategy == VoteStrategy::cached) {
        return "-- Then call create_tables(), which hands the counts to the cache.\n";
    }
    if (options_.strategy == VoteStrategy::write_behind && counted) {
        return "-- Then call create_tables(), which gives the streams of votes a new name.\n";
    }
    if (place() == CountPlace::journal && !counted && empty_cells) {
        return "-- The counts, of one moment; voters go on. What the application writes later "
               "without hotcount\n-- is not counted: call reconcile() when all processes use "
               "hotcount. It blocks no other session.\n" +
               fill_text(names, dialect, options_.strategy, keeps);
    }
    const auto marks =
        vote_statements(vote_sql::kMarksSql, names, dialect.grammar(),
                        {{"place", literal(std::string{to_string(place())})},
                         {"strategy", literal(std::string{to_string(options_.strategy)})},
                         {"route", literal(vote_route(options_, layout_->dialect()))}});
    std::string text = "-- Nobody votes meanwhile: for as long as it takes to read both tables.\n" +
                       dialect.adopter().begin() + layout_->lock_fold + layout_->lock_all;
    if (!counted && dialect.is_server()) text += dialect.lock_items(names) + ";\n";
    if (!counted && keeps && layout_->counts_in_items) text += openings_.keep_text() + ";\n";
    return text + layout_->settle + marks["write_marks"] + ";\nCOMMIT;\n";
}

Result<std::string> SqlVotes::migration(ExistingCounts existing, OutsideWrites outside,
                                        Timeout timeout) {
    const VoteDialect& dialect = layout_->vote_dialect();
    const Adopter& adopter = dialect.adopter();
    const Deadline deadline = database_->deadline(timeout);
    const OutsideTriggers& triggers = dialect.outside_triggers();
    Adoption adoption{options_, dialect};
    bool marked = false;
    FoundTriggers found;
    bool lost_rights = false;
    const auto look = [&](sql::Connection& connection) -> Result<std::string> {
        marked = false;
        HOTCOUNT_TRY_ASSIGN(const std::vector<std::string> missing, missing_tables(connection));
        const auto is_missing = [&](const std::string& table) {
            return std::find(missing.begin(), missing.end(), table) != missing.end();
        };
        HOTCOUNT_TRY(adoption.look(connection));
        VoteNames names{options_, dialect.grammar()};
        const auto sql = vote_statements(vote_sql::kAdoptionSql, names, dialect.grammar());
        const bool items_exist = !is_missing(names.item);
        bool counted = false;
        bool empty_cells = true;
        if (!is_missing(names.meta)) {
            HOTCOUNT_TRY_ASSIGN(marked, is_marked(connection));
            HOTCOUNT_TRY_ASSIGN(counted, is_counted(connection, *layout_));
            if (!marked)
                HOTCOUNT_TRY(refuse_waiting_votes(connection, options_, dialect.grammar(), false));
        }
        if (!is_missing(names.cell) && !counted) {
            const sql::Statement any{sql["any_cell"]};
            const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
                empty_cells = row.integer(0) == 0;
                return {};
            };
            HOTCOUNT_TRY(connection.query(any, {}, see));
        }
        if (!counted && (adoption.items_have_counts() || !layout_->counts_in_items)) {
            HOTCOUNT_TRY(openings_.check(connection, existing, adoption.votes_have_values()));
        }
        HOTCOUNT_TRY_ASSIGN(const std::string type, dialect.item_type(connection, options_));
        if (!type.empty()) names.item_type = type;

        std::string altering = adoption.alterations();
        std::string views;
        for (const SchemaPart& part : schema_parts(names, dialect)) {
            if (!is_missing(part.name)) continue;
            (part.is_view ? views : altering) += adopter.impatiently(part.text);
        }
        const auto votes = sql::TableName::of(options_.vote_table);
        for (const std::string& suffix : more_tables()) {
            if (!is_missing(votes.beside(suffix).sql())) continue;
            altering += adopter.impatiently(more_schema(type));
            break;
        }
        altering += adoption.reference() + views;
        HOTCOUNT_TRY_ASSIGN(found, find_triggers(connection));
        if (lost_rights) found.make_stale();
        HOTCOUNT_TRY(check_triggers(found, triggers, options_, outside));
        const OutsideWrites form = form_to_install(found, outside);
        const bool installs = form != OutsideWrites::leave;
        // Before the counts, so that later writes of other programs are counted.
        if (installs) {
            altering += adopter.impatiently(triggers.script(options_, names, form, found));
        }
        if (!marked) {
            altering +=
                adoption.votes_have_rules() && !adoption.lacking().empty()
                    ? "-- The vote table has triggers or checks. Print the migration again after "
                      "this: it tries a vote\n-- and rolls it back, and then has the counts.\n"
                    : count_text(counted, empty_cells, existing);
        } else if (place() == CountPlace::journal && !names.count.empty() && items_exist &&
                   !adoption.items_have_counts()) {
            altering += lagging_text(sql, adopter);
        }
        if (altering.empty()) return altering;
        if (installs && marked)
            altering += "-- Then call reconcile(): it finds what others wrote before.\n";
        altering = outside_comments(found, triggers, options_, outside) + altering;
        HOTCOUNT_TRY_ASSIGN(const std::string first, adopter.begin_altering(connection));
        return adopter.for_client(first + altering);
    };
    HOTCOUNT_TRY_ASSIGN(std::string text, sql::read_snapshot(*database_, deadline, look));
    lost_rights = have_lost_rights(found, deadline);
    if (lost_rights) {
        HOTCOUNT_TRY_ASSIGN(text, sql::read_snapshot(*database_, deadline, look));
    }
    if (!marked && adoption.votes_have_rules() && adoption.lacking().empty()) {
        HOTCOUNT_TRY(try_rules(adoption, deadline));
    }
    return text;
}

}  // namespace hotcount

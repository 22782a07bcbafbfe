// Makes the tables that are missing, and moves their counts to the place of this strategy.
#include <algorithm>
#include <hotcount/detail/sql/transaction.hpp>

#include "sql/dialect.hpp"
#include "sql_votes.hpp"
#include "votes/cache/stream_marks.hpp"
#include "votes/tables/adoption.hpp"
#include "votes/tables/outside_triggers.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {

std::string SqlVotes::schema() const { return layout_->schema() + more_schema({}); }

Result<std::vector<std::string>> SqlVotes::missing_tables(sql::Connection& connection) const {
    std::vector<std::string> missing;
    const auto votes = sql::TableName::of(options_.vote_table);
    std::vector<sql::TableName> wanted{sql::TableName::of(options_.item_table), votes};
    for (const char* const suffix : {"_anonymous", "_cell", "_meta", "_live", "_count"}) {
        wanted.push_back(votes.beside(suffix));
    }
    if (layout_->vote_dialect().is_server()) wanted.push_back(votes.beside("_journal"));
    for (const std::string& suffix : more_tables()) wanted.push_back(votes.beside(suffix));
    for (const sql::TableName& table : wanted) {
        std::int64_t found = 0;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            found = row.integer(0);
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(layout_->find_table,
                             {std::string_view{table.schema}, std::string_view{table.name}}, see));
        if (found == 0) missing.push_back(table.sql());
    }
    return missing;
}

// Whether this strategy counts them already, and where it does now.
Result<bool> SqlVotes::is_marked(sql::Connection& connection) const {
    HOTCOUNT_TRY_ASSIGN(const std::string by, read_mark(connection, layout_->read_strategy));
    HOTCOUNT_TRY_ASSIGN(const std::string in, read_mark(connection, layout_->read_place));
    HOTCOUNT_TRY_ASSIGN(const std::string route, read_mark(connection, layout_->read_route));
    if (is_removed_format(in, route, layout_->dialect())) return removed_format(options_, in);
    if (place() == CountPlace::journal) {
        // Without its mark no fold begins on MySQL.
        HOTCOUNT_TRY_ASSIGN(const std::string folded, read_mark(connection, layout_->read_folded));
        if (folded.empty()) return false;
    }
    return by == to_string(options_.strategy) && in == to_string(place()) &&
           route == vote_route(options_, layout_->dialect());
}

Result<void> SqlVotes::refuse_incomplete(const Adoption& adoption) {
    const std::string lacking = adoption.lacking();
    if (lacking.empty()) return {};
    return make_error(ErrorCode::config,
                      "the tables lack " + lacking +
                          "; create_tables() alters no table that exists: migration() and "
                          "`hotcount schema` print the statements that do. Nothing was changed");
}

// The transaction is rolled back.
Result<void> SqlVotes::try_rules(const Adoption& adoption, Deadline deadline) const {
    const auto attempt = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(connection.begin(deadline));
        auto tried = try_without_triggers(adoption, connection);
        connection.rollback();
        return tried;
    };
    return sql::transact_alone(*database_, deadline, attempt);
}

// Where triggers count our own votes too, one that counts is no fault.
Result<void> SqlVotes::try_without_triggers(const Adoption& adoption,
                                            sql::Connection& connection) const {
    const OutsideTriggers& triggers = layout_->vote_dialect().outside_triggers();
    if (!layout_->vote_dialect().is_server()) {
        HOTCOUNT_TRY_ASSIGN(const FoundTriggers found, triggers.find(connection, options_));
        HOTCOUNT_TRY(connection.run_script(triggers.drop(found)));
    }
    return adoption.try_rules(connection);
}

// A read-only snapshot cannot tell. If a server that takes no writes prevents the attempt, the
// rights count as present.
bool SqlVotes::have_lost_rights(const FoundTriggers& found, Deadline deadline) const {
    if (!found.are_anothers) return false;
    const auto connection = database_->writer(deadline);
    if (!connection || !(*connection)->begin(deadline)) return false;
    const OutsideTriggers& triggers = layout_->vote_dialect().outside_triggers();
    const bool have = triggers.have_rights(**connection, options_);
    (*connection)->rollback();
    return !have;
}

// The counts were moved while voters waited, except those at other nodes of a cluster, of which the
// last ones wrote in the previous place. The mark of the move stays until they are counted: a process
// that ends before has the next create_tables() go on.
Result<void> SqlVotes::count_votes_of_other_nodes(const std::string& move, Deadline deadline) {
    if (move.empty()) return {};
    const VoteDialect& dialect = layout_->vote_dialect();
    const auto pass = [&](sql::Connection& connection) {
        return dialect.pass_other_nodes(connection, VoteNames{options_, dialect.grammar()});
    };
    bool in_time = true;
    ReconcileOptions how;
    how.progress = [&](const auto&) {
        in_time = !deadline.passed();
        return in_time;
    };
    const auto count = [&]() -> Result<void> {
        HOTCOUNT_TRY(sql::transact_alone(*database_, deadline, pass));
        HOTCOUNT_TRY(reconcile(std::nullopt, how, deadline.remaining()));
        if (!in_time) {
            return make_error(ErrorCode::deadline,
                              "the deadline passed before all counts were compared with votes");
        }
        HOTCOUNT_TRY(sql::transact(*database_, deadline, [&](sql::Connection& connection) {
            return connection.execute(layout_->forget_move, {std::string_view{move}});
        }));
        return {};
    };
    auto counted = count();
    if (counted) return {};
    Error error = std::move(counted).error();
    // Another process has moved the counts since, and counts these votes.
    if (error.code == ErrorCode::config) return error;
    error.message +=
        "; the tables have this strategy now, and counts may lack votes that other nodes took "
        "meanwhile: call create_tables() again, with a timeout that is long enough";
    return error;
}

Result<void> SqlVotes::create_tables(ExistingCounts existing, OutsideWrites outside,
                                     Timeout timeout) {
    const Deadline deadline = database_->deadline(timeout);
    const VoteDialect& dialect = layout_->vote_dialect();
    const OutsideTriggers& triggers = dialect.outside_triggers();
    FoundTriggers found_triggers;
    OutsideWrites installs = OutsideWrites::leave;
    bool lost_rights = false;
    const auto read_triggers = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(found_triggers, find_triggers(connection));
        if (lost_rights) found_triggers.make_stale();
        installs = form_to_install(found_triggers, outside);
        return {};
    };
    bool made = false;
    bool has_marks = false;
    // Without a lock: a process that only starts blocks no other and waits for none.
    const auto look = [&](sql::Connection& connection) -> Result<bool> {
        HOTCOUNT_TRY_ASSIGN(const std::vector<std::string> missing, missing_tables(connection));
        made = missing.empty();
        const std::string meta = VoteNames{options_, dialect.grammar()}.meta;
        has_marks = std::find(missing.begin(), missing.end(), meta) == missing.end();
        if (!made) return false;
        HOTCOUNT_TRY_ASSIGN(const bool marked, is_marked(connection));
        if (!marked) return false;
        HOTCOUNT_TRY_ASSIGN(const std::string move, read_mark(connection, layout_->read_move));
        if (!move.empty()) return false;
        // A script that went on after an error, or the application, may have left them so.
        Adoption found{options_, layout_->vote_dialect()};
        HOTCOUNT_TRY(found.read(connection));
        HOTCOUNT_TRY(found.check_fit());
        HOTCOUNT_TRY(refuse_incomplete(found));
        HOTCOUNT_TRY(read_triggers(connection));
        return installs == OutsideWrites::leave;
    };
    HOTCOUNT_TRY_ASSIGN(const bool done, sql::read_snapshot(*database_, deadline, look));
    lost_rights = have_lost_rights(found_triggers, deadline);
    if (done && !lost_rights) {
        watch_journal();
        return {};
    }
    Adoption adoption{options_, dialect};
    const auto refuse = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(adoption.look(connection));
        if (has_marks) HOTCOUNT_TRY(is_marked(connection));  // Refuses marks of a removed format.
        HOTCOUNT_TRY(read_triggers(connection));
        HOTCOUNT_TRY(check_triggers(found_triggers, triggers, options_, outside));
        return refuse_incomplete(adoption);
    };
    HOTCOUNT_TRY(sql::read_snapshot(*database_, deadline, refuse));
    // Hidden ones that stay would count in the previous place.
    if (found_triggers.are_hidden ||
        (installs != OutsideWrites::leave && installs != OutsideWrites::none)) {
        HOTCOUNT_TRY(sql::transact_alone(*database_, deadline, [&](sql::Connection& connection) {
            return triggers.try_rights(connection, options_);
        }));
    }
    if (adoption.votes_have_rules()) HOTCOUNT_TRY(try_rules(adoption, deadline));
    // With ids of the item table's very type.
    const auto make = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(const std::string type, dialect.item_type(connection, options_));
        if (made) return {};
        VoteNames names{options_, dialect.grammar()};
        if (!type.empty()) names.item_type = type;
        return connection.run_script(schema_text(names, dialect) + more_schema(type));
    };
    const auto install = [&](sql::Connection& connection) -> Result<void> {
        if (installs == OutsideWrites::leave) return {};
        return connection.run_script(triggers.script(
            options_, VoteNames{options_, dialect.grammar()}, installs, found_triggers));
    };
    // If schema changes commit, the counts are written in a transaction of their own.
    const bool apart = dialect.grammar().schema_changes_commit();
    // With all tables present this step is not only useless: CREATE INDEX IF NOT EXISTS locks the
    // journal against voters, and these would deadlock with the lock below.
    if (apart && !made) {
        HOTCOUNT_TRY(sql::transact(*database_, deadline, [&](sql::Connection& connection) {
            return openings_.refuse_early(connection, *layout_, existing);
        }));
        HOTCOUNT_TRY(sql::transact_alone(*database_, deadline, make));
    }
    // Before the counts: outside writes from here on are counted.
    if (apart) HOTCOUNT_TRY(sql::transact_alone(*database_, deadline, install));
    const auto count = [&](sql::Connection& connection) -> Result<void> {
        if (!apart) HOTCOUNT_TRY(make(connection));
        HOTCOUNT_TRY_ASSIGN(bool marked, is_marked(connection));
        // Another process may have installed the triggers meanwhile.
        if (!apart) HOTCOUNT_TRY(read_triggers(connection));
        if (marked && (apart || installs == OutsideWrites::leave)) return {};
        if (!marked && !layout_->lock_all.empty()) {
            HOTCOUNT_TRY(connection.run_script(layout_->lock_fold + layout_->lock_all));
            HOTCOUNT_TRY_ASSIGN(marked, is_marked(connection));
        }
        if (!apart) HOTCOUNT_TRY(install(connection));
        if (marked) return {};
        HOTCOUNT_TRY(refuse_waiting_votes(connection, options_, dialect.grammar(), true));
        HOTCOUNT_TRY_ASSIGN(const bool counted, is_counted(connection, *layout_));
        if (!counted) HOTCOUNT_TRY(openings_.settle(connection, existing));
        // Tables that were never counted here, or by a strategy that keeps other counts true. Votes
        // and folds are blocked.
        HOTCOUNT_TRY(connection.run_script(layout_->settle));
        const std::string route = vote_route(options_, layout_->dialect());
        // Last: a reader of the mark finds the counts in that place.
        HOTCOUNT_TRY(connection.execute(
            layout_->write_marks,
            {to_string(place()), to_string(options_.strategy), std::string_view{route}}));
        HOTCOUNT_TRY(take_over(connection));
        return dialect.note_move(connection, VoteNames{options_, dialect.grammar()});
    };
    std::string move;
    // In one transaction: a reader may still be at a primary that was replaced.
    const auto count_and_look = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(count(connection));
        HOTCOUNT_TRY_ASSIGN(move, read_mark(connection, layout_->read_move));
        return {};
    };
    HOTCOUNT_TRY(sql::transact(*database_, deadline, count_and_look));
    HOTCOUNT_TRY(count_votes_of_other_nodes(move, deadline));
    watch_journal();
    if (installs == OutsideWrites::leave) return {};
    // For counts_agree(). All is done without it.
    (void)sql::read_snapshot(*database_, deadline, [&](sql::Connection& connection) {
        return find_triggers(connection);
    });
    return {};
}

}  // namespace hotcount

#include "layout.hpp"

#include <utility>

#include "hotcount_embedded/votes/sql.hpp"
#include "outside_triggers.hpp"
#include "sql/dialect.hpp"
#include "sync_pages.hpp"
#include "vote_dialect.hpp"

namespace hotcount {

sql::ColumnType column_type(IdType type) {
    switch (type) {
        case IdType::integer:
            return sql::ColumnType::integer;
        case IdType::text:
            return sql::ColumnType::text;
        case IdType::uuid:
            break;
    }
    return sql::ColumnType::uuid;
}

std::string id_parameter(const sql::Grammar& g, std::string_view parameter, IdType type) {
    if (type != IdType::integer) return std::string{parameter};
    return g.typed(std::string{parameter}, sql::ColumnType::integer);
}

VotesOptions anonymous_options(VotesOptions options) {
    options.vote_table = sql::TableName::of(options.vote_table).beside("_anonymous").text();
    options.vote_user = "op_id";
    options.user_type = IdType::text;
    return options;
}

namespace {

std::string part_of(const VoteNames& n, std::string_view name, const std::vector<std::string>& of) {
    return sql::Statements{vote_sql::kPartsSql, to_names(n)}.call(name, of);
}

}  // namespace

std::string literal(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) {
        quoted += c;
        if (c == '\'') quoted += c;
    }
    return quoted + "'";
}

std::string votes_without_user(const VoteNames& n) { return part_of(n, "votes_without_user", {}); }

std::string counted_sum(const VoteNames& n, const std::string& item) {
    return part_of(n, "owed", {item});
}

std::string sync_columns(const VoteNames& n) { return part_of(n, "state_columns", {}); }
std::string sync_tables(const VoteNames& n) { return part_of(n, "state_tables", {}); }

namespace {

// The names that depend on the place of the counts and on the dialect.
sql::Names to_flags(const VoteDialect& d, CountPlace place) {
    return {{"is_server", sql::flag(d.is_server())},
            {"in_item", sql::flag(place == CountPlace::item || place == CountPlace::cache)},
            {"in_journal", sql::flag(place == CountPlace::journal)},
            {"item_table_end", d.item_table_end()}};
}

}  // namespace

std::string settle_text(const VoteNames& n, const VoteDialect& d, CountPlace place) {
    return vote_statements(vote_sql::kTablesSql, n, d.grammar(), to_flags(d, place))["settle"];
}

std::vector<SchemaPart> schema_parts(const VoteNames& n, const VoteDialect& d) {
    const sql::Grammar& g = d.grammar();
    const sql::Names flags = to_flags(d, CountPlace::cells);
    const auto sql = vote_statements(vote_sql::kTablesSql, n, g, flags);
    const VoteNames anonymous = n.anonymous(g);
    const auto of_anonymous = vote_statements(vote_sql::kTablesSql, anonymous, g, flags);
    std::vector<SchemaPart> parts{{n.item, sql["item_table"], false},
                                  {n.vote, sql["vote_table"], false},
                                  {anonymous.vote, of_anonymous["vote_table"], false},
                                  {n.cell, sql["cell_table"], false}};
    if (d.is_server()) parts.push_back({n.journal, d.journal_table(n), false});
    parts.push_back({n.meta, sql["meta_table"], false});
    parts.push_back({n.live, sql["live_view"], true});
    parts.push_back({n.count_view, sql["count_view"], true});
    return parts;
}

std::string schema_text(const VoteNames& n, const VoteDialect& d) {
    std::string text = d.grammar().lock_schema();
    for (const SchemaPart& part : schema_parts(n, d)) text += part.text;
    return text;
}

VoteNames::VoteNames(const VotesOptions& options, const sql::Grammar& grammar)
    : VoteNames(options, grammar, sql::TableName::of(options.vote_table)) {}

VoteNames::VoteNames(const VotesOptions& options, const sql::Grammar& grammar,
                     const sql::TableName& votes)
    : item(sql::TableName::of(options.item_table).sql()),
      id(sql::quote_identifier(options.item_id)),
      count(options.item_count.empty() ? "" : sql::quote_identifier(options.item_count)),
      vote(votes.sql()),
      vote_item(sql::quote_identifier(options.vote_item)),
      vote_user(sql::quote_identifier(options.vote_user)),
      value(sql::quote_identifier(options.vote_value)),
      previous(sql::quote_identifier(options.vote_previous)),
      version(sql::quote_identifier(options.vote_version)),
      anonymous_vote(sql::TableName::of(anonymous_options(options).vote_table).sql()),
      anonymous_user(sql::quote_identifier(anonymous_options(options).vote_user)),
      cell(votes.beside("_cell").sql()),
      live(votes.beside("_live").sql()),
      meta(votes.beside("_meta").sql()),
      journal(votes.beside("_journal").sql()),
      journal_index(votes.beside("_by_item").sql()),
      journal_index_name(sql::quote_identifier(votes.beside("_by_item").name)),
      count_view(votes.beside("_count").sql()),
      sync(votes.beside("_sync").sql()),
      recount(votes.beside("_recount").sql()),
      item_type(grammar.type(column_type(options.item_type))),
      user_type(grammar.type(column_type(options.user_type))),
      foreign_key(options.foreign_key),
      item_parameter(sql::Grammar::parameter_type(column_type(options.item_type))),
      user_parameter(sql::Grammar::parameter_type(column_type(options.user_type))) {}

VoteNames VoteNames::anonymous(const sql::Grammar& grammar) const {
    VoteNames names{*this};
    names.vote = anonymous_vote;
    names.vote_user = anonymous_user;
    names.user_type = grammar.type(sql::ColumnType::text);
    names.user_parameter = sql::Grammar::parameter_type(sql::ColumnType::text);
    return names;
}

sql::Names to_names(const VoteNames& n) {
    return {{"item", n.item},
            {"id", n.id},
            {"count", n.count},
            {"vote", n.vote},
            {"vote_item", n.vote_item},
            {"vote_user", n.vote_user},
            {"value", n.value},
            {"previous", n.previous},
            {"version", n.version},
            {"anonymous_vote", n.anonymous_vote},
            {"anonymous_user", n.anonymous_user},
            {"cell", n.cell},
            {"live", n.live},
            {"meta", n.meta},
            {"journal", n.journal},
            {"journal_index", n.journal_index},
            {"journal_index_name", n.journal_index_name},
            {"count_view", n.count_view},
            {"sync", n.sync},
            {"recount", n.recount},
            {"item_type", n.item_type},
            {"user_type", n.user_type},
            {"foreign_key", sql::flag(n.foreign_key)},
            {"has_count", sql::flag(!n.count.empty())},
            {"item_parameter", std::string{n.item_parameter}},
            {"user_parameter", std::string{n.user_parameter}},
            {"integer_items", sql::flag(n.item_parameter == "bigint")},
            {"integer_users", sql::flag(n.user_parameter == "bigint")},
            {"opening_slot", std::to_string(kOpeningSlot)},
            {"fold_slot", std::to_string(kFoldSlot)}};
}

sql::Statements vote_statements(std::string_view file, const VoteNames& n, const sql::Grammar& g,
                                sql::Names more) {
    more.merge(to_names(n));
    return {{file, vote_sql::kPartsSql, g.words()}, std::move(more)};
}

namespace {

std::string lock_vote_text(const VoteNames& n, const VoteDialect& d) {
    return vote_statements(vote_sql::kReadsSql, n, d.grammar())["lock_vote"];
}

}  // namespace

Layout::Layout(const VotesOptions& options, sql::Dialect dialect)
    : Layout(options, VoteNames{options, dialect.grammar()}, hotcount::vote_dialect(dialect)) {}

sql::Dialect Layout::dialect() const { return dialect_.grammar().dialect(); }

Result<CountedByTriggers> Layout::counted_by_triggers(sql::Connection& connection) const {
    return dialect_.outside_triggers().ours(connection, options_, triggers_seen_);
}

Layout::Layout(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : Layout(options, n, d, vote_statements(vote_sql::kCountsSql, n, d.grammar()),
             vote_statements(vote_sql::kMarksSql, n, d.grammar(),
                             {{"place", "?1"}, {"strategy", "?2"}, {"route", "?3"}})) {}

Layout::Layout(const VotesOptions& options, const VoteNames& n, const VoteDialect& d,
               const sql::Statements& counts, const sql::Statements& marks)
    : counts_in_items(!n.count.empty()),
      add_item(counts["add_item"]),
      bump_item(counts["bump_item"]),
      bump_cell(counts["bump_cell"]),
      insert_cell(counts["insert_cell"]),
      fold_item(counts["fold_item"]),
      fold_lagging(d.fold_lagging(n)),
      lock_item(counts["lock_item"]),
      keep_item(counts["keep_item"]),
      reconcile_alone(marks["reconcile_alone"]),
      note_settling(marks["note_settling"]),
      count_in_item(counts["count_in_item"]),
      append(counts["append"]),
      read_place(marks["read_place"]),
      read_route(marks["read_route"]),
      hold_route(marks["hold_route"]),
      hold_fence(marks["hold_fence"]),
      read_strategy(marks["read_strategy"]),
      read_folded(marks["read_folded"]),
      write_marks(marks["write_marks"]),
      read_move(marks["read_move"]),
      forget_move(marks["forget_move"]),
      lock_vote(lock_vote_text(n, d)),
      lock_anonymous_vote(lock_vote_text(n.anonymous(d.grammar()), d)),
      find_table(d.grammar().find_table("?1", "?2")),
      lock_fold(d.lock_fold(n)),
      lock_all(d.lock_all(n)),
      settle(settle_text(n, d, count_place(options, d.grammar().dialect()))),
      options_(options),
      place_(count_place(options, d.grammar().dialect())),
      dialect_(d),
      schema_(schema_text(n, d)) {}

}  // namespace hotcount

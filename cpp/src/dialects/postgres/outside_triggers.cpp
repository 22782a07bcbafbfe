// Triggers of the vote tables on PostgreSQL (triggers.sql).
#include "votes/tables/outside_triggers.hpp"

#include <algorithm>
#include <array>

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// In the function's body, by which hotcount recognizes its own function.
constexpr std::string_view kOurs = "-- hotcount: counts what others write";

std::string function_name(const VotesOptions& options) {
    return sql::TableName::of(options.vote_table).beside("_hotcount").sql();
}

sql::Statements triggers_sql(const VotesOptions& options, const VoteNames& n) {
    const std::string function = function_name(options);
    return postgres_statements(sql::postgres::kTriggersSql, n, options,
                               {{"function", function}, {"function_literal", literal(function)}});
}

// PostgreSQL's triggers are named within their table.
constexpr std::array<const char*, 4> kEvents{"deleted", "emptied", "inserted", "updated"};
constexpr std::size_t kOfDeletes = 2;

class PostgresOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection& connection,
                               const VotesOptions& options) const override {
        FoundTriggers found;
        HOTCOUNT_TRY(find_rights(connection, options, found));
        HOTCOUNT_TRY(find_triggers(connection, options, found));
        HOTCOUNT_TRY(find_cascades(connection, options, found));
        return found;
    }

    std::string own_write(const std::string& statement) const override {
        return std::string{sql::postgres_grammar().own_write()} + statement;
    }

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        const sql::Statements sql = triggers_sql(options, n);
        const bool installs = form != OutsideWrites::none;
        std::string text;
        if (found.form != OutsideWrites::none || !found.ours.empty()) text = sql["lock_tables"];
        if (installs) text += sql["function"];
        for (const std::string& table : {n.vote, n.anonymous_vote}) {
            text += sql.with("drop_triggers", {{"table", table}});
            if (!installs) continue;
            text += sql.with("create_triggers",
                             {{"table", table},
                              {"by_rows", sql::flag(found.is_partitioned && table == n.vote)},
                              {"counts", sql::flag(form == OutsideWrites::count)}});
        }
        if (!installs) text += sql["drop_function"];
        return text + outside_mark(n, sql::postgres_grammar(), form);
    }

    std::string_view blind_to(OutsideWrites form) const override {
        static constexpr std::string_view kAlways =
            "rows written with session_replication_role = replica or with triggers disabled, and "
            "partitions that are attached, detached or truncated by themselves";
        static const std::string kForDeletes =
            "inserted and updated rows, COPY, " + std::string{kAlways};
        return form == OutsideWrites::deletes ? std::string_view{kForDeletes} : kAlways;
    }

  private:
    static Result<void> find_rights(sql::Connection& connection, const VotesOptions& options,
                                    FoundTriggers& found) {
        static const sql::Statement kRights{postgres_catalog()["rights"]};
        const auto votes = sql::TableName::of(options.vote_table);
        const std::string table = votes.sql();
        const std::string journal = votes.beside("_journal").sql();
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            found.is_partitioned = row.integer(0) != 0;
            std::string lacks;
            if (row.integer(1) == 0) lacks = "TRIGGER privilege on table " + options.vote_table;
            if (row.integer(2) == 0) lacks = "CREATE privilege on the schema of the votes";
            if (row.integer(3) == 0) lacks = "INSERT privilege on table " + journal;
            if (!lacks.empty()) {
                found.refused = "this role has no " + lacks +
                                ": the owner grants it, or runs what migration() prints";
            }
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(kRights, {std::string_view{table}, std::string_view{journal}}, see));
        return {};
    }

    static Result<void> find_triggers(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kTriggers{postgres_catalog()["triggers"]};
        static const sql::Statement kFunction{postgres_catalog()["other_function"]};
        const auto votes = sql::TableName::of(options.vote_table);
        const std::string table = votes.sql();
        const std::string anonymous = votes.beside("_anonymous").sql();
        std::array<std::size_t, kEvents.size()> working{};
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            const std::string name{row.text(0)};
            for (std::size_t event = 0; event < kEvents.size(); ++event) {
                if (name != std::string{"hotcount_"} + kEvents.at(event)) continue;
                if (row.integer(1) == 0) {
                    found.taken = "trigger " + name + " of table " + options.vote_table;
                    continue;
                }
                found.ours.push_back(name);
                if (row.integer(2) != 0) ++working.at(event);
                if (row.integer(3) == 0) {
                    found.refused =
                        "only the owner of table " + options.vote_table + " replaces its triggers";
                }
            }
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kTriggers, {std::string_view{table}, std::string_view{anonymous}, kOurs}, see));
        if (!found.ours.empty()) {
            constexpr std::size_t kTables = 2;
            const bool counts = std::find(found.ours.begin(), found.ours.end(),
                                          "hotcount_inserted") != found.ours.end();
            const std::size_t events = counts ? kEvents.size() : kOfDeletes;
            const OutsideWrites form = counts ? OutsideWrites::count : OutsideWrites::deletes;
            const bool whole = std::all_of(working.begin(), working.begin() + events,
                                           [](std::size_t each) { return each == kTables; });
            if (whole) found.form = form;
        }
        const std::string function = function_name(options);
        const sql::RowVisitor see_function = [&](const sql::Row& row) -> Result<void> {
            found.taken = "function " + std::string{row.text(0)};
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(kFunction, {std::string_view{function}, kOurs}, see_function));
        return {};
    }

    static Result<void> find_cascades(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kCascades{postgres_catalog()["foreign_keys"]};
        const std::string table = sql::TableName::of(options.vote_table).sql();
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            const auto rule = [](std::string_view code) -> std::string_view {
                if (code == "c") return "CASCADE";
                if (code == "n") return "SET NULL";
                return code == "d" ? "SET DEFAULT" : "";
            };
            const std::string name{row.text(0)};
            note_key(found, name, rule(row.text(1)), rule(row.text(2)), row.integer(3) != 0);
            if (row.text(1) == "c" && row.integer(4) != 0) {
                found.refused = "foreign key " + name +
                                " refers to the vote table itself, and its cascades cannot be "
                                "told from deletions of hotcount's";
            }
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kCascades, {std::string_view{table}, std::string_view{options.vote_item}}, see));
        return {};
    }
};

}  // namespace

const OutsideTriggers& postgres_outside_triggers() {
    static const PostgresOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount

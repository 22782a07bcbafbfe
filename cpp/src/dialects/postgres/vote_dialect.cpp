// PostgreSQL's VoteDialect: its tables and locks, and counts read through arrays.
#include "votes/tables/vote_dialect.hpp"

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/count_reader.hpp"
#include "votes/tables/sync_pages.hpp"

namespace hotcount {
namespace {

sql::Statements journal_sql(const VoteNames& n) {
    return postgres_statements(sql::postgres::kJournalSql, n, {});
}
sql::Statements counts_sql(const VotesOptions& options, const VoteNames& n) {
    return postgres_statements(sql::postgres::kCountsSql, n, options);
}
sql::Names count_of_each(const VotesOptions& options, const VoteNames& n) {
    const CountPlace place = count_place(options, sql::postgres_grammar().dialect());
    return {
        {"select", select_count(n, sql::postgres_grammar(), place, "hc_b.item", "hc_b.number")}};
}

// Two compared columns must have one collation, or one of them the database's own. So hotcount's
// columns take the collation of the existing columns; empty if those have the default: then "C"
// does.
Result<std::string> text_type(sql::Connection& connection, const VotesOptions& options) {
    static const sql::Statement kCollations{postgres_catalog()["collations"]};
    const auto items = sql::TableName::of(options.item_table);
    const auto votes = sql::TableName::of(options.vote_table);
    const auto cells = votes.beside("_cell");
    std::string collation;
    std::string first;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string column{row.text(1)};
        if (row.integer(2) == 0) {
            return make_error(ErrorCode::config,
                              "column " + column + " has the nondeterministic collation " +
                                  std::string{row.text(0)} +
                                  ", by which different ids are one item; ids are told apart by "
                                  "their bytes: give it a deterministic one");
        }
        if (!collation.empty() && row.text(0) != collation) {
            return make_error(ErrorCode::config,
                              "columns " + first + " and " + column + " have the collations " +
                                  collation + " and " + std::string{row.text(0)} +
                                  ", and PostgreSQL compares no two: give them the same one");
        }
        collation = row.text(0);
        first = column;
        return {};
    };
    HOTCOUNT_TRY(connection.query(
        kCollations,
        {items.sql(), items.text(), std::string_view{options.item_id}, votes.sql(), votes.text(),
         std::string_view{options.vote_item}, cells.sql(), cells.text()},
        see));
    return collation.empty() ? std::string{} : "TEXT COLLATE " + collation;
}

class PostgresVotes final : public VoteDialect {
  public:
    const sql::Grammar& grammar() const override { return sql::postgres_grammar(); }

    Result<bool> tells_ids_apart(sql::Connection& connection,
                                 const VotesOptions& options) const override {
        static const sql::Statement kAlike{postgres_catalog()["alike"]};
        const VoteNames n{options, grammar()};
        bool apart = true;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            apart = row.integer(0) == 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kAlike,
            {std::string_view{n.item}, std::string_view{options.item_id}, std::string_view{n.vote},
             std::string_view{options.vote_item}, std::string_view{options.vote_user}},
            see));
        return apart;
    }

    std::string journal_table(const VoteNames& n) const override {
        return journal_sql(n)["journal_table"];
    }
    const Adopter& adopter() const override { return postgres_adopter(); }
    const OutsideTriggers& outside_triggers() const override { return postgres_outside_triggers(); }
    std::string lock_fold(const VoteNames& n) const override { return journal_sql(n)["lock_fold"]; }
    std::string lock_all(const VoteNames& n) const override { return journal_sql(n)["lock_votes"]; }
    std::string lock_items(const VoteNames& n) const override {
        return journal_sql(n)["lock_items"];
    }

    BulkStatement read_counts(const VotesOptions& options, const VoteNames& n) const override {
        return BulkStatement{counts_sql(options, n).with("counts", count_of_each(options, n))};
    }
    std::optional<sql::Statement> read_counts_of_array(const VotesOptions& options,
                                                       const VoteNames& n) const override {
        return sql::Statement{
            counts_sql(options, n).with("counts_of_array", count_of_each(options, n))};
    }
    std::optional<sql::Statement> select_for_array(
        const VotesOptions& options, const NumberedReads::Select& select) const override {
        const VoteNames n{options, grammar()};
        return sql::Statement{
            counts_sql(options, n)
                .with("select_of_array", {{"select", select("hc_b.item", "hc_b.number")}})};
    }
    std::optional<sql::Statement> get_of_array(const VotesOptions& options,
                                               const VoteNames& n) const override {
        return sql::Statement{
            counts_sql(options, n)
                .with("votes_of_array",
                      {{"user_parameter", id_parameter(grammar(), "?2", options.user_type)}})};
    }
    std::string find_index() const override { return postgres_catalog()["find_index"]; }
    std::string_view checks_foreign_keys() const override {
        return "current_setting('session_replication_role') <> 'replica'";
    }
    std::string delete_without_user(const VoteNames& n) const override {
        return postgres_statements(sql::postgres::kVotesSql, n, {})["delete_without_user"];
    }
    std::optional<sql::Statement> create_items(const VotesOptions& options,
                                               const VoteNames& n) const override {
        return sql::Statement{
            postgres_statements(sql::postgres::kVotesSql, n, options)["create_items"]};
    }
    std::string id_array(std::span<const sql::Id> ids) const override { return array_literal(ids); }

    Result<std::string> item_type(sql::Connection& connection,
                                  const VotesOptions& options) const override {
        if (options.item_type != IdType::text) return std::string{};
        return text_type(connection, options);
    }

    std::unique_ptr<VoteWriter> vote_writer(std::shared_ptr<const Layout> layout,
                                            const VotesOptions& options,
                                            NoteAppended appended) const override {
        return make_postgres_vote_writer(std::move(layout), options, std::move(appended));
    }
    std::unique_ptr<SyncPages> sync_pages(const VotesOptions& options,
                                          const VoteNames& names) const override {
        return make_postgres_sync_pages(options, names);
    }
    std::unique_ptr<Journal> journal(std::shared_ptr<sql::Database> database,
                                     const VotesOptions& options) const override {
        return make_postgres_journal(std::move(database), options);
    }
};

}  // namespace

const VoteDialect& postgres_votes() {
    static const PostgresVotes kVotes;
    return kVotes;
}

}  // namespace hotcount

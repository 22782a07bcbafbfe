// What votes ask of PostgreSQL: its tables and locks, and counts read through arrays.
#include "votes/tables/vote_dialect.hpp"

#include <algorithm>

#include "ballots.hpp"
#include "dialect.hpp"
#include "single_vote.hpp"
#include "sql/table_name.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/count_reader.hpp"
#include "votes/tables/sync_pages.hpp"

namespace hotcount {
namespace {

// A table's number in the catalogue.
std::string regclass(const std::string& table) {
    return "CAST(" + literal(table) + " AS regclass)";
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

// The count of each item in the table that follows, and whether the level is SERIALIZABLE.
constexpr const char* kOfAll =
    "SELECT hc_c.*, CAST(current_setting('transaction_isolation') = 'serializable' AS int) FROM ";

std::string each_of(const NumberedReads::Select& select) {
    return " AS hc_b (number, item) CROSS JOIN LATERAL (" + select("hc_b.item", "hc_b.number") +
           ") AS hc_c";
}

NumberedReads::Select counts_of(const VotesOptions& options, const VoteNames& n) {
    return [n, place = count_place(options, sql::postgres_grammar().dialect())](
               const std::string& item, const std::string& number) {
        return select_count(n, place, item, number);
    };
}

std::string items_of_array(const VotesOptions& options) {
    return "(SELECT number, item FROM unnest(" + array_of(options.item_type, "?1") +
           ") WITH ORDINALITY AS hc_a (item, number))";
}

// Two columns that are compared must have one collation, or one of them the database's own. So what
// the columns that exist have, ours get too. Empty if they have none: "C" does for ours then.
Result<std::string> text_type(sql::Connection& connection, const VotesOptions& options) {
    static const sql::Statement kCollations{
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname), "
        "t.shown || '.' || quote_ident(t.of_column), "
        "CAST(c.collisdeterministic AS int) FROM (VALUES (1, CAST(?1 AS text), CAST(?2 AS text), "
        "CAST(?3 AS text)), (2, CAST(?4 AS text), CAST(?5 AS text), CAST(?6 AS text)), (3, "
        "CAST(?7 AS text), CAST(?8 AS text), 'item')) AS t (part, of_table, shown, of_column) JOIN "
        "pg_attribute AS a ON a.attrelid = to_regclass(t.of_table) AND a.attname = t.of_column "
        "JOIN pg_collation AS c ON c.oid = a.attcollation JOIN pg_namespace AS n ON n.oid = "
        "c.collnamespace WHERE c.collname <> 'default' ORDER BY t.part"};
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
        static const sql::Statement kAlike{
            "SELECT COUNT(*) FROM (VALUES (CAST(?1 AS text), CAST(?2 AS text)), (?3, ?4), (?3, "
            "?5)) "
            "AS t (of_table, of_column) JOIN pg_attribute AS a ON a.attrelid = "
            "to_regclass(t.of_table) AND a.attname = t.of_column JOIN pg_type AS y ON y.oid = "
            "a.atttypid LEFT JOIN pg_collation AS c ON c.oid = a.attcollation WHERE y.typname = "
            "'citext' OR NOT COALESCE(c.collisdeterministic, TRUE)"};
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

    // The index is for exact reads: a sum over one item of 7,000 pending rows took 300 us without it
    // and 30 with it, and 64 votes of as many items 8 % more of the server's time (PostgreSQL 15).
    // The identity is for logical replication: there is no key to tell deleted rows by.
    std::string journal_table(const VoteNames& n) const override {
        return "CREATE TABLE IF NOT EXISTS " + n.journal + " (item " + n.item_type +
               " NOT NULL, diff " + grammar().type(sql::ColumnType::integer) + " NOT NULL);\n" +
               // CREATE INDEX IF NOT EXISTS would lock the table before it looks.
               "DO $hotcount$ BEGIN IF to_regclass(" + literal(n.journal_index) +
               ") IS NULL THEN CREATE INDEX " + n.journal_index_name + " ON " + n.journal +
               " (item); END IF; IF (SELECT relreplident <> 'f' FROM pg_class WHERE oid = " +
               regclass(n.journal) + ") THEN ALTER TABLE " + n.journal +
               " REPLICA IDENTITY FULL; END IF; END $hotcount$;\n";
    }
    const Adopter& adopter() const override { return postgres_adopter(); }
    const OutsideTriggers& outside_triggers() const override { return postgres_outside_triggers(); }
    std::string lock_fold(const VoteNames& n) const override {
        return "SELECT pg_advisory_xact_lock(" + fold_lock_key(n) + ");\n";
    }
    // The marks first: who holds them has not touched the votes yet.
    std::string lock_all(const VoteNames& n) const override {
        return "SELECT value FROM " + n.meta + " ORDER BY name FOR UPDATE;\nLOCK TABLE " + n.vote +
               ", " + n.anonymous_vote + " IN SHARE ROW EXCLUSIVE MODE;\n";
    }
    std::string lock_items(const VoteNames& n) const override {
        return "LOCK TABLE " + n.item + " IN SHARE ROW EXCLUSIVE MODE";
    }
    std::string migration(const VoteNames& n, const std::string& old_mark,
                          const std::string& mark) const override {
        const std::string locks = "PERFORM pg_advisory_xact_lock(" + fold_lock_key(n) +
                                  "); PERFORM value FROM " + n.meta +
                                  " ORDER BY name FOR UPDATE; LOCK TABLE " + n.vote + ", " +
                                  n.anonymous_vote + " IN SHARE ROW EXCLUSIVE MODE; ";
        // At another level, what follows the locks would be read from a snapshot before them.
        const std::string level =
            "IF current_setting('transaction_isolation') <> 'read committed' THEN COMMIT; SET "
            "TRANSACTION ISOLATION LEVEL READ COMMITTED; END IF; ";
        return "DO $hotcount$ BEGIN IF " + old_mark + " THEN " + level + locks + "IF " + old_mark +
               " THEN " + one_line(settle_text(n, *this, CountPlace::journal, "")) + mark +
               " END IF; END IF; END $hotcount$;\n";
    }

    // Not an array: it would be planned anew each time, because its length makes a difference to the
    // plan. That took 80 us and the sum itself 30.
    BulkStatement read_counts(const VotesOptions& options, const VoteNames& n) const override {
        const std::string type{element_type(options.item_type)};
        return {kOfAll + std::string{"(VALUES "},
                [type](std::size_t first) {
                    const std::string number = std::to_string(first);
                    return "(" + number + ", CAST(?" + number + " AS " + type + "))";
                },
                1, ", ", ")" + each_of(counts_of(options, n))};
    }
    std::optional<sql::Statement> read_counts_of_array(const VotesOptions& options,
                                                       const VoteNames& n) const override {
        return sql::Statement{kOfAll + items_of_array(options) + each_of(counts_of(options, n))};
    }
    std::optional<sql::Statement> select_for_array(
        const VotesOptions& options, const NumberedReads::Select& select) const override {
        return sql::Statement{"SELECT hc_c.* FROM " + items_of_array(options) + each_of(select)};
    }
    // Each by the key, whatever the planner thinks of the table.
    std::optional<sql::Statement> get_of_array(const VotesOptions& options,
                                               const VoteNames& n) const override {
        return sql::Statement{"SELECT (SELECT " + n.value + " FROM " + n.vote + " WHERE " +
                              n.vote_item + " = hc_a.item AND " + n.vote_user + " = " +
                              id_parameter(grammar(), "?2", options.user_type) + ") FROM unnest(" +
                              array_of(options.item_type, "?1") +
                              ") WITH ORDINALITY AS hc_a (item, number) ORDER BY hc_a.number"};
    }
    std::string find_index() const override {
        return "SELECT COUNT(*) FROM pg_index AS x JOIN pg_attribute AS a ON a.attrelid = "
               "x.indrelid AND a.attnum = x.indkey[0] WHERE x.indrelid = to_regclass(CASE CAST(?1 "
               "AS text) WHEN '' THEN '' ELSE quote_ident(CAST(?1 AS text)) || '.' END || "
               "quote_ident(CAST(?2 AS text))) AND a.attname = CAST(?3 AS name) AND x.indisvalid "
               "AND x.indpred "
               "IS NULL";
    }
    std::string_view checks_foreign_keys() const override {
        return "current_setting('session_replication_role') <> 'replica'";
    }
    // The condition again, because partitions have the same ctids.
    std::string delete_nobodys(const VoteNames& n) const override {
        return std::string{grammar().own_write()} + "DELETE FROM " + n.vote +
               " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + n.vote + " WHERE " + nobodys(n) +
               " LIMIT ?3 FOR UPDATE)) AND " + nobodys(n);
    }
    std::optional<sql::Statement> create_items(const VotesOptions& options,
                                               const VoteNames& n) const override {
        return sql::Statement{create_items_text(n, options)};
    }
    std::string id_array(std::span<const sql::Id> ids) const override { return array_literal(ids); }

    Result<std::string> item_type(sql::Connection& connection,
                                  const VotesOptions& options) const override {
        if (options.item_type != IdType::text) return std::string{};
        return text_type(connection, options);
    }

    std::unique_ptr<VoteRows> vote_rows(std::shared_ptr<const Layout> layout,
                                        const VoteNames& names,
                                        const VotesOptions& options) const override {
        return make_postgres_vote_rows(std::move(layout), names, options);
    }
    std::shared_ptr<sql::BatchWriter> batch_writer(std::shared_ptr<const Layout>,
                                                   const VotesOptions& options,
                                                   NoteAppended appended) const override {
        return make_postgres_batch_writer(options, std::move(appended));
    }
    std::unique_ptr<SingleVote> single_vote(const VotesOptions& options) const override {
        return std::make_unique<PostgresSlottedVotes>(VoteNames{options, grammar()}, options);
    }
    std::shared_ptr<sql::BatchWriter> cached_batch_writer(
        std::shared_ptr<const Layout>, const VotesOptions& options) const override {
        return make_postgres_batch_writer(options);
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

std::string fold_lock_key(const VoteNames& n) {
    // The table's own number: two sets of tables in one database do not wait for each other.
    return "CAST(CAST(" + regclass(n.journal) + " AS oid) AS int), 1";
}

const VoteDialect& postgres_votes() {
    static const PostgresVotes kVotes;
    return kVotes;
}

}  // namespace hotcount

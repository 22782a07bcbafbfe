// SQLite's grammar, and votes on SQLite. A transaction is the only writer, so it reads a row and then
// writes it.
#include <algorithm>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/sqlite/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/statements.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount::sql {
namespace {

class SqliteGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "sqlite"; }
    std::string_view words() const override { return sqlite::kWordsSql; }

    bool has_schemas() const override { return false; }
    bool sums_in_decimals() const override { return false; }
    bool locks_rows() const override { return false; }
    std::vector<std::string> settings() const override {
        return {
            "SELECT 'version', sqlite_version()",
            "SELECT 'journal_mode', CAST(journal_mode AS TEXT) FROM pragma_journal_mode",
            "SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous",
        };
    }
};

}  // namespace

const Statements& sqlite_catalog() {
    static const Statements kCatalog{sqlite::kCatalogSql,
                                     {{"mark", "'" + std::string{kVoteTrigger} + "'"}}};
    return kCatalog;
}

const Statement& other_triggers() {
    static const Statement kOthers{sqlite_catalog()["other_triggers"]};
    return kOthers;
}

const Grammar& sqlite_grammar() {
    static const SqliteGrammar kGrammar;
    return kGrammar;
}

}  // namespace hotcount::sql

namespace hotcount {
namespace {

sql::Statements statements(const VoteNames& n) {
    return vote_statements(sql::sqlite::kVotesSql, n, sql::sqlite_grammar());
}

class SqliteVoteWriter final : public VoteWriter {
  public:
    SqliteVoteWriter(std::shared_ptr<const Layout> layout, const VoteNames& n,
                     const VotesOptions& options)
        : layout_(std::move(layout)),
          options_(options),
          of_users_(n, options),
          anonymous_(n.anonymous(sql::sqlite_grammar()), anonymous_options(options)) {}

    Result<Cast> set(sql::Connection& connection, const Ballot& ballot) override {
        HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::route));
        return write_one(connection, ballot);
    }

    Result<void> set_all(sql::Connection& connection, std::span<QueuedVote* const> votes) override {
        std::vector<QueuedVote*> ordered;
        // Texts in the order of the calls: two spellings may be one user's, for one item.
        if (options_.item_type == IdType::text || options_.user_type == IdType::text) {
            ordered.assign(votes.begin(), votes.end());
            std::sort(ordered.begin(), ordered.end(),
                      [](const auto* a, const auto* b) { return a->place < b->place; });
            votes = ordered;
        }
        for (QueuedVote* const vote : votes) {
            auto cast = write_one(connection, vote->ballot);
            if (cast) {
                vote->cast = *cast;
            } else if (connection.in_transaction() && may_fail_alone(cast.error())) {
                // SQLite undoes the one statement and keeps the transaction. Not if a trigger
                // says RAISE(FAIL): then the row stays, so all is rolled back.
                vote->error = std::move(cast).error();
            } else {
                return std::move(cast).error();
            }
        }
        return {};
    }

  private:
    // The statements over one of the two vote tables.
    struct Table {
        Table(const VoteNames& n, const VotesOptions& options) : Table(statements(n), options) {}
        Table(const sql::Statements& sql, const VotesOptions& options)
            : read(sql["read"]),
              insert(sql["insert"]),
              update(sql["update"]),
              find_item(sql["find_item"]),
              vote_table(options.vote_table),
              vote_user(options.vote_user) {}
        sql::Statement read;
        sql::Statement insert;
        sql::Statement update;
        sql::Statement find_item;
        std::string vote_table;
        std::string vote_user;
    };

    const Table& table_of(const Ballot& ballot) const {
        return ballot.by_op_id ? anonymous_ : of_users_;
    }

    static bool may_fail_alone(const Error& error) {
        if (error.code == ErrorCode::overflow) return true;
        return error.code == ErrorCode::integrity &&
               error.server_code != "SQLITE_CONSTRAINT_TRIGGER";
    }

    Result<Cast> write_one(sql::Connection& connection, const Ballot& ballot) const {
        std::optional<std::int64_t> previous;
        std::optional<std::int64_t> seen_version;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            previous = row.integer(0);
            if (!row.is_null(1)) seen_version = row.integer(1);
            return {};
        };
        const Table& table = table_of(ballot);
        const sql::Value item = sql::to_value(ballot.item);
        const sql::Value user = sql::to_value(ballot.user);
        if (auto found = connection.query(table.read, {item, user}, read); !found) {
            return explain_missing_table(std::move(found).error());
        }
        const sql::Value version = ballot.version ? sql::Value{*ballot.version} : sql::Value{};
        if (!previous) {
            auto inserted = connection.execute(table.insert, {item, user, ballot.value, version});
            if (!inserted) return explain(connection, std::move(inserted).error(), ballot);
            return Cast{ballot.value != 0, ballot.value != 0, 0, ballot.value};
        }
        const bool as_asked = ballot.version ? seen_version && *seen_version >= *ballot.version
                                             : *previous == ballot.value;
        if (as_asked) return Cast{*previous != 0, false, *previous, *previous};
        auto updated = connection.execute(table.update, {item, user, ballot.value, version});
        if (!updated) return explain(connection, std::move(updated).error(), ballot);
        return Cast{ballot.value != 0, *previous != ballot.value, *previous, ballot.value};
    }

    Error explain(sql::Connection& connection, Error error, const Ballot& ballot) const {
        // A trigger of hotcount's adds to the count, which overflowed.
        if (error.code == ErrorCode::overflow) return count_overflow(ballot.item);
        static const sql::Statement kFindUserKey{sql::sqlite_catalog()["find_key"]};
        const Table& table = table_of(ballot);
        std::string_view missing;
        if (error.server_code == "SQLITE_CONSTRAINT_FOREIGNKEY") {
            // The error does not name the key, and the vote table may have other foreign keys.
            if (!finds(connection, table.find_item, {sql::to_value(ballot.item)})) {
                missing = "item";
            } else if (finds(connection, kFindUserKey, {table.vote_table, table.vote_user})) {
                missing = "user";
            }
        }
        return explain_refusal(std::move(error), ballot, missing);
    }

    static bool finds(sql::Connection& connection, const sql::Statement& statement,
                      std::initializer_list<sql::Value> parameters) {
        bool found = false;
        const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
            found = true;
            return {};
        };
        // If this query fails, the vote fails anyway.
        (void)connection.query(statement, parameters, see);
        return found;
    }

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const Table of_users_;
    const Table anonymous_;
};

class SqliteVotes final : public VoteDialect {
  public:
    const sql::Grammar& grammar() const override { return sql::sqlite_grammar(); }
    bool is_server() const override { return false; }
    // The application's table keeps its rowid.
    std::string item_table_end() const override { return {}; }
    std::string journal_table(const VoteNames&) const override { return {}; }
    const Adopter& adopter() const override { return sqlite_adopter(); }
    const OutsideTriggers& outside_triggers() const override { return sqlite_outside_triggers(); }
    std::string lock_fold(const VoteNames&) const override { return {}; }
    std::string lock_all(const VoteNames&) const override { return {}; }
    std::string lock_items(const VoteNames&) const override { return {}; }
    Result<bool> tells_ids_apart(sql::Connection& connection,
                                 const VotesOptions& options) const override {
        const sql::Statement look{statements(VoteNames{options, grammar()})["takes_ids_for_equal"]};
        bool apart = true;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            apart = row.integer(0) == 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(look, {}, see));
        return apart;
    }
    // Two columns that are compared must agree on what is one id.
    Result<std::string> item_type(sql::Connection& connection,
                                  const VotesOptions& options) const override {
        if (options.item_type != IdType::text) return std::string{};
        std::string type;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            type = row.text(0);
            return {};
        };
        const sql::Statement look{statements(VoteNames{options, grammar()})["item_type"]};
        auto looked = connection.query(look, {}, see);
        if (!looked && looked.error().condition != SqlCondition::undefined_table) {
            return std::move(looked).error();
        }
        return type;
    }
    std::string find_index() const override { return sql::sqlite_catalog()["find_index"]; }
    std::string delete_without_user(const VoteNames& n) const override {
        return statements(n)["delete_without_user"];
    }
    std::unique_ptr<VoteWriter> vote_writer(std::shared_ptr<const Layout> layout,
                                            const VotesOptions& options,
                                            NoteAppended) const override {
        return std::make_unique<SqliteVoteWriter>(std::move(layout), VoteNames{options, grammar()},
                                                  options);
    }
    std::unique_ptr<Journal> journal(std::shared_ptr<sql::Database>,
                                     const VotesOptions&) const override {
        return nullptr;
    }
};

}  // namespace

const VoteDialect& sqlite_votes() {
    static const SqliteVotes kVotes;
    return kVotes;
}

}  // namespace hotcount

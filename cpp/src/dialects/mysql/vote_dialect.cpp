// The VoteDialect of MariaDB and MySQL: tables, locks, and the classes that write votes and counts.
#include "votes/tables/vote_dialect.hpp"

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "vote_rows.hpp"
#include "votes/journal/journal.hpp"
#include "votes/tables/sync_pages.hpp"

namespace hotcount {
namespace {

class MysqlVotes final : public VoteDialect {
  public:
    const sql::Grammar& grammar() const override { return sql::mysql_grammar(); }

    std::string journal_table(const VoteNames& n) const override { return tables(n)["journal"]; }
    const Adopter& adopter() const override { return mysql_adopter(); }
    const OutsideTriggers& outside_triggers() const override { return mysql_outside_triggers(); }
    std::string lock_fold(const VoteNames& n) const override { return tables(n)["lock_fold"]; }
    std::string lock_all(const VoteNames& n) const override { return tables(n)["lock_all"]; }
    std::string lock_items(const VoteNames& n) const override { return tables(n)["lock_items"]; }
    Result<void> note_move(sql::Connection& connection, const VoteNames& names) const override {
        return in_cluster(connection, tables(names)["note_move"]);
    }
    Result<void> pass_other_nodes(sql::Connection& connection,
                                  const VoteNames& names) const override {
        return in_cluster(connection, tables(names)["pass_other_nodes"]);
    }
    std::string fold_lagging(const VoteNames& n) const override { return tables(n)["lagging"]; }
    bool folds_one_by_one() const override { return true; }
    std::string find_index() const override { return sql::mysql_catalog()["find_index"]; }
    std::string_view checks_foreign_keys() const override { return "@@foreign_key_checks = 1"; }
    std::string delete_without_user(const VoteNames& n) const override {
        return tables(n)["delete_without_user"];
    }

    Result<std::string> item_type(sql::Connection& connection,
                                  const VotesOptions& options) const override {
        return mysql_item_type(connection, options);
    }
    std::unique_ptr<VoteWriter> vote_writer(std::shared_ptr<const Layout> layout,
                                            const VotesOptions& options,
                                            NoteAppended appended) const override {
        return make_mysql_vote_writer(std::move(layout), options, std::move(appended));
    }
    Result<bool> tells_ids_apart(sql::Connection& connection,
                                 const VotesOptions& options) const override {
        return KeyColumns{options}.are_bytes(connection);
    }
    std::unique_ptr<SyncPages> sync_pages(const VotesOptions& options,
                                          const VoteNames& names) const override {
        return make_mysql_sync_pages(options, names);
    }
    std::unique_ptr<Journal> journal(std::shared_ptr<sql::Database> database,
                                     const VotesOptions& options) const override {
        return make_mysql_journal(std::move(database), options);
    }

  private:
    // Runs the script on a node of Galera, and nothing elsewhere.
    static Result<void> in_cluster(sql::Connection& connection, const std::string& script) {
        static const sql::Statement kIsInCluster{
            sql::Statements{sql::mysql::kSessionSql, {}}["is_in_cluster"]};
        bool is_node = false;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            is_node = row.integer(0) != 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(kIsInCluster, {}, see));
        return is_node ? connection.run_script(script) : Result<void>{};
    }
    sql::Statements tables(const VoteNames& n) const {
        return vote_statements(sql::mysql::kTablesSql, n, grammar());
    }
};

}  // namespace

const VoteDialect& mysql_votes() {
    static const MysqlVotes kVotes;
    return kVotes;
}

}  // namespace hotcount

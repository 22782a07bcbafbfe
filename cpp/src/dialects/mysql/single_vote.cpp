// A vote and its count in one compound statement: one round trip to MariaDB instead of four or five.
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "dialect.hpp"
#include "vote_rows.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// Makes the statement that counts `difference` in the strategy's place.
using CountText = std::function<std::string(const std::string& difference)>;

// ?1 item, ?2 user, ?3 value, ?4 version. Returns nothing for a new vote, the old and the new
// value for one that was there, and NULLs if nothing was done. The upsert locks the row, so a
// later read without a lock reads what the upsert left. The variables' names are no column's
// names.
std::string one_vote(const VoteNames& n, const VotesOptions& options,
                     const std::string& item_is_there, const CountText& count) {
    return "BEGIN NOT ATOMIC DECLARE hotcount_was BIGINT; DECLARE hotcount_is BIGINT; INSERT "
           "INTO " +
           n.vote + " (" + n.vote_item + ", " + n.vote_user + ", " + n.value + ", " + n.previous +
           ", " + n.version + ") SELECT ?1, ?2, ?3, 0, ?4 FROM DUAL WHERE (SELECT value FROM " +
           n.meta + " WHERE name = 'vote_route' LOCK IN SHARE MODE) = '" +
           vote_route(options, sql::mysql_grammar().dialect()) + "'" + item_is_there +
           mysql_on_duplicate(n) + "; CASE ROW_COUNT() WHEN 1 THEN IF ?3 <> 0 THEN " + count("?3") +
           " END IF; COMMIT; WHEN 2 THEN SELECT " + n.previous + ", " + n.value +
           " INTO hotcount_was, hotcount_is FROM " + n.vote + " WHERE " + n.vote_item +
           " = ?1 AND " + n.vote_user + " = ?2; IF hotcount_was <> hotcount_is THEN " +
           count("hotcount_is - hotcount_was") +
           " END IF; SELECT hotcount_was, hotcount_is; COMMIT; ELSE SELECT NULL, NULL; ROLLBACK; "
           "END CASE; END";
}

std::string item_is_there(const VoteNames& n, const std::string& past) {
    return " AND EXISTS (SELECT 1 FROM " + n.item + " WHERE " + n.id + " = ?1 LOCK IN SHARE MODE" +
           past + ")";
}

std::string batched_text(const VoteNames& n, const VotesOptions& options) {
    return one_vote(
        n, options, item_is_there(n, " SKIP LOCKED"), [&](const std::string& difference) {
            return "INSERT INTO " + n.journal + " (item, diff) VALUES (?1, " + difference + ");";
        });
}

// ?5 slot. If the vote table refers to the items, its foreign key finds a missing one.
std::string slotted_text(const VoteNames& n, const VotesOptions& options) {
    const bool looks = !options.foreign_key || options.missing_item == MissingItem::create;
    return one_vote(
        n, options, looks ? item_is_there(n, "") : "", [&](const std::string& difference) {
            return "UPDATE " + n.cell + " SET n = n + (" + difference +
                   "), ver = ver + 1 WHERE item = ?1 AND slot = ?5; IF ROW_COUNT() = 0 THEN INSERT "
                   "INTO " +
                   n.cell + " (item, slot, n, ver) VALUES (?1, ?5, " + difference +
                   ", 1) ON DUPLICATE KEY UPDATE n = n + VALUES(n), ver = ver + 1; END IF;";
        });
}

}  // namespace

MysqlOneVote::MysqlOneVote(const VotesOptions& options) : MysqlOneVote(options, Names{options}) {}

MysqlOneVote::Names::Names(const VotesOptions& options)
    : of_users(options, sql::mysql_grammar()),
      anonymous(of_users.anonymous(sql::mysql_grammar())) {}

MysqlOneVote::MysqlOneVote(const VotesOptions& options, const Names& names)
    : options_(options),
      of_users_(options.strategy == VoteStrategy::slotted ? slotted_text(names.of_users, options)
                                                          : batched_text(names.of_users, options)),
      anonymous_(options.strategy == VoteStrategy::slotted
                     ? slotted_text(names.anonymous, options)
                     : batched_text(names.anonymous, options)) {}

Result<bool> MysqlOneVote::write(sql::Connection& connection, const Ballot& ballot,
                                 std::int64_t slot, const sql::Alone& how, Cast& cast) const {
    bool written = true;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        written = !row.is_null(0);
        if (written) cast = mysql_cast(row.integer(0), row.integer(1));
        return {};
    };
    const std::array parameters{
        sql::to_value(ballot.item), sql::to_value(ballot.user), sql::Value{ballot.value},
        ballot.version ? sql::Value{*ballot.version} : sql::Value{}, sql::Value{slot}};
    auto ran =
        connection.run_alone(ballot.by_op_id ? anonymous_ : of_users_, parameters, &see, how);
    if (!ran) return explain_mysql_vote(std::move(ran).error(), options_, ballot);
    return written;
}

namespace {

class MysqlSingleVote final : public SingleVote {
  public:
    explicit MysqlSingleVote(const VotesOptions& options) : one_(options) {}

    Result<std::optional<Cast>> cast(sql::Database& database, const Ballot& ballot,
                                     std::int64_t slot, Deadline deadline) override {
        return sql::transact_alone(
            database, deadline, [&](sql::Connection& connection) -> Result<std::optional<Cast>> {
                HOTCOUNT_TRY_ASSIGN(const bool compound, compound_.known_to(connection));
                if (!compound) return std::optional<Cast>{};
                Cast cast = mysql_cast(0, ballot.value);
                HOTCOUNT_TRY_ASSIGN(const bool written, one_.write(connection, ballot, slot,
                                                                   sql::Alone{deadline}, cast));
                return written ? std::optional{cast} : std::nullopt;
            });
    }

  private:
    const MysqlOneVote one_;
    CompoundStatements compound_;
};

}  // namespace

std::unique_ptr<SingleVote> make_mysql_single_vote(const VotesOptions& options) {
    return std::make_unique<MysqlSingleVote>(options);
}

}  // namespace hotcount

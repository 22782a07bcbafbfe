// A vote and its count in one compound statement: one round trip to MariaDB instead of four or five.
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "vote_rows.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

std::string vote_alone(const VoteNames& n, const VotesOptions& options) {
    return mysql_statements(sql::mysql::kVoteRowsSql, n, options)["vote_alone"];
}

}  // namespace

MysqlOneVote::MysqlOneVote(const VotesOptions& options)
    : options_(options),
      of_users_(vote_alone(VoteNames{options, sql::mysql_grammar()}, options)),
      anonymous_(vote_alone(
          VoteNames{options, sql::mysql_grammar()}.anonymous(sql::mysql_grammar()), options)) {}

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

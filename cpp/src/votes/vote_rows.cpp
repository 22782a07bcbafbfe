#include "vote_rows.hpp"

#include "mysql_vote_rows.hpp"
#include "postgres_ballots.hpp"

namespace hotcount {

std::unique_ptr<VoteRows> make_vote_rows(std::shared_ptr<const Layout> layout,
                                         const VotesOptions& options) {
    if (layout->dialect() == sql::Dialect::mysql) {
        return make_mysql_vote_rows(std::move(layout), options);
    }
    if (layout->dialect() == sql::Dialect::postgres) {
        return make_postgres_vote_rows(std::move(layout), options);
    }
    return make_sqlite_vote_rows(std::move(layout), options);
}

Error explain_refusal(Error error, const Ballot& ballot, bool missing_item) {
    if (error.code != ErrorCode::integrity) return error;
    error.message += ": a vote of user " + sql::to_string(ballot.user) + " for item " +
                     sql::to_string(ballot.item);
    if (missing_item) error.message += ", which does not exist";
    return error;
}

}  // namespace hotcount

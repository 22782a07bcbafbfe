#include "single_vote.hpp"

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// The columns of a vote's row. From old_val on they are NULL if it was written.
enum Column : std::uint8_t {
    number,
    item_free,
    prev,
    val,
    old_val,
    old_version,
    there,
    mark,
    level
};
static_assert(number == kNumberColumn && level + 1 == kOutcomeColumns);

// A row that belongs to no vote makes the statement fail with an error that quotes this text
// (votes.sql).
constexpr std::string_view kOtherRow = "hc_other_row";

// As the upsert leaves it alone.
bool stays(const sql::Row& row, const Ballot& ballot) {
    if (row.is_null(old_val)) return false;
    if (!ballot.version) return row.integer(old_val) == ballot.value;
    return !row.is_null(old_version) && row.integer(old_version) >= *ballot.version;
}

}  // namespace

std::string single_vote(const VoteNames& n, const VotesOptions& options) {
    return postgres_statements(sql::postgres::kVotesSql, n, options)["single"];
}

VoteOutcome read_outcome(const sql::Row& row, const Ballot& ballot, std::string_view route) {
    using Kind = VoteOutcome::Kind;
    if (!row.is_null(val)) return {Kind::cast, cast_of(row, prev)};
    if (row.text(level) != "read committed") return {Kind::other_level};
    const std::string found{row.is_null(mark) ? "" : row.text(mark)};
    if (found != route) return {Kind::elsewhere, {}, found};
    if (row.text(there) != "t") return {Kind::missing};
    if (row.text(item_free) != "t") return {Kind::held};
    if (stays(row, ballot)) return {Kind::cast, unchanged_cast(row.integer(old_val))};
    return {Kind::overtaken};
}

Error explain_postgres_vote(Error error, const VotesOptions& options, const Ballot& ballot) {
    error = narrow_column(explain_missing_table(std::move(error)));
    if (error.message.find(kOtherRow) != std::string::npos) {
        error.message += "; " + unasked_row().message;
    }
    if (error.code == ErrorCode::overflow) {
        error.message += "; " + count_overflow(ballot.item).message;
    }
    return explain_postgres_key(std::move(error), options, ballot);
}

Error explain_postgres_key(Error error, const VotesOptions& options, const Ballot& ballot) {
    // In every language the server names the columns of the key. The vote table may have other
    // foreign keys.
    const auto is_of = [&](const std::string& column) {
        return error.server_code == "23503" &&
               error.message.find("(" + column + ")=(") != std::string::npos;
    };
    const char* const missing = is_of(options.vote_item)   ? "item"
                                : is_of(options.vote_user) ? "user"
                                                           : "";
    return explain_refusal(std::move(error), ballot, missing);
}

PostgresSlottedVotes::PostgresSlottedVotes(const VoteNames& n, const VotesOptions& options)
    : options_(options),
      route_(vote_route(options, sql::postgres_grammar().dialect())),
      of_users_(single_vote(n, options)),
      anonymous_(single_vote(n.anonymous(sql::postgres_grammar()), anonymous_options(options))),
      create_(postgres_statements(sql::postgres::kVotesSql, n, options)["create_items"]) {}

Result<VoteOutcome> PostgresSlottedVotes::attempt(sql::Database& database, const Ballot& ballot,
                                                  std::int64_t slot, Deadline deadline) {
    VoteOutcome outcome{VoteOutcome::Kind::overtaken};
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        outcome = read_outcome(row, ballot, route_);
        return {};
    };
    HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database.writer(deadline));
    const std::array<sql::Value, 5> parameters{
        sql::to_value(ballot.item), sql::to_value(ballot.user), ballot.value,
        ballot.version ? sql::Value{*ballot.version} : sql::Value{}, slot};
    HOTCOUNT_TRY(connection->run_alone(ballot.by_op_id ? anonymous_ : of_users_, parameters, &read,
                                       {deadline, wraps_.load(std::memory_order_relaxed)}));
    return outcome;
}

Result<std::optional<Cast>> PostgresSlottedVotes::cast(sql::Database& database,
                                                       const Ballot& ballot, std::int64_t slot,
                                                       Deadline deadline) {
    sql::Retry retry{database, deadline};
    bool created = false;
    for (int tries = 0; tries < kMostTries;) {
        auto outcome = attempt(database, ballot, slot, deadline);
        if (!outcome) {
            if (retry.again(outcome.error())) continue;
            return explain_postgres_vote(retry.give_up(std::move(outcome).error()), options_,
                                         ballot);
        }
        switch (outcome->kind) {
            case VoteOutcome::Kind::cast:
                return std::optional{outcome->cast};
            case VoteOutcome::Kind::elsewhere:
                return wrong_place(options_, outcome->route, sql::postgres_grammar().dialect());
            case VoteOutcome::Kind::missing: {
                if (options_.missing_item == MissingItem::refuse || created) {
                    return explain_refusal(unknown_item(ballot.item), ballot);
                }
                created = true;
                const std::string item = array_literal(std::span{&ballot.item, 1});
                const auto create = [&](sql::Connection& connection) -> Result<void> {
                    HOTCOUNT_TRY(connection.execute(create_, {item}));
                    return {};
                };
                if (auto made = sql::transact(database, deadline, create); !made) {
                    return explain_postgres_vote(std::move(made).error(), options_, ballot);
                }
                break;
            }
            case VoteOutcome::Kind::other_level:
                wraps_.store(true, std::memory_order_relaxed);
                break;
            case VoteOutcome::Kind::held:
            case VoteOutcome::Kind::overtaken:
                ++tries;
                break;
        }
    }
    return unasked_row();
}

}  // namespace hotcount

#include "single_vote.hpp"

#include "ballots.hpp"
#include "dialect.hpp"
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

// If a row belongs to no vote, the statement makes itself fail: it casts this text to a number, and
// the server quotes the text.
constexpr std::string_view kOtherRow = "hc_other_row";

// As the upsert has it.
bool stays(const sql::Row& row, const Ballot& ballot) {
    if (row.is_null(old_val)) return false;
    if (!ballot.version) return row.integer(old_val) == ballot.value;
    return !row.is_null(old_version) && row.integer(old_version) >= *ballot.version;
}

std::string count_in_slot(const VoteNames& n, const VotesOptions& options) {
    return "hc_counted AS (INSERT INTO " + n.cell + " (item, slot, n, ver) SELECT " +
           single_item(options) +
           ", CAST(?5 AS bigint), val - prev, 1 FROM hc_written WHERE val <> prev ON CONFLICT "
           "(item, "
           "slot) DO UPDATE SET n = " +
           n.cell + ".n + excluded.n, ver = " + n.cell + ".ver + 1)";
}

}  // namespace

std::string comes_this_way(const VotesOptions& options) {
    return "name = 'vote_route' AND value = '" +
           vote_route(options, sql::postgres_grammar().dialect()) +
           "' AND current_setting('transaction_isolation') = 'read committed'";
}

// Not of constants alone: that would fail already when the statement is planned.
std::string refuse_other_row() {
    return "CAST('" + std::string{kOtherRow} + " ' || CAST(w.item AS text) AS bigint)";
}

std::string unwritten_columns(const VoteNames& n, const std::string& item, const std::string& voter,
                              const std::string& there_text) {
    const auto unless_written = [](const std::string& text) {
        return "CASE WHEN w.val IS NULL THEN " + text + " END";
    };
    const std::string row = " FROM " + n.vote + " AS v WHERE v." + n.vote_item + " = " + item +
                            " AND v." + n.vote_user + " = " + voter + ")";
    return unless_written("(SELECT v." + n.value + row) + ", " +
           unless_written("(SELECT v." + n.version + row) + ", " + unless_written(there_text) +
           ", " + unless_written("(SELECT value FROM " + n.meta + " WHERE name = 'vote_route')") +
           ", " + unless_written("current_setting('transaction_isolation')");
}

std::string single_item(const VotesOptions& options) {
    return "CAST(?1 AS " + std::string{element_type(options.item_type)} + ")";
}

std::string single_vote(const VoteNames& n, const VotesOptions& options,
                        const std::string& counted) {
    const std::string item = single_item(options);
    const std::string user = "CAST(?2 AS " + std::string{element_type(options.user_type)} + ")";
    const std::string the_item = " FROM " + n.item + " WHERE " + n.id + " = " + item;
    std::string locked;
    std::string is_there = "EXISTS (SELECT" + the_item + ")";
    if (!options.foreign_key) {
        // The foreign key would make sure that the item stays until the commit.
        locked = "hc_item AS MATERIALIZED (SELECT" + the_item + " FOR KEY SHARE), ";
        is_there = "EXISTS (SELECT FROM hc_item)";
    }
    const std::string rows = "SELECT " + item + ", " + user +
                             ", CAST(?3 AS bigint), 0, CAST(?4 AS bigint) FROM " + n.meta +
                             " WHERE " + comes_this_way(options) + " AND " + is_there;
    return "WITH hc_own AS (SELECT 1), " + locked + "hc_written AS (" + upsert_votes(n, rows) +
           " RETURNING " + n.vote_item + " AS item, " + n.vote_user + " AS voter, " +
           old_and_new(n) + "), " + counted +
           // A row that is not the vote's is one that a trigger made another one: it fails it.
           " SELECT CASE WHEN w.item <> " + item + " OR w.voter <> " + user + " THEN " +
           refuse_other_row() + " ELSE 1 END, TRUE, w.prev, w.val, " +
           unwritten_columns(n, item, user, is_there) +
           " FROM (SELECT 1) AS one LEFT JOIN hc_written AS w ON TRUE";
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
      of_users_(single_vote(n, options, count_in_slot(n, options))),
      anonymous_(single_vote(n.anonymous(sql::postgres_grammar()), anonymous_options(options),
                             count_in_slot(n, options))),
      create_(create_items_text(n, options)) {}

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

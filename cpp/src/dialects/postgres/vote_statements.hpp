// The statements of votes.sql for the two vote tables at both levels of isolation, and the errors of
// refused votes.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {

// The error of a statement that meets a row of no vote contains this text (votes.sql).
inline constexpr std::string_view kOtherRow = "hc_other_row";

// Levels of isolation, in the server's spelling.
inline constexpr std::string_view kReadCommitted = "read committed";
inline constexpr std::string_view kSerializable = "serializable";

inline sql::Names names_of_level(std::string_view level) {
    return {{"serializable", sql::flag(level == kSerializable)},
            {"level", literal(std::string{level})}};
}

// The server raised the level that BEGIN asked for.
inline Error no_such_level(const std::string& name) {
    return make_error(ErrorCode::config,
                      (name.empty() ? "" : name + ": ") +
                          "the server gives transactions another level of isolation than READ "
                          "COMMITTED: add isolation=serializable to the URL; nothing was applied");
}

// The statements over one of the two vote tables, and the errors of votes for it.
struct PostgresVoteTable {
    PostgresVoteTable(const sql::Statements& sql, const VotesOptions& its_options)
        : options(its_options),
          set(sql["set"]),
          read(sql["read"]),
          set_all(sql["set_all"]),
          read_all(sql["read_all"]),
          single(sql["single"]),
          batch(sql["batch"]) {}

    // Adds the item or user to an error that may be a foreign key violation.
    Error explain_key(Error error, const Ballot& ballot) const {
        // The server names the key's columns in every language. The vote table may have other foreign
        // keys.
        const auto is_of = [&](const std::string& column) {
            return error.server_code == "23503" &&
                   error.message.find("(" + column + ")=(") != std::string::npos;
        };
        const char* const missing = is_of(options.vote_item)   ? "item"
                                    : is_of(options.vote_user) ? "user"
                                                               : "";
        return explain_refusal(std::move(error), ballot, missing);
    }
    // Explains an error of a statement that writes and counts the vote.
    Error explain(Error error, const Ballot& ballot) const {
        error = narrow_column(explain_missing_table(std::move(error)));
        if (error.message.find(kOtherRow) != std::string::npos) {
            error.message += "; " + unasked_row().message;
        }
        if (error.code == ErrorCode::overflow) {
            error.message += "; " + count_overflow(ballot.item).message;
        }
        return explain_key(std::move(error), ballot);
    }

    VotesOptions options;
    sql::Statement set;
    sql::Statement read;
    sql::Statement set_all;
    sql::Statement read_all;
    sql::Statement single;
    sql::Statement batch;
};

// The statements for sessions of one level of isolation.
struct PostgresVoteLevel {
    PostgresVoteLevel(std::string_view its_name, const VoteNames& n, const VotesOptions& options)
        : name(its_name),
          of_users(
              postgres_statements(sql::postgres::kVotesSql, n, options, names_of_level(its_name)),
              options),
          anonymous(
              postgres_statements(sql::postgres::kVotesSql, n.anonymous(sql::postgres_grammar()),
                                  anonymous_options(options), names_of_level(its_name)),
              anonymous_options(options)) {}
    const PostgresVoteTable& table_of(const Ballot& ballot) const {
        return ballot.by_op_id ? anonymous : of_users;
    }

    std::string_view name;
    PostgresVoteTable of_users;
    PostgresVoteTable anonymous;
};

}  // namespace hotcount

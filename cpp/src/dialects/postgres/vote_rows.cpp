// The rows of the vote table on PostgreSQL, written in the caller's transaction.
#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "single_vote.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

class PostgresVoteRows final : public VoteRows {
  public:
    PostgresVoteRows(std::shared_ptr<const Layout> layout, const sql::Statements& sql,
                     const VotesOptions& options)
        : layout_(std::move(layout)),
          options_(options),
          set_(sql["set"]),
          read_(sql["read"]),
          set_all_(sql["set_all"]),
          read_all_(sql["read_all"]) {}

    Result<Cast> set(sql::Connection& connection, const Ballot& ballot) override {
        const sql::Value item = sql::to_value(ballot.item);
        const sql::Value user = sql::to_value(ballot.user);
        const sql::Value version = ballot.version ? sql::Value{*ballot.version} : sql::Value{};
        std::optional<Cast> cast;
        const sql::RowVisitor written = [&](const sql::Row& row) -> Result<void> {
            cast = cast_of(row, 0);
            return {};
        };
        auto done = connection.query(set_, {item, user, ballot.value, version}, written);
        if (!done) {
            return explain_postgres_key(explain_missing_table(std::move(done).error()), options_,
                                        ballot);
        }
        if (cast) return *cast;
        // As asked already, or the counts are kept elsewhere.
        HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::route));
        const sql::RowVisitor found = [&](const sql::Row& row) -> Result<void> {
            cast = unchanged_cast(row.integer(0));
            return {};
        };
        // A statement of its own: it sees what the upsert waited for and has locked.
        HOTCOUNT_TRY(connection.query(read_, {item, user}, found));
        if (!cast) return unasked_row();
        return *cast;
    }

    Result<void> set_all(sql::Connection& connection, std::span<QueuedVote* const> votes) override {
        for (const PostgresBallots& wave : in_waves(votes)) {
            HOTCOUNT_TRY(set_wave(connection, wave));
        }
        return {};
    }

  private:
    Result<void> set_wave(sql::Connection& connection, const PostgresBallots& wave) const {
        BallotReader reader{wave};
        const sql::RowVisitor written = [&](const sql::Row& row) -> Result<void> {
            QueuedVote* const vote = reader.find(row);
            if (vote == nullptr) return unasked_row();
            vote->cast = cast_of(row, 2);
            return {};
        };
        auto done = connection.query(set_all_, {wave.items, wave.users, wave.values, wave.versions},
                                     written);
        if (!done) {
            Error error = explain_missing_table(std::move(done).error());
            if (wave.votes.size() > 1) return error;
            return explain_postgres_key(std::move(error), options_, wave.votes.front()->ballot);
        }
        const PostgresBallots left{reader.unanswered()};
        if (left.votes.empty()) return {};
        return read_unchanged(connection, left);
    }

    Result<void> read_unchanged(sql::Connection& connection, const PostgresBallots& ballots) const {
        BallotReader reader{ballots};
        const sql::RowVisitor found = [&](const sql::Row& row) -> Result<void> {
            QueuedVote* const vote = reader.find(row);
            if (vote == nullptr) return unasked_row();
            vote->cast = unchanged_cast(row.integer(2));
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            read_all_, {ballots.items, ballots.users, ballots.values, ballots.versions}, found));
        if (!reader.unanswered().empty()) return unasked_row();
        return {};
    }

    std::shared_ptr<const Layout> layout_;
    VotesOptions options_;
    sql::Statement set_;
    sql::Statement read_;
    sql::Statement set_all_;
    sql::Statement read_all_;
};

}  // namespace

std::unique_ptr<VoteRows> make_postgres_vote_rows(std::shared_ptr<const Layout> layout,
                                                  const VoteNames& names,
                                                  const VotesOptions& options) {
    const auto sql = postgres_statements(sql::postgres::kVotesSql, names, options);
    return std::make_unique<PostgresVoteRows>(std::move(layout), sql, options);
}

}  // namespace hotcount

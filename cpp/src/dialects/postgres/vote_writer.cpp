// Votes on PostgreSQL (votes.sql).
//
//   naive     the vote's row, in the caller's transaction
//   slotted   a vote and its slot's cell: one statement, which commits by itself
//   others    a batch of votes: one statement, which commits by itself
//
// A vote that is alone in its batch is written by a shorter statement. If its item is locked, that
// statement waits until another write is queued. The held thread (held_writes.cpp) waits for
// items that stay locked.
#include <algorithm>
#include <array>
#include <atomic>
#include <hotcount/detail/sql/transaction.hpp>

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "vote_statements.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/sync_pages.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

// Another transaction has held a row for longer than lock_timeout.
constexpr std::string_view kLockTimeout = "55P03";

// How often another session may overtake a vote. More often is no coincidence: a trigger or a row
// policy keeps the row from being written.
constexpr int kMostTries = 20;

// The columns of strategy cached, after the outcome's columns.
enum CachedColumn : std::uint8_t { kEpoch = kOutcomeColumns, kItem, kCacheId, kWide };
// The column of write_behind.
constexpr int kWithinFence = kOutcomeColumns;

class PostgresVoteWriter final : public VoteWriter {
  public:
    PostgresVoteWriter(std::shared_ptr<const Layout> layout, const VoteNames& n,
                       const sql::Statements& sql, const VotesOptions& options,
                       NoteAppended appended)
        : layout_(std::move(layout)),
          options_(options),
          place_(layout_->place()),
          route_(vote_route(options, layout_->dialect())),
          fenced_(options.strategy == VoteStrategy::write_behind),
          appended_(std::move(appended)),
          create_(sql["create_items"]),
          set_lock_timeout_(sql["set_lock_timeout"]),
          wait_for_items_(sql["wait_for_items"]),
          committed_(kReadCommitted, n, options),
          serializable_(kSerializable, n, options) {}

    Result<Cast> set(sql::Connection& connection, const Ballot& ballot) override {
        const PostgresVoteTable& table = level_of(connection).table_of(ballot);
        const std::array parameters = parameters_of(ballot);
        std::optional<Cast> cast;
        const sql::RowVisitor written = [&](const sql::Row& row) -> Result<void> {
            cast = cast_of(row, 0);
            return {};
        };
        auto done = connection.run(table.set, parameters, &written);
        if (!done) {
            return table.explain_key(explain_missing_table(std::move(done).error()), ballot);
        }
        if (cast) return *cast;
        // No row: the vote has this value already, or the counts have moved.
        HOTCOUNT_TRY(check_place(connection, *layout_, options_, PlaceCheck::route));
        const sql::RowVisitor found = [&](const sql::Row& row) -> Result<void> {
            cast = unchanged_cast(row.integer(0));
            return {};
        };
        // A separate statement, whose snapshot contains the row for which the upsert waited.
        HOTCOUNT_TRY(connection.run(table.read, std::span{parameters}.first(2), &found));
        if (!cast) return unasked_row();
        return *cast;
    }

    Result<void> set_all(sql::Connection& connection, std::span<QueuedVote* const> votes) override {
        const auto [of_users, anonymous] = by_table(votes);
        for (const PostgresBallots& wave : in_waves(of_users)) {
            HOTCOUNT_TRY(set_wave(connection, level_of(connection).of_users, wave));
        }
        for (const PostgresBallots& wave : in_waves(anonymous)) {
            HOTCOUNT_TRY(set_wave(connection, level_of(connection).anonymous, wave));
        }
        return {};
    }

    Result<std::optional<Cast>> cast(sql::Database& database, const Ballot& ballot,
                                     std::int64_t slot, Deadline deadline) override {
        // Errors are the same at every level of isolation.
        const PostgresVoteTable& table = committed_.table_of(ballot);
        sql::Retry retry{database, deadline};
        bool created = false;
        for (int tries = 0; tries < kMostTries;) {
            const bool wraps = wraps_.load(std::memory_order_relaxed);
            auto outcome = attempt(database, ballot, slot, {deadline, wraps});
            if (!outcome) {
                if (retry.again(outcome.error())) continue;
                return table.explain(retry.give_up(std::move(outcome).error()), ballot);
            }
            switch (outcome->kind) {
                case VoteOutcome::Kind::cast:
                    return std::optional{outcome->cast};
                case VoteOutcome::Kind::elsewhere:
                    return wrong_place(options_, outcome->route, layout_->dialect());
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
                        return table.explain(std::move(made).error(), ballot);
                    }
                    break;
                }
                case VoteOutcome::Kind::other_level:
                    if (wraps) return no_such_level(database.name());
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

    bool commits_by_itself() const override { return true; }

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn& turn) override {
        const PostgresBallots ballots{take_one_table(batch)};
        const PostgresVoteTable& table =
            level_of(connection).table_of(ballots.votes.front()->ballot);
        auto written = turn.waits_for() > Duration{0}
                           ? write_waiting(connection, table, ballots, turn)
                           : write_alone(connection, table, ballots, turn);
        if (written) return {};
        if (ballots.votes.size() == 1) {
            return table.explain(std::move(written).error(), ballots.votes.front()->ballot);
        }
        return narrow_column(explain_missing_table(std::move(written).error()));
    }

    Result<std::vector<Found>> find_applied(sql::Connection& connection, Batch batch) override {
        return find_applied_votes(connection, *layout_, batch, appended_);
    }

  private:
    const PostgresVoteLevel& level_of(const sql::Connection& connection) const {
        return sql::is_serializable(connection) ? serializable_ : committed_;
    }

    static std::array<sql::Value, 4> parameters_of(const Ballot& ballot) {
        return {sql::to_value(ballot.item), sql::to_value(ballot.user), ballot.value,
                ballot.version ? sql::Value{*ballot.version} : sql::Value{}};
    }

    // -- in the caller's transaction ------------------------------------------------------------

    static Result<void> set_wave(sql::Connection& connection, const PostgresVoteTable& table,
                                 const PostgresBallots& wave) {
        BallotReader reader{wave};
        const sql::RowVisitor written = [&](const sql::Row& row) -> Result<void> {
            QueuedVote* const vote = reader.find(row);
            if (vote == nullptr) return unasked_row();
            vote->cast = cast_of(row, 2);
            return {};
        };
        auto done = connection.query(table.set_all,
                                     {wave.items, wave.users, wave.values, wave.versions}, written);
        if (!done) {
            Error error = explain_missing_table(std::move(done).error());
            if (wave.votes.size() > 1) return error;
            return table.explain_key(std::move(error), wave.votes.front()->ballot);
        }
        const PostgresBallots left{reader.unanswered()};
        if (left.votes.empty()) return {};
        return read_unchanged(connection, table, left);
    }

    static Result<void> read_unchanged(sql::Connection& connection, const PostgresVoteTable& table,
                                       const PostgresBallots& ballots) {
        BallotReader reader{ballots};
        const sql::RowVisitor found = [&](const sql::Row& row) -> Result<void> {
            QueuedVote* const vote = reader.find(row);
            if (vote == nullptr) return unasked_row();
            vote->cast = unchanged_cast(row.integer(2));
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            table.read_all, {ballots.items, ballots.users, ballots.values, ballots.versions},
            found));
        if (!reader.unanswered().empty()) return unasked_row();
        return {};
    }

    // -- slotted --------------------------------------------------------------------------------

    Result<VoteOutcome> attempt(sql::Database& database, const Ballot& ballot, std::int64_t slot,
                                const sql::Alone& how) const {
        HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database.writer(how.deadline));
        const PostgresVoteLevel& level = level_of(*connection);
        const PostgresVoteTable& table = level.table_of(ballot);
        VoteOutcome outcome{VoteOutcome::Kind::overtaken};
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            outcome = read_outcome(row, ballot, route_, level.name);
            return {};
        };
        const auto [item, user, value, version] = parameters_of(ballot);
        HOTCOUNT_TRY(connection->run_alone(
            table.single, std::array<sql::Value, 5>{item, user, value, version, slot}, &read, how));
        return outcome;
    }

    // -- batches --------------------------------------------------------------------------------

    // Returns the votes of one statement, sorted: the votes of the first one's table and fence, one
    // for each row. The other votes are deferred.
    static std::vector<QueuedVote*> take_one_table(
        std::span<const std::shared_ptr<sql::QueuedWrite>> batch) {
        const auto& first = static_cast<const QueuedVote&>(*batch.front());
        std::vector<QueuedVote*> votes = sorted_votes(batch);
        const QueuedVote* last = nullptr;
        std::erase_if(votes, [&](QueuedVote* vote) {
            const Ballot& ballot = vote->ballot;
            const bool other =
                ballot.by_op_id != first.ballot.by_op_id || vote->fence != first.fence;
            const bool second = !other && last != nullptr && last->ballot.item == ballot.item &&
                                last->ballot.user == ballot.user;
            if (!other) last = vote;
            if (!other && !second) return false;
            vote->fate = sql::QueuedWrite::Fate::deferred;
            return true;
        });
        return votes;
    }

    std::vector<sql::Value> parameters(const PostgresBallots& ballots) const {
        const auto all = ballots.parameters();
        std::vector<sql::Value> values{all.begin(), all.end()};
        if (fenced_) values.emplace_back(std::string_view{*ballots.votes.front()->fence});
        return values;
    }

    Result<void> write_alone(sql::Connection& connection, const PostgresVoteTable& table,
                             const PostgresBallots& ballots, sql::BatchTurn& turn) {
        // is_alone() may change between two calls, so both statements return the same columns.
        const bool single = place_ == CountPlace::journal && !fenced_ &&
                            ballots.votes.size() == 1 && turn.is_alone();
        HOTCOUNT_TRY(turn.seal());
        const Ballot& first = ballots.votes.front()->ballot;
        while (true) {
            const bool wraps = wraps_.load(std::memory_order_relaxed);
            Answers answers{*this, ballots, level_of(connection).name};
            const sql::Alone how = turn.alone(wraps);
            const sql::RowVisitor visit = answers.visitor();
            auto run = single
                           ? connection.run_alone(table.single, parameters_of(first), &visit, how)
                           : connection.run_alone(table.batch, parameters(ballots), &visit, how);
            if (!run) return std::move(run).error();
            if (answers.other_level) {
                // The session has another level of isolation. Nothing was written.
                if (wraps) return no_such_level({});
                wraps_.store(true, std::memory_order_relaxed);
                continue;
            }
            return end(connection, answers, turn);
        }
    }

    // For the held thread: waits for the items' locks before anything is written, so that a timeout
    // of the wait leaves no outcome unknown.
    Result<void> write_waiting(sql::Connection& connection, const PostgresVoteTable& table,
                               const PostgresBallots& ballots, sql::BatchTurn& turn) {
        const auto milliseconds =
            std::chrono::duration_cast<std::chrono::milliseconds>(turn.waits_for()).count();
        const std::string timeout = std::to_string(milliseconds);
        HOTCOUNT_TRY(connection.query(set_lock_timeout_, {timeout}, sql::kIgnoreRows));
        auto locked = connection.query(wait_for_items_, {ballots.distinct_items}, sql::kIgnoreRows);
        if (!locked && locked.error().server_code == kLockTimeout) {
            for (QueuedVote* vote : ballots.votes) vote->fate = sql::QueuedWrite::Fate::shared_held;
            return {};
        }
        if (!locked) return std::move(locked).error();
        HOTCOUNT_TRY(turn.seal());
        Answers answers{*this, ballots, level_of(connection).name};
        const sql::RowVisitor visit = answers.visitor();
        auto run = connection.run(table.batch, parameters(ballots), &visit);
        if (!run) {
            Error error = std::move(run).error();
            // A vote's own row is locked: halving the batch finds it.
            if (error.server_code == kLockTimeout) error.condition = SqlCondition::query_canceled;
            return error;
        }
        if (answers.other_level) return no_such_level({});
        HOTCOUNT_TRY(connection.commit());
        return end(connection, answers, turn);
    }

    // Reads the rows of a statement.
    struct Answers {
        Answers(const PostgresVoteWriter& of, const PostgresBallots& asked,
                std::string_view of_isolation)
            : writer(of), ballots(asked), level(of_isolation) {}
        sql::RowVisitor visitor() {
            return [this](const sql::Row& row) { return take(row); };
        }
        Result<void> take(const sql::Row& row) {
            const auto index = static_cast<std::size_t>(row.integer(kNumberColumn)) - 1;
            if (index >= ballots.votes.size()) return unasked_row();
            QueuedVote& vote = *ballots.votes[index];
            const VoteOutcome outcome = read_outcome(row, vote.ballot, writer.route_, level);
            if (writer.fenced_ && row.integer(kWithinFence) == 0 &&
                outcome.kind != VoteOutcome::Kind::elsewhere &&
                outcome.kind != VoteOutcome::Kind::other_level) {
                vote.refuse_outside_fence();
                return {};
            }
            if (writer.place_ == CountPlace::cache && note_item(row, vote)) return {};
            switch (outcome.kind) {
                case VoteOutcome::Kind::cast:
                    vote.cast = outcome.cast;
                    if (vote.cast.changed) ++changed;
                    break;
                case VoteOutcome::Kind::held:
                    vote.fate = sql::QueuedWrite::Fate::shared_held;
                    break;
                case VoteOutcome::Kind::missing:
                    missing.push_back(&vote);
                    break;
                case VoteOutcome::Kind::overtaken:
                    vote.fate = sql::QueuedWrite::Fate::deferred;
                    if (++vote.tries == kMostTries) vote.error = unasked_row();
                    break;
                case VoteOutcome::Kind::elsewhere:
                    vote.error =
                        wrong_place(writer.options_, outcome.route, writer.layout_->dialect());
                    break;
                case VoteOutcome::Kind::other_level:
                    other_level = true;
                    break;
            }
            return {};
        }

        // For strategy cached. Returns true if the vote must be written item by item.
        bool note_item(const sql::Row& row, QueuedVote& of) {
            auto& vote = static_cast<QueuedCachedVote&>(of);
            if (row.is_null(kEpoch) || row.is_null(kCacheId)) return false;
            if (row.integer(kWide) != 0) {
                vote.item_by_item = true;
                vote.fate = sql::QueuedWrite::Fate::deferred;
                return true;
            }
            if (space == nullptr || *space != row.text(kCacheId)) {
                space = std::make_shared<const std::string>(row.text(kCacheId));
            }
            vote.space = space;
            vote.epoch = row.integer(kEpoch);
            vote.item = row.id(kItem);
            return false;
        }

        const PostgresVoteWriter& writer;
        const PostgresBallots& ballots;
        const std::string_view level;
        std::shared_ptr<const std::string> space{};
        std::vector<QueuedVote*> missing{};
        std::size_t changed{0};
        bool other_level{false};
    };

    Result<void> end(sql::Connection& connection, const Answers& answers, sql::BatchTurn& turn) {
        if (answers.changed > 0 && appended_) appended_(answers.changed);
        if (answers.missing.empty()) return {};
        if (options_.missing_item == MissingItem::refuse) {
            for (QueuedVote* vote : answers.missing) {
                vote->error = explain_refusal(unknown_item(vote->ballot.item), vote->ballot);
            }
            return {};
        }
        const PostgresBallots ballots{answers.missing};
        if (create(connection, ballots, turn) || ballots.votes.size() == 1) return {};
        // One item or all were refused: tries each alone.
        for (QueuedVote* vote : answers.missing) {
            (void)create(connection, PostgresBallots{{vote}}, turn);
        }
        return {};
    }

    // Adds the missing items and defers their votes to a later turn. If that fails, returns false and
    // sets each vote's error.
    bool create(sql::Connection& connection, const PostgresBallots& ballots, sql::BatchTurn& turn) {
        const std::array<sql::Value, 1> items{ballots.distinct_items};
        auto created = connection.run_alone(create_, items, nullptr, turn.alone(true));
        for (QueuedVote* vote : ballots.votes) {
            vote->error.reset();
            vote->fate = sql::QueuedWrite::Fate::deferred;
            if (created) continue;
            vote->error = explain_refusal(explain_missing_table(created.error()), vote->ballot);
            // Only the item's outcome is unknown. The vote was not applied.
            if (vote->error->code == ErrorCode::outcome_unknown) {
                vote->error->code = ErrorCode::deadline;
                vote->error->message += "; the vote was not applied";
            }
        }
        return created.ok();
    }

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const CountPlace place_;
    const std::string route_;
    const bool fenced_;
    const NoteAppended appended_;
    const sql::Statement create_;
    const sql::Statement set_lock_timeout_;
    const sql::Statement wait_for_items_;
    const PostgresVoteLevel committed_;
    const PostgresVoteLevel serializable_;
    // The session's default isolation level is not the wanted one, so BEGIN sets it.
    std::atomic<bool> wraps_{false};
};

}  // namespace

std::unique_ptr<VoteWriter> make_postgres_vote_writer(std::shared_ptr<const Layout> layout,
                                                      const VotesOptions& options,
                                                      NoteAppended appended) {
    const VoteNames names{options, sql::postgres_grammar()};
    const sql::Statements sql = postgres_statements(sql::postgres::kVotesSql, names, options);
    return std::make_unique<PostgresVoteWriter>(std::move(layout), names, sql, options,
                                                std::move(appended));
}

}  // namespace hotcount

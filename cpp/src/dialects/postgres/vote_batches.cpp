// batched, cached and write_behind on PostgreSQL: a batch is one statement, which commits by itself
// (votes.sql).
//
// A vote that is alone is written by a shorter statement. If its item is held, that waits until
// another session wants to write. The held thread waits for items that are held for long.
#include <algorithm>
#include <atomic>

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "single_vote.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/sync_pages.hpp"

namespace hotcount {
namespace {

// Another transaction has held a row for longer than lock_timeout.
constexpr std::string_view kLockTimeout = "55P03";

// Of strategy cached, after those of the outcome.
enum CachedColumn : std::uint8_t { kEpoch = kOutcomeColumns, kItem, kCacheId, kWide };
// Of write_behind.
constexpr int kWithinFence = kOutcomeColumns;

class PostgresBatchWriter final : public sql::BatchWriter {
  public:
    PostgresBatchWriter(const VoteNames& n, const VotesOptions& options, NoteAppended appended)
        : options_(options),
          place_(count_place(options, sql::postgres_grammar().dialect())),
          route_(vote_route(options, sql::postgres_grammar().dialect())),
          fenced_(options.strategy == VoteStrategy::write_behind),
          appended_(std::move(appended)),
          create_(of(n, options)["create_items"]),
          set_lock_timeout_(of(n, options)["set_lock_timeout"]),
          wait_for_items_(of(n, options)["wait_for_items"]),
          of_users_(n, options),
          anonymous_(n.anonymous(sql::postgres_grammar()), anonymous_options(options)) {}

    bool commits_by_itself() const override { return true; }

    Result<void> write_and_commit(sql::Connection& connection,
                                  std::span<const std::shared_ptr<sql::QueuedWrite>> batch,
                                  sql::BatchTurn& turn) override {
        const PostgresBallots ballots{take_one_table(batch)};
        const Table& table = ballots.votes.front()->ballot.by_op_id ? anonymous_ : of_users_;
        auto written = turn.waits_for() > Duration{0}
                           ? write_waiting(connection, table, ballots, turn)
                           : write_alone(connection, table, ballots, turn);
        if (!written) return explain(std::move(written).error(), ballots);
        return {};
    }

  private:
    static sql::Statements of(const VoteNames& n, const VotesOptions& options) {
        return postgres_statements(sql::postgres::kVotesSql, n, options);
    }

    // The statements over one of the two vote tables.
    struct Table {
        Table(const VoteNames& n, const VotesOptions& options)
            : batch(of(n, options)["batch"]), single(single_vote(n, options)) {}
        sql::Statement batch;
        sql::Statement single;
    };

    // The votes of one statement: those for the first one's table, taken under its fence, sorted, one
    // for each row. The others are left for later.
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

    static sql::Value version_of(const Ballot& ballot) {
        return ballot.version ? sql::Value{*ballot.version} : sql::Value{};
    }

    Result<void> write_alone(sql::Connection& connection, const Table& table,
                             const PostgresBallots& ballots, sql::BatchTurn& turn) {
        // Somebody may come or leave between two turns, so the answer's shape is the same.
        const bool single = place_ == CountPlace::journal && !fenced_ &&
                            ballots.votes.size() == 1 && turn.is_alone();
        if (!turn.seal()) return make_error(ErrorCode::deadline, "members have left");
        const Ballot& first = ballots.votes.front()->ballot;
        while (true) {
            const bool wraps = wraps_.load(std::memory_order_relaxed);
            Answers answers{*this, ballots};
            const sql::Alone how = turn.alone(wraps);
            const sql::RowVisitor visit = answers.visitor();
            auto run = single ? connection.run_alone(
                                    table.single,
                                    std::array{sql::to_value(first.item), sql::to_value(first.user),
                                               sql::Value{first.value}, version_of(first)},
                                    &visit, how)
                              : connection.run_alone(table.batch, parameters(ballots), &visit, how);
            if (!run) return std::move(run).error();
            if (answers.other_level && !wraps) {
                // The session's own level is not READ COMMITTED. Nothing was written.
                wraps_.store(true, std::memory_order_relaxed);
                continue;
            }
            return end(connection, answers, turn);
        }
    }

    // For the held thread: items that have been held for long are waited for before anything is
    // written, so that no outcome depends on the wait.
    Result<void> write_waiting(sql::Connection& connection, const Table& table,
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
        if (!turn.seal()) return make_error(ErrorCode::deadline, "members have left");
        Answers answers{*this, ballots};
        const sql::RowVisitor visit = answers.visitor();
        auto run = connection.run(table.batch, parameters(ballots), &visit);
        if (!run) {
            Error error = std::move(run).error();
            // One of the votes' own rows: looked for by halves.
            if (error.server_code == kLockTimeout) error.condition = SqlCondition::query_canceled;
            return error;
        }
        HOTCOUNT_TRY(connection.commit());
        return end(connection, answers, turn);
    }

    // What the rows of a statement say.
    struct Answers {
        Answers(const PostgresBatchWriter& of, const PostgresBallots& asked)
            : writer(of), ballots(asked) {}
        sql::RowVisitor visitor() {
            return [this](const sql::Row& row) { return take(row); };
        }
        Result<void> take(const sql::Row& row) {
            const auto index = static_cast<std::size_t>(row.integer(kNumberColumn)) - 1;
            if (index >= ballots.votes.size()) return unasked_row();
            QueuedVote& vote = *ballots.votes[index];
            const VoteOutcome outcome = read_outcome(row, vote.ballot, writer.route_);
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
                    vote.error = wrong_place(writer.options_, outcome.route,
                                             sql::postgres_grammar().dialect());
                    break;
                case VoteOutcome::Kind::other_level:
                    other_level = true;
                    break;
            }
            return {};
        }

        // strategy cached. True if the vote is to be written item by item.
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

        const PostgresBatchWriter& writer;
        const PostgresBallots& ballots;
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
        // One of them is refused, or all are.
        for (QueuedVote* vote : answers.missing) {
            (void)create(connection, PostgresBallots{{vote}}, turn);
        }
        return {};
    }

    // Adds the missing items, for which the votes are then written again. If that is refused:
    // false, and each vote has its error.
    bool create(sql::Connection& connection, const PostgresBallots& ballots, sql::BatchTurn& turn) {
        const std::array<sql::Value, 1> items{ballots.distinct_items};
        auto created = connection.run_alone(create_, items, nullptr, turn.alone(true));
        for (QueuedVote* vote : ballots.votes) {
            vote->error.reset();
            vote->fate = sql::QueuedWrite::Fate::deferred;
            if (created) continue;
            vote->error = explain_refusal(explain_missing_table(created.error()), vote->ballot);
            // Of the item. Of the vote it is certain that it is not.
            if (vote->error->code == ErrorCode::outcome_unknown) {
                vote->error->code = ErrorCode::deadline;
                vote->error->message += "; the vote was not applied";
            }
        }
        return created.ok();
    }

    Error explain(Error error, const PostgresBallots& ballots) const {
        if (ballots.votes.size() != 1) {
            return narrow_column(explain_missing_table(std::move(error)));
        }
        return explain_postgres_vote(std::move(error), options_, ballots.votes.front()->ballot);
    }

    const VotesOptions options_;
    const CountPlace place_;
    const std::string route_;
    const bool fenced_;
    const NoteAppended appended_;
    const sql::Statement create_;
    const sql::Statement set_lock_timeout_;
    const sql::Statement wait_for_items_;
    const Table of_users_;
    const Table anonymous_;
    // Sessions' transactions are not READ COMMITTED by default: BEGIN says so.
    std::atomic<bool> wraps_{false};
};

}  // namespace

std::shared_ptr<sql::BatchWriter> make_postgres_batch_writer(const VotesOptions& options,
                                                             NoteAppended appended) {
    const VoteNames names{options, sql::postgres_grammar()};
    return std::make_shared<PostgresBatchWriter>(names, options, std::move(appended));
}

}  // namespace hotcount

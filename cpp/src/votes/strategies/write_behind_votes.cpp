// write_behind: a vote is acknowledged when Redis has it in a stream; workers write the votes to
// SQL as batched does. votes/cache/vote_stream.hpp describes the streams,
// votes/cache/stream_marks.hpp their marks in SQL.
//
// Calls that delete votes, or that read one and write it, wait until all earlier votes are in SQL.
// Otherwise a waiting vote would be written after its deletion, or be overlooked.
#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <set>
#include <utility>

#include "group_writer.hpp"
#include "stream_adds.hpp"
#include "votes/cache/stream_worker.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

using StreamState = VoteStream::State;

std::vector<std::size_t> shards_of(std::string_view space, std::span<const sql::Id> items) {
    std::set<std::size_t> shards;
    for (const sql::Id& item : items) shards.insert(VoteStream::shard_of(space, item));
    return {shards.begin(), shards.end()};
}

class WriteBehindVotes final : public SqlVotes {
  public:
    WriteBehindVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options,
                     std::shared_ptr<redis::Client> client)
        : SqlVotes(std::move(votes_database), std::move(votes_options)),
          waiting_(std::make_shared<WaitingVotes>(shared_database(), layout(), options(),
                                                  std::move(client), commit_maker())),
          drain_(waiting_),
          adds_(std::make_shared<StreamAdds>(waiting_, database().name())) {}

    Result<Cast> write(const Ballot& ballot, Timeout timeout) override {
        return std::move(write_many({&ballot, 1}, timeout).front());
    }

    std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                         Timeout timeout) override {
        return adds_->add(ballots, waiting_->stream.deadline(timeout));
    }

    void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) override {
        write_many_async(
            {&ballot, 1},
            [done = std::move(done)](std::vector<Result<Cast>> casts) {
                done(std::move(casts.front()));
            },
            timeout);
    }

    void write_many_async(std::span<const Ballot> ballots,
                          std::function<void(std::vector<Result<Cast>>)> done,
                          Timeout timeout) override {
        adds_->add_async(ballots, waiting_->stream.deadline(timeout),
                         [self = shared_from_this(), done = std::move(done)](auto casts) {
                             done(std::move(casts));
                         });
    }

    Result<std::vector<Count>> count_many(std::span<const sql::Id> items, Consistency,
                                          Timeout timeout) override {
        HOTCOUNT_TRY(check_items(items));
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(std::string space, waiting_->space(deadline));
        std::vector<std::size_t> shards = shards_of(space, items);
        const auto look = [&] {
            return waiting_->stream.states(space, shards,
                                           Deadline::after(Duration{deadline.remaining()} / 2));
        };
        // Before the counts are read: a vote that has left its stream by then is in them.
        auto states = look();
        const auto is_gone = [](const StreamState& state) { return state.last == 0; };
        if (states && std::any_of(states->begin(), states->end(), is_gone)) {
            // There are no votes there yet, or the streams have another name by now.
            auto recent = waiting_->recent_space(deadline);
            if (recent && *recent != space) {
                space = *std::move(recent);
                shards = shards_of(space, items);
                states = look();
            }
        }
        HOTCOUNT_TRY_ASSIGN(auto counts,
                            SqlVotes::count_many(items, Consistency::exact, deadline.remaining()));
        for (std::size_t i = 0; i < items.size(); ++i) {
            const auto shard = std::lower_bound(shards.begin(), shards.end(),
                                                VoteStream::shard_of(space, items[i]));
            counts[i].exact = false;
            counts[i].pending =
                states ? (*states)[static_cast<std::size_t>(shard - shards.begin())].votes : -1;
        }
        return counts;
    }

    Result<std::int64_t> remove_item(const sql::Id& item, bool delete_row,
                                     Timeout timeout) override {
        HOTCOUNT_TRY(check_items({&item, 1}));
        const Deadline deadline = database().deadline(timeout);
        std::int64_t removed = 0;
        while (true) {
            auto fenced = drain_.settle(&item, deadline);
            if (!fenced) return after_pages(std::move(fenced).error(), removed, "removed");
            const std::int64_t fence = fenced->lowest;
            newest_deleted_ = 0;
            auto votes =
                remove_until(item, delete_row, delete_row ? VoteRemoval::kAll : fence, timeout);
            if (!votes) return after_pages(std::move(votes).error(), removed, "removed");
            removed += *votes;
            // With the item's row went a vote that was cast since. An older one of its user may still
            // be on its way in another worker's page, and be written where items are created.
            if (newest_deleted_ <= fence) return removed;
        }
    }
    Result<Erased> erase_user(const sql::Id& user, Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const StreamDrain::Fenced fenced,
                            drain_.settle(nullptr, database().deadline(timeout)));
        const StreamMarks::Streams& streams = fenced.streams;
        HOTCOUNT_TRY_ASSIGN(
            Erased erased,
            erase_until(
                user, [&](const sql::Id& item) { return fenced.of(item); }, timeout));
        auto forgotten = forget_refused(streams, user, database().deadline(timeout));
        if (!forgotten) return after_pages(std::move(forgotten).error(), erased.votes, "erased");
        return erased;
    }
    Result<std::int64_t> prune(std::int64_t before, Timeout timeout) override {
        // A vote of this very millisecond would be newer than the fence of other streams.
        sleep_or_interrupt(std::chrono::milliseconds{2});
        HOTCOUNT_TRY_ASSIGN(const StreamDrain::Fenced fenced,
                            drain_.settle(nullptr, database().deadline(timeout)));
        return SqlVotes::prune(std::min(before, fenced.lowest + 1), timeout);
    }

    Result<FlushReport> flush(Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const StreamMarks::Streams streams, waiting_->streams(deadline));
        const std::string& space = streams.space;
        HOTCOUNT_TRY_ASSIGN(const StreamDrain::Drained drained,
                            drain_.drain(space, all_shards(), deadline));
        if (drained.left > 0) {
            return FlushReport{drained.before - drained.left, drained.left, drained.at_risk};
        }
        HOTCOUNT_TRY_ASSIGN(const FlushReport folded, SqlVotes::flush(deadline.remaining()));
        if (folded.pending > 0 && deadline.passed()) {
            return FlushReport{drained.before, folded.pending, drained.at_risk};
        }
        HOTCOUNT_TRY_ASSIGN(const auto states,
                            waiting_->stream.states(space, all_shards(), deadline));
        const std::int64_t at_risk = all_votes(states);
        // Then another strategy may take the tables over. The next vote makes its stream again.
        if (at_risk == 0) {
            HOTCOUNT_TRY(
                waiting_->marks.close(space, deadline, [&](std::int64_t life) -> Result<bool> {
                    bool closed = true;
                    for (const std::size_t shard : all_shards()) {
                        HOTCOUNT_TRY_ASSIGN(const bool gone,
                                            waiting_->stream.close(space, shard, life, deadline));
                        closed = closed && gone;
                    }
                    return closed;
                }));
        }
        return FlushReport{drained.before, folded.pending, at_risk};
    }

    Result<VotesStats> stats(Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(VotesStats stats, SqlVotes::stats(timeout));
        auto found = waiting_->space(deadline);
        if (!found && found.error().condition == SqlCondition::undefined_table) {
            stats.pending_error = found.error().message;
            return stats;
        }
        HOTCOUNT_TRY_ASSIGN(const std::string space, std::move(found));
        HOTCOUNT_TRY_ASSIGN(const auto states,
                            waiting_->stream.states(space, all_shards(), deadline));
        stats.pending_votes = all_votes(states);
        HOTCOUNT_TRY_ASSIGN(stats.refused_votes, waiting_->stream.refused(space, deadline));
        return stats;
    }

    Result<std::shared_ptr<SyncWorker>> sync_worker() override {
        return make_stream_worker(waiting_);
    }

    Contract contract() const override {
        return Contract{
            "write_behind",
            "Redis has the vote, in a stream; a worker (sync_worker(), `hotcount sync`) writes it "
            "to "
            "SQL later, in one transaction with others. cast does not say what the vote was before",
            "votes that wait in Redis, at most max_pending (" +
                std::to_string(options().max_pending) +
                ") in each of 16 streams, if Redis loses them: its process or machine ends and "
                "they "
                "were not on its disk (appendfsync always: none; everysec: about the last "
                "second's; "
                "no persistence: all that wait), a replica without them is promoted, FLUSHALL, an "
                "eviction. A replica that is promoted, or a copy that is restored, and whose "
                "clock is behind may also let a vote lose against the same user's older one, and "
                "drops votes that are older to it than the last erase_user(), remove_item() or "
                "prune(), until a worker's round has seen it. Never one because a voter or a "
                "worker ends. "
                "A vote that SQL refuses, say for an item that is not there, is set aside after it "
                "was acknowledged: stats() counts those. count() and get() know what is in SQL; "
                "Count.pending says how many votes wait in the item's stream; " +
                (folder() != nullptr ? lag_of_item_count(options())
                                     : std::string{"the item's count is written with them"}),
            false, false};
    }

  private:
    Result<Cast> write_toggled(const Ballot& ballot, Deadline deadline) override {
        HOTCOUNT_TRY_ASSIGN(const StreamMarks::Streams streams, waiting_->streams(deadline));
        const std::array shard{VoteStream::shard_of(streams.space, ballot.item)};
        HOTCOUNT_TRY(drain_.write(streams.space, shard, deadline));
        return SqlVotes::write_toggled(ballot, deadline);
    }

    Result<void> forget_refused(const StreamMarks::Streams& streams, const sql::Id& user,
                                Deadline deadline) {
        HOTCOUNT_TRY(waiting_->stream.forget_refused(streams.space, user, deadline));
        for (const std::string& name : streams.former_names) {
            HOTCOUNT_TRY(waiting_->stream.drop(name, deadline));
        }
        return {};
    }

    void add_stats(VotesStats& stats) const override {
        const sql::GroupCommit::Stats commits = waiting_->commit.get().stats();
        stats.batches = commits.batches;
        stats.batched_votes = commits.writes;
        stats.waiting = commits.waiting;
        stats.held_votes = commits.held;
        stats.held_votes_for = commits.held_for;
    }

    // Names of the streams, and versions to go on from, are of one time with this strategy.
    Result<void> take_over(sql::Connection& connection) override {
        const sql::Grammar& grammar = layout()->vote_dialect().grammar();
        return forget_streams(connection, options(), grammar);
    }

    std::function<std::unique_ptr<sql::GroupCommit>()> commit_maker() {
        return [database = shared_database(), layout = layout(), options = options(),
                folder = folder()] {
            return std::make_unique<sql::GroupCommit>(
                database, make_batched_writer(layout, options, folder), options.commit);
        };
    }

    void note_deleted(std::span<const VoteRemoval::Row> votes) override {
        for (const VoteRemoval::Row& vote : votes) {
            newest_deleted_ = std::max(newest_deleted_, vote.version);
        }
    }

    // By this thread's call.
    inline static thread_local std::int64_t newest_deleted_{0};
    const std::shared_ptr<WaitingVotes> waiting_;
    StreamDrain drain_;
    const std::shared_ptr<StreamAdds> adds_;
};

}  // namespace

std::shared_ptr<Votes> make_write_behind_votes(std::shared_ptr<sql::Database> database,
                                               VotesOptions options,
                                               std::shared_ptr<redis::Client> client) {
    return std::make_shared<WriteBehindVotes>(std::move(database), std::move(options),
                                              std::move(client));
}

}  // namespace hotcount

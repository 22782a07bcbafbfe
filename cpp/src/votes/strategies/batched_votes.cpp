// batched: the votes of concurrent callers share a transaction, and each item in it one update.
#include <hotcount/detail/base/fork.hpp>

#include "group_writer.hpp"
#include "votes/cache/count_copies.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

// Without a journal: the one writer of the database counts in the item's row; in a cell if the row
// has no column for it.
class ItemWriter final : public GroupVoteWriter {
  public:
    using GroupVoteWriter::GroupVoteWriter;

  private:
    Result<void> count(sql::Connection& connection, const sql::Id& item, std::int64_t difference,
                       std::int64_t counted, std::span<QueuedVote* const>) override {
        if (layout().counts_in_items) {
            // A trigger accepts a vote for a missing item, if no foreign key refuses it.
            if (counted > 0) HOTCOUNT_TRY(require_item(connection, layout(), item));
            if (difference == 0) return {};
            return bump_item(connection, layout(), item, difference);
        }
        // A cell would take the vote of an item that is not there, if no foreign key refuses it.
        HOTCOUNT_TRY(require_item(connection, layout(), item));
        if (difference == 0) return {};
        return bump_cell(connection, layout(), item, 0, difference);
    }
};

class BatchedVotes final : public SqlVotes {
  public:
    BatchedVotes(std::shared_ptr<sql::Database> votes_database, VotesOptions votes_options,
                 std::shared_ptr<CountCopies> copies, std::shared_ptr<Replica> replica)
        : SqlVotes(std::move(votes_database), std::move(votes_options), publisher(copies),
                   std::move(replica)),
          copies_(std::move(copies)),
          commit_([this] {
              return std::make_unique<sql::GroupCommit>(
                  shared_database(), make_batched_writer(layout(), options(), folder()),
                  options().commit);
          }) {}

    Result<Cast> write(const Ballot& ballot, Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        const auto write = std::make_shared<QueuedVote>(ballot);
        HOTCOUNT_TRY(commit_.get().submit(write, deadline));
        return write->cast;
    }

    std::vector<Result<Cast>> write_many(std::span<const Ballot> ballots,
                                         Timeout timeout) override {
        const Deadline deadline = database().deadline(timeout);
        std::vector<Result<Cast>> casts;
        commit_.get().submit_all(
            to_writes<QueuedVote>(ballots, ids_are_apart(ballots, deadline), casts), deadline);
        return casts;
    }

    void write_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout) override {
        const auto write = std::make_shared<QueuedVote>(ballot);
        commit_.get().submit_async(
            write, database().deadline(timeout),
            [self = shared_from_this(), write = write.get(),
             done = std::move(done)](Result<void> result) {
                done(result ? Result<Cast>{write->cast} : std::move(result).error());
            });
    }

    void write_many_async(std::span<const Ballot> ballots,
                          std::function<void(std::vector<Result<Cast>>)> done,
                          Timeout timeout) override {
        submit_votes<QueuedVote>(commit_.get(), ballots, ids_are_apart(ballots, std::nullopt),
                                 database().deadline(timeout),
                                 [self = shared_from_this(), done = std::move(done)](auto casts) {
                                     done(std::move(casts));
                                 });
    }

    Result<std::vector<Count>> count_many(std::span<const sql::Id> items, Consistency consistency,
                                          Timeout timeout) override {
        if (copies_ == nullptr || consistency == Consistency::exact) {
            return SqlVotes::count_many(items, consistency, timeout);
        }
        HOTCOUNT_TRY(check_items(items));
        watch_journal();
        return copies_->counts(items, database().deadline(timeout));
    }

    Contract contract() const override { return with_replica(own_contract()); }

  private:
    Contract own_contract() const {
        if (copies_ != nullptr) {
            return Contract{
                "batched",
                "the vote and a journal row of what it changes are committed in SQL, in one "
                "transaction with the votes of other callers",
                "nothing acknowledged; a cached count misses votes until the next fold, a voter's "
                "own too, and for max_age where a fold could not reach the cache; for as long it "
                "may be less than one read before, where the cache was away meanwhile or slotted "
                "votes for the same items; " +
                    lag_of_item_count(options()),
                true, false};
        }
        if (folder() == nullptr) {
            return Contract{"batched",
                            "the vote and the item's count are committed in SQL, in one "
                            "transaction with the votes of other callers",
                            "nothing acknowledged", true, true};
        }
        return Contract{"batched",
                        "the vote and a journal row of what it changes are committed in SQL, in "
                        "one transaction with the votes of other callers",
                        "nothing acknowledged; " + lag_of_item_count(options()), true, true};
    }

    static Folder::Publish publisher(const std::shared_ptr<CountCopies>& copies) {
        if (copies == nullptr) return {};
        return [copies](std::span<const FoldedCount> counts) { copies->publish(counts); };
    }

    void add_stats(VotesStats& stats) const override {
        const sql::GroupCommit::Stats commits = commit_.get().stats();
        stats.batches = commits.batches;
        stats.batched_votes = commits.writes;
        stats.waiting = commits.waiting;
        stats.held_votes = commits.held;
        stats.held_votes_for = commits.held_for;
    }

    const std::shared_ptr<CountCopies> copies_;  // Null without a cache.
    mutable ForkLocal<sql::GroupCommit> commit_;
};

}  // namespace

std::shared_ptr<sql::BatchWriter> make_batched_writer(const std::shared_ptr<const Layout>& layout,
                                                      const VotesOptions& options,
                                                      const std::shared_ptr<Folder>& folder) {
    const NoteAppended appended = [folder](std::size_t rows) { folder->note_appended(rows); };
    std::shared_ptr<VoteWriter> votes =
        layout->vote_dialect().vote_writer(layout, options, appended);
    if (votes->commits_by_itself()) return votes;
    return std::make_shared<ItemWriter>(layout, options, std::move(votes));
}

std::shared_ptr<Votes> make_batched_votes(std::shared_ptr<sql::Database> database,
                                          VotesOptions options, VoteCache cache,
                                          std::shared_ptr<Replica> replica) {
    std::unique_ptr<CopyStore> store;
    if (auto* const memory = std::get_if<std::shared_ptr<memory::Store>>(&cache)) {
        store = make_memory_copy_store(std::move(*memory));
    } else if (auto* const redis = std::get_if<std::shared_ptr<redis::Client>>(&cache)) {
        store = make_redis_copy_store(std::move(*redis));
    }
    // A count in the item's row of a database in this process: no copy is cheaper to read.
    std::shared_ptr<CountCopies> copies;
    if (store != nullptr && vote_dialect(database->dialect()).is_server()) {
        copies = std::make_shared<CountCopies>(database, options, std::move(store));
    }
    return std::make_shared<BatchedVotes>(std::move(database), std::move(options),
                                          std::move(copies), std::move(replica));
}

}  // namespace hotcount

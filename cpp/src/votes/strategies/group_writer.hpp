// What the strategies that commit in groups share: concurrent votes written in one transaction,
// item by item. A strategy adds how an item is counted in it.
#pragma once

#include <hotcount/detail/sql/group_commit.hpp>
#include <memory>
#include <span>

#include "sql_votes.hpp"
#include "votes/tables/vote_rows.hpp"

namespace hotcount {

class GroupVoteWriter : public sql::BatchWriter {
  public:
    GroupVoteWriter(std::shared_ptr<const Layout> layout, VotesOptions options)
        : layout_(std::move(layout)),
          options_(std::move(options)),
          rows_(make_vote_rows(layout_, options_)) {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::QueuedWrite>> batch) final;

  protected:
    const Layout& layout() const { return *layout_; }

    /// Called once per transaction, before anything is written.
    virtual Result<void> begin(sql::Connection& connection);
    /// Called once per item, in ascending order, after all votes are written: they move its count by
    /// `difference`. Triggers have `counted` more changes of votes already.
    virtual Result<void> count(sql::Connection& connection, const sql::Id& item,
                               std::int64_t difference, std::int64_t counted,
                               std::span<QueuedVote* const> votes) = 0;

  private:
    Result<void> count_item(sql::Connection& connection, const sql::Id& item,
                            std::span<QueuedVote* const> votes, const CountedByTriggers& triggers);

    const std::shared_ptr<const Layout> layout_;
    const VotesOptions options_;
    const std::unique_ptr<VoteRows> rows_;
};

/// What writes the batches of strategy batched: the dialect's writer of the journal, or one that counts
/// in the item's row.
std::shared_ptr<sql::BatchWriter> make_batched_writer(const std::shared_ptr<const Layout>& layout,
                                                      const VotesOptions& options,
                                                      const std::shared_ptr<Folder>& folder);

/// A call's votes as a group commit takes them. It settles `casts`, which lives until then, as the
/// ballots do.
template <class Vote>
sql::ManyWrites to_writes(std::span<const Ballot> ballots, std::vector<Result<Cast>>& casts) {
    casts.assign(ballots.size(), Cast{});
    return {ballots.size(), [ballots](std::size_t i) { return std::make_shared<Vote>(ballots[i]); },
            [&casts](std::size_t i, const sql::QueuedWrite* write, const Result<void>& result) {
                casts[i] =
                    result ? static_cast<const QueuedVote&>(*write).cast : failed_as<Cast>(result);
            }};
}

/// The same for a call that does not wait, which ends with done().
template <class Vote>
void submit_votes(sql::GroupCommit& commit, std::span<const Ballot> ballots, Deadline deadline,
                  std::function<void(std::vector<Result<Cast>>)> done) {
    struct Call {
        std::vector<Ballot> ballots;
        std::vector<Result<Cast>> casts{};
    };
    const auto call = std::make_shared<Call>(Call{{ballots.begin(), ballots.end()}});
    commit.submit_all_async(to_writes<Vote>(call->ballots, call->casts), deadline,
                            [call, done = std::move(done)] { done(std::move(call->casts)); });
}

}  // namespace hotcount

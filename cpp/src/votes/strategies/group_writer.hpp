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

/// What a group commit's results come to; `writes` are QueuedVotes.
std::vector<Result<Cast>> to_casts(std::span<const std::shared_ptr<sql::QueuedWrite>> writes,
                                   const std::vector<Result<void>>& results);
/// Ballots as a group commit takes them.
template <class QueuedWrite>
std::vector<std::shared_ptr<sql::QueuedWrite>> make_queued(std::span<const Ballot> ballots) {
    std::vector<std::shared_ptr<sql::QueuedWrite>> writes;
    writes.reserve(ballots.size());
    for (const Ballot& ballot : ballots) writes.push_back(std::make_shared<QueuedWrite>(ballot));
    return writes;
}

}  // namespace hotcount

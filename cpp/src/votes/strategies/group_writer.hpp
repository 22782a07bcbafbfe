// The batch writers of the strategies that commit in groups, beside the dialect's VoteWriter.
//
//   GroupVoteWriter   concurrent votes in one transaction, item by item. A strategy adds how an item is
//                     counted in it
//   CachedWriter      strategy cached: the transaction of a group, and its committed votes, to be
//                     counted in the cache
#pragma once

#include <cstdint>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sql_votes.hpp"
#include "votes/cache/cached_counts.hpp"
#include "votes/tables/vote_writer.hpp"

namespace hotcount {

class GroupVoteWriter : public sql::BatchWriter {
  public:
    GroupVoteWriter(std::shared_ptr<const Layout> layout, VotesOptions options,
                    std::shared_ptr<VoteWriter> votes)
        : layout_(std::move(layout)), options_(std::move(options)), votes_(std::move(votes)) {}

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) final;

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
    const std::shared_ptr<VoteWriter> votes_;
};

/// The writer of strategy batched: the dialect's VoteWriter if it commits by itself, else one that
/// counts in the item's row.
std::shared_ptr<sql::BatchWriter> make_batched_writer(const std::shared_ptr<const Layout>& layout,
                                                      const VotesOptions& options,
                                                      const std::shared_ptr<Folder>& folder);

/// The order in which a call's votes are written: by item, and the votes for one item in the call's
/// order. A transaction counts each of its items once: a portion of votes for one item moves one
/// count, and a portion with fewer items leaves fewer rows to the folds. Empty, for the call's
/// order, unless `ids_are_apart`: see SqlVotes::ids_are_apart(). Costs 0.1 s for a million votes,
/// about 0.5 s if each is for another text.
std::vector<std::uint32_t> order_by_item(std::span<const Ballot> ballots, bool ids_are_apart);

/// A call's votes as writes of a group commit. The group commit settles `casts`, which must live
/// until then, as must the ballots.
template <class Vote>
sql::ManyWrites to_writes(std::span<const Ballot> ballots, bool ids_are_apart,
                          std::vector<Result<Cast>>& casts) {
    casts.assign(ballots.size(), Cast{});
    const auto place = [order = std::make_shared<const std::vector<std::uint32_t>>(
                            order_by_item(ballots, ids_are_apart))](std::size_t i) {
        return order->empty() ? i : (*order)[i];
    };
    return {
        ballots.size(),
        [ballots, place](std::size_t i) { return std::make_shared<Vote>(ballots[place(i)]); },
        [&casts, place](std::size_t i, const sql::QueuedWrite* write, const Result<void>& result) {
            casts[place(i)] =
                result ? static_cast<const QueuedVote&>(*write).cast : failed_as<Cast>(result);
        }};
}

/// As to_writes(), for a call that does not wait, and ends with done().
template <class Vote>
void submit_votes(sql::GroupCommit& commit, std::span<const Ballot> ballots, bool ids_are_apart,
                  Deadline deadline, std::function<void(std::vector<Result<Cast>>)> done) {
    struct Call {
        std::vector<Ballot> ballots;
        std::vector<Result<Cast>> casts{};
    };
    const auto call = std::make_shared<Call>(Call{{ballots.begin(), ballots.end()}});
    commit.submit_all_async(to_writes<Vote>(call->ballots, ids_are_apart, call->casts), deadline,
                            [call, done = std::move(done)] { done(std::move(call->casts)); });
}

// -- cached -------------------------------------------------------------------------------------

/// Committed votes, to be counted in the cache: one call for each id that the tables had.
class Increments {
  public:
    explicit Increments(CachedCounts& cached) : cached_(cached) {}

    /// A write whose ballot asks is told its count by count(), before its caller wakes.
    void add(QueuedCachedVote& write) {
        if (!write.cast.changed) return;
        // Its writer did not get to know the epoch: a recount does not need to.
        if (write.space == nullptr) return cached_.doubt(write.counted_item(), 1);
        // No overflow: the writer has refused a change that leaves 64 bits.
        const std::int64_t difference = write.cast.value - write.cast.previous;
        std::string item = cached_.to_text(write.counted_item());
        auto& [each, asking] = by_space_[*write.space][{item, write.epoch}];
        const auto sum = checked_add(each.difference, difference);
        if (!sum) return cached_.doubt(write.counted_item(), 1);
        if (write.ballot.with_count) asking.push_back(&write);
        each = {std::move(item), *sum, each.votes + 1, write.epoch, !asking.empty()};
    }
    void add_failed(const QueuedCachedVote& write, const Error& error) {
        // The vote may be committed without being counted.
        if (error.code == ErrorCode::outcome_unknown) cached_.doubt(write.counted_item(), 1);
    }
    std::vector<CachedCounts::Unfinished> count(Deadline deadline) {
        std::vector<CachedCounts::Unfinished> left;
        for (const auto& [space, increments] : by_space_) {
            std::vector<CountCache::Increment> to_count;
            to_count.reserve(increments.size());
            for (const auto& [place, sum] : increments) to_count.push_back(sum.increment);
            left.push_back(cached_.count(space, to_count, deadline));
            if (!left.back().counts.empty()) tell(increments, left.back().counts);
        }
        std::erase_if(left, [](const auto& each) { return each.born.empty(); });
        return left;
    }
    void count_and_finish(Deadline deadline) { cached_.finish(count(deadline), deadline); }

  private:
    using Place = std::pair<std::string, std::int64_t>;  // Item and epoch.
    struct Sum {
        CountCache::Increment increment{};
        std::vector<QueuedCachedVote*> asking{};
    };
    using Sums = std::map<Place, Sum>;
    void tell(const Sums& sums, std::span<const std::optional<std::int64_t>> counts) const {
        const WallTime now = cached_.options().clock->wall_now();
        std::size_t at = 0;
        for (const auto& [place, sum] : sums) {
            const auto& count = counts[at++];
            for (QueuedCachedVote* const write : sum.asking) {
                if (!count) continue;
                const std::int64_t in_doubt = cached_.in_doubt(write->counted_item());
                write->cast.count =
                    std::make_shared<const Count>(Count{*count, false, now, "cache", in_doubt});
            }
        }
    }

    CachedCounts& cached_;
    std::map<std::string, Sums> by_space_{};
};

/// Writes item by item in a transaction: two statements for each. For the cases that no dialect
/// writes at once: items whose sum is checked with each vote, tables in which two ids may be one
/// item, and SQLite.
class CachedItemWriter final : public GroupVoteWriter {
  public:
    CachedItemWriter(std::shared_ptr<const Layout> layout, std::shared_ptr<VoteWriter> votes,
                     std::shared_ptr<CachedCounts> cached)
        : GroupVoteWriter(std::move(layout), cached->options(), std::move(votes)),
          cached_(std::move(cached)) {}

  private:
    Result<void> begin(sql::Connection& connection) override;
    Result<void> count(sql::Connection& connection, const sql::Id& item, std::int64_t difference,
                       std::int64_t counted, std::span<QueuedVote* const> votes) override;

    static constexpr std::size_t kMaxKnownWide = 10'000;

    std::shared_ptr<CachedCounts> cached_;
    std::mutex mutex_;  // Guards all below: the held thread may write, too.
    std::shared_ptr<const std::string> space_;
    std::set<sql::Id> known_wide_;
};

/// A batch is one transaction in SQL, and then one call of the cache for all of its committed
/// votes. The next batch is written during that call. The batch's leader fills new hashes after it
/// has woken the callers.
class CachedWriter final : public sql::BatchWriter {
  public:
    CachedWriter(const std::shared_ptr<const Layout>& layout,
                 const std::shared_ptr<CachedCounts>& cached);

    bool commits_by_itself() const override { return votes_->commits_by_itself(); }
    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn& turn) override;
    Result<std::vector<Found>> find_applied(sql::Connection& connection, Batch batch) override;
    bool works_before_answers() const override { return true; }
    std::function<void()> before_answers(std::span<const sql::WriteAnswer> answers,
                                         Deadline deadline) override;

  private:
    std::shared_ptr<CachedCounts> cached_;
    std::shared_ptr<VoteWriter> votes_;
    CachedItemWriter by_item_;
};

}  // namespace hotcount

// How strategy cached writes votes: the transaction of a group, and what it has committed, to be
// counted in the cache.
#pragma once

#include <hotcount/detail/base/check.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "group_writer.hpp"
#include "votes/cache/cached_counts.hpp"

namespace hotcount {

struct QueuedCachedVote final : QueuedVote {
    using QueuedVote::QueuedVote;
    // What the transaction read beside the vote.
    std::int64_t epoch{0};
    std::shared_ptr<const std::string> space{};
    std::optional<sql::Id> item{};  // SyncTable::State::item
    const sql::Id& counted_item() const { return item ? *item : ballot.item; }
};

/// Committed votes, to be counted in the cache: one call for each id that the tables had.
class Increments {
  public:
    explicit Increments(CachedCounts& cached) : cached_(cached) {}

    void add(const QueuedCachedVote& write) {
        if (!write.cast.changed) return;
        // No overflow: the writer has refused a change that leaves 64 bits.
        const std::int64_t difference = write.cast.value - write.cast.previous;
        std::string item = cached_.to_text(write.counted_item());
        auto& each = by_space_[*write.space][{item, write.epoch}];
        const auto sum = checked_add(each.difference, difference);
        if (!sum) return cached_.doubt(write.counted_item(), 1);
        each = {std::move(item), *sum, each.votes + 1, write.epoch};
    }
    void add_failed(const QueuedCachedVote& write, const Error& error) {
        // Perhaps it is committed, and nobody would count it.
        if (error.code == ErrorCode::outcome_unknown) cached_.doubt(write.counted_item(), 1);
    }
    void count(Deadline deadline) {
        for (const auto& [space, increments] : by_space_) {
            std::vector<CountCache::Increment> to_count;
            to_count.reserve(increments.size());
            for (const auto& [place, increment] : increments) to_count.push_back(increment);
            cached_.count(space, to_count, deadline);
        }
    }

  private:
    using Place = std::pair<std::string, std::int64_t>;  // Item and epoch.
    CachedCounts& cached_;
    std::map<std::string, std::map<Place, CountCache::Increment>> by_space_{};
};

class CachedWriter final : public GroupVoteWriter {
  public:
    CachedWriter(std::shared_ptr<const Layout> layout, std::shared_ptr<CachedCounts> cached)
        : GroupVoteWriter(std::move(layout), cached->options()), cached_(std::move(cached)) {}

    // As cast_many does for callers that wait.
    void before_answers(std::span<const sql::WriteAnswer> answers) override {
        Increments increments{*cached_};
        for (const auto& [each, error] : answers) {
            const auto& write = static_cast<const QueuedCachedVote&>(*each);
            if (error) {
                increments.add_failed(write, *error);
            } else {
                increments.add(write);
            }
        }
        increments.count(cached_->database().deadline({}));
    }

  private:
    Result<void> begin(sql::Connection& connection) override;
    Result<void> count(sql::Connection& connection, const sql::Id& item, std::int64_t difference,
                       std::span<QueuedVote* const> votes) override;

    static constexpr std::size_t kMaxKnownWide = 10'000;

    std::shared_ptr<CachedCounts> cached_;
    // One leader at a time writes, so these need no lock.
    std::shared_ptr<const std::string> space_;
    std::set<sql::Id> known_wide_;
};

}  // namespace hotcount

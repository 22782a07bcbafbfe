#include "group_writer.hpp"

#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <string_view>
#include <unordered_map>

#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

// Below this no sum of votes can leave 64 bits: there are fewer than 2^32 users.
constexpr std::int64_t kNarrow = std::int64_t{1} << 31;

}  // namespace

std::vector<std::uint32_t> order_by_item(std::span<const Ballot> ballots, bool ids_are_apart) {
    if (ballots.size() < 2 || !ids_are_apart) return {};
    // Not the places alone: ballots are large, and each comparison would fetch two of them.
    std::vector<std::pair<std::int64_t, std::uint32_t>> places;
    places.reserve(ballots.size());
    // Texts are ordered by their first votes: sorting a million of them takes a second.
    std::unordered_map<std::string_view, std::int64_t, KeyedHash> texts;
    for (const Ballot& ballot : ballots) {
        const auto* const item = std::get_if<std::int64_t>(&ballot.item);
        const auto next = static_cast<std::int64_t>(texts.size());
        const auto key =
            item != nullptr ? *item
                            : texts.emplace(std::get<std::string>(ballot.item), next).first->second;
        places.emplace_back(key, static_cast<std::uint32_t>(places.size()));
    }
    std::sort(places.begin(), places.end());
    std::vector<std::uint32_t> order;
    order.reserve(places.size());
    for (const auto& [item, place] : places) order.push_back(place);
    return order;
}

Result<void> GroupVoteWriter::begin(sql::Connection& connection) {
    return check_place(connection, *layout_, options_, PlaceCheck::hold_route);
}

Result<void> GroupVoteWriter::write(sql::Connection& connection, Batch batch, sql::BatchTurn&) {
    HOTCOUNT_TRY(begin(connection));
    // Sorted by item, so that each is counted once, and by user, so that pages are visited in
    // order.
    std::vector<QueuedVote*> votes = sorted_votes(batch);
    HOTCOUNT_TRY(keep_within_fence(connection, *layout_, votes));
    const auto for_each_item = [&](const auto& visit) -> Result<void> {
        for (auto first = votes.begin(); first != votes.end();) {
            const sql::Id& item = (*first)->ballot.item;
            const auto last = std::find_if(
                first, votes.end(), [&](const auto* vote) { return vote->ballot.item != item; });
            HOTCOUNT_TRY(visit(item, std::span<QueuedVote* const>{first, last}));
            first = last;
        }
        return {};
    };
    HOTCOUNT_TRY(for_each_item([&](const sql::Id& item, auto) {
        return ensure_item(connection, *layout_, options_.missing_item, item);
    }));
    HOTCOUNT_TRY(votes_->set_all(connection, votes));
    HOTCOUNT_TRY_ASSIGN(const CountedByTriggers triggers, layout_->counted_by_triggers(connection));
    return for_each_item([&](const sql::Id& item, std::span<QueuedVote* const> of_item) {
        return count_item(connection, item, of_item, triggers);
    });
}

Result<void> GroupVoteWriter::count_item(sql::Connection& connection, const sql::Id& item,
                                         std::span<QueuedVote* const> votes,
                                         const CountedByTriggers& triggers) {
    std::int64_t difference = 0;
    std::int64_t counted = 0;
    for (const QueuedVote* vote : votes) {
        if (vote->error) continue;
        if (triggers.has(vote->ballot)) {
            if (vote->cast.changed) ++counted;
            continue;
        }
        const auto change = checked_subtract(vote->cast.value, vote->cast.previous);
        const auto sum = change ? checked_add(difference, *change) : std::nullopt;
        if (!sum) return count_overflow(item);
        difference = *sum;
    }
    return count(connection, item, difference, counted, votes);
}

// -- cached -------------------------------------------------------------------------------------

Result<void> CachedItemWriter::begin(sql::Connection& connection) {
    HOTCOUNT_TRY_ASSIGN(std::string id, cached_->table().cache_id(connection, true));
    const std::lock_guard lock(mutex_);
    if (space_ == nullptr || *space_ != id) {
        space_ = std::make_shared<const std::string>(std::move(id));
    }
    return {};
}

Result<void> CachedItemWriter::count(sql::Connection& connection, const sql::Id& item, std::int64_t,
                                     std::int64_t counted, std::span<QueuedVote* const> votes) {
    const SyncTable& table = cached_->table();
    if (counted > 0) HOTCOUNT_TRY(table.take_back_asks(connection, item, counted));
    const auto changed = [](const QueuedVote* vote) { return !vote->error && vote->cast.changed; };
    if (std::none_of(votes.begin(), votes.end(), changed)) return {};
    const bool widens = std::any_of(votes.begin(), votes.end(), [&](const QueuedVote* vote) {
        return changed(vote) && (vote->cast.value > kNarrow || vote->cast.value < -kNarrow);
    });
    using Hold = SyncTable::Hold;
    std::shared_ptr<const std::string> space;
    bool alone = widens;
    {
        const std::lock_guard lock(mutex_);
        space = space_;
        alone |= known_wide_.count(item) != 0;
    }
    HOTCOUNT_TRY_ASSIGN(auto state,
                        table.read(connection, item, alone ? Hold::alone : Hold::shared));
    // Two sums that do not see each other's votes could each fit, and not together. Both share the
    // row, so they wait for each other here: once for each item and process.
    if (state && state->wide) {
        {
            const std::lock_guard lock(mutex_);
            if (known_wide_.size() >= kMaxKnownWide) known_wide_.clear();
            known_wide_.insert(item);
        }
        if (!alone) {
            HOTCOUNT_TRY_ASSIGN(state, table.read(connection, item, Hold::alone));
        }
    }
    if (!state) return unknown_item(item);
    if (widens && !state->wide) HOTCOUNT_TRY(table.set_wide(connection, item));
    // The cache would find out after the commit.
    if (widens || state->wide) HOTCOUNT_TRY(table.sum(connection, item));
    for (QueuedVote* vote : votes) {
        auto& write = static_cast<QueuedCachedVote&>(*vote);
        write.epoch = state->epoch;
        write.space = space;
        write.item = state->item;
    }
    return {};
}

CachedWriter::CachedWriter(const std::shared_ptr<const Layout>& layout,
                           const std::shared_ptr<CachedCounts>& cached)
    : cached_(cached),
      votes_(layout->vote_dialect().vote_writer(layout, cached->options(), {})),
      by_item_(layout, votes_, cached) {}

// The row does not tell whether this call has changed it: the cache recounts.
Result<std::vector<sql::BatchWriter::Found>> CachedWriter::find_applied(sql::Connection& connection,
                                                                        Batch batch) {
    for (const auto& write : batch) static_cast<QueuedCachedVote&>(*write).space.reset();
    return votes_->find_applied(connection, batch);
}

Result<void> CachedWriter::write(sql::Connection& connection, Batch batch, sql::BatchTurn& turn) {
    if (!commits_by_itself()) return by_item_.write(connection, batch, turn);
    const auto vote_of = [](const std::shared_ptr<sql::QueuedWrite>& write) -> QueuedCachedVote& {
        return static_cast<QueuedCachedVote&>(*write);
    };
    std::set<sql::Id> apart;
    for (const auto& write : batch) {
        if (vote_of(write).item_by_item) apart.insert(vote_of(write).ballot.item);
    }
    if (apart.empty()) return votes_->write(connection, batch, turn);
    // All votes for such an item are written in one turn, in their order. The batch's first vote
    // decides whether that turn is this one.
    const bool now_apart = apart.contains(vote_of(batch.front()).ballot.item);
    std::vector<std::shared_ptr<sql::QueuedWrite>> now;
    for (const auto& write : batch) {
        QueuedCachedVote& vote = vote_of(write);
        vote.item_by_item = apart.contains(vote.ballot.item);
        if (vote.item_by_item == now_apart) {
            now.push_back(write);
        } else {
            vote.fate = sql::QueuedWrite::Fate::deferred;
        }
    }
    if (!now_apart) return votes_->write(connection, now, turn);
    if (connection.commit_is_open()) return connection.await_commit(turn.deadline());
    HOTCOUNT_TRY(by_item_.write(connection, now, turn));
    HOTCOUNT_TRY(turn.seal());
    return connection.commit();
}

// As CachedVotes::write_many() does for the failed writes of callers that wait.
std::function<void()> CachedWriter::before_answers(std::span<const sql::WriteAnswer> answers,
                                                   Deadline deadline) {
    Increments increments{*cached_};
    for (const auto& [each, error] : answers) {
        auto& write = static_cast<QueuedCachedVote&>(*each);
        if (error) {
            increments.add_failed(write, *error);
        } else {
            increments.add(write);
        }
    }
    auto left = increments.count(deadline);
    // Before the callers return: a vote is counted, or SQL has a note that it is not.
    if (cached_->has_doubts()) (void)cached_->hand_over(deadline);
    if (left.empty()) return {};
    return [cached = cached_, left = std::move(left), deadline] { cached->finish(left, deadline); };
}

}  // namespace hotcount

#include "group_writer.hpp"

#include <algorithm>
#include <hotcount/detail/base/check.hpp>

namespace hotcount {

Result<void> GroupVoteWriter::begin(sql::Connection& connection) {
    return check_place(connection, *layout_, options_, PlaceCheck::hold_route);
}

Result<void> GroupVoteWriter::write(sql::Connection& connection,
                                    std::span<const std::shared_ptr<sql::QueuedWrite>> batch) {
    HOTCOUNT_TRY(begin(connection));
    // By item, so that each is counted once; by user, so that pages are visited in order.
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
    HOTCOUNT_TRY(rows_->set_all(connection, votes));
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

}  // namespace hotcount

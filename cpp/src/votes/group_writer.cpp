#include "group_writer.hpp"

#include <algorithm>
#include <hotcount/base/check.hpp>

namespace hotcount {

Result<void> GroupVoteWriter::begin(sql::Connection& connection) {
    return check_place(connection, *layout_, options_);
}

Result<void> GroupVoteWriter::write(sql::Connection& connection,
                                    std::span<const std::shared_ptr<sql::Ticket>> batch) {
    HOTCOUNT_TRY(begin(connection));
    // By item, so that each is counted once; by user, so that pages are visited in order; and
    // stable, so that two votes of one user stay in the order in which they came.
    std::vector<VoteTicket*> votes;
    votes.reserve(batch.size());
    for (const auto& ticket : batch) votes.push_back(static_cast<VoteTicket*>(ticket.get()));
    std::stable_sort(votes.begin(), votes.end(), [](const auto* a, const auto* b) {
        return std::tie(a->ballot.item, a->ballot.user) < std::tie(b->ballot.item, b->ballot.user);
    });
    for (auto first = votes.begin(); first != votes.end();) {
        const sql::Id& item = (*first)->ballot.item;
        const auto last = std::find_if(first, votes.end(),
                                       [&](const auto* vote) { return vote->ballot.item != item; });
        HOTCOUNT_TRY(write_item(connection, item, std::span{first, last}));
        first = last;
    }
    return {};
}

Result<void> GroupVoteWriter::write_item(sql::Connection& connection, const sql::Id& item,
                                         std::span<VoteTicket* const> votes) {
    HOTCOUNT_TRY(ensure_item(connection, *layout_, options_.missing_item, item));
    std::int64_t difference = 0;
    for (VoteTicket* vote : votes) {
        auto cast = write_vote(connection, *layout_, vote->ballot);
        if (!cast) {
            // SQLite undoes the one statement and keeps the transaction, except where the
            // whole of it failed (a full disk, the deadline).
            if (!connection.in_transaction() || cast.error().code != ErrorCode::integrity) {
                return std::move(cast).error();
            }
            vote->error = std::move(cast).error();
            continue;
        }
        vote->cast = *cast;
        const auto change = checked_subtract(cast->value, cast->previous);
        const auto sum = change ? checked_add(difference, *change) : std::nullopt;
        if (!sum) {
            return count_overflow(item);
        }
        difference = *sum;
    }
    return count(connection, item, difference, votes);
}

}  // namespace hotcount

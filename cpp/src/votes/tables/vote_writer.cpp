#include "vote_writer.hpp"

#include <algorithm>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <tuple>

#include "vote_dialect.hpp"

namespace hotcount {

Result<std::optional<Cast>> VoteWriter::cast(sql::Database&, const Ballot&, std::int64_t,
                                             Deadline) {
    return std::optional<Cast>{};
}

void QueuedVote::refuse_outside_fence() {
    outside_fence = true;
    error = make_error(ErrorCode::unavailable,
                       "votes were erased after this one was taken from its stream; it was not "
                       "written",
                       {}, SqlCondition::transaction_conflict);
}

Result<void> keep_within_fence(sql::Connection& connection, const Layout& layout,
                               std::vector<QueuedVote*>& votes) {
    if (votes.empty() || votes.front()->fence == nullptr) return {};
    HOTCOUNT_TRY_ASSIGN(const std::string fence, read_mark(connection, layout.hold_fence));
    std::erase_if(votes, [&](QueuedVote* vote) {
        const bool outside = *vote->fence != fence;
        if (outside) vote->refuse_outside_fence();
        return outside;
    });
    return {};
}

sql::RowKeys keys_of(const Ballot& ballot) {
    // Users choose ids.
    const auto hash = [](const sql::Id& id, char kind) {
        return keyed_hash(kind + sql::to_string(id));
    };
    const std::uint64_t item = hash(ballot.item, 'i');
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    return {item, item * kOdd + hash(ballot.user, ballot.by_op_id ? 'o' : 'u')};
}

std::vector<QueuedVote*> sorted_votes(std::span<const std::shared_ptr<sql::QueuedWrite>> batch) {
    std::vector<QueuedVote*> votes;
    votes.reserve(batch.size());
    for (const auto& write : batch) {
        votes.push_back(static_cast<QueuedVote*>(write.get()));
        votes.back()->place = votes.size();
    }
    std::stable_sort(votes.begin(), votes.end(), [](const auto* a, const auto* b) {
        return std::tie(a->ballot.item, a->ballot.user) < std::tie(b->ballot.item, b->ballot.user);
    });
    return votes;
}

std::pair<std::vector<QueuedVote*>, std::vector<QueuedVote*>> by_table(
    std::span<QueuedVote* const> votes) {
    std::pair<std::vector<QueuedVote*>, std::vector<QueuedVote*>> tables;
    tables.first.reserve(votes.size());
    for (QueuedVote* vote : votes) {
        (vote->ballot.by_op_id ? tables.second : tables.first).push_back(vote);
    }
    return tables;
}

Error explain_refusal(Error error, const Ballot& ballot, std::string_view missing) {
    error = narrow_column(std::move(error));
    if (error.code == ErrorCode::overflow || !sql::may_be_one_writes_fault(error)) return error;
    error.message += (ballot.by_op_id ? ": the vote " : ": a vote of user ") +
                     sql::to_string(ballot.user) + " for item " + sql::to_string(ballot.item);
    if (missing == "item") error.message += ", which does not exist";
    if (missing == "user") error.message += "; that user does not exist";
    if (!missing.empty()) error.about(&ErrorFacts::missing, missing);
    error.about(&ErrorFacts::item, ballot.item);
    if (!ballot.by_op_id) error.about(&ErrorFacts::user, ballot.user);
    return error;
}

}  // namespace hotcount

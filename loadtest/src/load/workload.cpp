#include "workload.hpp"

#include <algorithm>

#include "trace.hpp"

namespace hotcount::loadtest {
namespace {

// The 64-bit draws below the result are `share` (0 to 1) of all.
std::uint64_t threshold(double share) {
    if (share >= 1) return ~std::uint64_t{0};
    return static_cast<std::uint64_t>(std::max(share, 0.0) * 0x1.0p64);
}

}  // namespace

std::string_view to_string(OperationKind kind) {
    switch (kind) {
        case OperationKind::vote:
            return "vote";
        case OperationKind::unvote:
            return "unvote";
        case OperationKind::read:
            return "read";
    }
    return "?";
}

Workload::Workload(const TrafficSettings& settings)
    : random_(mix(settings.seed, 0)),
      zipf_(settings.items, settings.zipf),
      items_(settings.items),
      users_(settings.users),
      seed_(settings.seed),
      trace_(settings.trace),
      votes_of_item_(settings.items, 0) {
    const Mix& shares = settings.mix;
    const double total = shares.vote + shares.unvote + shares.read;
    unvote_below_ = threshold(shares.unvote / total);
    read_below_ = threshold((shares.unvote + shares.read) / total);
    // Rounding must not let one vote in 2^64 into a stream that is to have none.
    if (shares.vote == 0) read_below_ = ~std::uint64_t{0};
    dup_below_ = threshold(settings.dup);
}

std::uint64_t Workload::draw_item() { return items_.permute(seed_, zipf_.draw(random_) - 1); }

Operation Workload::next() {
    if (trace_) return trace_->lines()[traced_++].operation;
    const std::uint64_t kind = random_.next();
    if (kind < unvote_below_) {
        // Before there are votes to take back, a vote comes in the un-vote's place.
        if (voted_ < kFewest) return fresh_vote();
        const std::uint64_t oldest = std::min<std::uint64_t>(voted_, kRemembered);
        const std::uint64_t recent = std::min<std::uint64_t>(voted_ / 4, kRecent);
        const Vote& vote = remembered(recent + random_.below(oldest - recent));
        return {vote.item, vote.user, OperationKind::unvote, false};
    }
    if (kind < read_below_) {
        return {static_cast<std::int64_t>(draw_item()) + 1, 0, OperationKind::read, false};
    }
    if (voted_ > 0 && random_.next() < dup_below_) {
        const Vote& vote = remembered(random_.below(std::min<std::uint64_t>(voted_, kRecent)));
        return {vote.item, vote.user, OperationKind::vote, true};
    }
    return fresh_vote();
}

Operation Workload::fresh_vote() {
    const std::uint64_t item = draw_item();
    std::uint32_t& votes = votes_of_item_[item];
    if (votes >= users_.size()) ++repeated_;
    const std::uint64_t user = users_.permute(mix(seed_, item + 1), votes % users_.size());
    ++votes;
    Vote& vote = votes_[voted_++ % kRemembered];
    vote = {static_cast<std::int64_t>(item) + 1, static_cast<std::int64_t>(user) + 1};
    return {vote.item, vote.user, OperationKind::vote, false};
}

const Workload::Vote& Workload::remembered(std::uint64_t age) const {
    return votes_[(voted_ - 1 - age) % kRemembered];
}

}  // namespace hotcount::loadtest

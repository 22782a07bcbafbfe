#include "cached_writer.hpp"

#include <algorithm>

namespace hotcount {
namespace {

// Below this no sum of votes can leave 64 bits: there are fewer than 2^32 users.
constexpr std::int64_t kNarrow = std::int64_t{1} << 31;

}  // namespace

Result<void> CachedWriter::begin(sql::Connection& connection) {
    HOTCOUNT_TRY_ASSIGN(std::string id, cached_->table().cache_id(connection, true));
    if (space_ == nullptr || *space_ != id) {
        space_ = std::make_shared<const std::string>(std::move(id));
    }
    return {};
}

Result<void> CachedWriter::count(sql::Connection& connection, const sql::Id& item, std::int64_t,
                                 std::span<QueuedVote* const> votes) {
    const SyncTable& table = cached_->table();
    const auto changed = [](const QueuedVote* vote) { return !vote->error && vote->cast.changed; };
    if (std::none_of(votes.begin(), votes.end(), changed)) return {};
    const bool widens = std::any_of(votes.begin(), votes.end(), [&](const QueuedVote* vote) {
        return changed(vote) && (vote->cast.value > kNarrow || vote->cast.value < -kNarrow);
    });
    using Hold = SyncTable::Hold;
    const bool alone = widens || known_wide_.count(item) != 0;
    HOTCOUNT_TRY_ASSIGN(auto state,
                        table.read(connection, item, alone ? Hold::alone : Hold::shared));
    // Two sums that do not see each other's votes could each fit, and not together. Both share the
    // row, so they wait for each other here: once for each item and process.
    if (state && state->wide) {
        if (known_wide_.size() >= kMaxKnownWide) known_wide_.clear();
        known_wide_.insert(item);
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
        write.space = space_;
        write.item = state->item;
    }
    return {};
}

}  // namespace hotcount

#include "cached_counts.hpp"

#include <algorithm>
#include <charconv>
#include <hotcount/detail/sql/transaction.hpp>
#include <iterator>
#include <limits>

namespace hotcount {

CachedCounts::CachedCounts(std::shared_ptr<sql::Database> database, VotesOptions options,
                           std::unique_ptr<CountCache> cache)
    : database_(std::move(database)),
      options_(std::move(options)),
      table_(options_, database_->dialect()),
      cache_(std::move(cache)),
      doubts_([] { return std::make_unique<Doubts>(); }) {}

std::string CachedCounts::to_text(const sql::Id& item) const { return hotcount::to_text(item); }

std::optional<sql::Id> CachedCounts::to_item(const std::string& text) const {
    if (options_.item_type != IdType::integer) return sql::Id{text};
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return sql::Id{number};
}

Result<std::string> CachedCounts::space(Deadline deadline) {
    return sql::read_snapshot(*database_, deadline, [&](sql::Connection& connection) {
        return table_.cache_id(connection);
    });
}

CachedCounts::Unfinished CachedCounts::count(std::string_view space,
                                             std::span<const CountCache::Increment> increments,
                                             Deadline deadline) {
    const std::string token = random_name();
    auto counted = cache_->increment(space, increments, token, deadline.remaining());
    const auto& results = counted.states;
    Unfinished left{std::string{space}, {}, std::move(counted.counts)};
    for (std::size_t i = 0; i < increments.size(); ++i) {
        if (!results[i]) {
            // Also if the outcome is unknown: a recount is right either way.
            if (const auto item = to_item(increments[i].item)) doubt(*item, increments[i].votes);
        } else if (*results[i] == CountCache::Counted::born) {
            // Twice, if one of a later epoch follows.
            if (!left.born.empty() && left.born.back().item == increments[i].item) continue;
            left.born.push_back({increments[i].item, token});
            if (!counted.identities.empty()) left.born.back().identity = counted.identities[i];
        }
    }
    return left;
}

void CachedCounts::finish(std::span<const Unfinished> left, Deadline deadline) {
    for (const Unfinished& each : left) {
        if (!each.born.empty()) (void)fill(each.space, each.born, deadline);
    }
    (void)hand_over(deadline);
}

void CachedCounts::doubt(const sql::Id& item, std::int64_t votes) {
    Doubts& doubts = doubts_.get();
    std::lock_guard lock(doubts.mutex);
    doubts.votes[item] += votes;
}

std::int64_t CachedCounts::in_doubt(const sql::Id& item) {
    Doubts& doubts = doubts_.get();
    std::lock_guard lock(doubts.mutex);
    const auto found = doubts.votes.find(item);
    return found == doubts.votes.end() ? 0 : found->second;
}

bool CachedCounts::has_doubts() {
    Doubts& doubts = doubts_.get();
    std::lock_guard lock(doubts.mutex);
    return !doubts.votes.empty();
}

Result<void> CachedCounts::hand_over(Deadline deadline) {
    Doubts& doubts = doubts_.get();
    std::map<sql::Id, std::int64_t> taken;
    {
        std::lock_guard lock(doubts.mutex);
        if (doubts.votes.empty()) return {};
        taken.swap(doubts.votes);
    }
    std::vector<sql::Id> items;
    items.reserve(taken.size());
    for (const auto& [item, votes] : taken) items.push_back(item);
    const auto written = sql::transact(*database_, deadline, [&](sql::Connection& connection) {
        return table_.ask_recounts(connection, items);
    });
    if (!written) {
        std::lock_guard lock(doubts.mutex);
        for (const auto& [item, votes] : taken) doubts.votes[item] += votes;
    }
    return written;
}

// In one trip, without a lock on the items, where the dialect does that.
Result<CachedCounts::Fences> CachedCounts::fence(const std::string& space,
                                                 std::span<const sql::Id> items,
                                                 const std::string& holder, Deadline deadline) {
    Fences fences;
    fences.reserve(items.size());
    for (std::size_t first = 0; first < items.size(); first += SyncPages::kMost) {
        const auto part = items.subspan(first, std::min(SyncPages::kMost, items.size() - first));
        const auto at_once = [&](sql::Connection& connection)
            -> Result<std::optional<std::vector<SyncPages::Fenced>>> {
            HOTCOUNT_TRY(connection.begin(deadline));
            return table_.fence_at_once(connection, part, holder, space, deadline);
        };
        HOTCOUNT_TRY_ASSIGN(auto fenced, sql::transact_alone(*database_, deadline, at_once));
        if (!fenced) {
            HOTCOUNT_TRY_ASSIGN(auto states, fence_in_turn(space, part, holder, deadline));
            std::move(states.begin(), states.end(), std::back_inserter(fences));
            continue;
        }
        for (std::size_t i = 0; i < part.size(); ++i) {
            auto& each = (*fenced)[i];
            if (std::holds_alternative<SyncPages::Again>(each)) {
                HOTCOUNT_TRY_ASSIGN(auto states,
                                    fence_in_turn(space, part.subspan(i, 1), holder, deadline));
                fences.push_back(std::move(states.front()));
            } else if (auto* const state = std::get_if<SyncFence>(&each)) {
                fences.emplace_back(std::move(*state));
            } else {
                fences.emplace_back();
            }
        }
    }
    return fences;
}

Result<CachedCounts::Fences> CachedCounts::fence_in_turn(const std::string& space,
                                                         std::span<const sql::Id> items,
                                                         const std::string& holder,
                                                         Deadline deadline) {
    const auto fence_all = [&](sql::Connection& connection) -> Result<Fences> {
        Fences fences(items.size());
        HOTCOUNT_TRY_ASSIGN(const std::string id, table_.cache_id(connection, true));
        if (id != space) return fences;
        HOTCOUNT_TRY_ASSIGN(auto states, table_.fence_all(connection, items, holder));
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (auto& state = states[i]) {
                fences[i] = SyncFence{state->item, state->gen, state->epoch, state->stored};
            }
        }
        return fences;
    };
    return sql::transact(*database_, deadline, fence_all);
}

// By the names of their shards, which in a cluster are few: one process has named most of them.
Result<std::map<std::string, CachedCounts::OfHolder>> CachedCounts::by_holder(
    std::string_view space, std::span<const Unfilled> hashes, Deadline deadline) {
    std::map<std::string, OfHolder> holders;
    const auto add = [&](const Unfilled& hash, const std::string& holder) {
        auto item = to_item(hash.item);
        if (!item) return;
        holders[holder].hashes.push_back(&hash);
        holders[holder].items.push_back(*std::move(item));
    };
    std::vector<const Unfilled*> unnamed;
    std::vector<std::string> texts;
    for (const Unfilled& hash : hashes) {
        if (!hash.identity.empty()) {
            add(hash, hash.identity);
        } else {
            unnamed.push_back(&hash);
            texts.push_back(hash.item);
        }
    }
    if (unnamed.empty()) return holders;
    const auto names = cache_->identities(space, texts, deadline.remaining());
    for (std::size_t i = 0; i < unnamed.size(); ++i) {
        HOTCOUNT_TRY_ASSIGN(const std::string name, names[i]);
        add(*unnamed[i], name);
    }
    return holders;
}

Result<void> CachedCounts::fill(std::string_view space, std::span<const Unfilled> hashes,
                                Deadline deadline) {
    std::vector<CountCache::Fill> fills;
    std::vector<CountCache::Outdated> gone;
    HOTCOUNT_TRY_ASSIGN(const auto holders, by_holder(space, hashes, deadline));
    for (const auto& [holder, known] : holders) {
        HOTCOUNT_TRY_ASSIGN(const Fences fences,
                            fence(std::string{space}, known.items, holder, deadline));
        for (std::size_t i = 0; i < known.hashes.size(); ++i) {
            const Unfilled& hash = *known.hashes[i];
            if (const auto& state = fences[i]) {
                fills.push_back({hash.item, hash.token, state->gen, state->epoch, state->stored});
            } else {
                // The item is gone, or another strategy has taken the tables over and does not
                // read these hashes.
                gone.push_back({hash.item, std::numeric_limits<std::int64_t>::max()});
            }
        }
    }
    std::optional<Error> failed;
    const auto landed = cache_->land(space, fills, deadline.remaining());
    for (std::size_t i = 0; i < fills.size(); ++i) {
        if (landed[i]) continue;
        if (landed[i].error().code != ErrorCode::overflow) {
            failed = landed[i].error();
        } else if (const auto item = to_item(fills[i].item)) {
            doubt(*item, 0);
        }
    }
    if (!gone.empty()) HOTCOUNT_TRY(cache_->drop(space, gone, deadline.remaining()));
    if (failed) return *failed;
    return {};
}

Result<CachedCounts::Recounted> CachedCounts::recount(std::string_view space, std::size_t limit,
                                                      Deadline deadline) {
    Recounted result;
    const auto read = [&](sql::Connection& connection) {
        return table_.recounts(connection, limit + 1);
    };
    HOTCOUNT_TRY_ASSIGN(std::vector<SyncTable::Request> requests,
                        sql::read_snapshot(*database_, deadline, read));
    if (requests.empty()) return result;
    if (requests.size() > limit) {
        requests.pop_back();
        result.left = 1;
    }
    std::vector<std::string> texts;
    texts.reserve(requests.size());
    for (const auto& request : requests) texts.push_back(to_text(request.item));
    // Before SQL: an epoch above that of any hash that has votes the sum will have.
    const auto entries = cache_->read(space, texts, deadline.remaining());
    std::vector<SyncTable::ToRecount> recounts;
    recounts.reserve(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
        if (!entries[i] && entries[i].error().code != ErrorCode::wrong_type) {
            return entries[i].error();
        }
        const bool there = entries[i].ok() && entries[i]->has_value();
        recounts.push_back({requests[i].item, there ? (*entries[i])->epoch : 0});
    }
    std::vector<CountCache::Outdated> outdated;
    std::vector<SyncTable::Request> done;
    const std::int64_t not_asked = result.left;
    const auto recount_all = [&](sql::Connection& connection) -> Result<void> {
        outdated.clear();
        done.clear();
        result.left = not_asked;
        HOTCOUNT_TRY_ASSIGN(const std::string id, table_.cache_id(connection, true));
        if (id != space) return {};
        HOTCOUNT_TRY_ASSIGN(const auto epochs, table_.recount_all(connection, recounts));
        for (std::size_t i = 0; i < requests.size(); ++i) {
            if (!epochs[i]) {
                ++result.left;
                continue;
            }
            outdated.push_back({texts[i], *epochs[i]});
            done.push_back(requests[i]);
        }
        return {};
    };
    HOTCOUNT_TRY(sql::transact(*database_, deadline, recount_all));
    if (done.empty()) return result;
    HOTCOUNT_TRY(cache_->drop(space, outdated, deadline.remaining()));
    // Last: if the process dies before it, the request remains, and a recount can be repeated.
    const auto settle_all = [&](sql::Connection& connection) {
        return table_.settle(connection, done);
    };
    HOTCOUNT_TRY(sql::transact(*database_, deadline, settle_all));
    result.done = static_cast<std::int64_t>(done.size());
    return result;
}

}  // namespace hotcount

#include "cached_counts.hpp"

#include <algorithm>
#include <charconv>
#include <hotcount/detail/sql/transaction.hpp>
#include <iterator>
#include <limits>

namespace hotcount {
namespace {

// The part of a call's time that is kept for the note in SQL of votes that the cache did not count.
constexpr Duration kNoteTime = std::chrono::milliseconds{250};

}  // namespace

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
    const Duration time = deadline.remaining();
    auto counted =
        cache_->increment(space, increments, token, time - std::min<Duration>(time / 4, kNoteTime));
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
        if (each.born.empty()) continue;
        // Neither SQL nor a worker may know of such a hash when its server loses it.
        for (const std::string& text : fill(each.space, each.born, deadline).failed) {
            if (const auto item = to_item(text)) doubt(*item, 0);
        }
    }
    (void)hand_over(deadline);
}

void CachedCounts::doubt(const sql::Id& item, std::int64_t votes) {
    Doubts& doubts = doubts_.get();
    std::lock_guard lock(doubts.mutex);
    Doubt& doubt = doubts.items[item];
    doubt.votes += votes;
    doubt.last = ++doubts.doubts;
}

std::int64_t CachedCounts::in_doubt(const sql::Id& item) {
    Doubts& doubts = doubts_.get();
    std::lock_guard lock(doubts.mutex);
    const auto found = doubts.items.find(item);
    return found == doubts.items.end() ? 0 : found->second.votes;
}

bool CachedCounts::has_doubts() {
    Doubts& doubts = doubts_.get();
    std::lock_guard lock(doubts.mutex);
    return !doubts.items.empty();
}

Result<void> CachedCounts::hand_over(Deadline deadline) {
    Doubts& doubts = doubts_.get();
    std::map<sql::Id, Doubt> noted;
    {
        std::lock_guard lock(doubts.mutex);
        if (doubts.items.empty()) return {};
        noted = doubts.items;
    }
    std::vector<sql::Id> items;
    items.reserve(noted.size());
    for (const auto& [item, doubt] : noted) items.push_back(item);
    HOTCOUNT_TRY(sql::transact(*database_, deadline, [&](sql::Connection& connection) {
        return table_.ask_recounts(connection, items);
    }));
    // Not before: a caller that returns meanwhile relies on the note of its vote.
    std::lock_guard lock(doubts.mutex);
    for (const auto& [item, doubt] : noted) {
        const auto found = doubts.items.find(item);
        if (found != doubts.items.end() && found->second.last == doubt.last) {
            doubts.items.erase(found);
        }
    }
    return {};
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
std::map<std::string, CachedCounts::OfHolder> CachedCounts::by_holder(
    std::string_view space, std::span<const Unfilled> hashes, Filled& filled, Deadline deadline) {
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
    const auto names = cache_->identities(space, texts, patience(deadline));
    for (std::size_t i = 0; i < unnamed.size(); ++i) {
        if (names[i]) {
            add(*unnamed[i], *names[i]);
        } else {
            filled.fail(unnamed[i]->item, names[i].error());
        }
    }
    return holders;
}

CachedCounts::Filled CachedCounts::fill(std::string_view space, std::span<const Unfilled> hashes,
                                        Deadline deadline) {
    Filled filled;
    std::vector<CountCache::Fill> fills;
    std::vector<CountCache::Outdated> gone;
    for (const auto& [holder, known] : by_holder(space, hashes, filled, deadline)) {
        const auto fences = fence(std::string{space}, known.items, holder, deadline);
        for (std::size_t i = 0; i < known.hashes.size(); ++i) {
            const Unfilled& hash = *known.hashes[i];
            if (!fences) {
                filled.fail(hash.item, fences.error());
            } else if (const auto& state = (*fences)[i]) {
                fills.push_back({hash.item, hash.token, state->gen, state->epoch, state->stored});
            } else {
                // The item is gone, or another strategy has taken the tables over and does not
                // read these hashes.
                gone.push_back({hash.item, std::numeric_limits<std::int64_t>::max()});
            }
        }
    }
    const auto landed = cache_->land(space, fills, patience(deadline));
    for (std::size_t i = 0; i < fills.size(); ++i) {
        if (landed[i]) continue;
        if (landed[i].error().code != ErrorCode::overflow) {
            filled.fail(fills[i].item, landed[i].error());
        } else if (const auto item = to_item(fills[i].item)) {
            doubt(*item, 0);
        }
    }
    if (!gone.empty()) {
        const auto dropped = cache_->drop(space, gone, patience(deadline));
        if (!dropped && !filled.error) filled.error = dropped.error();
    }
    return filled;
}

// Those of silent shards may come first, and be many.
Result<CachedCounts::Requests> CachedCounts::read_requests(std::size_t limit,
                                                           const SilentShards& silent,
                                                           Deadline deadline) {
    for (std::size_t most = limit + 1; true; most *= 2) {
        const auto read = [&](sql::Connection& connection) {
            return table_.recounts(connection, most);
        };
        Requests requests;
        HOTCOUNT_TRY_ASSIGN(requests.found, sql::read_snapshot(*database_, deadline, read));
        const bool all = requests.found.size() < most;
        requests.left = static_cast<std::int64_t>(
            std::erase_if(requests.found, [&](const SyncTable::Request& request) {
                return silent.has(cache_->shard_of(to_text(request.item)));
            }));
        if (requests.found.size() > limit) {
            requests.found.resize(limit);
            ++requests.left;
            return requests;
        }
        if (all) return requests;
    }
}

Result<CachedCounts::Recounted> CachedCounts::recount(std::string_view space, std::size_t limit,
                                                      SilentShards& silent, Deadline deadline) {
    Recounted result;
    std::vector<SyncTable::Request> requests;
    std::vector<std::string> texts;
    std::vector<SyncTable::ToRecount> recounts;
    while (recounts.empty()) {
        HOTCOUNT_TRY_ASSIGN(Requests asked, read_requests(limit, silent, deadline));
        result.left = asked.left;
        if (asked.found.empty()) return result;
        texts.clear();
        for (const auto& request : asked.found) texts.push_back(to_text(request.item));
        // Before SQL: an epoch above that of any hash that has votes the sum will have.
        const auto entries = cache_->read(space, texts, patience(deadline));
        std::vector<std::string> answered;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const auto& entry = entries[i];
            if (!entry && entry.error().code != ErrorCode::wrong_type) {
                HOTCOUNT_TRY(silent.leave(*cache_, cache_->shard_of(texts[i]), entry.error()));
                ++result.left;
                continue;
            }
            const bool there = entry.ok() && entry->has_value();
            recounts.push_back({asked.found[i].item, there ? (*entry)->epoch : 0});
            requests.push_back(std::move(asked.found[i]));
            answered.push_back(std::move(texts[i]));
        }
        texts = std::move(answered);
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
    if (const auto dropped = cache_->drop(space, outdated, patience(deadline)); !dropped) {
        // The requests remain.
        HOTCOUNT_TRY(silent.leave(*cache_, std::nullopt, dropped.error()));
        result.left += static_cast<std::int64_t>(done.size());
        return result;
    }
    // Last: if the process dies before it, the request remains, and a recount can be repeated.
    const auto settle_all = [&](sql::Connection& connection) {
        return table_.settle(connection, done);
    };
    HOTCOUNT_TRY(sql::transact(*database_, deadline, settle_all));
    result.done = static_cast<std::int64_t>(done.size());
    return result;
}

}  // namespace hotcount

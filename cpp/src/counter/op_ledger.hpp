// The results of adds by op_id, which a memory store keeps beside a counter's key, so that a retry
// is counted once. Not thread-safe: the store's lock guards it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hotcount::memory {

/// Visits a std::unordered_map a few entries at a time and erases some, so that no call visits all
/// of them. An entry that stays in the map is visited once in each round. Not thread-safe: the
/// map's lock guards it too.
template <class Map>
class IncrementalSweep {
  public:
    using Iterator = typename Map::iterator;

    /// Visits at most `most` entries and erases an entry if visit(entry) returns true. Returns the
    /// number visited; fewer than `most` if the round ended. The next call then begins a new
    /// round.
    template <class Visit>
    std::size_t walk(Map& map, std::size_t most, Visit&& visit) {
        if (!walking_ || buckets_ != map.bucket_count()) begin(map);
        std::size_t met = 0;
        while (met < most && next_ != map.end()) {
            ++met;
            next_ = visit(*next_) ? map.erase(next_) : std::next(next_);
        }
        if (next_ == map.end()) walking_ = false;
        return met;
    }

  private:
    void begin(Map& map) {
        next_ = map.begin();
        buckets_ = map.bucket_count();
        walking_ = true;
    }

    Iterator next_{};
    std::size_t buckets_{0};
    bool walking_{false};
};

}  // namespace hotcount::memory

namespace hotcount {

/// Outlives the counter's key.
class OpLedger {
  public:
    /// The remembered result, if `forget_at` has not passed.
    std::optional<std::int64_t> find(std::string_view op_id, SteadyTime now) const {
        const auto found = ops_.find(op_id);
        if (found == ops_.end() || found->second.forget_at <= now) return std::nullopt;
        return found->second.result;
    }
    /// Remembers a result until `forget_at`.
    void remember(std::string_view op_id, std::int64_t result, SteadyTime now,
                  SteadyTime forget_at) {
        sweep_.walk(ops_, 2, [now](const auto& op) { return op.second.forget_at <= now; });
        ops_.insert_or_assign(std::string{op_id}, Op{result, forget_at});
        empty_from_ = std::max(empty_from_, forget_at);
    }
    /// The time from which on nothing is remembered; SteadyTime::min() if nothing ever was.
    SteadyTime empty_from() const { return empty_from_; }
    /// The number of entries, including expired ones that are not erased yet.
    std::size_t size() const { return ops_.size(); }

  private:
    struct Op {
        std::int64_t result;
        SteadyTime forget_at;
    };
    using Ops = std::unordered_map<std::string, Op, KeyedHash, std::equal_to<>>;

    Ops ops_;
    // Each remember() visits two entries, so that expired results do not accumulate.
    memory::IncrementalSweep<Ops> sweep_;
    SteadyTime empty_from_{SteadyTime::min()};
};

}  // namespace hotcount

// The results of adds by their op_id, as a memory store keeps them beside a counter's key, so that
// a retry is counted once. Not thread-safe: the store's lock guards it.
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

/// Walks through a std::unordered_map a few entries at a time and erases some, so that no call
/// waits for a walk through all of them. An entry that stays in the map is met once in each round.
/// Not thread-safe: the lock of the map guards it too.
template <class Map>
class IncrementalSweep {
  public:
    using Iterator = typename Map::iterator;

    /// Meets at most `most` entries and erases those for which visit(entry) is true. Returns how
    /// many it met: fewer than `most` when the round ended. The next call then begins a new round.
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

/// It outlives the counter's key.
class OpLedger {
  public:
    /// The remembered result, if it is not yet to be forgotten.
    std::optional<std::int64_t> find(std::string_view op_id, SteadyTime now) const {
        const auto found = ops_.find(op_id);
        if (found == ops_.end() || found->second.forget_at <= now) return std::nullopt;
        return found->second.result;
    }
    /// Until `forget_at`.
    void remember(std::string_view op_id, std::int64_t result, SteadyTime now,
                  SteadyTime forget_at) {
        sweep_.walk(ops_, 2, [now](const auto& op) { return op.second.forget_at <= now; });
        ops_.insert_or_assign(std::string{op_id}, Op{result, forget_at});
        empty_from_ = std::max(empty_from_, forget_at);
    }
    /// From when on nothing is remembered; the beginning of time if nothing ever was.
    SteadyTime empty_from() const { return empty_from_; }
    /// How many are held, some of those that are forgotten included.
    std::size_t size() const { return ops_.size(); }

  private:
    struct Op {
        std::int64_t result;
        SteadyTime forget_at;
    };
    using Ops = std::unordered_map<std::string, Op, KeyedHash, std::equal_to<>>;

    Ops ops_;
    // Two are looked at for each that comes, so that old results do not pile up.
    memory::IncrementalSweep<Ops> sweep_;
    SteadyTime empty_from_{SteadyTime::min()};
};

}  // namespace hotcount

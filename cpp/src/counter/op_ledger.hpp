// The results of adds by their op_id, as a memory store keeps them beside a counter's key, so that a
// retry is counted once. Not thread-safe: the store's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/memory/incremental_sweep.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

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

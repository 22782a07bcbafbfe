// The writes of a ledger, item by item, without copying them: eight bytes a write.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checker.hpp"
#include "load/ledger.hpp"

namespace hotcount::loadtest {

class WritesByItem {
  public:
    /// Items 1 .. items; what a damaged ledger has of others is left out.
    WritesByItem(const Ledger& ledger, std::uint64_t items);

    /// Indices into the ledger of the writes that were sent, in the order of the plan.
    std::span<const std::uint64_t> of(std::uint64_t item) const {
        return std::span{indices_}.subspan(first_[item - 1], first_[item] - first_[item - 1]);
    }
    /// Adds how many were acknowledged, failed, unknown and never sent.
    void count_into(AuditResult& result) const;

  private:
    std::vector<std::uint64_t> first_;  // Of item n at n - 1; one more for the end.
    std::vector<std::uint64_t> indices_;
    AuditResult counts_{};
};

}  // namespace hotcount::loadtest

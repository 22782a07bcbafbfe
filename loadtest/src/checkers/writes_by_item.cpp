#include "writes_by_item.hpp"

namespace hotcount::loadtest {

WritesByItem::WritesByItem(const Ledger& ledger, std::uint64_t items) : first_(items + 1, 0) {
    const std::uint64_t planned = ledger.planned();
    const auto counts = [&](const LedgerRecord& record) {
        return record.kind != OperationKind::read && record.item >= 1 &&
               static_cast<std::uint64_t>(record.item) <= items &&
               record.load_status() >= Status::sent;
    };
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (record.kind == OperationKind::read) continue;
        switch (record.load_status()) {
            case Status::empty:
            case Status::planned:
                ++counts_.unsent;
                break;
            case Status::failed:
                ++counts_.failed;
                break;
            case Status::ok:
                ++counts_.acknowledged;
                break;
            case Status::sent:
            case Status::unknown:
                ++counts_.unknown;
                break;
        }
        if (counts(record)) ++first_[static_cast<std::size_t>(record.item)];
    }
    for (std::uint64_t item = 1; item <= items; ++item) first_[item] += first_[item - 1];
    indices_.resize(first_[items]);
    std::vector<std::uint64_t> next(first_.begin(), first_.end() - 1);
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (counts(record)) indices_[next[static_cast<std::size_t>(record.item - 1)]++] = index;
    }
}

void WritesByItem::count_into(AuditResult& result) const { result.add(counts_); }

}  // namespace hotcount::loadtest

#include "answers_audit.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "audit.hpp"

namespace hotcount::loadtest {
namespace {

/// From the kind of the operation, so that a damaged ledger has no wild ones.
std::int64_t value_of(const LedgerRecord& record, bool adds) {
    if (record.kind == OperationKind::vote) return 1;
    return adds ? -1 : 0;
}

/// One item's calls, as the checkers take them.
struct ItemCalls {
    std::vector<Attempt> writes{};
    std::vector<CastCall> casts{};
    std::vector<Read> reads{};
    bool told{false};  ///< Of one of the casts.

    void clear() {
        writes.clear();
        casts.clear();
        reads.clear();
        told = false;
    }

    void take(const Ledger& ledger, const LedgerRecord& record, bool adds) {
        const Status status = record.load_status();
        if (record.kind == OperationKind::read) {
            if (status != Status::ok || (record.said & said::kNumber) == 0) return;
            reads.push_back({record.returned, ledger.earliest_ns(record), ledger.latest_ns(record),
                             (record.said & said::kExact) != 0});
            return;
        }
        if (status == Status::failed) return;
        // Died before it knew, or had no answer: applied at any time since, or never.
        const bool answered = status == Status::ok;
        writes.push_back({record.item, record.user, value_of(record, adds),
                          ledger.earliest_ns(record),
                          answered ? ledger.latest_ns(record) : INT64_MAX / 4,
                          answered ? Status::ok : Status::unknown});
        if (adds) return;
        const bool was_told = answered && (record.said & said::kCast) != 0;
        casts.push_back({writes.back(), was_told, (record.said & said::kChanged) != 0,
                         (record.said & said::kCounted) != 0, record.returned, record.now});
        told = told || was_told;
    }
};

void check_casts_of_item(std::vector<CastCall>& casts, const AnswerRules& rules,
                         AuditResult& result) {
    std::sort(casts.begin(), casts.end(),
              [](const CastCall& a, const CastCall& b) { return a.attempt.user < b.attempt.user; });
    for (std::span<CastCall> rest = casts; !rest.empty();) {
        std::size_t size = 1;
        while (size < rest.size() && rest[size].attempt.user == rest[0].attempt.user) ++size;
        check_casts(rest.first(size), rules, result);
        rest = rest.subspan(size);
    }
}

}  // namespace

void audit_answers(const Ledger& ledger, const AnswerRules& rules, AuditResult& result) {
    const CallsByItem calls(ledger, rules.items, true);
    ItemCalls item_calls;
    for (std::uint64_t item = 1; item <= rules.items; ++item) {
        item_calls.clear();
        for (const std::uint64_t index : calls.of(item)) {
            item_calls.take(ledger, ledger[index], rules.adds);
        }
        if (!item_calls.reads.empty()) {
            check_reads(static_cast<std::int64_t>(item), item_calls.writes, item_calls.reads, rules,
                        result);
        }
        if (item_calls.told) check_casts_of_item(item_calls.casts, rules, result);
    }
}

}  // namespace hotcount::loadtest

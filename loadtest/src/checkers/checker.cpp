#include "checker.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace hotcount::loadtest {
namespace {

auto key_of(const Attempt& attempt) { return std::pair(attempt.item, attempt.user); }
auto key_of(const VoteRow& row) { return std::pair(row.item, row.user); }

bool acknowledged(const Attempt& attempt) { return attempt.status == Status::ok; }

// The leading elements of `rest` that share the key of the first; they are taken off it.
template <class T>
std::span<const T> take_group(std::span<const T>& rest) {
    std::size_t size = 1;
    while (size < rest.size() && key_of(rest[size]) == key_of(rest[0])) ++size;
    const std::span<const T> group = rest.first(size);
    rest = rest.subspan(size);
    return group;
}

/// The sums by which an item's wrong rows are too high and too low.
struct WrongRows {
    std::int64_t item{0};
    std::int64_t too_much{0};
    std::int64_t too_little{0};
};

/// The WrongRows of all items; of() and then take() are called in ascending order of the items.
class WrongItems {
  public:
    WrongRows& of(std::int64_t item) {
        if (items_.empty() || items_.back().item != item) items_.push_back({item});
        return items_.back();
    }
    WrongRows take(std::int64_t item) {
        while (next_ < items_.size() && items_[next_].item < item) ++next_;
        return next_ < items_.size() && items_[next_].item == item ? items_[next_] : WrongRows{};
    }

  private:
    std::vector<WrongRows> items_{};
    std::size_t next_{0};
};

void check_unattempted(std::span<const Attempt> refused, const VoteRow& row, WrongRows& wrong,
                       AuditResult& result) {
    ++result.ghost_rows;
    wrong.too_much = capped_sum(wrong.too_much, row.value);
    result.example(
        refused.empty()
            ? fmt::format("ghost: item {} user {} has a row that nobody attempted", row.item,
                          row.user)
            : fmt::format("ghost: item {} user {} has a row, but each of its {} attempts was "
                          "refused",
                          row.item, row.user, refused.size()));
}

void check_state(std::span<const Attempt> attempts, std::int64_t actual, WrongItems& wrong,
                 AuditResult& result) {
    const AllowedStates allowed(attempts);
    if (allowed.allows(actual)) return;
    WrongRows& rows = wrong.of(attempts.front().item);
    const auto above = [](std::int64_t a, std::int64_t b) {
        return std::max<std::int64_t>(0, capped_difference(a, b));
    };
    rows.too_much = capped_sum(rows.too_much, above(actual, allowed.least()));
    rows.too_little = capped_sum(rows.too_little, above(allowed.most(), actual));
    const Attempt& any = attempts.front();
    std::int64_t most = 0;
    for (const Attempt& attempt : attempts) most = std::max(most, attempt.value);
    if (most > 0 && actual > most) {
        ++result.double_rows;
        result.example(fmt::format("double: item {} user {} has val {}, allowed is {}", any.item,
                                   any.user, actual, allowed.describe()));
        return;
    }
    ++result.lost_rows;
    result.example(fmt::format(
        "lost: item {} user {} has {}, the acknowledged answers allow {}", any.item, any.user,
        actual == 0 ? "no live vote" : fmt::format("val {}", actual), allowed.describe()));
}

void check_key(std::span<const Attempt> attempts, std::span<const VoteRow> rows, WrongItems& wrong,
               AuditResult& result) {
    // Sorted with the refused ones last.
    const auto refused = std::find_if(attempts.begin(), attempts.end(), [](const Attempt& attempt) {
        return attempt.status == Status::failed;
    });
    const auto applicable = attempts.first(static_cast<std::size_t>(refused - attempts.begin()));
    if (rows.size() > 1) {
        result.double_rows += rows.size() - 1;
        for (const VoteRow& more : rows.subspan(1)) {
            std::int64_t& too_much = wrong.of(more.item).too_much;
            too_much = capped_sum(too_much, more.value);
        }
        result.example(fmt::format("double: item {} user {} has {} rows", rows[0].item,
                                   rows[0].user, rows.size()));
    }
    if (applicable.empty()) {
        if (!rows.empty()) check_unattempted(attempts, rows[0], wrong.of(rows[0].item), result);
        return;
    }
    check_state(applicable, rows.empty() ? 0 : rows[0].value, wrong, result);
}

WrongItems check_rows(std::vector<Attempt>& attempts, std::span<const VoteRow> rows,
                      AuditResult& result) {
    WrongItems wrong;
    std::sort(attempts.begin(), attempts.end(), [](const Attempt& a, const Attempt& b) {
        return std::tuple(a.item, a.user, a.status == Status::failed) <
               std::tuple(b.item, b.user, b.status == Status::failed);
    });
    std::span<const Attempt> attempts_left = attempts;
    std::span<const VoteRow> rows_left = rows;
    while (!attempts_left.empty() || !rows_left.empty()) {
        if (rows_left.empty()) {
            check_key(take_group(attempts_left), {}, wrong, result);
        } else if (attempts_left.empty() || key_of(rows_left[0]) < key_of(attempts_left[0])) {
            check_key({}, take_group(rows_left), wrong, result);
        } else if (key_of(attempts_left[0]) < key_of(rows_left[0])) {
            check_key(take_group(attempts_left), {}, wrong, result);
        } else {
            check_key(take_group(attempts_left), take_group(rows_left), wrong, result);
        }
    }
    return wrong;
}

void check_count(std::string_view what, std::int64_t live, const WrongRows& wrong,
                 std::optional<std::int64_t> count, std::uint64_t& low, std::uint64_t& high,
                 AuditResult& result) {
    const std::int64_t item = wrong.item;
    const std::int64_t actual = count.value_or(0);
    result.counts_off = capped_sum(result.counts_off, distance(actual, live));
    const std::int64_t least = capped_difference(live, wrong.too_much);
    const std::int64_t most = capped_sum(live, wrong.too_little);
    if (actual >= least && actual <= most) return;
    if (actual < least) low = capped_sum(low, distance(least, actual));
    if (actual > most) high = capped_sum(high, distance(actual, most));
    result.example(fmt::format("count: item {} has {} live votes, {} says {}", item, live, what,
                               count ? std::to_string(*count) : "nothing"));
}

void check_counts(std::span<const VoteRow> rows, std::span<const ItemCount> counts,
                  WrongItems& wrong_items, AuditResult& result) {
    // Both are in order of item; an item may be in one of them alone.
    std::size_t row = 0;
    std::size_t count = 0;
    while (row < rows.size() || count < counts.size()) {
        const std::int64_t item = std::min(row < rows.size() ? rows[row].item : INT64_MAX,
                                           count < counts.size() ? counts[count].item : INT64_MAX);
        std::int64_t live = 0;
        for (; row < rows.size() && rows[row].item == item; ++row) {
            live = capped_sum(live, rows[row].value);
        }
        ItemCount said{item, {}, {}};
        if (count < counts.size() && counts[count].item == item) said = counts[count++];
        ++result.items;
        WrongRows wrong = wrong_items.take(item);
        wrong.item = item;
        check_count("item.vote_count", live, wrong, said.stored, result.stored_low,
                    result.stored_high, result);
        check_count("count()", live, wrong, said.counted, result.counted_low, result.counted_high,
                    result);
    }
}

}  // namespace

const std::array<Finding, 13> kFindings = {{
    {&AuditResult::lost_in_failover, "lost in a failover"},
    {&AuditResult::drift, "off in counts that may drift"},
    {&AuditResult::wrong_answers, "wrong answers"},
    {&AuditResult::over_admitted, "over-admitted"},
    {&AuditResult::wrong_refusals, "refused wrongly"},
    {&AuditResult::keys_without_ttl, "keys without a TTL"},
    {&AuditResult::rogue_sets, "rogue sets"},
    {&AuditResult::late_writes, "late writes"},
    {&AuditResult::wrong_scores, "wrong scores"},
    {&AuditResult::stale_reads, "reads staler than promised"},
    {&AuditResult::wrong_reads, "reads right at no moment, against their promise"},
    {&AuditResult::backward_reads, "reads that went back or ran ahead"},
    {&AuditResult::wrong_casts, "casts told wrong"},
}};

void AuditResult::example(std::string sentence) {
    if (examples.size() < kMostExamples) examples.push_back(std::move(sentence));
}

std::string_view AuditResult::word() const {
    if (!passed()) return "broken";
    return allowed_breaches > 0 ? "allowed" : "passed";
}

std::uint64_t AuditResult::breaches() const {
    std::uint64_t all = 0;
    for (const Finding& finding : kFindings) all = capped_sum(all, this->*finding.count);
    return all;
}

std::string AuditResult::findings() const {
    std::string text =
        fmt::format("the audit found {} lost, {} double, {} ghost", lost(), doubled(), ghost());
    for (const Finding& finding : kFindings) {
        if (this->*finding.count == 0) continue;
        text += fmt::format(", {} {}", this->*finding.count, finding.words);
    }
    if (allowed_breaches == 0) return text;
    return text + fmt::format(", {} of these allowed by the contract", allowed_breaches);
}

void MayLose::add(const MayLose& more) {
    writes = capped_sum(writes, more.writes);
    for (const auto& [item, of] : more.items) {
        OfItem& sum = items[item];
        sum.writes += of.writes;
        sum.takes += of.takes;
    }
}

void AuditResult::allow_failover(const MayLose& may_lose) {
    if (may_lose.writes == 0) return;
    std::uint64_t answers = 0;
    for (const CounterOff& off : counters_off) {
        const auto found = may_lose.items.find(off.item);
        if (found == may_lose.items.end()) continue;
        const std::uint64_t takes = std::min(off.high, found->second.takes);
        counted_high -= takes;
        counted_low = capped_sum(counted_low, takes);
        // A lost write makes the later answers skip one step or take one twice.
        answers += std::min(off.wrong_answers, found->second.writes);
    }
    const std::uint64_t missing = lost();
    // A lost write may also leave an old score or admit one more hit.
    const std::uint64_t others = capped_sum(over_admitted, wrong_scores);
    if (capped_sum(missing, others) > may_lose.writes) return;
    lost_in_failover = missing;
    if (doubled() == 0) forget_counts();
    lost_rows = stored_low = counted_low = 0;
    // Breaches that the failover explains.
    const std::uint64_t explained =
        capped_sum(capped_sum(missing, others), capped_sum(told_wrong(), answers));
    allowed_breaches = std::max(allowed_breaches, std::min(breaches(), explained));
}

void AuditResult::add(const AuditResult& part) {
    using A = AuditResult;
    const auto add_one = [&](std::uint64_t A::*count) {
        this->*count = capped_sum(this->*count, part.*count);
    };
    for (const auto count :
         {&A::acknowledged,    &A::failed,          &A::unknown,     &A::unsent,
          &A::queued,          &A::refused,         &A::rows,        &A::live,
          &A::items,           &A::lost_rows,       &A::double_rows, &A::ghost_rows,
          &A::stored_low,      &A::stored_high,     &A::counted_low, &A::counted_high,
          &A::counts_off,      &A::casts,           &A::reads,       &A::reads_never_right,
          &A::reads_went_back, &A::allowed_breaches}) {
        add_one(count);
    }
    for (const Finding& finding : kFindings) add_one(finding.count);
    sum = capped_sum(sum, part.sum);
    counters_off.insert(counters_off.end(), part.counters_off.begin(), part.counters_off.end());
    staleness_ns.merge(part.staleness_ns);
    versions_behind.merge(part.versions_behind);
    for (const std::string& sentence : part.examples) example(sentence);
}

AllowedStates::AllowedStates(std::span<const Attempt> attempts) {
    std::int64_t last_sent_ns = INT64_MIN;
    for (const Attempt& attempt : attempts) {
        if (acknowledged(attempt)) last_sent_ns = std::max(last_sent_ns, attempt.sent_ns);
    }
    // Without an acknowledged attempt, the user may still have no vote.
    if (last_sent_ns == INT64_MIN) allow(0);
    for (const Attempt& attempt : attempts) {
        if (!acknowledged(attempt) || attempt.done_ns >= last_sent_ns) allow(attempt.value);
    }
}

void AllowedStates::allow(std::int64_t value) {
    if (!allows(value)) values_.push_back(value);
}

bool AllowedStates::allows(std::int64_t value) const {
    return std::find(values_.begin(), values_.end(), value) != values_.end();
}

std::string AllowedStates::describe() const {
    return fmt::format("{}", fmt::join(values_, " or "));
}

void check_votes(std::vector<Attempt> attempts, std::span<const VoteRow> rows,
                 std::span<const ItemCount> counts, AuditResult& result) {
    for (const Attempt& attempt : attempts) {
        if (attempt.status == Status::ok) {
            ++result.acknowledged;
        } else if (attempt.status == Status::failed) {
            ++result.failed;
        } else {
            ++result.unknown;
        }
    }
    result.rows += rows.size();
    result.live += static_cast<std::uint64_t>(
        std::count_if(rows.begin(), rows.end(), [](const VoteRow& row) { return row.value != 0; }));
    WrongItems wrong = check_rows(attempts, rows, result);
    check_counts(rows, counts, wrong, result);
}

std::uint64_t wrong_answers(std::span<const AddAnswer> adds, std::int64_t value) {
    // crossed[v + n] counts the steps between v - 1 and v: up 1, down -1.
    const auto most = static_cast<std::int64_t>(adds.size());
    std::vector<std::int32_t> crossed(2 * adds.size() + 1, 0);
    std::uint64_t outside = 0;
    for (const AddAnswer& add : adds) {
        // A step down crosses the edge above its returned value.
        const std::int64_t below = add.added > 0 ? 0 : 1;
        if (add.returned < -most - below || add.returned > most - below) {
            ++outside;
        } else {
            crossed[static_cast<std::size_t>(add.returned + below + most)] += add.added;
        }
    }
    std::uint64_t missing = 0;
    std::uint64_t extra = 0;
    for (std::int64_t edge = -most; edge <= most; ++edge) {
        const std::int32_t wanted = edge > 0 && edge <= value   ? 1
                                    : edge <= 0 && edge > value ? -1
                                                                : 0;
        const std::int32_t off = crossed[static_cast<std::size_t>(edge + most)] - wanted;
        (off < 0 ? missing : extra) += static_cast<std::uint64_t>(std::abs(off));
    }
    // A wrong answer leaves one step out and takes another twice.
    return std::max(missing, extra + outside);
}

std::uint64_t answers_without_predecessor(std::vector<std::int64_t> told, std::int64_t value) {
    std::sort(told.begin(), told.end());
    std::uint64_t missing = 0;
    if (value != 0 && !std::binary_search(told.begin(), told.end(), value)) ++missing;
    auto from = std::lower_bound(told.begin(), told.end(), 1);
    missing += static_cast<std::uint64_t>(from - told.begin());  // A life begins with 1.
    std::int64_t before = 0;
    std::uint64_t lives = UINT64_MAX;  // The number of lives that reached `before`.
    while (from != told.end()) {
        const auto until = std::upper_bound(from, told.end(), *from);
        const auto times = static_cast<std::uint64_t>(until - from);
        if (*from - 1 != before) lives = 0;
        if (times > lives) missing += times - lives;
        before = *from;
        lives = times;
        from = until;
    }
    return missing;
}

void check_counter(std::int64_t item, std::int64_t value, const CounterBounds& bounds,
                   AuditResult& result) {
    ++result.items;
    result.sum = capped_sum(result.sum, value);
    const std::int64_t least = bounds.acknowledged + bounds.unknown_down;
    const std::int64_t most = bounds.acknowledged + bounds.unknown_up;
    if (value >= least && value <= most) return;
    if (!bounds.attempted) {
        ++result.ghost_rows;
        result.example(fmt::format("ghost: item {} counts {}, but nobody touched it", item, value));
        return;
    }
    if (value < least) {
        result.counted_low = capped_sum(result.counted_low, distance(least, value));
    } else {
        result.counted_high = capped_sum(result.counted_high, distance(value, most));
        result.counters_off.push_back({item, distance(value, most), 0});
    }
    result.example(fmt::format("count: item {} counts {}, acknowledged is {} to {}", item, value,
                               least, most));
}

}  // namespace hotcount::loadtest

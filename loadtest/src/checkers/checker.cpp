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

void judge_unattempted(std::span<const Attempt> refused, const VoteRow& row, Verdict& verdict) {
    ++verdict.ghost_rows;
    verdict.example(
        refused.empty()
            ? fmt::format("ghost: item {} user {} has a row that nobody attempted", row.item,
                          row.user)
            : fmt::format("ghost: item {} user {} has a row, but each of its {} attempts was "
                          "refused",
                          row.item, row.user, refused.size()));
}

void judge_state(std::span<const Attempt> attempts, std::int64_t actual, Verdict& verdict) {
    const AllowedStates allowed(attempts);
    if (allowed.allows(actual)) return;
    const Attempt& any = attempts.front();
    std::int64_t most = 0;
    for (const Attempt& attempt : attempts) most = std::max(most, attempt.value);
    if (most > 0 && actual > most) {
        ++verdict.double_rows;
        verdict.example(fmt::format("double: item {} user {} has val {}, allowed is {}", any.item,
                                    any.user, actual, allowed.describe()));
        return;
    }
    ++verdict.lost_rows;
    verdict.example(fmt::format(
        "lost: item {} user {} has {}, the acknowledged answers allow {}", any.item, any.user,
        actual == 0 ? "no live vote" : fmt::format("val {}", actual), allowed.describe()));
}

void judge_key(std::span<const Attempt> attempts, std::span<const VoteRow> rows, Verdict& verdict) {
    // Sorted with the refused ones last.
    const auto refused = std::find_if(attempts.begin(), attempts.end(), [](const Attempt& attempt) {
        return attempt.status == Status::failed;
    });
    const auto applicable = attempts.first(static_cast<std::size_t>(refused - attempts.begin()));
    if (rows.size() > 1) {
        verdict.double_rows += rows.size() - 1;
        verdict.example(fmt::format("double: item {} user {} has {} rows", rows[0].item,
                                    rows[0].user, rows.size()));
    }
    if (applicable.empty()) {
        if (!rows.empty()) judge_unattempted(attempts, rows[0], verdict);
        return;
    }
    judge_state(applicable, rows.empty() ? 0 : rows[0].value, verdict);
}

void judge_rows(std::vector<Attempt>& attempts, std::span<const VoteRow> rows, Verdict& verdict) {
    std::sort(attempts.begin(), attempts.end(), [](const Attempt& a, const Attempt& b) {
        return std::tuple(a.item, a.user, a.status == Status::failed) <
               std::tuple(b.item, b.user, b.status == Status::failed);
    });
    std::span<const Attempt> attempts_left = attempts;
    std::span<const VoteRow> rows_left = rows;
    while (!attempts_left.empty() || !rows_left.empty()) {
        if (rows_left.empty()) {
            judge_key(take_group(attempts_left), {}, verdict);
        } else if (attempts_left.empty() || key_of(rows_left[0]) < key_of(attempts_left[0])) {
            judge_key({}, take_group(rows_left), verdict);
        } else if (key_of(attempts_left[0]) < key_of(rows_left[0])) {
            judge_key(take_group(attempts_left), {}, verdict);
        } else {
            judge_key(take_group(attempts_left), take_group(rows_left), verdict);
        }
    }
}

void judge_count(std::string_view what, std::int64_t item, std::optional<std::int64_t> count,
                 std::int64_t live, std::uint64_t& low, std::uint64_t& high, Verdict& verdict) {
    const std::int64_t actual = count.value_or(0);
    if (actual == live) return;
    (actual < live ? low : high) += static_cast<std::uint64_t>(std::abs(actual - live));
    verdict.example(fmt::format("count: item {} has {} live votes, {} says {}", item, live, what,
                                count ? std::to_string(*count) : "nothing"));
}

void judge_counts(std::span<const VoteRow> rows, std::span<const ItemCount> counts,
                  Verdict& verdict) {
    // Both are in order of item; an item may be in one of them alone.
    std::size_t row = 0;
    std::size_t count = 0;
    while (row < rows.size() || count < counts.size()) {
        const std::int64_t item = std::min(row < rows.size() ? rows[row].item : INT64_MAX,
                                           count < counts.size() ? counts[count].item : INT64_MAX);
        std::int64_t live = 0;
        for (; row < rows.size() && rows[row].item == item; ++row) live += rows[row].value;
        ItemCount said{item, {}, {}};
        if (count < counts.size() && counts[count].item == item) said = counts[count++];
        ++verdict.items;
        judge_count("item.vote_count", item, said.stored, live, verdict.stored_low,
                    verdict.stored_high, verdict);
        judge_count("count()", item, said.counted, live, verdict.counted_low, verdict.counted_high,
                    verdict);
    }
}

}  // namespace

void Verdict::example(std::string sentence) {
    if (examples.size() < kMostExamples) examples.push_back(std::move(sentence));
}

void Verdict::add(const Verdict& part) {
    acknowledged += part.acknowledged;
    failed += part.failed;
    unknown += part.unknown;
    unsent += part.unsent;
    refused += part.refused;
    rows += part.rows;
    live += part.live;
    sum += part.sum;
    items += part.items;
    lost_rows += part.lost_rows;
    double_rows += part.double_rows;
    ghost_rows += part.ghost_rows;
    stored_low += part.stored_low;
    stored_high += part.stored_high;
    counted_low += part.counted_low;
    counted_high += part.counted_high;
    wrong_answers += part.wrong_answers;
    over_admitted += part.over_admitted;
    wrong_refusals += part.wrong_refusals;
    keys_without_ttl += part.keys_without_ttl;
    rogue_sets += part.rogue_sets;
    late_writes += part.late_writes;
    wrong_scores += part.wrong_scores;
    declared += part.declared;
    for (const std::string& sentence : part.examples) example(sentence);
}

AllowedStates::AllowedStates(std::span<const Attempt> attempts) {
    std::int64_t last_sent_ns = INT64_MIN;
    for (const Attempt& attempt : attempts) {
        if (acknowledged(attempt)) last_sent_ns = std::max(last_sent_ns, attempt.sent_ns);
    }
    // Without an acknowledged one, nothing need have happened: no vote.
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

void judge_votes(std::vector<Attempt> attempts, std::span<const VoteRow> rows,
                 std::span<const ItemCount> counts, Verdict& verdict) {
    for (const Attempt& attempt : attempts) {
        if (attempt.status == Status::ok) {
            ++verdict.acknowledged;
        } else if (attempt.status == Status::failed) {
            ++verdict.failed;
        } else {
            ++verdict.unknown;
        }
    }
    verdict.rows += rows.size();
    verdict.live += static_cast<std::uint64_t>(
        std::count_if(rows.begin(), rows.end(), [](const VoteRow& row) { return row.value != 0; }));
    judge_rows(attempts, rows, verdict);
    judge_counts(rows, counts, verdict);
}

std::uint64_t wrong_answers(std::span<const AddAnswer> adds, std::int64_t value) {
    // crossed[v + n] counts the steps between v - 1 and v: up 1, down -1.
    const auto most = static_cast<std::int64_t>(adds.size());
    std::vector<std::int32_t> crossed(2 * adds.size() + 1, 0);
    std::uint64_t outside = 0;
    for (const AddAnswer& add : adds) {
        const std::int64_t edge = add.added > 0 ? add.returned : std::int64_t{add.returned} + 1;
        if (edge < -most || edge > most) {
            ++outside;
        } else {
            crossed[static_cast<std::size_t>(edge + most)] += add.added;
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
    // A wrong one leaves one step out and takes another twice.
    return std::max(missing, extra + outside);
}

void judge_counter(std::int64_t item, std::int64_t value, const CounterBounds& bounds,
                   Verdict& verdict) {
    ++verdict.items;
    verdict.sum += value;
    const std::int64_t least = bounds.acknowledged + bounds.unknown_down;
    const std::int64_t most = bounds.acknowledged + bounds.unknown_up;
    if (value >= least && value <= most) return;
    if (!bounds.attempted) {
        ++verdict.ghost_rows;
        verdict.example(
            fmt::format("ghost: item {} counts {}, but nobody touched it", item, value));
        return;
    }
    if (value < least) {
        verdict.counted_low += static_cast<std::uint64_t>(least - value);
    } else {
        verdict.counted_high += static_cast<std::uint64_t>(value - most);
    }
    verdict.example(fmt::format("count: item {} counts {}, acknowledged is {} to {}", item, value,
                                least, most));
}

}  // namespace hotcount::loadtest

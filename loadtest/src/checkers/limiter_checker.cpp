#include "store_checkers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace hotcount::loadtest {
namespace {

using Kind = LimiterHit::Kind;

// The clocks of a store and of this machine may run at slightly different speeds while one is being
// adjusted (0.05 % on Linux). A store rounds times to microseconds, and expiries to milliseconds.
constexpr double kDrift = 0.001;
constexpr double kClockStepNs = 2'000;
constexpr std::int64_t kExpiryNs = 2'000'000;

struct Findings {
    std::uint64_t over_admitted{0};
    std::uint64_t wrong_refusals{0};
};

/// An array of numbers, as a segment tree: adds 1 to a prefix and finds the maximum of a prefix,
/// each in logarithmic time.
class RisingMax {
  public:
    explicit RisingMax(const std::vector<double>& values)
        : size_(std::max<std::size_t>(values.size(), 1)) {
        most_.resize(4 * size_, -std::numeric_limits<double>::infinity());
        raised_.resize(4 * size_, 0);
        if (!values.empty()) build(1, 0, size_, values);
    }
    /// Adds 1 to the first `count` numbers.
    void raise(std::size_t count) {
        if (count > 0) raise(1, 0, size_, count);
    }
    /// The maximum of the first `count` numbers.
    double most(std::size_t count) const {
        return count == 0 ? -std::numeric_limits<double>::infinity() : most(1, 0, size_, count);
    }

  private:
    void build(std::size_t node, std::size_t from, std::size_t until,
               const std::vector<double>& values) {
        if (until - from == 1) {
            most_[node] = values[from];
            return;
        }
        const std::size_t middle = from + (until - from) / 2;
        build(2 * node, from, middle, values);
        build(2 * node + 1, middle, until, values);
        most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    }
    void raise(std::size_t node, std::size_t from, std::size_t until, std::size_t count) {
        if (count >= until) {
            most_[node] += 1;
            raised_[node] += 1;
            return;
        }
        const std::size_t middle = from + (until - from) / 2;
        raise(2 * node, from, middle, count);
        if (count > middle) raise(2 * node + 1, middle, until, count);
        most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + raised_[node];
    }
    double most(std::size_t node, std::size_t from, std::size_t until, std::size_t count) const {
        if (count >= until) return most_[node];
        const std::size_t middle = from + (until - from) / 2;
        double found = most(2 * node, from, middle, count);
        if (count > middle) found = std::max(found, most(2 * node + 1, middle, until, count));
        return found + raised_[node];
    }

    std::size_t size_;
    std::vector<double> most_;    // The maximum below each node, without what its ancestors add.
    std::vector<double> raised_;  // The amount added to all numbers below each node.
};

std::vector<LimiterHit> of_kind(std::span<const LimiterHit> hits, bool denied) {
    std::vector<LimiterHit> found;
    for (const LimiterHit& hit : hits) {
        if ((hit.kind == Kind::denied) == denied) found.push_back(hit);
    }
    return found;
}

bool by_sent(const LimiterHit& a, const LimiterHit& b) { return a.sent_ns < b.sent_ns; }
bool by_done(const LimiterHit& a, const LimiterHit& b) { return a.done_ns < b.done_ns; }

/// The largest excess of an interval [a, b]: the hits that lie inside it, less
/// burst + rate x (b - a). For each b, RisingMax has hits + rate x a at every a, and its maximum
/// gives the worst a.
std::uint64_t gcra_over_admitted(std::span<const LimiterHit> passed, const LimiterRules& rules) {
    std::vector<LimiterHit> admitted;
    for (const LimiterHit& hit : passed) {
        if (hit.kind == Kind::admitted) admitted.push_back(hit);
    }
    if (admitted.empty()) return 0;
    const double rate =
        static_cast<double>(rules.rate_limit) / static_cast<double>(rules.period_ns) * (1 + kDrift);
    std::vector<std::int64_t> starts;
    starts.reserve(admitted.size());
    for (const LimiterHit& hit : admitted) starts.push_back(hit.sent_ns);
    std::sort(starts.begin(), starts.end());
    std::vector<double> values;
    values.reserve(starts.size());
    for (const std::int64_t start : starts) {
        values.push_back(rate * static_cast<double>(start - starts.front()));
    }
    RisingMax sums(values);
    std::sort(admitted.begin(), admitted.end(), by_done);
    double most = 0;
    for (const LimiterHit& hit : admitted) {
        const auto end = std::upper_bound(starts.begin(), starts.end(), hit.sent_ns);
        sums.raise(static_cast<std::size_t>(end - starts.begin()));
        const double allowed =
            static_cast<double>(rules.limit) +
            rate * (static_cast<double>(hit.done_ns - starts.front()) + kClockStepNs);
        // Only starts up to the end form an interval.
        const auto until = std::upper_bound(starts.begin(), starts.end(), hit.done_ns);
        most =
            std::max(most, sums.most(static_cast<std::size_t>(until - starts.begin())) - allowed);
    }
    return static_cast<std::uint64_t>(std::ceil(std::max(0.0, most - 1e-6)));
}

/// The store denies a hit if the debt exceeds the burst less one. For some moment a, the debt is at
/// most the hits that can have been admitted since a, each as late as possible, less rate x the
/// time since a. If no a gives enough debt, the denial was wrong.
std::uint64_t gcra_wrong_refusals(std::vector<LimiterHit> passed, std::vector<LimiterHit> denied,
                                  const LimiterRules& rules) {
    if (denied.empty()) return 0;
    const double rate =
        static_cast<double>(rules.rate_limit) / static_cast<double>(rules.period_ns) * (1 - kDrift);
    const std::int64_t zero = denied.front().sent_ns;
    std::vector<std::int64_t> ends;
    ends.reserve(passed.size() + denied.size());
    for (const LimiterHit& hit : passed) ends.push_back(hit.done_ns);
    // A hit that ends after the denial counts from the end of the denial.
    for (const LimiterHit& hit : denied) ends.push_back(hit.done_ns);
    std::sort(ends.begin(), ends.end());
    std::vector<double> values;
    values.reserve(ends.size());
    for (const std::int64_t end : ends) values.push_back(rate * static_cast<double>(end - zero));
    RisingMax sums(values);
    std::sort(passed.begin(), passed.end(), by_sent);
    std::sort(denied.begin(), denied.end(), by_done);
    std::uint64_t wrong = 0;
    std::size_t next = 0;
    for (const LimiterHit& hit : denied) {
        for (; next < passed.size() && passed[next].sent_ns <= hit.done_ns; ++next) {
            const auto end = std::upper_bound(ends.begin(), ends.end(), passed[next].done_ns);
            sums.raise(static_cast<std::size_t>(end - ends.begin()));
        }
        const auto until = std::upper_bound(ends.begin(), ends.end(), hit.done_ns);
        const double debt = sums.most(static_cast<std::size_t>(until - ends.begin())) -
                            rate * (static_cast<double>(hit.sent_ns - zero) - kClockStepNs);
        if (debt + 1 <= static_cast<double>(rules.limit)) ++wrong;
    }
    return wrong;
}

/// Windows on a clock. A hit certainly belongs to a window if it was sent and answered inside it.
Findings check_clock_windows(std::span<const LimiterHit> hits, const LimiterRules& rules) {
    const std::int64_t error = rules.clock_error_ns + kExpiryNs / 2;
    const auto window_of = [&](std::int64_t at_ns) { return at_ns / rules.period_ns; };
    struct Window {
        std::int64_t admitted{0};  // Hits that were sent and answered inside the window.
        std::uint64_t denied{0};   // Hits that were sent and answered inside the window.
    };
    std::map<std::int64_t, Window> windows;
    // The first and the last possible window of each hit that may have been admitted. A hit without
    // an answer may be in any of millions of windows, so a window keeps no list of its possible
    // hits.
    std::vector<std::int64_t> firsts;
    std::vector<std::int64_t> lasts;
    for (const LimiterHit& hit : hits) {
        const std::int64_t first = window_of(hit.sent_ns + rules.clock_offset_ns - error);
        const std::int64_t last = window_of(hit.done_ns + rules.clock_offset_ns + error);
        if (hit.kind == Kind::denied) {
            if (first == last) ++windows[first].denied;
            continue;
        }
        firsts.push_back(first);
        lasts.push_back(last);
        if (hit.kind == Kind::admitted && first == last) ++windows[first].admitted;
    }
    std::sort(firsts.begin(), firsts.end());
    std::sort(lasts.begin(), lasts.end());
    // The number of these hits that overlap the window.
    const auto possible_in = [&](std::int64_t index) -> std::int64_t {
        const auto begun = std::upper_bound(firsts.begin(), firsts.end(), index) - firsts.begin();
        const auto over = std::lower_bound(lasts.begin(), lasts.end(), index) - lasts.begin();
        return begun - over;
    };
    Findings found;
    for (const auto& [index, window] : windows) {
        if (window.admitted > rules.limit) {
            found.over_admitted += static_cast<std::uint64_t>(window.admitted - rules.limit);
        }
        if (window.denied == 0) continue;
        std::int64_t possible = possible_in(index);
        if (rules.windows == Windows::weighted_clock) possible += possible_in(index - 1);
        if (possible < rules.limit) found.wrong_refusals += window.denied;
    }
    return found;
}

/// Windows that start with a hit start at least a period apart. The hits are divided at pauses that
/// every window ends in. In each part, the hits admitted up to any moment must fit into the windows
/// that can have started by then.
std::uint64_t first_windows_over_admitted(std::vector<LimiterHit> passed,
                                          const LimiterRules& rules) {
    const std::int64_t period = rules.period_ns - kExpiryNs;
    std::sort(passed.begin(), passed.end(), by_sent);
    std::uint64_t over = 0;
    for (std::size_t from = 0; from < passed.size();) {
        std::size_t until = from + 1;
        std::int64_t latest = passed[from].done_ns;
        while (until < passed.size() &&
               passed[until].sent_ns <= latest + rules.period_ns + 2 * kExpiryNs) {
            latest = std::max(latest, passed[until++].done_ns);
        }
        const std::int64_t start = passed[from].sent_ns;
        const auto first = passed.begin() + static_cast<std::ptrdiff_t>(from);
        const auto end = passed.begin() + static_cast<std::ptrdiff_t>(until);
        std::sort(first, end, by_done);
        std::int64_t admitted = 0;
        std::int64_t most = 0;
        for (auto hit = first; hit != end; ++hit) {
            if (hit->kind != Kind::admitted) continue;
            ++admitted;
            const std::int64_t windows = (hit->done_ns - start) / period + 1;
            most = std::max(most, admitted - windows * rules.limit);
        }
        over += static_cast<std::uint64_t>(most);
        from = until;
    }
    return over;
}

/// The largest number of hits inside one period, less the limit. The number is the hits that end
/// before the end of the period, less those that begin before its start. Hits that last longer than
/// the period make it too small, never too large.
std::uint64_t periods_over_admitted(const std::vector<LimiterHit>& passed,
                                    const LimiterRules& rules) {
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> done;
    for (const LimiterHit& hit : passed) {
        if (hit.kind != Kind::admitted) continue;
        sent.push_back(hit.sent_ns);
        done.push_back(hit.done_ns);
    }
    std::sort(sent.begin(), sent.end());
    std::sort(done.begin(), done.end());
    std::int64_t most = 0;
    for (std::size_t before = 0; before < sent.size(); ++before) {
        const std::int64_t end = sent[before] + rules.period_ns - kExpiryNs;
        const auto ended = std::lower_bound(done.begin(), done.end(), end) - done.begin();
        most = std::max(most, ended - static_cast<std::int64_t>(before) - rules.limit);
    }
    return static_cast<std::uint64_t>(most);
}

/// A window or a log holds only hits of the period before the denial: if too few hits can have been
/// admitted in that period, the denial was wrong.
std::uint64_t within_a_period_wrong_refusals(const std::vector<LimiterHit>& passed,
                                             const std::vector<LimiterHit>& denied,
                                             const LimiterRules& rules) {
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> done;
    sent.reserve(passed.size());
    done.reserve(passed.size());
    for (const LimiterHit& hit : passed) {
        sent.push_back(hit.sent_ns);
        done.push_back(hit.done_ns);
    }
    std::sort(sent.begin(), sent.end());
    std::sort(done.begin(), done.end());
    std::uint64_t wrong = 0;
    for (const LimiterHit& hit : denied) {
        const std::int64_t since = hit.sent_ns - rules.period_ns - 2 * kExpiryNs;
        const auto begun = std::upper_bound(sent.begin(), sent.end(), hit.done_ns) - sent.begin();
        const auto over = std::lower_bound(done.begin(), done.end(), since) - done.begin();
        if (begun - over < rules.limit) ++wrong;
    }
    return wrong;
}

}  // namespace

void check_limiter_hits(std::int64_t item, std::span<LimiterHit> hits, const LimiterRules& rules,
                        AuditResult& result) {
    Findings found;
    if (rules.windows == Windows::clock || rules.windows == Windows::weighted_clock) {
        found = check_clock_windows(hits, rules);
    } else {
        std::vector<LimiterHit> passed = of_kind(hits, false);
        std::vector<LimiterHit> denied = of_kind(hits, true);
        if (rules.windows == Windows::none) {
            found.over_admitted = gcra_over_admitted(passed, rules);
            found.wrong_refusals = gcra_wrong_refusals(std::move(passed), std::move(denied), rules);
        } else {
            found.wrong_refusals = within_a_period_wrong_refusals(passed, denied, rules);
            found.over_admitted = rules.windows == Windows::sliding
                                      ? periods_over_admitted(passed, rules)
                                      : first_windows_over_admitted(std::move(passed), rules);
        }
    }
    ++result.items;
    result.over_admitted += found.over_admitted;
    result.wrong_refusals += found.wrong_refusals;
    if (rules.may_over_admit) result.allowed_breaches += found.over_admitted;
    if (rules.may_refuse) result.allowed_breaches += found.wrong_refusals;
    if (found.over_admitted > 0) {
        result.example(fmt::format(
            "over-admitted: item {} admitted {} more than {} allows{}", item, found.over_admitted,
            rules.windows == Windows::none ? "burst + rate x time" : "its windows' limit",
            rules.may_over_admit ? ", as its contract allows" : ""));
    }
    if (found.wrong_refusals > 0) {
        result.example(fmt::format(
            "wrong refusal: item {} denied {} hits for which its limit had room{}", item,
            found.wrong_refusals, rules.may_refuse ? ", as its contract allows" : ""));
    }
}

}  // namespace hotcount::loadtest

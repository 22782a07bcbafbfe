#include "trial.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "compare.hpp"
#include "numbers.hpp"

namespace hotcount::loadtest {
namespace {

constexpr Duration kLeastWindow = std::chrono::milliseconds{100};
// Fewer calls say nothing of a rate.
constexpr double kLeastCalls = 20;

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

nlohmann::json seconds_or_null(const std::optional<Duration>& duration) {
    return duration ? nlohmann::json(seconds_of(*duration)) : nlohmann::json(nullptr);
}

/// When calls succeeded, in order.
std::vector<std::int64_t> successes(const Ledger& ledger) {
    std::vector<std::int64_t> done;
    for (std::uint64_t at = 0; at < ledger.planned(); ++at) {
        if (ledger[at].load_status() == Status::ok) done.push_back(ledger[at].done_ns);
    }
    std::sort(done.begin(), done.end());
    return done;
}

class Successes {
  public:
    explicit Successes(const Ledger& ledger) : done_(successes(ledger)) {}

    double per_s(Duration from, Duration to) const {
        const auto count = static_cast<double>(at(to) - at(from));
        return count < kLeastCalls ? 0 : count / seconds_of(to - from);
    }
    std::optional<Duration> first(Duration from, Duration to) const {
        const auto found = at(from);
        if (found == at(to)) return std::nullopt;
        return Duration{*found};
    }
    /// When the first window of this rate begins.
    std::optional<Duration> reaches(double per_s, Duration from, Duration to) const {
        const Duration window =
            std::max<Duration>(kLeastWindow, Duration{std::llround(kLeastCalls / per_s * 1e9)});
        const auto wanted = static_cast<std::ptrdiff_t>(std::ceil(per_s * seconds_of(window)));
        for (auto begin = at(from); done_.end() - begin >= wanted; ++begin) {
            if (Duration{*begin} + window > to) return std::nullopt;
            if (*(begin + wanted - 1) < *begin + window.count()) return Duration{*begin};
        }
        return std::nullopt;
    }

  private:
    std::vector<std::int64_t>::const_iterator at(Duration time) const {
        return std::lower_bound(done_.begin(), done_.end(), time.count());
    }

    std::vector<std::int64_t> done_;
};

std::string fault_text(const Fault& fault) {
    return fmt::format("{} at {}", to_string(fault.kind), format_duration(fault.at));
}

std::string seconds_text(double value_s) {
    return value_s < 1 ? fmt::format("{:.0f} ms", 1e3 * value_s) : fmt::format("{:.2f} s", value_s);
}

}  // namespace

std::vector<Recovery> recoveries(const Ledger& ledger, const std::vector<Outage>& outages,
                                 const TrialSettings& settings) {
    if (outages.empty()) return {};
    const Successes done(ledger);
    std::vector<Recovery> all;
    Duration from = settings.warmup;
    for (std::size_t i = 0; i < outages.size(); ++i) {
        Recovery& recovery = all.emplace_back();
        const Outage& outage = recovery.outage = outages[i];
        const Duration until =
            i + 1 < outages.size() ? outages[i + 1].from : settings.warmup + settings.duration;
        recovery.before_per_s = done.per_s(from, outage.from);
        if (const auto first = done.first(outage.back, until)) {
            recovery.first_ok = *first - outage.back;
        }
        if (recovery.before_per_s > 0) {
            const auto reached =
                done.reaches(kRecovered * recovery.before_per_s, outage.back, until);
            if (reached) recovery.recovered = *reached - outage.back;
        }
        from = outage.back + recovery.recovered.value_or(Duration{0});
    }
    return all;
}

nlohmann::json describe(const std::vector<Recovery>& recoveries) {
    nlohmann::json list = nlohmann::json::array();
    for (const Recovery& one : recoveries) {
        list.push_back({{"fault", to_string(one.outage.fault.kind)},
                        {"at_s", seconds_of(one.outage.fault.at)},
                        {"from_s", seconds_of(one.outage.from)},
                        {"away_s", seconds_of(one.outage.back - one.outage.from)},
                        {"before_per_s", one.before_per_s},
                        {"first_ok_s", seconds_or_null(one.first_ok)},
                        {"recovered_s", seconds_or_null(one.recovered)}});
    }
    return list;
}

std::string recovery_lines(const std::vector<Recovery>& recoveries) {
    std::string text;
    for (const Recovery& one : recoveries) {
        text += fmt::format("  {}: away for {}; after it was back ", fault_text(one.outage.fault),
                            seconds_text(seconds_of(one.outage.back - one.outage.from)));
        text += one.first_ok ? fmt::format("the first call succeeded in {}",
                                           seconds_text(seconds_of(*one.first_ok)))
                             : "no call succeeded";
        text += one.recovered ? fmt::format(", and the rate was 90 % of {}/s in {}\n",
                                            three_digits(one.before_per_s),
                                            seconds_text(seconds_of(*one.recovered)))
                : one.before_per_s > 0
                    ? fmt::format(", and the rate did not come to 90 % of {}/s in the load\n",
                                  three_digits(one.before_per_s))
                    : ", and too few calls succeeded before to compare with\n";
    }
    return text;
}

std::string recovery_lines(const Summary& summary) {
    std::string text;
    for (std::size_t at = 0;; ++at) {
        std::vector<double> away;
        std::vector<double> recovered;
        const Fault* fault = nullptr;
        for (const TrialResult& trial : summary.trials) {
            if (at >= trial.recoveries.size()) continue;
            const Recovery& one = trial.recoveries[at];
            fault = &one.outage.fault;
            away.push_back(seconds_of(one.outage.back - one.outage.from));
            if (one.recovered) recovered.push_back(seconds_of(*one.recovered));
        }
        if (fault == nullptr) return text;
        text += fmt::format("  {}: {}: away for {}, ", summary.strategy, fault_text(*fault),
                            seconds_text(median(away)));
        if (recovered.empty()) {
            text += fmt::format("and not at 90 % of the rate before, in {} round{}\n", away.size(),
                                away.size() == 1 ? "" : "s");
            continue;
        }
        const auto [least, most] = std::minmax_element(recovered.begin(), recovered.end());
        text += fmt::format("and at 90 % of the rate before {} after it was back",
                            seconds_text(median(recovered)));
        if (recovered.size() > 1) {
            text += fmt::format(" ({} to {})", seconds_text(*least), seconds_text(*most));
        }
        text += fmt::format(", in {} of {} rounds\n", recovered.size(), away.size());
    }
}

}  // namespace hotcount::loadtest

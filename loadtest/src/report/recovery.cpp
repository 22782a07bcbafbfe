#include "trial.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "compare.hpp"
#include "numbers.hpp"

namespace hotcount::loadtest {
namespace {

constexpr Duration kLeastWindow = std::chrono::milliseconds{100};
constexpr Duration kInSockets = std::chrono::milliseconds{50};
// Fewer calls say nothing of a rate.
constexpr double kLeastCalls = 20;

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

nlohmann::json seconds_or_null(const std::optional<Duration>& duration) {
    return duration ? nlohmann::json(seconds_of(*duration)) : nlohmann::json(nullptr);
}

/// The calls that succeeded, in the order of their ends.
struct Success {
    std::int64_t done_ns;
    std::int64_t item;
};

std::vector<Success> successes(const Ledger& ledger) {
    std::vector<Success> done;
    for (std::uint64_t at = 0; at < ledger.planned(); ++at) {
        if (ledger[at].load_status() != Status::ok) continue;
        done.push_back({ledger[at].done_ns, ledger[at].item});
    }
    std::sort(done.begin(), done.end(),
              [](const Success& a, const Success& b) { return a.done_ns < b.done_ns; });
    return done;
}

class Successes {
  public:
    explicit Successes(const Ledger& ledger) : done_(successes(ledger)) {}

    double per_s(Duration from, Duration to) const {
        const auto count = static_cast<double>(at(to) - at(from));
        return count < kLeastCalls ? 0 : count / seconds_of(to - from);
    }
    /// The first one; of a Redis, on an item that no call succeeded on since the server refused: the
    /// other nodes of a cluster go on with theirs. What was in the sockets is answered for a moment.
    std::optional<Duration> first(FaultKind kind, Duration refused, Duration from,
                                  Duration to) const {
        std::unordered_set<std::int64_t> others;
        const Duration since = is_of_database(kind) ? from : std::min(refused + kInSockets, from);
        for (auto one = at(since); one != at(from); ++one) {
            others.insert(one->item);
        }
        const auto found = std::find_if(
            at(from), at(to), [&](const Success& one) { return !others.contains(one.item); });
        if (found == at(to)) return std::nullopt;
        return Duration{found->done_ns};
    }
    /// When the first window of this rate begins.
    std::optional<Duration> reaches(double per_s, Duration from, Duration to) const {
        const Duration window =
            std::max<Duration>(kLeastWindow, Duration{std::llround(kLeastCalls / per_s * 1e9)});
        const auto wanted = static_cast<std::ptrdiff_t>(std::ceil(per_s * seconds_of(window)));
        for (auto begin = at(from); done_.end() - begin >= wanted; ++begin) {
            const Duration first{begin->done_ns};
            if (first + window > to) return std::nullopt;
            if (Duration{(begin + wanted - 1)->done_ns} < first + window) return first;
        }
        return std::nullopt;
    }

  private:
    std::vector<Success>::const_iterator at(Duration time) const {
        return std::lower_bound(
            done_.begin(), done_.end(), time.count(),
            [](const Success& one, std::int64_t time_ns) { return one.done_ns < time_ns; });
    }

    std::vector<Success> done_;
};

/// The calls that a fault may have ended, and what it may have lost.
void count_calls(const Ledger& ledger, Duration copied, Duration refused, Duration back,
                 Duration until, Recovery& recovery) {
    const bool replaced = recovery.outage.replaced.has_value();
    // A server that is away acknowledges nothing: those are answers of the other nodes of a cluster.
    const auto by_others = [&, away = refused + kInSockets](Duration done) {
        return !lasts_by_itself(recovery.outage.fault.kind) && done >= away && done < back;
    };
    for (std::uint64_t at = 0; at < ledger.planned(); ++at) {
        const LedgerRecord& record = ledger[at];
        const Status status = record.load_status();
        const Duration done{record.done_ns};
        if (status == Status::ok && replaced && record.kind != OperationKind::read) {
            const bool since = done >= copied && done < recovery.served;
            if (since && !by_others(done)) {
                MayLose::OfItem& item = recovery.may_lose.items[record.item];
                ++recovery.may_lose.writes;
                ++item.writes;
                item.takes += record.value < 0 ? 1 : 0;
            }
        }
        // A call that was in flight at the fault ended after it.
        if (done < recovery.from || Duration{record.sent_ns} >= until) continue;
        recovery.failed += status == Status::failed ? 1 : 0;
        recovery.unknown += status == Status::unknown ? 1 : 0;
    }
}

std::string fault_text(const Fault& fault) {
    return fmt::format("{} at {}", to_string(fault.kind), format_duration(fault.at));
}

std::string seconds_text(double value_s) {
    return value_s < 1 ? fmt::format("{:.0f} ms", 1e3 * value_s) : fmt::format("{:.2f} s", value_s);
}

}  // namespace

std::vector<Recovery> recoveries(const Ledger& ledger, const std::vector<Outage>& outages,
                                 const TrialSettings& settings) {
    const Successes done(ledger);
    const SteadyTime start{std::chrono::nanoseconds{ledger.started_ns()}};
    std::vector<Recovery> all;
    Duration from = settings.warmup;
    for (std::size_t i = 0; i < outages.size(); ++i) {
        Recovery& recovery = all.emplace_back();
        const Outage& outage = recovery.outage = outages[i];
        recovery.from = outage.away - start;
        recovery.served = outage.served() - start;
        const Duration refused = outage.refused.value_or(outage.back) - start;
        const Duration until = i + 1 < outages.size() ? outages[i + 1].away - start
                                                      : settings.warmup + settings.duration;
        recovery.before_per_s = done.per_s(from, recovery.from);
        if (const auto first = done.first(outage.fault.kind, refused, recovery.served, until)) {
            recovery.first_ok = *first - recovery.served;
        }
        if (recovery.before_per_s > 0) {
            const auto reached =
                done.reaches(kRecovered * recovery.before_per_s, recovery.served, until);
            if (reached) recovery.recovered = *reached - recovery.served;
        }
        count_calls(ledger, outage.copied - start, refused, outage.back - start, until, recovery);
        from = recovery.served + recovery.recovered.value_or(Duration{0});
    }
    return all;
}

MayLose may_lose(const std::vector<Recovery>& recoveries) {
    MayLose all;
    for (const Recovery& one : recoveries) all.add(one.may_lose);
    return all;
}

nlohmann::json describe(const std::vector<Recovery>& recoveries) {
    nlohmann::json list = nlohmann::json::array();
    for (const Recovery& one : recoveries) {
        list.push_back(
            {{"fault", to_string(one.outage.fault.kind)},
             {"at_s", seconds_of(one.outage.fault.at)},
             {"from_s", seconds_of(one.from)},
             {"away_s", seconds_of(one.outage.back - one.outage.away)},
             {"replaced_s", one.outage.replaced ? nlohmann::json(seconds_of(one.served - one.from))
                                                : nlohmann::json(nullptr)},
             {"before_per_s", one.before_per_s},
             {"first_ok_s", seconds_or_null(one.first_ok)},
             {"recovered_s", seconds_or_null(one.recovered)},
             {"failed", one.failed},
             {"unknown", one.unknown},
             {"may_lose", one.may_lose.writes}});
    }
    return list;
}

std::string recovery_lines(const std::vector<Recovery>& recoveries, const AuditResult& audit) {
    std::string text;
    for (const Recovery& one : recoveries) {
        const bool replaced = one.outage.replaced.has_value();
        text += fmt::format(
            "  {}: {} {}; after {} ", fault_text(one.outage.fault),
            replaced                                 ? "another server took over after"
            : lasts_by_itself(one.outage.fault.kind) ? "done in"
                                                     : "away for",
            seconds_text(seconds_of(one.outage.served() - one.outage.away)),
            replaced || lasts_by_itself(one.outage.fault.kind) ? "that" : "it was back");
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
        text += fmt::format(
            "    from the fault on {} calls failed and {} are unknown{}\n", one.failed, one.unknown,
            one.first_ok
                ? fmt::format("; the first success came {} after it",
                              seconds_text(seconds_of(one.served + *one.first_ok - one.from)))
                : "");
    }
    if (const std::uint64_t most = may_lose(recoveries).writes; most > 0) {
        text += fmt::format(
            "  asynchronous replication may lose {} acknowledged writes here, and lost {}\n", most,
            audit.lost_in_failover);
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
            away.push_back(seconds_of(one.outage.served() - one.outage.away));
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

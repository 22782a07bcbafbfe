#include "closing_text.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "table.hpp"

namespace hotcount::loadtest {
namespace {

std::string whole(std::uint64_t count) { return grouped(static_cast<double>(count)); }
bool is_open(const TrialSettings& settings) { return settings.arrival != Arrival::closed; }

/// 11.2 times naive, 10.1 to 12.3 in 8 rounds.
std::string times_text(const Ratio& ratio, const std::string& of, std::size_t rounds) {
    const auto low = ratio.interval ? ratio.interval->low : ratio.spread.min;
    const auto high = ratio.interval ? ratio.interval->high : ratio.spread.max;
    return fmt::format("{:.3g} times {}, {:.3g} to {:.3g} in {} round{}", ratio.spread.median, of,
                       low, high, rounds, rounds == 1 ? "" : "s");
}

std::string by_how_much(const PartResult& result, const Summary& fastest) {
    const std::string& baseline = result.part.baseline;
    const std::size_t rounds = fastest.trials.size();
    if (fastest.strategy == baseline) return "no other strategy answered more";
    const std::string times = times_text(fastest.ratio, baseline, rounds);
    const std::size_t needed = least_rounds(result.tests());
    if (rounds < needed) {
        return fmt::format("{}; {} or more could show a difference", times, needed);
    }
    if (!fastest.ratio.called) return "no difference could be shown: " + times;
    const Summary* const best = result.with_role(Role::best);
    if (best == nullptr || !result.best_is_faster()) return times;
    return fmt::format("{}; {}{}", times, times_text(fastest.ratio_to_best, best->strategy, rounds),
                       fastest.ratio_to_best.called ? "" : ", which may be noise");
}

}  // namespace

std::string fastest_sentences(const Comparison& comparison) {
    std::string text;
    std::optional<WorkloadKind> workload;
    for (const PartResult& result : comparison.parts) {
        if (workload &&
            (result.part.database.empty() || result.part.settings.workload != *workload)) {
            continue;
        }
        const auto fastest =
            std::max_element(result.summaries.begin(), result.summaries.end(),
                             [](const Summary& a, const Summary& b) {
                                 // Of those that the user named.
                                 const auto rate = [](const Summary& one) {
                                     return one.role == Role::named ? one.writes_per_s.median : -1;
                                 };
                                 return rate(a) < rate(b);
                             });
        if (is_open(result.part.settings) || result.tests() == 0 ||
            fastest->writes_per_s.median == 0) {
            continue;
        }
        workload = result.part.settings.workload;
        const std::string& database = result.part.database;
        text += fmt::format("Fastest{}: {} with {} writes a second.\nBy how much: {}.\n",
                            database.empty() ? "" : " on " + database, fastest->strategy,
                            grouped(fastest->writes_per_s.median), by_how_much(result, *fastest));
        if (database.empty()) return text;
    }
    return text;
}

std::string lost_sentence(const Comparison& /*comparison*/, std::size_t audited, std::size_t runs,
                          const AuditResult& all) {
    if (audited < runs) return "Lost: nobody knows, because not every run was audited.\n";
    if (!all.passed()) return "Lost: the audit FAILED; the tables say for which strategy.\n";
    if (all.allowed_breaches > 0) {
        return fmt::format(
            "Lost: nothing; those that are here to show their holes broke a limit or a count {} "
            "times, as they say they may.\n",
            whole(all.allowed_breaches));
    }
    return fmt::format("Lost: nothing; each of {} acknowledged writes is counted once.\n",
                       whole(all.acknowledged));
}

}  // namespace hotcount::loadtest

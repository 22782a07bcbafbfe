// The last sentences of a comparison.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "numbers.hpp"
#include "report.hpp"

namespace hotcount::loadtest {
namespace {

/// 11.2 times naive, 10.1 to 12.3 in 8 rounds.
std::string times_text(const Spread& ratio, const std::string& of, std::size_t rounds) {
    return fmt::format("{} times {}, {} to {} in {} round{}", three_digits(ratio.median), of,
                       three_digits(ratio.min), three_digits(ratio.max), rounds,
                       rounds == 1 ? "" : "s");
}

std::string by_how_much(const PartResult& result, const Summary& fastest) {
    const std::string& baseline = result.part.baseline;
    const std::size_t rounds = fastest.trials.size();
    if (fastest.strategy == baseline) {
        return baseline + " is the baseline, and no other strategy made more writes";
    }
    const std::string times = times_text(fastest.ratio, baseline, rounds);
    if (fastest.ratio.min <= 1) return "not in every round: " + times;
    const Summary* const best = result.with_role(Role::best);
    if (best == nullptr || !result.best_is_faster()) return times;
    return fmt::format("{}; {}", times, times_text(fastest.ratio_to_best, best->strategy, rounds));
}

/// The strategies with breaches that their contract allows.
std::vector<std::string> let_off(const Comparison& comparison) {
    std::vector<std::string> names;
    for (const PartResult& result : comparison.parts) {
        for (const Summary& summary : result.summaries) {
            if (summary.audit.allowed_breaches == 0) continue;
            if (std::find(names.begin(), names.end(), summary.strategy) != names.end()) continue;
            names.push_back(summary.strategy);
        }
    }
    return names;
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

std::string lost_sentence(const Comparison& comparison, std::size_t audited, std::size_t runs,
                          const AuditResult& all) {
    if (audited < runs) return "Lost: nobody knows, because not every run was audited.\n";
    if (!all.passed()) return "Lost: a contract is broken; the tables say of which strategy.\n";
    if (all.allowed_breaches > 0) {
        const std::vector<std::string> names = let_off(comparison);
        std::string who = fmt::format("{}", fmt::join(names, ", "));
        if (std::all_of(names.begin(), names.end(), [](const std::string& name) {
                const auto strategy = find_strategy(name);
                return strategy && strategy->racy;
            })) {
            who = fmt::format("Wrong ways that are here for comparison ({})", who);
        }
        return fmt::format(
            "Lost: nothing. {} broke their rules {}. Their contracts allow that; the tables show "
            "how.\n",
            who,
            all.allowed_breaches == 1 ? "once"
                                      : fmt::format("{} times", whole(all.allowed_breaches)));
    }
    if (all.acknowledged == 0) return "Lost: nothing, because no write was acknowledged.\n";
    return fmt::format("Lost: nothing; each of {} acknowledged writes is counted once.\n",
                       whole(all.acknowledged));
}

}  // namespace hotcount::loadtest

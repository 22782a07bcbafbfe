// Comparisons of trials that did not take place.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "report/compare.hpp"

namespace hotcount::loadtest {

using Contenders = std::vector<std::pair<std::string, std::vector<TrialResult>>>;

/// The trials of each contender by round; the first one is the baseline. `last` is the last one's role.
inline PartResult part_of(Contenders contenders, Role last = Role::named,
                          Arrival arrival = Arrival::closed) {
    PartResult result;
    result.part.name = arrival == Arrival::closed ? "closed" : "open";
    result.part.settings.arrival = arrival;
    result.part.baseline = contenders.front().first;
    result.part.rounds = 1;
    for (auto& [name, trials] : contenders) {
        Summary& summary = result.summaries.emplace_back();
        summary.strategy = name;
        if (&name == &contenders.back().first) summary.role = last;
        if (summary.role == Role::named) result.part.strategies.push_back(name);
        result.part.rounds =
            std::max(result.part.rounds, static_cast<std::uint32_t>(trials.size()));
        summary.trials = std::move(trials);
    }
    summarise(result);
    return result;
}

}  // namespace hotcount::loadtest

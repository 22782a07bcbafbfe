#include "search.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <hotcount/detail/base/random.hpp>
#include <optional>
#include <utility>

#include "report/figures.hpp"
#include "report/machine.hpp"
#include "report/progress.hpp"
#include "report/report_json.hpp"
#include "report/table.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How many times as long as asked a trial may take, for a percentile of a low rate.
constexpr int kMostLonger = 5;

double in_ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double error_share(const TrialResult& trial) {
    const LoadResult& load = trial.load;
    const auto due = static_cast<double>(std::max<std::uint64_t>(1, load.scheduled));
    return static_cast<double>(load.tally.failed + load.tally.unknown + load.censored) / due;
}

std::int64_t quantile_of(const Histogram& ns, double quantile) {
    return quantile == 1 ? ns.max() : ns.value_at(quantile);
}

struct Percentile {
    std::int64_t ns;
    std::uint64_t values;      ///< Of so many.
    std::string none_because;  ///< Why there is no such time; empty: there is.
};

/// A number that was right at no moment has been wrong for longer than any time.
Percentile staleness_of(const AuditResult& audit, double quantile) {
    const std::uint64_t dated = audit.staleness_ns.count();
    const std::uint64_t reads = dated + audit.reads_never_right;
    if (reads == 0) return {0, 0, "no read was told a count that could be checked"};
    const auto rank = static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(reads)));
    if (rank > dated) {
        return {
            0, reads,
            fmt::format("{} of {} reads were right at no moment", audit.reads_never_right, reads)};
    }
    const double among = static_cast<double>(rank) / static_cast<double>(dated);
    return {quantile_of(audit.staleness_ns, among), reads, ""};
}

Percentile percentile_of(const SloTerm& term, const TrialResult& trial) {
    if (term.metric == SloMetric::staleness) return staleness_of(trial.audit, term.quantile);
    const Histogram& times = trial.load.response_ns;
    return {quantile_of(times, term.quantile), times.count(), ""};
}

bool is_percentile(const SloTerm& term) {
    return term.metric == SloMetric::latency || term.metric == SloMetric::staleness;
}

bool is_known(const SloTerm& term, const Percentile& found) {
    return can_tell(found.values, term.quantile);
}

/// p99.9 needs 1,000 calls, a trial had 252
std::string needs(const SloTerm& term, const Percentile& found) {
    return fmt::format("{} needs {} {}, a trial had {}", term.text.substr(0, term.text.find('<')),
                       grouped(static_cast<double>(least_values(term.quantile))),
                       term.metric == SloMetric::latency ? "calls" : "reads",
                       grouped(static_cast<double>(found.values)));
}

std::optional<std::string> why_not(const SloTerm& term, const TrialResult& trial) {
    const auto exceeds = [&](double value, double most) {
        return term.inclusive ? value > most : value >= most;
    };
    const auto count = [&](std::uint64_t found) -> std::optional<std::string> {
        if (!exceeds(static_cast<double>(found), term.most)) return std::nullopt;
        return fmt::format("{}: {}", term.text, found);
    };
    switch (term.metric) {
        case SloMetric::latency:
        case SloMetric::staleness: {
            const Percentile found = percentile_of(term, trial);
            if (!found.none_because.empty()) {
                return fmt::format("{}: {}", term.text, found.none_because);
            }
            if (!exceeds(static_cast<double>(found.ns), static_cast<double>(term.time.count()))) {
                return is_known(term, found) ? std::nullopt : std::optional{needs(term, found)};
            }
            return fmt::format("{}: {} ms", term.text, three_digits(in_ms(found.ns)));
        }
        case SloMetric::errors:
            if (!exceeds(error_share(trial), term.most)) return std::nullopt;
            return fmt::format("{}: {} %", term.text, three_digits(100 * error_share(trial)));
        case SloMetric::lost:
            return count(trial.audit.lost());
        case SloMetric::doubled:
            return count(trial.audit.doubled());
        case SloMetric::ghost:
            return count(trial.audit.ghost());
    }
    return std::nullopt;
}

/// The percentiles of which the trial says nothing, though it was as long as any at its rate.
std::vector<std::string> too_short(const Slo& slo, Duration asked, const TrialResult& trial) {
    std::vector<std::string> needed;
    if (trial.settings.duration < kMostLonger * asked) return needed;
    for (const SloTerm& term : slo.terms) {
        if (!is_percentile(term)) continue;
        std::string why = needs(term, percentile_of(term, trial));
        if (why_not(term, trial) == why) needed.push_back(std::move(why));
    }
    return needed;
}

/// What ends the search for a strategy; none if it goes on.
std::optional<std::string> why_over(const TrialResult& trial) {
    if (trial.conclusion == Conclusion::broken) return trial.reasons.front();
    if (trial.load.error) return trial.load.error->message;
    if (trial.load.interrupted) return "it was interrupted";
    if (!trial.audited) return trial.problems.empty() ? "not audited" : trial.problems.front();
    return std::nullopt;
}

class Searcher {
  public:
    Searcher(const StudySettings& study, const TrialContext& context)
        : study_(study), trials_(context) {}

    Result<SearchResult> run(const TrialSettings& settings) {
        SearchResult found;
        found.strategy = settings.strategy;
        const auto start = steady_clock::now();
        const auto elapsed_s = [&] {
            return std::chrono::duration<double>(steady_clock::now() - start).count();
        };
        auto from_per_s = first_rate(settings, found);
        if (!from_per_s) return given_up(std::move(found), from_per_s.error());
        if (found.conclusion == Conclusion::broken) return found;
        RateSearch search(*from_per_s);
        double longest_s = 0;
        std::uint64_t confirmations = 0;
        for (bool ended = false; !ended && search.next();) {
            const double before_s = elapsed_s();
            if (longest_s > 0 &&
                before_s + longest_s > std::chrono::duration<double>(study_.max_time).count()) {
                found.reasons.push_back(
                    fmt::format("--max-time {} was over before a rate was confirmed; {}",
                                format_duration(study_.max_time), held_words(search)));
                break;
            }
            TrialSettings next = settings;
            next.rate_per_s = *search.next();
            if (search.phase() == RateSearch::Phase::confirm) {
                next.traffic.seed = confirming_seed(settings.traffic.seed, ++confirmations);
            }
            auto trial = try_rate(std::move(next), found.trials.size());
            if (!trial) return given_up(std::move(found), trial.error());
            if (const auto over = why_over(*trial)) {
                found.reasons.push_back(*over);
                ended = true;
            }
            if (trial->conclusion == Conclusion::broken) found.conclusion = Conclusion::broken;
            std::vector<std::string> misses = loadtest::why_not(study_.slo, *trial);
            const auto needed = too_short(study_.slo, settings.duration, *trial);
            if (!ended && !needed.empty() && needed.size() == misses.size()) {
                for (const std::string& why : needed) {
                    found.reasons.push_back(why + ": raise -d or --from");
                }
                ended = true;
            } else {
                search.note(misses.empty() && !ended);
            }
            measured_ = true;
            found.trials.push_back({std::move(*trial), std::move(misses)});
            longest_s = std::max(longest_s, elapsed_s() - before_s);
        }
        found.rate_per_s = search.confirmed();
        found.refused_per_s = search.refused();
        found.elapsed_s = elapsed_s();
        if (found.rate_per_s > 0) found.conclusion = Conclusion::passed;
        if (found.rate_per_s == 0 && found.reasons.empty()) {
            found.reasons.push_back(fmt::format("no rate held: {}", found.limit()));
        }
        return found;
    }

  private:
    /// A short closed loop says where about the limit is.
    Result<double> first_rate(TrialSettings settings, SearchResult& found) {
        if (study_.from_per_s > 0) return study_.from_per_s;
        settings.arrival = Arrival::closed;
        settings.rate_per_s = 0;
        settings.duration = std::min<Duration>(settings.duration, milliseconds{500});
        settings.warmup = std::min<Duration>(settings.warmup, milliseconds{250});
        HOTCOUNT_TRY_ASSIGN(const TrialResult trial,
                            trials_.run(settings, fmt::format("search-{}-00", settings.strategy),
                                        fmt::format("search {}", settings.strategy)));
        measured_ = true;
        if (trial.conclusion == Conclusion::broken) {
            found.conclusion = trial.conclusion;
            found.reasons = trial.reasons;
        }
        return std::max(10.0, trial.load.per_second(trial.load.tally.ok()) / 4);
    }

    Result<TrialResult> try_rate(TrialSettings settings, std::size_t tried) {
        settings.duration =
            trial_length(study_.slo, settings.traffic.mix, settings.duration, settings.rate_per_s);
        return trials_.run(
            settings, fmt::format("search-{}-{:02}", settings.strategy, tried + 1),
            fmt::format("search {} at {}/s", settings.strategy, three_digits(settings.rate_per_s)));
    }

    /// What was measured before stays.
    Result<SearchResult> given_up(SearchResult found, const Error& error) {
        if (!measured_ && found.trials.empty()) return error;
        found.reasons.push_back("it could not be measured: " + error.message);
        return found;
    }

    const StudySettings& study_;
    FreshTrials trials_;
    bool measured_{false};  ///< At least one trial.
};

nlohmann::json describe(const RateTrial& tried) {
    const TrialResult& trial = tried.trial;
    nlohmann::json document = trial_document(trial);
    document["rate_per_s"] = trial.settings.rate_per_s;
    document["held"] = tried.misses.empty();
    document["misses"] = tried.misses;
    return document;
}

std::string per_s(double rate) { return rate > 0 ? three_digits(rate) : "-"; }

std::string headroom_text(const TrialResult& trial) {
    return trial.headroom() > 0 ? three_digits(trial.headroom()) + " x" : "?";
}

}  // namespace

std::vector<std::string> why_not(const Slo& slo, const TrialResult& trial) {
    std::vector<std::string> misses;
    const OfferedLoad& offered = trial.load.offered;
    if (!offered.carried()) {
        misses.push_back(fmt::format("overloaded: {:.1f} % was sent in time, bound by {}",
                                     100 * offered.share, to_string(trial.load.bound)));
    }
    for (const SloTerm& term : slo.terms) {
        if (auto why = why_not(term, trial)) misses.push_back(std::move(*why));
    }
    return misses;
}

Duration trial_length(const Slo& slo, const Mix& shares, Duration asked, double rate_per_s) {
    double calls = 0;
    for (const SloTerm& term : slo.terms) {
        const bool latency = term.metric == SloMetric::latency;
        if (!is_percentile(term) || term.quantile >= 1) continue;
        const double all = shares.vote + shares.unvote + shares.read;
        const double share = latency ? 1 : shares.read / all;
        if (share > 0) calls = std::max(calls, 2 / (1 - term.quantile) / share);
    }
    const double asked_s = std::chrono::duration<double>(asked).count();
    const double wanted_s = std::clamp(calls / rate_per_s, asked_s, kMostLonger * asked_s);
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wanted_s));
}

std::string held_words(const RateSearch& search) {
    if (search.held() > 0) return three_digits(search.held()) + " held once";
    return search.phase() == RateSearch::Phase::confirm ? "no rate is left that held" : "none held";
}

std::uint64_t confirming_seed(std::uint64_t seed, std::uint64_t confirmation) {
    // As --seed takes them: whole numbers that a double holds.
    return mix(seed, confirmation) >> 11;
}

const TrialResult* SearchResult::slowest() const {
    const TrialResult* slowest = nullptr;
    for (const RateTrial& tried : trials) {
        if (tried.trial.settings.rate_per_s != rate_per_s || !tried.misses.empty()) continue;
        if (slowest == nullptr || tried.trial.load.response_ns.value_at(0.99) >
                                      slowest->load.response_ns.value_at(0.99)) {
            slowest = &tried.trial;
        }
    }
    return slowest;
}

std::string SearchResult::limit() const {
    for (auto tried = trials.rbegin(); tried != trials.rend(); ++tried) {
        if (tried->misses.empty() || tried->trial.settings.rate_per_s != refused_per_s) continue;
        return fmt::format("{}", fmt::join(tried->misses, "; "));
    }
    return "-";
}

Result<Search> run_search(const std::vector<StrategyGroup>& groups, const StudySettings& study,
                          const TrialContext& context) {
    Search search;
    search.slo = study.slo;
    search.started = utc_now();
    const ProgressScope scope(context.progress);
    Searcher searcher(study, context);
    bool broken = false;
    bool all_passed = true;
    for (const StrategyGroup& group : groups) {
        for (const std::string& strategy : group.strategies) {
            if (context.interrupt) {
                SearchResult& left = search.results.emplace_back();
                left.strategy = strategy;
                left.reasons.emplace_back("not run: interrupted before");
                continue;
            }
            TrialSettings settings = group.trial;
            settings.strategy = strategy;
            HOTCOUNT_TRY_ASSIGN(SearchResult found, searcher.run(settings));
            broken = broken || found.conclusion == Conclusion::broken;
            all_passed = all_passed && found.conclusion == Conclusion::passed;
            search.results.push_back(std::move(found));
        }
    }
    all_passed = all_passed && !context.interrupt;
    search.conclusion = broken       ? Conclusion::broken
                        : all_passed ? Conclusion::passed
                                     : Conclusion::inconclusive;
    return search;
}

nlohmann::json search_document(const Search& search, const nlohmann::json& provenance) {
    nlohmann::json document = begin_document("search", provenance);
    document["started"] = search.started;
    document["slo"] = search.slo.text();
    nlohmann::json& results = document["strategies"] = nlohmann::json::array();
    for (const SearchResult& found : search.results) {
        nlohmann::json one = {
            {"strategy", found.strategy},
            {"rate_per_s", found.rate_per_s},
            {"refused_per_s", found.refused_per_s > 0 ? nlohmann::json(found.refused_per_s)
                                                      : nlohmann::json(nullptr)},
            {"limit", found.limit()},
            {"elapsed_s", found.elapsed_s},
            {"conclusion", to_string(found.conclusion)},
            {"reasons", found.reasons}};
        nlohmann::json& trials = one["trials"] = nlohmann::json::array();
        for (const RateTrial& tried : found.trials) trials.push_back(describe(tried));
        results.push_back(std::move(one));
    }
    add_conclusion(document, search.conclusion);
    return document;
}

std::string search_text(const Search& search) {
    Table table({"strategy", "ops/s", "refused at", "writes/s", "p50 ms", "p99 ms", "p99.9 ms",
                 "generator", "trials", "what the next rate misses"});
    std::string notes;
    std::string places;
    for (const SearchResult& found : search.results) {
        const TrialResult* at = found.slowest();
        const auto ms = [&](double quantile) {
            return at ? percentile_ms(at->load.response_ns, quantile) : "-";
        };
        table.add({found.strategy, per_s(found.rate_per_s), per_s(found.refused_per_s),
                   at ? per_s(at->load.per_second(at->load.tally.writes_ok())) : "-", ms(0.5),
                   ms(0.99), ms(0.999), at ? headroom_text(*at) : "-",
                   fmt::format("{}", found.trials.size()), found.limit()});
        for (const std::string& reason : found.reasons) {
            notes +=
                fmt::format("  {}: {}: {}\n", found.strategy, to_string(found.conclusion), reason);
        }
        if (at == nullptr) continue;
        places += fmt::format("  {} on {}: when answered, {}\n", found.strategy, at->place,
                              at->contract.acknowledged);
    }
    const std::string text = fmt::format("The highest rate under {}, on {}\n\n{}{}",
                                         search.slo.text(), machine_line(), table.str(), notes);
    // Of no rate there is nothing to explain.
    if (places.empty()) return text;
    return text + fmt::format(
                      "\nEach rate held in three trials, each with traffic of its own; "
                      "\"refused at\" is the lowest rate above that failed twice.\n"
                      "Percentiles are those of the slowest of the three. \"generator\": its "
                      "ceiling divided by the rate.\n\nWhat an acknowledgement means\n{}",
                      places);
}

std::string search_markdown(const Search& search) {
    std::string text = fmt::format(
        "| strategy | operations/s with {} | refused at | votes/s | p50 ms | p99 ms | what the "
        "next "
        "rate misses |\n|---|---|---|---|---|---|---|\n",
        search.slo.text());
    for (const SearchResult& found : search.results) {
        const TrialResult* at = found.slowest();
        const auto ms = [&](double quantile) {
            return at ? percentile_ms(at->load.response_ns, quantile) : "-";
        };
        text += fmt::format(
            "| {} | {} | {} | {} | {} | {} | {} |\n", found.strategy,
            found.rate_per_s > 0 ? per_s(found.rate_per_s) : to_string(found.conclusion),
            per_s(found.refused_per_s),
            at ? per_s(at->load.per_second(at->load.tally.writes_ok())) : "-", ms(0.5), ms(0.99),
            found.rate_per_s > 0 ? found.limit()
                                 : fmt::format("{}", fmt::join(found.reasons, "; ")));
    }
    return text;
}

}  // namespace hotcount::loadtest

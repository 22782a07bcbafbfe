#include "study_settings.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include "settings.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::string_view kSloTakes =
    "terms such as p99<10ms, p99.9<=50ms, max<1s, stale.p99<1s, err<0.1%, lost=0, double=0 and "
    "ghost=0";
constexpr std::string_view kRatesTake =
    "500:20000:x1.5, 500:2000:+250 or a rising list such as 500,1k,5k";

Error refuse_term(std::string_view term, std::string_view why) {
    return make_error(ErrorCode::config,
                      fmt::format("term '{}': {}; it takes {}", term, why, kSloTakes));
}

/// p99 or p99.9: 0.999; max: 1. Otherwise 0.
double quantile_of(std::string_view name) {
    if (name == "max") return 1;
    if (!name.starts_with('p')) return 0;
    name.remove_prefix(1);
    double percent = 0;
    const auto [end, error] =
        std::from_chars(name.data(), name.data() + name.size(), percent, std::chars_format::fixed);
    if (error != std::errc{} || end != name.data() + name.size()) return 0;
    return percent > 0 && percent < 100 ? percent / 100 : 0;
}

Result<SloTerm> parse_term(std::string_view text) {
    const std::size_t at = text.find_first_of("<=>");
    if (at == std::string_view::npos) return refuse_term(text, "it has no < or =");
    SloTerm term{};
    term.text = std::string{text};
    const std::string_view name = text.substr(0, at);
    std::string_view bound = text.substr(at);
    const bool below = bound.starts_with("<");
    const bool equal = bound.starts_with("=");
    if (!below && !equal) return refuse_term(text, "a bound from below is no SLO");
    term.inclusive = equal || bound.starts_with("<=");
    bound.remove_prefix(bound.starts_with("<=") ? 2 : 1);
    const auto about = [&](const Error& error) { return refuse_term(text, error.message); };
    constexpr std::string_view kStale = "stale.";
    const bool stale = name.starts_with(kStale);
    term.quantile = quantile_of(stale ? name.substr(kStale.size()) : name);
    if (term.quantile > 0) {
        term.metric = stale ? SloMetric::staleness : SloMetric::latency;
        if (equal) return refuse_term(text, "a time takes < or <=");
        const auto time = parse_duration(bound);
        if (!time) return about(time.error());
        // 10 is 10 seconds elsewhere; who writes p99<10 here means milliseconds, or does not know.
        if (std::isalpha(static_cast<unsigned char>(bound.back())) == 0) {
            return refuse_term(text, fmt::format("{} of what? Its time has no unit", bound));
        }
        term.time = *time;
        if (term.time <= Duration{0}) return refuse_term(text, "no call takes no time");
        return term;
    }
    if (name == "err") {
        term.metric = SloMetric::errors;
        const auto share = parse_share(bound);
        if (!share) return about(share.error());
        term.most = *share;
    } else if (name == "lost" || name == "double" || name == "ghost") {
        term.metric = name == "lost"     ? SloMetric::lost
                      : name == "double" ? SloMetric::doubled
                                         : SloMetric::ghost;
        const auto count = parse_count(bound);
        if (!count) return about(count.error());
        term.most = static_cast<double>(*count);
    } else {
        return refuse_term(text, fmt::format("'{}' is not known", name));
    }
    if (!term.inclusive && term.most == 0) return refuse_term(text, "nothing is below 0");
    return term;
}

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t at = text.find(separator);
        parts.push_back(text.substr(0, at));
        if (at == std::string_view::npos) return parts;
        text.remove_prefix(at + 1);
    }
}

Error refuse_rates(std::string_view text, std::string_view why) {
    return make_error(ErrorCode::config,
                      fmt::format("'{}': {}; it takes {}", text, why, kRatesTake));
}

template <class T>
bool rises(const std::vector<T>& values) {
    return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>{}) == values.end();
}

}  // namespace

std::string Slo::text() const {
    std::vector<std::string_view> texts;
    for (const SloTerm& term : terms) texts.push_back(term.text);
    return fmt::format("{}", fmt::join(texts, ","));
}

Result<Slo> parse_slo(std::string_view text) {
    Slo slo;
    for (const std::string_view part : parts_of(text, ',')) {
        HOTCOUNT_TRY_ASSIGN(SloTerm term, parse_term(part));
        slo.terms.push_back(std::move(term));
    }
    return slo;
}

Result<std::vector<double>> parse_rates(std::string_view text) {
    std::vector<double> rates;
    const std::vector<std::string_view> span = parts_of(text, ':');
    if (span.size() == 1) {
        for (const std::string_view part : parts_of(text, ',')) {
            HOTCOUNT_TRY_ASSIGN(const double rate, parse_rate(part));
            rates.push_back(rate);
        }
        if (rates.size() > kMostPoints) {
            return refuse_rates(text, fmt::format("more than {} rates", kMostPoints));
        }
        if (!rises(rates)) return refuse_rates(text, "the rates do not rise");
        return rates;
    }
    if (span.size() != 3 || span[2].size() < 2 || (span[2][0] != 'x' && span[2][0] != '+')) {
        return refuse_rates(text, "that is no first rate, last rate and step");
    }
    HOTCOUNT_TRY_ASSIGN(const double first, parse_rate(span[0]));
    HOTCOUNT_TRY_ASSIGN(const double last, parse_rate(span[1]));
    HOTCOUNT_TRY_ASSIGN(const double step, parse_rate(span[2].substr(1)));
    const bool times = span[2][0] == 'x';
    if (times && step <= 1) return refuse_rates(text, "a factor is above 1");
    if (last < first) return refuse_rates(text, "the last rate is below the first");
    // Rounding must not take the last rate away.
    for (double rate = first; rate <= last * (1 + 1e-9); rate = times ? rate * step : rate + step) {
        if (rates.size() == kMostPoints) {
            return refuse_rates(text, fmt::format("more than {} rates", kMostPoints));
        }
        rates.push_back(std::min(rate, last));
    }
    return rates;
}

Result<std::vector<std::uint32_t>> parse_worker_counts(std::string_view text) {
    std::vector<std::uint32_t> counts;
    const auto refuse = [&](const std::string& why) {
        return make_error(
            ErrorCode::config,
            fmt::format("'{}': {}; it takes a rising list such as 1,2,4,8", text, why));
    };
    for (const std::string_view part : parts_of(text, ',')) {
        const auto count = parse_count(part);
        if (!count) return refuse(count.error().message);
        if (*count < 1 || *count > kMostWorkers) {
            return refuse(fmt::format("{} is not from 1 to {}", part, kMostWorkers));
        }
        counts.push_back(static_cast<std::uint32_t>(*count));
    }
    if (counts.size() > kMostPoints) return refuse(fmt::format("more than {}", kMostPoints));
    if (!rises(counts)) return refuse("the numbers do not rise");
    return counts;
}

}  // namespace hotcount::loadtest

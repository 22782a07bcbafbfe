// The list of algorithms, their names and the options that they take.
#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "algorithm.hpp"

namespace hotcount {

std::string names_of(bool (*has)(const AlgorithmInfo&)) {
    std::string names;
    for (const LimiterAlgorithm* const algorithm : kLimiterAlgorithms) {
        if (!has(algorithm->info)) continue;
        names += (names.empty() ? "" : " and ") + std::string{algorithm->info.name};
    }
    return names;
}

Result<void> check_limiter_name(std::string_view name) {
    const auto fits = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    if (!name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), fits)) {
        return {};
    }
    return bad_option("name",
                      "is '" + printable(name) +
                          "'; it takes 1 to 100 printable ASCII characters "
                          "without quotes and backslashes",
                      printable(name));
}

Result<void> check_limiter_options(const LimiterOptions& options) {
    HOTCOUNT_TRY(check_limiter_name(options.name));
    const AlgorithmInfo& algorithm = info(options.algorithm);
    const auto takes_align = [](const AlgorithmInfo& one) {
        return !one.promise_from_first.empty();
    };
    if (options.align != Align::clock && !takes_align(algorithm)) {
        return bad_option("align", "is for " + names_of(takes_align) + ", not for " +
                                       std::string{algorithm.name});
    }
    const auto takes_charge = [](const AlgorithmInfo& one) { return one.takes_charge_denied; };
    if (options.rates.empty() || options.rates.size() > LimiterOptions::kMaxRates) {
        return bad_option("rate", "has " + std::to_string(options.rates.size()) +
                                      " rates; it takes 1 to " +
                                      std::to_string(LimiterOptions::kMaxRates));
    }
    for (std::size_t i = 0; i < options.rates.size(); ++i) {
        const auto first = options.rates.begin();
        if (std::find(first, first + static_cast<std::ptrdiff_t>(i), options.rates[i]) ==
            first + static_cast<std::ptrdiff_t>(i)) {
            continue;
        }
        return bad_option("rate", "has " + options.rates[i].str() + " twice");
    }
    if (options.deny_cache < 0 || options.deny_cache > LimiterOptions::kMaxDenyCache) {
        return bad_value("deny_cache", options.deny_cache,
                         "it takes 0 to " + std::to_string(LimiterOptions::kMaxDenyCache));
    }
    if (options.deny_cache > 0 && options.charge_denied) {
        return bad_option("deny_cache",
                          "is not for charge_denied: a hit that is not sent costs nothing");
    }
    if (options.lease < 0 || options.lease > LimiterOptions::kMaxLease) {
        return bad_value("lease", options.lease,
                         "it takes 0 to " + std::to_string(LimiterOptions::kMaxLease));
    }
    if (options.lease > 0 && (options.charge_denied || options.shadow)) {
        return bad_option("lease", options.shadow
                                       ? "is not for shadow: what would be refused is not taken"
                                       : "is not for charge_denied: a hit that is not sent costs "
                                         "nothing");
    }
    if (options.op_keep < std::chrono::seconds{1}) {
        return bad_option("op_keep", "must be 1 second or more");
    }
    if (options.charge_denied && !takes_charge(algorithm)) {
        return bad_option("charge_denied", "is for " + names_of(takes_charge) + ", not for " +
                                               std::string{algorithm.name});
    }
    return {};
}

std::string key_prefix(const LimiterOptions& options) {
    std::string prefix = "limit:" + escape_part(options.name) + ":";
    prefix += to_string(options.algorithm);
    if (options.align == Align::first) prefix += "_first";  // Its windows begin elsewhere.
    std::string rates;
    for (const Rate& rate : options.rates) rates += (rates.empty() ? "" : ";") + rate.str();
    std::replace(rates.begin(), rates.end(), ' ', '_');
    return prefix + ":" + rates;
}

const LimiterAlgorithm& find_algorithm(Algorithm algorithm) {
    return *kLimiterAlgorithms[static_cast<std::size_t>(algorithm)];
}

const AlgorithmInfo& info(Algorithm algorithm) { return find_algorithm(algorithm).info; }

std::span<const Algorithm> algorithms() {
    static const auto kAll = [] {
        std::array<Algorithm, kLimiterAlgorithms.size()> all{};
        std::transform(kLimiterAlgorithms.begin(), kLimiterAlgorithms.end(), all.begin(),
                       [](const LimiterAlgorithm* one) { return one->info.algorithm; });
        return all;
    }();
    return kAll;
}

std::string_view to_string(Algorithm algorithm) { return info(algorithm).name; }

Result<Algorithm> parse_algorithm(std::string_view name) {
    std::string known;
    for (const Algorithm algorithm : algorithms()) {
        if (to_string(algorithm) == name) return algorithm;
        known += (known.empty() ? "" : ", ") + std::string{to_string(algorithm)};
    }
    return bad_option("algorithm", "is '" + printable(name) + "'; it takes " + known,
                      printable(name));
}

Error no_limit_state(std::string_view key) {
    return make_error(ErrorCode::wrong_type,
                      "the key " + printable(key) + " holds something that is no limiter's state")
        .about(&ErrorFacts::key, key);
}

Result<void> check_window_rate(const Rate& rate) {
    HOTCOUNT_TRY(check_rate(rate));
    if (rate.burst == rate.limit) return {};
    return make_error(ErrorCode::config,
                      "the rate " + rate.str() +
                          " has a burst, which only gcra and the buckets know: a window "
                          "admits its limit at once");
}

}  // namespace hotcount

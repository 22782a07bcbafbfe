// The core's arithmetic on the vectors that tests/contract/test_limiter_vectors.py runs through the
// Redis scripts.
#include <fstream>
#include <nlohmann/json.hpp>

#include "limiter/algorithm.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

TEST(Vectors, TheCoreAnswersAsTheyAndTheScriptsDo) {
    std::ifstream file(HOTCOUNT_LIMITER_VECTORS);
    const auto cases = nlohmann::json::parse(file);
    ASSERT_FALSE(cases.empty());
    for (const auto& item : cases) {
        const Rate rate{item["limit"], std::chrono::microseconds{item["period"]}, item["burst"]};
        LimiterOptions options;
        options.rates = {rate};
        if (item.contains("rates")) {
            options.rates.clear();
            for (const auto& one : item["rates"]) {
                options.rates.push_back(
                    {one[0], std::chrono::microseconds{one[1].get<std::int64_t>()}, one[2]});
            }
        }
        options.algorithm = *parse_algorithm(item["algorithm"].get<std::string>());
        options.align = item["first"].get<bool>() ? Align::first : Align::clock;
        options.charge_denied = item["charge_denied"];
        const auto key = std::move(*find_algorithm(options.algorithm).simulate(options));
        for (const auto& hit : item["hits"]) {
            const std::int64_t now = hit[0];
            const Outcome outcome = key->hit(now, hit[1], true);
            const std::vector<std::int64_t> answer{outcome.allowed, outcome.remaining,
                                                   outcome.retry_after_us.value_or(-1),
                                                   outcome.reset_after_us};
            ASSERT_EQ(answer, std::vector<std::int64_t>(hit.begin() + 2, hit.end()))
                << item["name"] << " at " << now << ", cost " << hit[1];
        }
    }
}

}  // namespace
}  // namespace hotcount

// The core's arithmetic on the vectors that tests/contract/test_limiter_vectors.py runs through the
// Redis scripts.
#include <fstream>
#include <hotcount/detail/limiter/algorithms.hpp>
#include <nlohmann/json.hpp>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

TEST(Vectors, TheCoreAnswersAsTheyAndTheScriptsDo) {
    std::ifstream file(HOTCOUNT_LIMITER_VECTORS);
    const auto cases = nlohmann::json::parse(file);
    ASSERT_FALSE(cases.empty());
    for (const auto& item : cases) {
        const Rate rate{item["limit"], std::chrono::microseconds{item["period"]}, item["burst"]};
        const bool is_gcra = item["algorithm"] == "gcra";
        const Align align = item["first"].get<bool>() ? Align::first : Align::clock;
        const bool charge_denied = item["charge_denied"];
        const Plan plan =
            is_gcra ? *plan_gcra(rate, charge_denied) : *plan_window(rate, align, charge_denied);
        std::optional<LimitState> state;
        for (const auto& hit : item["hits"]) {
            const std::int64_t now = hit[0];
            const Step step =
                (is_gcra ? step_gcra : step_fixed_window)(plan, state, now, hit[1], true);
            if (step.state) state = step.state;
            const Verdict& verdict = step.verdict;
            const std::vector<std::int64_t> answer{verdict.allowed, verdict.remaining,
                                                   verdict.retry_after_us.value_or(-1),
                                                   verdict.reset_after_us};
            ASSERT_EQ(answer, std::vector<std::int64_t>(hit.begin() + 2, hit.end()))
                << item["name"] << " at " << now << ", cost " << hit[1];
        }
    }
}

}  // namespace
}  // namespace hotcount

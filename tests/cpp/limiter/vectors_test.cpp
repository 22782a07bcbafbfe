// The core's arithmetic on the vectors that tests/contract/test_limiter_vectors.py runs through the
// Redis scripts; once on states in memory, once on states that are read and written as a database's.
#include <fstream>
#include <nlohmann/json.hpp>

#include "limiter/algorithm.hpp"
#include "limiter/stored_law.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

std::vector<std::int64_t> numbers(const Outcome& outcome) {
    return {outcome.allowed, outcome.remaining, outcome.retry_after_us.value_or(-1),
            outcome.forget_after_us()};
}

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
        const LimiterAlgorithm& algorithm = find_algorithm(options.algorithm);
        const auto key = std::move(*algorithm.simulate(options));
        const auto stored = algorithm.stored(options);
        // A database writes the whole log with each hit.
        EXPECT_EQ(stored.ok(), options.algorithm != Algorithm::sliding_log || rate.limit <= 1000);
        std::string row;
        for (const auto& hit : item["hits"]) {
            const std::int64_t now = hit[0];
            const std::vector<std::int64_t> expected(hit.begin() + 2, hit.end());
            const bool ahead = item.value("ahead", false);
            if (!ahead) {
                EXPECT_EQ(numbers(key->hit(now, hit[1], true)), expected)
                    << item["name"] << " at " << now << ", cost " << hit[1];
            }
            if (!stored) continue;
            const auto opened = (*stored)->open(row);
            ASSERT_NE(opened, nullptr) << row;
            EXPECT_EQ(numbers(opened->hit(now, hit[1], ahead ? Take::ahead : Take::all)), expected)
                << item["name"] << " at " << now << ", cost " << hit[1] << ", stored " << row;
            if (opened->changed()) row = opened->text();
        }
    }
}

TEST(StoredLaw, TextThatIsNoStateIsRefused) {
    LimiterOptions options;
    for (const std::vector<Rate>& rates :
         {std::vector<Rate>{Rate{}}, {Rate{}, Rate{5, std::chrono::seconds{60}, 5}}}) {
        options.rates = rates;
        for (const Algorithm algorithm : {Algorithm::gcra, Algorithm::sliding_log}) {
            options.algorithm = algorithm;
            const auto law = std::move(*find_algorithm(algorithm).stored(options));
            for (const std::string_view text :
                 {"x", "1 ", " 1", "0 2", "1 2 3 4 5 6 7 8", "0 1 2 3 4 5 6 7", "0 -1 2",
                  "0 1 9007199254740993"}) {
                EXPECT_EQ(law->open(text), nullptr) << text;
            }
            EXPECT_NE(law->open(""), nullptr);
            EXPECT_NE(law->open("1800000000000000"), nullptr);  // Blocked, and never hit.
        }
    }
}

// By how much the clock goes back, after a key was filled or blocked for a minute.
TEST(StoredLaw, WhoeverAsksFirstAfterAStepBackWritesTheRow) {
    constexpr std::int64_t kMinute = 60'000'000;
    constexpr std::int64_t kNow = 30'000'000 * kMinute;
    struct Case {
        bool blocks;
        Take asked_by;
        std::int64_t back;
        bool writes;
    };
    LimiterOptions options;
    options.rates = {Rate{10, std::chrono::microseconds{kMinute}, 10}};
    for (const Algorithm algorithm : {Algorithm::gcra, Algorithm::fixed_window,
                                      Algorithm::sliding_window, Algorithm::sliding_log}) {
        options.algorithm = algorithm;
        const auto law = std::move(*find_algorithm(algorithm).stored(options));
        for (const Case& one : {Case{false, Take::all, 10 * kMinute, true},
                                {false, Take::nothing, 10 * kMinute, true},
                                {false, Take::what_fits, 10 * kMinute, true},
                                {false, Take::all_free, kMostSkew + 1, true},
                                {false, Take::nothing, kMostSkew, false},
                                {true, Take::all, 10 * kMinute, true},
                                {true, Take::nothing, kMostSkew, false}}) {
            const auto filled = law->open("");
            if (one.blocks) {
                filled->block(kNow, std::chrono::microseconds{kMinute});
            } else {
                filled->hit(kNow, 10, Take::all);
            }
            const auto asked = law->open(filled->text());
            ASSERT_NE(asked, nullptr) << filled->text();
            const Outcome outcome = asked->hit(kNow - one.back, 1, one.asked_by);
            EXPECT_FALSE(outcome.allowed);
            EXPECT_EQ(asked->changed(), one.writes) << filled->text() << ", " << one.back;
            if (one.writes) {
                EXPECT_LE(*outcome.retry_after_us, 2 * kMinute);
                EXPECT_TRUE(law->open(asked->text())
                                ->hit(kNow - one.back + 2 * kMinute, 1, Take::all)
                                .allowed);
            }
        }
    }
}

TEST(StoredLaw, AStateToWhichNoHitsLeadIsRefused) {
    const Rate rate{10, std::chrono::seconds{60}, 10};
    struct Case {
        Algorithm algorithm;
        std::string_view fits;
        std::vector<std::string_view> too_much;
    };
    const std::vector<Case> cases{
        {Algorithm::gcra, "1 120000000", {"1 120000001", "9007199254740992 9007199254740992"}},
        {Algorithm::fixed_window, "60000000 20", {"60000000 21"}},
        {Algorithm::sliding_window, "60000000 20 20", {"60000000 21 0", "60000000 0 21"}},
        {Algorithm::sliding_log,
         "5 2 60000000 9 1 1",
         {"5 1 60000000 11", "5 2 60000000 9 1 2", "0 2 9007199254740992 1 1 1",
          "9007199254740992 1 60000000 1"}},
    };
    LimiterOptions options;
    for (const Case& one : cases) {
        options.algorithm = one.algorithm;
        const std::string state{one.fits};
        for (const bool several : {false, true}) {
            options.rates = {rate};
            if (several) options.rates.push_back(rate);
            const auto law = std::move(*find_algorithm(one.algorithm).stored(options));
            const std::string front = several ? "0 " + state + " " : "0 ";
            const auto key = law->open(front + state);
            ASSERT_NE(key, nullptr) << state;
            // Whatever fits, it is decided on without a number that leaves its range.
            EXPECT_GE(key->hit(0, 10, Take::all).remaining, 0);
            for (const std::string_view text : one.too_much) {
                EXPECT_EQ(law->open(front + std::string{text}), nullptr) << text;
            }
        }
    }
}

}  // namespace
}  // namespace hotcount

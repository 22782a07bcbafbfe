// The long-run rate of each algorithm is the configured one, from one hit a day to a million a second.
#include <hotcount/detail/base/random.hpp>

#include "limiter/algorithm.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'123'457;

struct Case {
    Algorithm algorithm;
    const char* rate;
    Align align{Align::clock};
};

std::string name_of(const ::testing::TestParamInfo<Case>& tested) {
    std::string name{to_string(tested.param.algorithm)};
    if (tested.param.align == Align::first) name += "_first";
    name += "_";
    for (const char* at = tested.param.rate; *at != '\0'; ++at) {
        if (*at != ' ') name += *at == '/' ? '_' : *at;
    }
    return name;
}

class LongRun : public ::testing::TestWithParam<Case> {
  protected:
    LongRun() : rate_(*Rate::parse(GetParam().rate)) {
        LimiterOptions options;
        options.rates = {rate_};
        options.algorithm = GetParam().algorithm;
        options.align = GetParam().align;
        key_ = std::move(*find_algorithm(options.algorithm).simulate(options));
    }

    /// What was admitted in `periods` periods after two that do not count: in those a burst is spent.
    /// `next` hits once, and returns when it hits again.
    template <class Next>
    void expect_rate(std::int64_t periods, const Next& next) {
        const std::int64_t period = rate_.period.count();
        const std::int64_t from = kNow + 2 * period;
        const std::int64_t until = from + periods * period;
        std::int64_t admitted = 0;
        for (std::int64_t now = kNow; now < until;) {
            const Outcome outcome = key_->hit(now, cost_, true);
            if (outcome.allowed && now >= from) admitted += cost_;
            now = next(now, outcome);
        }
        const auto expected = static_cast<double>(periods * rate_.limit);
        EXPECT_NEAR(static_cast<double>(admitted), expected, expected * 0.001);
    }

    const Rate rate_;
    /// At a large limit it divides the limit.
    const std::int64_t cost_{rate_.limit < 100'000 ? 1 : rate_.limit / 2000};
    Random random_{23};
    std::unique_ptr<SimulatedKey> key_;
};

TEST_P(LongRun, OfCallersWhoComeAsTheyAreToldIsTheConfiguredRate) {
    expect_rate(std::max<std::int64_t>(2000 / rate_.limit, 3), [this](std::int64_t now,
                                                                      const Outcome& outcome) {
        if (outcome.allowed) return now;
        const std::int64_t wait = *outcome.retry_after_us;
        // Others knock meanwhile: what is denied changes nothing.
        for (int knock = 0; knock < 3; ++knock) {
            const auto early =
                static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(wait)));
            EXPECT_FALSE(key_->hit(now + early, cost_, true).allowed);
        }
        return now + wait;
    });
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const Algorithm algorithm :
         {Algorithm::fixed_window, Algorithm::sliding_window, Algorithm::sliding_log,
          Algorithm::gcra, Algorithm::token_bucket, Algorithm::leaky_bucket}) {
        for (const char* rate : {"1/day", "2/day", "4/hour", "7/minute", "9973/hour", "997/s",
                                 "99991/s", "100000/100 ms"}) {
            all.push_back({algorithm, rate});
            if (algorithm == Algorithm::fixed_window)
                all.push_back({algorithm, rate, Align::first});
        }
        if (algorithm != Algorithm::sliding_log) all.push_back({algorithm, "1000000/s"});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LongRun, ::testing::ValuesIn(cases()), name_of);

// Callers that ask at any time, several times as often as is admitted. Where nothing but a window's
// own limit is kept (a log, windows from a first hit), a late caller has lost that time.
class LongRunOfMany : public LongRun {};

TEST_P(LongRunOfMany, WhoComeAtAnyTimeIsTheConfiguredRate) {
    const double slot =
        static_cast<double>(rate_.period.count() * cost_) / static_cast<double>(rate_.limit);
    // On average 16 times for each hit that is admitted, at odd moments.
    const auto most = static_cast<std::uint64_t>(slot / 8) + 1;
    expect_rate(20, [this, most](std::int64_t now, const Outcome&) {
        return now + 1 + static_cast<std::int64_t>(random_.below(most));
    });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LongRunOfMany,
                         ::testing::Values(Case{Algorithm::gcra, "100/day"},
                                           Case{Algorithm::gcra, "997/s"},
                                           Case{Algorithm::gcra, "1000000/s"},
                                           Case{Algorithm::token_bucket, "1000000/s"},
                                           Case{Algorithm::leaky_bucket, "1000000/s"},
                                           Case{Algorithm::fixed_window, "100/day"},
                                           Case{Algorithm::fixed_window, "1000000/s"},
                                           Case{Algorithm::sliding_window, "100/day"},
                                           Case{Algorithm::sliding_window, "997/s"},
                                           Case{Algorithm::sliding_window, "1000000/s"}),
                         name_of);

}  // namespace
}  // namespace hotcount

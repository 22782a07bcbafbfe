#include "load/study_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseSlo, TakesPercentilesSharesAndCounts) {
    const Slo slo = parse_slo("p50<1ms,p99.9<=50ms,max<1s,err<0.1%,lost=0,double<=2").value();
    ASSERT_EQ(slo.terms.size(), 6U);
    EXPECT_EQ(slo.terms[0].metric, SloMetric::latency);
    EXPECT_DOUBLE_EQ(slo.terms[0].quantile, 0.5);
    EXPECT_EQ(slo.terms[0].time, milliseconds{1});
    EXPECT_FALSE(slo.terms[0].inclusive);
    EXPECT_DOUBLE_EQ(slo.terms[1].quantile, 0.999);
    EXPECT_TRUE(slo.terms[1].inclusive);
    EXPECT_EQ(slo.terms[2].quantile, 1);
    EXPECT_EQ(slo.terms[2].time, seconds{1});
    EXPECT_EQ(slo.terms[3].metric, SloMetric::errors);
    EXPECT_DOUBLE_EQ(slo.terms[3].most, 0.001);
    EXPECT_EQ(slo.terms[4].metric, SloMetric::lost);
    EXPECT_TRUE(slo.terms[4].inclusive);
    EXPECT_EQ(slo.terms[5].metric, SloMetric::doubled);
    EXPECT_EQ(slo.terms[5].most, 2);
    EXPECT_EQ(slo.text(), "p50<1ms,p99.9<=50ms,max<1s,err<0.1%,lost=0,double<=2");
}

TEST(ParseSlo, AnErrorNamesTheTerm) {
    for (const std::string bad :
         {"",        "p99",     "p99<",    "p99<-1ms", "p0<1ms",       "p100<1ms",     "p9x<1ms",
          "p99=1ms", "p99>1ms", "p99<0",   "err<2",    "err<0",        "err",          "lost<0",
          "lost=x",  "lost=-1", "speed<1", "stale<1s", "stale.p99=1s", "stale.err<1%", "p99 <1ms",
          "p99<10",  "max<1e2"}) {
        const auto parsed = parse_slo("lost=0," + bad);
        ASSERT_FALSE(parsed) << bad;
        EXPECT_THAT(parsed.error().message,
                    AllOf(HasSubstr("term '" + bad + "'"), HasSubstr("p99<10ms")));
    }
}

TEST(ParseRates, TakesFactorsStepsAndLists) {
    EXPECT_THAT(parse_rates("100:337.5:x1.5").value(),
                ElementsAre(DoubleEq(100), DoubleEq(150), DoubleEq(225), DoubleEq(337.5)));
    EXPECT_THAT(parse_rates("500:1k:+250").value(), ElementsAre(500, 750, 1000));
    EXPECT_THAT(parse_rates("500:1100:+250").value(), ElementsAre(500, 750, 1000));
    EXPECT_THAT(parse_rates("500,1k,5k").value(), ElementsAre(500, 1000, 5000));
    EXPECT_THAT(parse_rates("7").value(), ElementsAre(7));
    EXPECT_EQ(parse_rates("1:100:+1").value().size(), 100U);
}

TEST(ParseRates, AnErrorSaysWhatItTakes) {
    for (const std::string_view bad :
         {"500:1000", "500:1000:1.5", "500:1000:x1", "500:1000:x0.5", "1000:500:x2", "500:1000:+0",
          "1k,500", "500,500", "1:101:+1", "1:1M:x1.0001", "::", "1:2:3:4"}) {
        EXPECT_FALSE(parse_rates(bad)) << bad;
    }
    EXPECT_THAT(parse_rates("1:1M:+1").error().message,
                AllOf(HasSubstr("1:1M:+1"), HasSubstr("more than 100")));
    EXPECT_THAT(parse_rates("500:1000:1.5").error().message, HasSubstr("500:20000:x1.5"));
}

TEST(ParseWorkerCounts, TakesARisingList) {
    EXPECT_THAT(parse_worker_counts("1,2,16").value(), ElementsAre(1U, 2U, 16U));
    for (const std::string_view bad : {"", "0,1", "2,1", "1,1", "1025", "1,,2", "1;2"}) {
        EXPECT_FALSE(parse_worker_counts(bad)) << bad;
    }
    EXPECT_THAT(parse_worker_counts("4,2").error().message, HasSubstr("1,2,4,8"));
}

}  // namespace
}  // namespace hotcount::loadtest

#include "limiter/outage.hpp"

#include <gtest/gtest.h>

#include <hotcount/detail/base/check.hpp>

namespace hotcount {
namespace {

std::shared_ptr<redis::Client> client() {
    // Nothing listens there, and nothing is dialled before a call.
    return redis::Client::make(redis::parse_options("redis://127.0.0.1:1").value()).value();
}

Error refused() { return make_error(ErrorCode::unavailable, "Connection refused (key user:1)"); }

TEST(Outage, BeginsWithAFailureAndEndsWithAnAnsweredProbe) {
    const auto store = client();
    const auto outages = Outages::of(store).value();
    Outage* const outage = &outages->of_key("k");
    EXPECT_FALSE(Outage::is_away(outage->phase()));
    outage->begin(outage->phase(), refused());
    EXPECT_TRUE(Outage::is_away(outage->phase()));
    outage->end(outage->phase());
    EXPECT_FALSE(Outage::is_away(outage->phase()));
}

TEST(Outage, AFailureFromBeforeItsEndDoesNotBeginAnother) {
    const auto store = client();
    const auto outages = Outages::of(store).value();
    Outage* const outage = &outages->of_key("k");
    const std::uint64_t before = outage->phase();
    outage->begin(before, refused());
    outage->end(outage->phase());
    outage->begin(before, refused());
    EXPECT_FALSE(Outage::is_away(outage->phase()));
}

TEST(Outage, AProbeOfAnEarlierOutageDoesNotEndTheNext) {
    const auto store = client();
    const auto outages = Outages::of(store).value();
    Outage* const outage = &outages->of_key("k");
    outage->begin(outage->phase(), refused());
    const std::uint64_t first = outage->phase();
    outage->end(first);
    outage->begin(outage->phase(), refused());
    outage->end(first);
    EXPECT_TRUE(Outage::is_away(outage->phase()));
}

TEST(Outage, OneCallerASecondSendsAProbe) {
    const auto store = client();
    const auto outages = Outages::of(store).value();
    Outage* const outage = &outages->of_key("k");
    outage->begin(outage->phase(), refused());
    EXPECT_TRUE(outage->takes_probe());
    EXPECT_FALSE(outage->takes_probe());
    EXPECT_GT(outage->next_probe(), Outage::kProbeEvery / 2);
    EXPECT_LE(outage->next_probe(), Outage::kProbeEvery);
}

TEST(Outage, EachChangeIsToldOnceAndWithoutAKey) {
    const auto store = client();
    const auto outages = Outages::of(store).value();
    Outage* const outage = &outages->of_key("k");
    EXPECT_FALSE(outage->next_event());
    outage->begin(outage->phase(), refused());
    const auto away = outage->next_event();
    ASSERT_TRUE(away);
    EXPECT_TRUE(away->is_away);
    EXPECT_EQ(away->why, "Connection refused");
    EXPECT_FALSE(outage->next_event());
    outage->end(outage->phase());
    const auto back = outage->next_event();
    ASSERT_TRUE(back);
    EXPECT_FALSE(back->is_away);
    EXPECT_FALSE(outage->next_event());
}

TEST(Outage, LimitersOfOneClientShareItAndOthersDoNot) {
    const auto store = client();
    const auto other = client();
    EXPECT_EQ(Outages::of(store).value(), Outages::of(store).value());
    EXPECT_NE(Outages::of(store).value(), Outages::of(other).value());
}

// The calls of a limiter without a server, as a program in C++ makes them.
TEST(OutagePolicy, EachAnswersInTheStoresPlace) {
    const auto decide = [](OutagePolicy policy) {
        LimiterOptions options;
        options.rates = {Rate::parse("2/minute").value()};
        options.on_error = policy;
        const auto limiter = Limiter::make(client(), options).value();
        std::vector<Decision> decisions;
        for (int i = 0; i < 3; ++i) decisions.push_back(limiter->hit("k").value());
        EXPECT_TRUE(limiter->next_outage_event());
        EXPECT_EQ(limiter->hit("k", 3).value().reason, Reason::cost_above_limit);
        return decisions;
    };
    for (const Decision& open : decide(OutagePolicy::open)) {
        EXPECT_TRUE(open.allowed);
        EXPECT_EQ(open.reason, Reason::open);
    }
    for (const Decision& closed : decide(OutagePolicy::closed)) {
        EXPECT_FALSE(closed.allowed);
        EXPECT_EQ(closed.reason, Reason::closed);
        EXPECT_EQ(closed.violated, 0);
        EXPECT_GT(closed.retry_after.value(), Duration{0});
    }
    const auto local = decide(OutagePolicy::local);
    EXPECT_EQ(local[2].reason, Reason::local);
    EXPECT_EQ((std::vector{local[0].allowed, local[1].allowed, local[2].allowed}),
              (std::vector{true, true, false}));
}

}  // namespace
}  // namespace hotcount

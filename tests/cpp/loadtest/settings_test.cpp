#include "load/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <string_view>

namespace hotcount::loadtest {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(ParseDuration, TakesUnitsAndPlainSeconds) {
    EXPECT_EQ(parse_duration("500ms").value(), milliseconds{500});
    EXPECT_EQ(parse_duration("10s").value(), seconds{10});
    EXPECT_EQ(parse_duration("10").value(), seconds{10});
    EXPECT_EQ(parse_duration("1.5m").value(), seconds{90});
    EXPECT_EQ(parse_duration("2h").value(), hours{2});
    EXPECT_EQ(parse_duration("250us").value(), microseconds{250});
    EXPECT_EQ(parse_duration("0").value(), seconds{0});
    for (const std::string_view bad :
         {"", "s", "10 s", "-1s", "1e999s", "5x", "nan", "40000000s"}) {
        const auto parsed = parse_duration(bad);
        ASSERT_FALSE(parsed) << bad;
        EXPECT_THAT(parsed.error().message, HasSubstr("500ms"));
    }
}

TEST(FormatDuration, WritesWhatParseTakes) {
    for (const Duration duration :
         {Duration{seconds{0}}, Duration{microseconds{250}}, Duration{milliseconds{500}},
          Duration{milliseconds{1500}}, Duration{seconds{10}}, Duration{minutes{2}}}) {
        EXPECT_EQ(parse_duration(format_duration(duration)).value(), duration)
            << format_duration(duration);
    }
    EXPECT_EQ(format_duration(seconds{10}), "10s");
    EXPECT_EQ(format_duration(minutes{2}), "2m");
}

TEST(ParseCount, TakesThousandsAndMillions) {
    EXPECT_EQ(parse_count("1000").value(), 1000U);
    EXPECT_EQ(parse_count("10k").value(), 10'000U);
    EXPECT_EQ(parse_count("1.5M").value(), 1'500'000U);
    EXPECT_EQ(parse_count("2G").value(), 2'000'000'000U);
    EXPECT_EQ(parse_count("0").value(), 0U);
    for (const std::string_view bad : {"", "k", "1.5", "-1", "10kk", "1e300", "ten"}) {
        EXPECT_FALSE(parse_count(bad)) << bad;
    }
}

TEST(ParseRate, TakesFractionsButNotNothing) {
    EXPECT_EQ(parse_rate("0.5").value(), 0.5);
    EXPECT_EQ(parse_rate("2.5k").value(), 2500);
    for (const std::string_view bad : {"0", "-5", "inf", "200M", "5/s"}) {
        EXPECT_FALSE(parse_rate(bad)) << bad;
    }
}

TEST(ParseMix, TakesShares) {
    const Mix mix = parse_mix("vote=80,unvote=5,read=15").value();
    EXPECT_EQ(mix.vote, 80);
    EXPECT_EQ(mix.unvote, 5);
    EXPECT_EQ(mix.read, 15);
    EXPECT_EQ(parse_mix("read=1").value().vote, 0);
    const auto unknown = parse_mix("vote=80,write=20");
    ASSERT_FALSE(unknown);
    EXPECT_THAT(unknown.error().message, HasSubstr("'write'"));
    EXPECT_THAT(unknown.error().message, HasSubstr("vote, unvote, read"));
    for (const std::string_view bad :
         {"", "vote", "vote=", "vote=x", "vote=0", "unvote=5,read=5"}) {
        EXPECT_FALSE(parse_mix(bad)) << bad;
    }
}

TEST(ParseFaults, AreReadInOrderOfTimeAndWrittenAsTheyWereRead) {
    const auto faults = parse_faults(
        "3s:db.pause+500ms,1s:redis.kill9+1.5s,4s:db.failover,5s:redis.reshard=1000,6s:redis.cut+"
        "8s");
    ASSERT_TRUE(faults) << faults.error().message;
    EXPECT_EQ(format_faults(*faults),
              "1s:redis.kill9+1.5s,3s:db.pause+500ms,4s:db.failover,5s:redis.reshard=1000,"
              "6s:redis.cut+8s");
    EXPECT_EQ(parse_faults(format_faults(*faults)).value(), *faults);
    for (const char* wrong :
         {"", "1s", "redis.kill9", "1s:redis.kill9", "1s:redis.term+1s", "1s+redis.kill9:1s",
          "x:redis.pause+1s", "1s:redis.failover+1s", "1s:redis.reshard", "1s:redis.cut",
          "1s:redis.reshard=0", "1s:redis.pause+1us", "1s:redis.pause+2s,2s:redis.pause+1s"}) {
        EXPECT_FALSE(parse_faults(wrong)) << wrong;
    }
}

TEST(ParseNames, AWrongOneIsNamedWithTheRightOnes) {
    const auto strategy = parse_strategies("naive,quick", WorkloadKind::votes, false);
    ASSERT_FALSE(strategy);
    EXPECT_THAT(strategy.error().message, HasSubstr("'quick'"));
    EXPECT_THAT(strategy.error().message, HasSubstr("naive, slotted, batched"));
    EXPECT_THAT(parse_strategies("naive,naive", WorkloadKind::votes, false).error().message,
                HasSubstr("twice"));
    EXPECT_FALSE(parse_strategies("batched", WorkloadKind::counters, false));
    EXPECT_EQ(parse_strategies("slotted,naive", WorkloadKind::votes, false).value(),
              (std::vector<std::string>{"slotted", "naive"}));
    EXPECT_THAT(parse_arrival("burst").error().message, HasSubstr("poisson, uniform, closed"));
    EXPECT_THAT(parse_workload("lists").error().message,
                HasSubstr("votes, counters, limiter, zset"));
    EXPECT_THAT(parse_progress("bar").error().message, HasSubstr("line, ndjson, none"));
}

TEST(StrategyNames, TellTheirWorkloadAndStore) {
    const auto gcra = find_strategy("redis/gcra").value();
    EXPECT_EQ(gcra.workload, WorkloadKind::limiter);
    EXPECT_EQ(gcra.store, StrategyStore::redis);
    EXPECT_EQ(gcra.way, "gcra");
    EXPECT_EQ(find_strategy("memory/script").value().workload, WorkloadKind::zset);
    EXPECT_EQ(find_strategy("batched").value().store, StrategyStore::sql);
    std::set<std::string> names;
    for (const Strategy& strategy : all_strategies()) {
        EXPECT_TRUE(names.insert(strategy.name).second) << strategy.name;
    }
    EXPECT_EQ(names.size(), 52U);
}

TEST(StrategyNames, APartOfOneIsOnTheRedisGivenElseInMemory) {
    using Names = std::vector<std::string>;
    EXPECT_EQ(parse_strategies("gcra,script", {}, false).value(),
              (Names{"memory/gcra", "memory/script"}));
    EXPECT_EQ(parse_strategies("gcra,memory/gcra", {}, true).value(),
              (Names{"redis/gcra", "memory/gcra"}));
    EXPECT_EQ(parse_strategies("naive,slotted,batched,memory", {}, false).value(),
              (Names{"naive", "slotted", "batched", "memory"}));
    EXPECT_THAT(parse_strategies("gcra,redis/gcra", {}, true).error().message,
                HasSubstr("'redis/gcra' is named twice"));
}

TEST(StrategyNames, AllAreThoseThatCanBeDriven) {
    EXPECT_EQ(parse_strategies("all", {}, true).value().size(), 52U);
    EXPECT_EQ(parse_strategies("all", {}, false).value().size(), 20U);
    EXPECT_EQ(parse_strategies("all", WorkloadKind::counters, true).value(),
              (std::vector<std::string>{"memory", "redis", "memory/ttl", "redis/ttl", "redis/incr",
                                        "redis/set_nx_none", "redis/set_nx_first",
                                        "redis/set_nx_ttl", "redis/set_nx_both", "redis/retry",
                                        "slots/sticky", "slots/random", "slots/adaptive",
                                        "redis/views", "redis/views_local", "redis/views_sql"}));
}

TEST(StrategyNames, AWrongOneIsNamedWithTheRightOnes) {
    const std::string unknown = parse_strategies("redis/quick", {}, true).error().message;
    EXPECT_THAT(unknown, HasSubstr("'redis/quick'"));
    for (const Strategy& strategy : all_strategies()) {
        EXPECT_THAT(unknown, HasSubstr(strategy.name));
    }
    const std::string other =
        parse_strategies("script", WorkloadKind::limiter, true).error().message;
    EXPECT_THAT(other, HasSubstr("'script' is no strategy for limiter"));
    EXPECT_THAT(other, HasSubstr("redis/incr_expire"));
    EXPECT_THAT(parse_strategies("redis/gcra", {}, false).error().message,
                HasSubstr("--managed redis"));
}

TEST(RedisUrl, IsCheckedAndShownWithoutItsPassword) {
    EXPECT_TRUE(parse_redis_url("rediss://host/3"));
    EXPECT_TRUE(parse_redis_url("valkey://host"));
    EXPECT_TRUE(parse_redis_url("unix:///run/redis.sock"));
    EXPECT_FALSE(parse_redis_url("sqlite:///x.db"));
    EXPECT_EQ(redacted("redis://anna:secret@host:6379/0"), "redis://anna:***@host:6379/0");
    EXPECT_EQ(redacted(""), "");
}

TEST(AbsoluteDatabaseUrl, KeepsTheFileReachableFromAnyFolder) {
    EXPECT_EQ(absolute_database_url("sqlite:////tmp/a b.db").value(), "sqlite:////tmp/a b.db");
    const std::string relative = absolute_database_url("sqlite:///votes.db").value();
    EXPECT_THAT(relative, testing::StartsWith("sqlite:////"));
    EXPECT_THAT(relative, testing::EndsWith("/votes.db"));
    // A '%' or '?' in a name survives the way through a URL.
    EXPECT_EQ(absolute_database_url("sqlite:////tmp/50%25%3F.db").value(),
              "sqlite:////tmp/50%25%3F.db");
    for (const std::string_view bad :
         {"sqlite:///:memory:", "sqlite:///", "sqlite://", "sqlite://host/x.db", "redis://h/0",
          "votes.db", "sqlite:///x.db?mode=ro"}) {
        EXPECT_FALSE(absolute_database_url(bad)) << bad;
    }
}

TEST(ParseShare, TakesPercentAndNumbersUpToOne) {
    EXPECT_DOUBLE_EQ(parse_share("0.1%").value(), 0.001);
    EXPECT_DOUBLE_EQ(parse_share("0.25").value(), 0.25);
    EXPECT_DOUBLE_EQ(parse_share("100%").value(), 1);
    EXPECT_DOUBLE_EQ(parse_share("0").value(), 0);
    for (const char* wrong : {"", "%", "101%", "2", "-1%", "few", "1 %", "1%%"}) {
        EXPECT_FALSE(parse_share(wrong)) << wrong;
    }
}

}  // namespace
}  // namespace hotcount::loadtest

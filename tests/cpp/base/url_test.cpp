#include <hotcount/detail/redis/options.hpp>
#include <hotcount/url.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;
using testing::succeeded;

TEST(Url, TakesApartWhatItIsMadeOf) {
    const auto url = parse_url("Redis://us%40er:p%3Aw@host.example:6380/3?x=1&y=a%20b");
    ASSERT_TRUE(succeeded(url));
    EXPECT_EQ(url->scheme, "redis");
    EXPECT_EQ(url->user, "us@er");
    EXPECT_EQ(url->password, "p:w");
    EXPECT_EQ(url->host, "host.example");
    EXPECT_EQ(url->port, 6380);
    EXPECT_EQ(url->path, "/3");
    EXPECT_EQ(url->query.at("x"), "1");
    EXPECT_EQ(url->query.at("y"), "a b");
}

TEST(Url, ReadsIpv6Hosts) {
    const auto url = parse_url("redis://[::1]:7000");
    ASSERT_TRUE(succeeded(url));
    EXPECT_EQ(url->host, "::1");
    EXPECT_EQ(url->port, 7000);
}

TEST(Url, IgnoresADriverSuffixOfSqlAlchemy) {
    EXPECT_EQ(parse_url("sqlite+pysqlite:///x.db")->scheme, "sqlite");
    EXPECT_EQ(parse_url("postgresql+psycopg://h/db")->scheme, "postgresql");
    EXPECT_EQ(parse_url("oracle+cx://h/db")->scheme, "oracle");
    EXPECT_EQ(parse_url("memory+x://h")->scheme, "memory+x");
    EXPECT_EQ(parse_url("redis+unix:///s")->scheme, "redis+unix");
}

TEST(Url, NeverShowsItsPassword) {
    const auto url = parse_url("redis://user:canary-secret@host/0?note=canary-secret");
    ASSERT_TRUE(succeeded(url));
    EXPECT_EQ(url->str().find("canary"), std::string::npos) << url->str();
    const auto refused = redis::parse_options("redis://user:canary-secret@host/x");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message.find("canary"), std::string::npos);
}

TEST(Url, RefusesWhatIsNoUrlAndSaysWhy) {
    EXPECT_TRUE(failed_with(parse_url("localhost"), ErrorCode::config, "scheme://"));
    EXPECT_TRUE(failed_with(parse_url("://x"), ErrorCode::config, "scheme://"));
    EXPECT_TRUE(failed_with(parse_url("redis://h:port"), ErrorCode::config, "the port is"));
    EXPECT_TRUE(failed_with(parse_url("redis://h:0"), ErrorCode::config, "the port is"));
    EXPECT_TRUE(failed_with(parse_url("redis://h:65536"), ErrorCode::config, "the port is"));
    EXPECT_TRUE(failed_with(parse_url("redis://h/%zz"), ErrorCode::config, "%-escape"));
    EXPECT_TRUE(failed_with(parse_url("redis://h/%4"), ErrorCode::config, "%-escape"));
    EXPECT_TRUE(failed_with(parse_url("redis://[::1"), ErrorCode::config, "IPv6"));
    EXPECT_TRUE(failed_with(parse_url("redis://h?db"), ErrorCode::config, "option 1"));
    EXPECT_TRUE(failed_with(parse_url("redis://h?db=1&db=2"), ErrorCode::config, "twice"));
}

TEST(Url, RefusesDelimitersInAPasswordWithoutShowingIt) {
    for (const char* text : {"redis://user:1/canary@h/0", "redis://user:1?canary@h/0",
                             "postgresql://user:p@canary/x@h/0", "redis+unix://u:1/canary@/s",
                             "redis://h/0?password=canary"}) {
        const auto refused = parse_url(text);
        ASSERT_TRUE(failed_with(refused, ErrorCode::config, "URL: ")) << text;
        EXPECT_EQ(refused.error().message.find("canary"), std::string::npos) << text;
    }
    // An @ where no host is.
    EXPECT_EQ(parse_url("unix:///run/a@b.sock")->path, "/run/a@b.sock");
    EXPECT_EQ(parse_url("sqlite:///a@b.db")->path, "/a@b.db");
    EXPECT_EQ(parse_url("redis://u:p%2Fq%3Fr%23s%40t@h/1")->password, "p/q?r#s@t");
}

TEST(Url, TakesSeveralHosts) {
    const auto url = parse_url("redis+sentinel://u:p@a:1,[::1]:2,b,[fe80::1%eth0]/service/0?db=1");
    ASSERT_TRUE(succeeded(url));
    ASSERT_EQ(url->hosts.size(), 4U);
    EXPECT_EQ(url->hosts[1].host, "::1");
    EXPECT_EQ(url->hosts[1].port, 2);
    EXPECT_EQ(url->hosts[2].host, "b");
    EXPECT_FALSE(url->hosts[2].port);
    EXPECT_EQ(url->host, "a");
    EXPECT_EQ(url->port, 1);
    EXPECT_EQ(url->path, "/service/0");
    EXPECT_EQ(url->str(), "redis+sentinel://u:***@a:1,[::1]:2,b,[fe80::1%eth0]/service/0?db=...");
    EXPECT_EQ(parse_url("redis:///0")->hosts.size(), 1U);
    EXPECT_EQ(parse_url("memory://a,b")->host, "a,b");
    EXPECT_EQ(parse_url("memory://a,b")->hosts.size(), 1U);
}

TEST(Url, NamesWhatIsWrongWithOneOfSeveralHosts) {
    const std::pair<std::string, std::string> cases[] = {
        {"a,,b", "host 2 of 3 is empty"},
        {",a", "host 1 of 2 is empty"},
        {"a:1,", "host 2 of 2 is empty"},
        {"a,b:x", "the port is"},
        {"[::1],[x]", "IPv6"},
        {"[::1]x,b", "text after"},
        {"a,[::1", "']'"},
    };
    for (const auto& [hosts, says] : cases) {
        const auto refused = parse_url("redis+cluster://u:canary@" + hosts + "/0");
        ASSERT_TRUE(failed_with(refused, ErrorCode::config, says)) << hosts;
        EXPECT_EQ(refused.error().message.find("canary"), std::string::npos) << hosts;
    }
    std::string many = "redis+cluster://h0";
    for (int i = 1; i <= 64; ++i) many += ",h" + std::to_string(i);
    EXPECT_TRUE(failed_with(parse_url(many), ErrorCode::config, "more than 64 hosts"));
}

TEST(Url, TakesUserAndPasswordOnceBeforeTheFirstHost) {
    for (const char* text :
         {"redis+sentinel://u:canary@a,u:canary@b/s", "redis+sentinel://a,u:canary@b/s",
          "postgresql://u:canary@a:1,u:canary@b:2/db", "redis+cluster://a:1,u:canary@b:2",
          "redis+cluster://a:1,b:2,u:canary@c:3", "redis://a,b@c"}) {
        const auto refused = parse_url(text);
        ASSERT_TRUE(failed_with(refused, ErrorCode::config, "before the first host")) << text;
        EXPECT_EQ(refused.error().message.find("canary"), std::string::npos) << text;
    }
    EXPECT_EQ(parse_url("redis+sentinel://u:p,x@a,b/s")->password, "p,x");
    EXPECT_EQ(parse_url("redis+sentinel://u%2Cv:p@a,b/s")->user, "u,v");
}

TEST(Url, RefusesSeveralHostsWhereOneIsWanted) {
    EXPECT_TRUE(succeeded(one_host(*parse_url("redis://a:1"), "instead")));
    EXPECT_TRUE(failed_with(one_host(*parse_url("redis://a:1,b"), "say this instead"),
                            ErrorCode::config, "redis:// takes one host, not 2; say this instead"));
}

TEST(RedisOptions, TakeSeedsWithTheirPorts) {
    const auto seeds = redis::seeds_of(*parse_url("redis+cluster://a:1,[::1],b"), 7000);
    ASSERT_TRUE(succeeded(seeds));
    const std::vector<redis::Endpoint> expected{{"a", 1}, {"::1", 7000}, {"b", 7000}};
    EXPECT_EQ(*seeds, expected);
    EXPECT_EQ((*seeds)[1].str(), "[::1]:7000");
    EXPECT_TRUE(failed_with(redis::seeds_of(*parse_url("redis+cluster://a,b,a:7000"), 7000),
                            ErrorCode::config, "a:7000 is given twice"));
    EXPECT_TRUE(failed_with(redis::seeds_of(*parse_url("redis+cluster://a,%61"), 7000),
                            ErrorCode::config, "percent"));
}

TEST(RedisOptions, LeaveASilentServerSoonWhereAnotherMayTakeItsPlace) {
    redis::Options options;
    options.timeout = std::chrono::seconds{30};
    EXPECT_EQ(options.silence(), options.timeout);
    options.seeds = {{"a", 1}};
    EXPECT_EQ(options.silence(), std::chrono::milliseconds{1500});
    options.silence_limit = std::chrono::seconds{3};
    EXPECT_EQ(options.silence(), std::chrono::seconds{3});
}

TEST(RedisOptions, RefuseAUserWithoutAPassword) {
    for (const char* text : {"redis://u@h", "rediss://u:@h", "redis+unix://u@/s", "unix://u@/s"}) {
        EXPECT_TRUE(failed_with(redis::parse_options(text), ErrorCode::config, "default user"));
    }
}

TEST(RedisOptions, ComeFromAUrl) {
    const auto tcp = redis::parse_options("valkey://u:p@h:7/2");
    ASSERT_TRUE(succeeded(tcp));
    EXPECT_EQ(tcp->address(), "redis h:7");
    EXPECT_EQ(tcp->user, "u");
    EXPECT_EQ(tcp->database, 2U);
    const auto socket = redis::parse_options("unix:///run/redis.sock?db=5");
    ASSERT_TRUE(succeeded(socket));
    EXPECT_EQ(socket->unix_path, "/run/redis.sock");
    EXPECT_EQ(socket->database, 5U);
}

TEST(RedisOptions, RefuseWhatDoesNotFit) {
    using redis::parse_options;
    EXPECT_TRUE(failed_with(parse_options("http://h"), ErrorCode::config, "'http'"));
    EXPECT_TRUE(failed_with(parse_options("redis://h/one"), ErrorCode::config, "database"));
    EXPECT_TRUE(failed_with(parse_options("redis://h?pool=9"), ErrorCode::config, "'pool'"));
    EXPECT_TRUE(failed_with(parse_options("redis://h/1?db=2"), ErrorCode::config, "twice"));
    EXPECT_TRUE(failed_with(parse_options("unix://host/s"), ErrorCode::config, "three slashes"));
    EXPECT_TRUE(failed_with(parse_options("unix://"), ErrorCode::config, "socket"));
}

}  // namespace
}  // namespace hotcount

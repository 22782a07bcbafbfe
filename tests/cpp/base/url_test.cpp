#include <hotcount/detail/redis/options.hpp>
#include <hotcount/url.hpp>

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

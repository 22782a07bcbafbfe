#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/op_id.hpp>
#include <set>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;
using testing::succeeded;

std::string encoded(std::initializer_list<std::string_view> parts) {
    const auto key = encode_parts(std::span{parts.begin(), parts.size()});
    EXPECT_TRUE(succeeded(key));
    return key.ok() ? *key : "";
}

TEST(KeyCodec, JoinsStorePrefixPrefixAndKey) {
    EXPECT_EQ(full_key("app:", "count", "home"), "app:count:home");
    EXPECT_EQ(full_key("", "count", "a:b"), "count:a:b");
    EXPECT_EQ(full_key("app:", "", "home"), "app:home");
}

TEST(KeyCodec, NoTwoTuplesOfADelimiterHeavyAlphabetCollide) {
    const std::string_view parts[] = {"", "a", ":", "%", "a:", ":a", "%3A", "a%", "::", "%25"};
    std::map<std::string, std::string> seen;  // encoded -> which tuple
    for (const auto& a : parts) {
        for (const auto& b : parts) {
            for (const auto& c : parts) {
                const std::string tuple =
                    std::string{a} + "|" + std::string{b} + "|" + std::string{c};
                const auto [place, fresh] = seen.emplace(encoded({a, b, c}), tuple);
                EXPECT_TRUE(fresh) << tuple << " and " << place->second;
            }
            const std::string tuple = std::string{a} + "|" + std::string{b};
            EXPECT_TRUE(seen.emplace(encoded({a, b}), tuple).second) << tuple;
        }
    }
}

TEST(KeyCodec, APlainKeyIsNoTuplesKeyAndReadsAsItIs) {
    EXPECT_EQ(encode_plain("user:1 50%"), "user:1 50%");
    EXPECT_EQ(encode_plain("%"), "%25");
    EXPECT_EQ(encoded({"a", "b"}), "%:a:b");
    std::map<std::string, std::string> seen;  // encoded -> which plain key
    for (const std::string key :
         {"a", "a:b", ":a:b", "%:a:b", "%25:a:b", "%2525:a:b", "25:a:b", "%", "%%", "%25"}) {
        const auto [place, fresh] = seen.emplace(encode_plain(key), key);
        EXPECT_TRUE(fresh) << key << " and " << place->second;
    }
    for (const auto& tuple : {encoded({"a"}), encoded({"a", "b"}), encoded({"", "a", "b"}),
                              encoded({"25", "a", "b"}), encoded({"%", "a"})}) {
        EXPECT_FALSE(seen.contains(tuple)) << tuple;
    }
}

TEST(KeyCodec, ATupleOfNothingIsRefused) {
    EXPECT_TRUE(failed_with(encode_parts({}), ErrorCode::config, "at least one"));
}

TEST(KeyCheck, TakesOneToAThousandBytes) {
    EXPECT_TRUE(succeeded(check_key("k")));
    EXPECT_TRUE(succeeded(check_key(std::string(1000, 'k'))));
    EXPECT_TRUE(succeeded(check_key(std::string_view("a\0b", 3))));
    EXPECT_TRUE(failed_with(check_key(""), ErrorCode::config, "empty"));
    EXPECT_TRUE(failed_with(check_key(std::string(1001, 'k')), ErrorCode::config, "1001 bytes"));
}

TEST(KeyCheck, SqlKeysHaveNoNul) {
    EXPECT_TRUE(failed_with(check_key(std::string_view("a\0b", 3), KeyRule::sql_text),
                            ErrorCode::config, "NUL"));
}

TEST(CheckedAdd, EndsAtTheBoundsOf64Bits) {
    EXPECT_EQ(checked_add(INT64_MAX, 0), INT64_MAX);
    EXPECT_EQ(checked_add(INT64_MAX, 1), std::nullopt);
    EXPECT_EQ(checked_add(INT64_MIN, -1), std::nullopt);
    EXPECT_EQ(checked_add(INT64_MIN, INT64_MAX), -1);
    EXPECT_EQ(checked_subtract(0, INT64_MIN), std::nullopt);
}

TEST(Printable, EscapesAndShortens) {
    EXPECT_EQ(printable("a\r\nb"), "a\\x0D\\x0Ab");
    EXPECT_EQ(printable(std::string(100, 'x')), std::string(80, 'x') + "...");
}

TEST(Printable, HidesThePasswordOfAUrl) {
    EXPECT_EQ(printable("redis://user:canary@host/0"), "redis://user:***@host/0");
    EXPECT_EQ(printable("redis://:can:a@ry@host"), "redis://:***@host");
    EXPECT_EQ(printable("redis://user:canary@" + std::string(100, 'h')),
              "redis://user:***@" + std::string(63, 'h') + "...");
    for (const char* shown :
         {"redis://host:6379/0", "redis://user@host:6379", "http://a/b:c", "a:b@c"}) {
        EXPECT_EQ(printable(shown), shown);
    }
}

using namespace std::chrono_literals;

TEST(OpId, TheExampleOfTheStandardIsRead) {
    // RFC 9562, appendix A.6.
    const auto made = made_at("017F22E2-79B0-7CC3-98C4-DC0C0C07398F");
    ASSERT_TRUE(made);
    EXPECT_EQ(*made, 1645557742000ms);
    EXPECT_EQ(*made_at("ffffffff-ffff-7fff-bfff-ffffffffffff"), 281474976710655ms);
}

TEST(OpId, ANewOneCarriesItsTimeAndItsVersion) {
    Random random{1};
    const std::string id = new_op_id(WallTime{1645557742000ms}, random);
    EXPECT_EQ(id.substr(0, 15), "017f22e2-79b0-7") << id;
    EXPECT_EQ(id.size(), 36U);
    EXPECT_EQ(*made_at(id), 1645557742000ms);
    std::set<std::string> seen;
    for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(seen.insert(new_op_id()).second);
}

TEST(OpId, WhatIsNoSuchIdHasNoTime) {
    for (const char* text :
         {"", "a", "017F22E2-79B0-4CC3-98C4-DC0C0C07398F", "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F",
          "017F22E2-79B0-7CC3-18C4-DC0C0C07398F", "017F22E2x79B0-7CC3-98C4-DC0C0C07398F",
          "017F22E2-79B0-7CC3-98C4-DC0C0C07398G", "017F22E279B07CC398C4DC0C0C07398F",
          "{17F22E2-79B0-7CC3-98C4-DC0C0C07398F", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F0"}) {
        EXPECT_FALSE(made_at(text)) << text;
    }
}

}  // namespace
}  // namespace hotcount

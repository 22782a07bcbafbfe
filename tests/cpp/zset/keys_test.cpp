#include "zset/backend.hpp"

#include <set>

#include "support/result_matchers.hpp"

namespace hotcount::zset {
namespace {

using testing::failed_with;

TEST(CompanionKey, SharesTheHashTagOfItsKey) {
    EXPECT_EQ(*companion_key("feed:1"), "{feed:1}:versions.1");
    EXPECT_EQ(*companion_key("feed:{7}:x"), "feed:{7}:x:versions.1t");
    EXPECT_EQ(*companion_key("}{7}"), "}{7}:versions.1t") << "the tag starts at the first {";
    EXPECT_EQ(*companion_key("{a}{}"), "{a}{}:versions.1t");
}

TEST(CompanionKey, RefusesBracesThatMakeNoTag) {
    for (const char* key : {"a}b", "a{b", "{}", "{}{a}", "}", "{", "a}b{"}) {
        EXPECT_TRUE(failed_with(companion_key(key), ErrorCode::config, key)) << key;
    }
}

TEST(CompanionKey, BelongsToOneKeyOnly) {
    std::set<std::string> seen;
    for (const char* key : {"a", "{a}", "{a}:versions.1", "a:versions.1", "{a}:versions.1t"}) {
        EXPECT_TRUE(seen.insert(*companion_key(key)).second) << key;
    }
}

TEST(Pattern, MatchesAsRedisDoes) {
    EXPECT_TRUE(matches("feed:*", "feed:"));
    EXPECT_TRUE(matches("*", ""));
    EXPECT_TRUE(matches("*a*b", "xxaxxaxb"));
    EXPECT_FALSE(matches("*a*b", "xxaxxaxbc"));
    EXPECT_TRUE(matches("h?llo", "hello"));
    EXPECT_FALSE(matches("h?llo", "hllo"));
    EXPECT_TRUE(matches("h[ae]llo", "hallo"));
    EXPECT_FALSE(matches("h[ae]llo", "hillo"));
    EXPECT_TRUE(matches("h[^e]llo", "hallo"));
    EXPECT_FALSE(matches("h[^e]llo", "hello"));
    EXPECT_TRUE(matches("[c-a]", "b"));
    EXPECT_TRUE(matches("\\*", "*"));
    EXPECT_FALSE(matches("\\*", "a"));
    EXPECT_TRUE(matches("[\\]]", "]"));
    EXPECT_FALSE(matches("", "a"));
}

TEST(Pattern, OfATextMatchesItAlone) {
    for (const std::string text : {"a*b", "[x]", "\\", "?", "t{0}:", "a]b"}) {
        EXPECT_TRUE(matches(escape_pattern(text), text)) << text;
    }
    EXPECT_FALSE(matches(escape_pattern("a*b"), "axb"));
    EXPECT_FALSE(matches(escape_pattern("[x]"), "x"));
}

TEST(Pattern, WithManyStarsTakesNoAges) {
    std::string pattern;
    for (int i = 0; i < 100; ++i) pattern += "a*";
    EXPECT_FALSE(matches(pattern + "b", std::string(1000, 'a')));
}

}  // namespace
}  // namespace hotcount::zset

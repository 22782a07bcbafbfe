// Names of prepared statements: what is equal and what is not.
#include "dialects/postgres/connection.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hotcount::sql {
namespace {

TEST(StatementName, IsTheHashOfItsTextAndScope) {
    // FNV-1a of "a\0b\0", by an implementation of its own.
    EXPECT_EQ(statement_name("a", "b"), "hotcount_6971299cb6757277b806e976f537e9be");
    EXPECT_EQ(statement_name("a", "b").size(), 41U);
    EXPECT_TRUE(statement_name("a", "b").starts_with("hotcount_"));
    EXPECT_LT(statement_name("a", "b").size(), 64U) << "PostgreSQL cuts longer names";
}

TEST(StatementName, IsAnotherWhereScopeOrTextIs) {
    std::set<std::string> names;
    int made = 0;
    for (const char* scope : {"", "a", "b", "ab", "app\nme\n-csearch_path=x\n"}) {
        for (const char* text : {"", "a", "b", "ab", "ba", "COMMIT", "commit", "COMMIT "}) {
            names.insert(statement_name(scope, text));
            ++made;
        }
    }
    for (int i = 0; i < 10'000; ++i, ++made) {
        names.insert(statement_name("", "SELECT " + std::to_string(i)));
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(made));
}

}  // namespace
}  // namespace hotcount::sql

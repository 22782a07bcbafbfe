#include <gtest/gtest.h>

#include <hotcount/result.hpp>
#include <memory>
#include <string>

namespace hotcount {
namespace {

Result<std::string> failed() { return bad_option("slots", "is 0; at least 1", "0"); }

// What a call costs that succeeds: its Result is moved several times on its way up.
static_assert(sizeof(Result<void>) == sizeof(void*));
static_assert(sizeof(Result<std::int64_t>) == 2 * sizeof(void*));

TEST(Result, ACopyOfAFailedOneHasAnErrorOfItsOwn) {
    Result<std::string> first = failed();
    const Result<std::string> copy = first;
    const Error taken = std::move(first).error();
    EXPECT_EQ(taken.message, "slots is 0; at least 1");
    EXPECT_EQ(copy.error().message, "slots is 0; at least 1");
    ASSERT_NE(copy.error().facts, nullptr);
    EXPECT_EQ(copy.error().facts->value, "0");
}

TEST(Result, IsAssignedOverWhatItWas) {
    Result<std::string> result = failed();
    result = std::string{"good"};
    EXPECT_EQ(*result, "good");
    result = failed();
    EXPECT_EQ(result.error().code, ErrorCode::config);
    const Result<std::string>& same = result;
    result = same;
    EXPECT_EQ(result.error().message, "slots is 0; at least 1");

    Result<void> nothing;
    EXPECT_TRUE(nothing.ok());
    nothing = make_error(ErrorCode::closed, "the store is closed");
    const Result<void> copy = nothing;
    nothing = Result<void>{};
    EXPECT_TRUE(nothing.ok());
    EXPECT_EQ(copy.error().message, "the store is closed");
}

TEST(Result, HoldsWhatCanOnlyBeMoved) {
    Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
    const std::unique_ptr<int> taken = std::move(result).value();
    EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace hotcount

#include <gtest/gtest.h>

#include <future>
#include <hotcount/write_behind_counter.hpp>

#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::succeeded;

using Settled = Result<std::vector<Result<void>>>;
using Amounts = std::vector<std::pair<std::string_view, std::int64_t>>;

// Redis is away: Python's tests have the calls that it answers.
class ManyAsyncTest : public ::testing::Test {
  protected:
    ManyAsyncTest() {
        auto away = *redis::parse_options("redis+unix://" + file_.path() + ".sock");
        away.timeout = 10ms;
        WriteBehindOptions options;
        options.flush_interval = 60s;
        views_ = *WriteBehindCounter::make(file_.open(), *redis::Client::make(away), options);
        EXPECT_TRUE(succeeded(views_->create_tables()));
    }

    std::vector<Result<void>> add(const Amounts& amounts, Ack ack) {
        std::promise<Settled> settled;
        views_->add_many_async(amounts, ack,
                               [&](Settled result) { settled.set_value(std::move(result)); });
        Settled result = settled.get_future().get();
        EXPECT_TRUE(succeeded(result));
        return *std::move(result);
    }

    testing::TemporaryDatabase file_;
    std::shared_ptr<WriteBehindCounter> views_;
};

TEST_F(ManyAsyncTest, AddsOfSqlAreCommittedAndABadKeyFailsAlone) {
    const auto results = add({{"a", 2}, {"", 1}, {"b", 3}, {"a", 5}, {"c", 0}}, Ack::sql);
    ASSERT_EQ(results.size(), 5U);
    EXPECT_TRUE(failed_with(results[1], ErrorCode::config));
    for (const std::size_t good : {0, 2, 3, 4}) EXPECT_TRUE(succeeded(results[good]));
    EXPECT_EQ(views_->stats().adds, 2U);
    EXPECT_EQ(views_->stats().pending, 0);
}

TEST_F(ManyAsyncTest, LocalAddsAreAcknowledgedBeforeTheCallReturns) {
    bool done = false;
    views_->add_many_async(Amounts{{"a", 2}, {"b", -1}}, Ack::local,
                           [&](Settled result) { done = succeeded((*result)[1]); });
    EXPECT_TRUE(done);
    EXPECT_EQ(views_->stats().at_risk, 3);
}

TEST_F(ManyAsyncTest, AddsThatRedisDoesNotGetAreTakenBack) {
    for (const auto& result : add({{"a", 2}, {"b", 3}}, Ack::cache)) {
        EXPECT_TRUE(failed_with(result, ErrorCode::unavailable));
    }
    EXPECT_EQ(views_->stats().at_risk, 0);
}

TEST_F(ManyAsyncTest, CountsWithoutRedisAreAnErrorForEach) {
    std::promise<std::vector<ErrorCode>> told;
    const std::vector<std::string_view> keys{"a", "b"};
    views_->get_many_async(keys, [&](Result<std::vector<Result<Count>>> counts) {
        std::vector<ErrorCode> codes;
        if (counts) {
            for (const auto& each : *counts) codes.push_back(each.error().code);
        }
        told.set_value(codes);
    });
    const std::vector<ErrorCode> codes(2, ErrorCode::unavailable);
    EXPECT_EQ(told.get_future().get(), codes);
}

}  // namespace
}  // namespace hotcount

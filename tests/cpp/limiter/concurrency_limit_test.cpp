#include <hotcount/concurrency_limit.hpp>
#include <hotcount/limiter.hpp>
#include <thread>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::memory_store;

class ConcurrencyInMemoryTest : public ::testing::Test {
  protected:
    std::shared_ptr<ConcurrencyLimit> make(std::int64_t limit, Duration lease = 60s) {
        ConcurrencyOptions options;
        options.limit = limit;
        options.lease = lease;
        return *ConcurrencyLimit::make(store_, options);
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
};

TEST_F(ConcurrencyInMemoryTest, ALeaseCountsToTheMicrosecondItEnds) {
    const auto limit = make(1);
    EXPECT_TRUE(limit->try_acquire("k", "a")->allowed);
    clock_->advance(60s - 1us);
    const Decision refused = *limit->try_acquire("k", "b");
    EXPECT_FALSE(refused.allowed);
    EXPECT_EQ(refused.retry_after, Duration{1us});
    clock_->advance(1us);
    EXPECT_FALSE(*limit->renew("k", "a"));
    EXPECT_TRUE(limit->try_acquire("k", "b")->allowed);
    EXPECT_FALSE(*limit->release("k", "a"));
    EXPECT_FALSE(limit->try_acquire("k", "c")->allowed);
    EXPECT_TRUE(*limit->release("k", "b"));
    EXPECT_EQ(store_->size(), 1) << "dropped when it is touched";
    EXPECT_TRUE(limit->try_acquire("k", "c")->allowed);
}

TEST_F(ConcurrencyInMemoryTest, ARenewalMovesTheEndOfOneLeaseAlone) {
    const auto limit = make(2);
    (void)limit->try_acquire("k", "a");
    (void)limit->try_acquire("k", "b");
    clock_->advance(40s);
    EXPECT_TRUE(*limit->renew("k", "a"));
    const Decision refused = *limit->try_acquire("k", "c");
    EXPECT_EQ(refused.retry_after, Duration{20s});
    EXPECT_EQ(refused.reset_after, Duration{60s});
    clock_->advance(20s);
    EXPECT_TRUE(limit->try_acquire("k", "c")->allowed);
    EXPECT_TRUE(*limit->release("k", "a"));
    EXPECT_FALSE(*limit->release("k", "b"));
}

TEST_F(ConcurrencyInMemoryTest, AWaiterGivesUpAfterItsPatienceAndTakesAPlaceThatIsGivenBack) {
    const auto limit = make(1);
    (void)limit->try_acquire("k", "a");
    EXPECT_FALSE(limit->acquire("k", "b", 0s)->allowed);
    EXPECT_FALSE(limit->acquire("k", "b", 1ms)->allowed);
    std::thread waiter([&] { EXPECT_TRUE(limit->acquire("k", "b")->allowed); });
    EXPECT_TRUE(*limit->release("k", "a"));
    waiter.join();
    EXPECT_TRUE(*limit->release("k", "b"));
}

TEST_F(ConcurrencyInMemoryTest, PlacesAndHitsOfOneKeyAreApart) {
    LimiterOptions options;
    const auto limiter = *Limiter::make(store_, options);
    ConcurrencyOptions named;
    named.name = "x";
    const auto limit = *ConcurrencyLimit::make(store_, named);
    ASSERT_TRUE(limiter->hit("k")->allowed);
    EXPECT_TRUE(limit->try_acquire("k", "a")->allowed);
    EXPECT_EQ(limiter->peek("k")->remaining, 0);
    EXPECT_TRUE(failed_with(limit->try_acquire("k", ""), ErrorCode::config));
    EXPECT_TRUE(failed_with(limit->release("", "a"), ErrorCode::config));
    named.limit = ConcurrencyOptions::kMaxLimit + 1;
    EXPECT_TRUE(failed_with(ConcurrencyLimit::make(store_, named), ErrorCode::config));
}

}  // namespace
}  // namespace hotcount

// Adds in memory to a counter with a ttl: every moment at which a key can expire during an add is tried.
#include <atomic>
#include <hotcount/counter.hpp>
#include <map>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::succeeded;

constexpr Duration kTtl = 60s;

// Goes on by a millisecond with every look at it, once it is let go: so that an add takes time, and
// the same time always.
class RunningClock final : public Clock {
  public:
    SteadyTime steady_now() const override {
        return SteadyTime{running_ ? Duration{now_ += (1ms).count() * 1'000'000} : Duration{now_}};
    }
    WallTime wall_now() const override { return WallTime{}; }
    void advance(Duration by) { now_ += by.count(); }
    void run(bool on) { running_ = on; }

  private:
    mutable std::atomic<std::int64_t> now_{0};
    bool running_{false};
};

struct Ends {
    int counted_on{0};  // The key had not expired.
    int begun_anew{0};  // With a TTL of its own.
    int immortal{0};
};

// One add to a key that expires in 1, 2, ... 40 ms.
Ends add_at_every_moment() {
    Ends ends;
    for (int left = 1; left <= 40; ++left) {
        const auto clock = std::make_shared<RunningClock>();
        const auto store = testing::memory_store(clock);
        CounterOptions options;
        options.ttl = kTtl;
        const auto counter = *Counter::make(store, options);
        EXPECT_TRUE(succeeded(counter->add("k", 5)));
        clock->advance(kTtl - left * 1ms);
        clock->run(true);
        const std::int64_t value = *counter->add("k");
        clock->run(false);
        const auto ttl = *counter->ttl("k");
        if (*counter->get("k") == 0) {
            ++ends.counted_on;  // And expired before the add was done.
        } else if (!ttl) {
            EXPECT_EQ(value, 1);
            ++ends.immortal;
        } else {
            ++(value == 6 ? ends.counted_on : ends.begun_anew);
        }
    }
    return ends;
}

TEST(CounterWithTtl, HasNoMomentThatLeavesAnImmortalKey) {
    const Ends ends = add_at_every_moment();
    EXPECT_EQ(ends.immortal, 0);
    EXPECT_GT(ends.counted_on, 0);
    EXPECT_GT(ends.begun_anew, 0);
}

TEST(TryAdd, RefusedWhileItsKeyExpiresLeavesNoKeyBehind) {
    for (int left = 1; left <= 10; ++left) {
        const auto clock = std::make_shared<RunningClock>();
        const auto store = testing::memory_store(clock);
        CounterOptions options;
        options.ttl = kTtl;
        const auto counter = *Counter::make(store, options);
        ASSERT_TRUE(succeeded(counter->add("k", 5)));
        clock->advance(kTtl - left * 1ms);
        clock->run(true);
        const TryAdd tried = *counter->try_add("k", -1, {.min = 1});
        clock->run(false);
        const bool is_there =
            store->read("count:k", [](const memory::Entry* entry) { return entry != nullptr; });
        EXPECT_TRUE(tried.applied || !is_there) << left << " ms were left";
    }
}

}  // namespace
}  // namespace hotcount

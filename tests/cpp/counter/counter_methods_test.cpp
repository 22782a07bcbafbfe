// Adds in memory, by the unsafe methods above all: every moment at which a key can expire during an
// add is tried.
#include <atomic>
#include <hotcount/counter.hpp>
#include <map>

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

// One add to a key that has so many milliseconds left, for every number of them up to 40.
Ends add_at_every_moment(CounterMethod method, Compensation compensation) {
    Ends ends;
    for (int left = 1; left <= 40; ++left) {
        const auto clock = std::make_shared<RunningClock>();
        memory::StoreOptions store_options;
        store_options.clock = clock;
        const auto store = *memory::Store::make(store_options);
        CounterOptions options;
        options.ttl = kTtl;
        EXPECT_TRUE(succeeded((*Counter::make(store, options))->add("k", 5)));
        options.method = method;
        options.compensation = compensation;
        const auto counter = *Counter::make(store, options);
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

TEST(CounterMethods, TheScriptHasNoMomentThatLeavesAnImmortalKey) {
    const Ends ends = add_at_every_moment(CounterMethod::script, Compensation::both);
    EXPECT_EQ(ends.immortal, 0);
    EXPECT_GT(ends.counted_on, 0);
    EXPECT_GT(ends.begun_anew, 0);
}

TEST(CounterMethods, SetNxIncrMakesAnImmortalKeyWhereTheKeyExpiresBetweenItsSteps) {
    const Ends ends = add_at_every_moment(CounterMethod::set_nx_incr, Compensation::none);
    EXPECT_GT(ends.immortal, 0) << "mended: then the method is not unsafe any more";
    EXPECT_GT(ends.counted_on, 0);
}

TEST(CounterMethods, EachCompensationAloneHealsWhatOneCallerHasMade) {
    for (const Compensation compensation :
         {Compensation::first, Compensation::ttl, Compensation::both}) {
        const Ends ends = add_at_every_moment(CounterMethod::set_nx_incr, compensation);
        EXPECT_EQ(ends.immortal, 0) << to_string(compensation);
        EXPECT_GT(ends.begun_anew, 0) << to_string(compensation);
        EXPECT_GT(ends.counted_on, 0) << to_string(compensation);
    }
}

class MemoryCounterMethods : public ::testing::Test {
  protected:
    std::shared_ptr<Counter> make(CounterMethod method, Compensation compensation,
                                  std::optional<Duration> ttl = kTtl) {
        CounterOptions options;
        options.ttl = ttl;
        options.method = method;
        options.compensation = compensation;
        return *Counter::make(store_, options);
    }
    std::shared_ptr<memory::Store> store_ = *memory::Store::make();
};

TEST_F(MemoryCounterMethods, OnlyTheTtlCompensationHealsAKeyThatSomebodyLeft) {
    for (const auto& [method, compensation, heals] :
         {std::tuple{CounterMethod::incr, Compensation::both, false},
          std::tuple{CounterMethod::set_nx_incr, Compensation::none, false},
          std::tuple{CounterMethod::set_nx_incr, Compensation::first, false},
          std::tuple{CounterMethod::set_nx_incr, Compensation::ttl, true},
          std::tuple{CounterMethod::set_nx_incr, Compensation::both, true},
          std::tuple{CounterMethod::script, Compensation::both, true}}) {
        ASSERT_TRUE(succeeded(make(CounterMethod::incr, Compensation::both, {})->add("left")));
        const auto counter = make(method, compensation);
        EXPECT_EQ(*counter->add("left"), 2);
        EXPECT_EQ(counter->ttl("left")->has_value(), heals)
            << to_string(method) << ' ' << to_string(compensation);
        ASSERT_TRUE(succeeded(counter->reset("left")));
    }
}

TEST(TryAdd, RefusedWhileItsKeyExpiresLeavesNoKeyBehind) {
    for (int left = 1; left <= 10; ++left) {
        const auto clock = std::make_shared<RunningClock>();
        memory::StoreOptions store_options;
        store_options.clock = clock;
        const auto store = *memory::Store::make(store_options);
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

TEST_F(MemoryCounterMethods, WhatTheyCannotDoIsRefusedByName) {
    const auto refused = [&](CounterOptions options, const char* naming) {
        return failed_with(Counter::make(store_, options), ErrorCode::config, naming);
    };
    CounterOptions no_ttl;
    no_ttl.method = CounterMethod::set_nx_incr;
    EXPECT_TRUE(refused(no_ttl, "ttl"));
    CounterOptions no_set_nx;
    no_set_nx.compensation = Compensation::first;
    EXPECT_TRUE(refused(no_set_nx, "compensation"));
    const auto counter = make(CounterMethod::incr, Compensation::both);
    EXPECT_TRUE(failed_with(counter->try_add("k", 1, {}), ErrorCode::config, "try_add"));
    EXPECT_TRUE(failed_with(counter->add_once("k", 1, "a"), ErrorCode::config, "op_id"));
    EXPECT_EQ(*counter->get("k"), 0);
}

}  // namespace
}  // namespace hotcount

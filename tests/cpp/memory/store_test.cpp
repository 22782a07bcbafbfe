#include <array>
#include <hotcount/memory.hpp>
#include <string>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::memory {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::failed_with;
using hotcount::testing::in_threads;
using hotcount::testing::succeeded;

Result<std::int64_t> put(Store& store, std::string_view key, std::optional<Duration> ttl = {}) {
    return store.upsert(key, [&](Entry& entry, bool fresh) -> Result<std::int64_t> {
        if (ttl) entry.expires_at = store.now() + *ttl;
        return ++*entry.as<std::int64_t>(fresh);
    });
}

bool holds(Store& store, std::string_view key) {
    return store.read(key, [](const Entry* entry) { return entry != nullptr; });
}

class MemoryStore : public ::testing::Test {
  protected:
    std::shared_ptr<Store> make(std::size_t max_keys) {
        StoreOptions options;
        options.max_keys = max_keys;
        options.shards = 4;
        options.clock = clock_;
        return *Store::make(options);
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
};

TEST_F(MemoryStore, AnExpiredKeyIsAbsentAtOnce) {
    const auto store = make(100);
    ASSERT_TRUE(succeeded(put(*store, "a", 10s)));
    clock_->advance(10s - 1ns);
    EXPECT_TRUE(holds(*store, "a"));
    clock_->advance(1ns);
    EXPECT_FALSE(holds(*store, "a"));
    EXPECT_EQ(*put(*store, "a"), 1);
}

TEST_F(MemoryStore, AtItsBoundItDropsTheExpiredAndThenRefuses) {
    const auto store = make(10);
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(succeeded(put(*store, std::to_string(i), i < 5 ? 1s : 100s)));
    }
    EXPECT_TRUE(failed_with(put(*store, "one more"), ErrorCode::capacity, "max_keys=10"));
    EXPECT_EQ(*put(*store, "3"), 2) << "a key that is there needs no room";
    clock_->advance(2s);
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(succeeded(put(*store, "new" + std::to_string(i))));
    }
    EXPECT_TRUE(failed_with(put(*store, "again"), ErrorCode::capacity, "again"));
    EXPECT_EQ(store->stats().refused, 2U);
    EXPECT_EQ(store->stats().keys, 10U);
    for (int i = 5; i < 10; ++i) EXPECT_TRUE(holds(*store, std::to_string(i))) << "evicted";
}

TEST_F(MemoryStore, ManyThreadsDoNotPassTheBoundTogether) {
    const auto store = make(1000);
    std::atomic<int> made{0};
    in_threads(8, [&](int t) {
        for (int i = 0; i < 500; ++i) {
            if (put(*store, std::to_string(t) + "-" + std::to_string(i)).ok()) ++made;
        }
    });
    EXPECT_EQ(made, 1000);
    EXPECT_EQ(store->size(), 1000U);
}

TEST_F(MemoryStore, AVisitThatFailsLeavesNoKeyBehind) {
    const auto store = make(10);
    const auto failed = store->upsert("a", [](Entry&, bool) -> Result<void> {
        return make_error(ErrorCode::overflow, "on purpose");
    });
    EXPECT_TRUE(failed_with(failed, ErrorCode::overflow));
    EXPECT_FALSE(holds(*store, "a"));
    EXPECT_EQ(store->size(), 0U);
}

TEST_F(MemoryStore, ShortLivedKeysDoNotPileUp) {
    const auto store = make(1'000'000);
    for (int i = 0; i < 100'000; ++i) {
        ASSERT_TRUE(succeeded(put(*store, std::to_string(i), 1ms)));
        clock_->advance(10us);
    }
    EXPECT_LT(store->size(), 2000U) << "100 are live at any time";
}

TEST_F(MemoryStore, AFailedInsertAtTheBoundDoesNotSearchItAll) {
    // Without the earliest expiry kept per shard this takes minutes instead of milliseconds.
    const auto store = make(200'000);
    for (int i = 0; i < 200'000; ++i) {
        ASSERT_TRUE(succeeded(put(*store, std::to_string(i), 1000s)));
    }
    for (int i = 0; i < 20'000; ++i) {
        ASSERT_FALSE(put(*store, "x" + std::to_string(i)).ok());
    }
    EXPECT_EQ(store->stats().refused, 20'000U);
}

TEST_F(MemoryStore, AFullStoreOfExpiredKeysMakesRoomAFewAtATime) {
    constexpr int kKeys = 20'000;
    const auto store = make(kKeys);
    for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(succeeded(put(*store, std::to_string(i), 1s)));
    clock_->advance(2s);
    std::uint64_t swept = store->stats().swept;
    EXPECT_EQ(swept, 0U);
    for (int i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(succeeded(put(*store, "new" + std::to_string(i), 1000s))) << i;
        const std::uint64_t now_swept = store->stats().swept;
        ASSERT_LE(now_swept - swept, 1024U + 32U) << "in one call";
        swept = now_swept;
    }
    EXPECT_EQ(swept, kKeys);
    EXPECT_FALSE(put(*store, "one more").ok());
}

TEST_F(MemoryStore, AtItsBoundASmallStoreFindsEveryExpiredKeyWhereverItStands) {
    // Less than a new key looks at, even where it meets each twice. One expires at a time.
    constexpr int kKeys = 400;
    const auto store = make(kKeys);
    for (int i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(succeeded(put(*store, std::to_string(i), (i * 37 % kKeys + 1) * 1s)));
    }
    for (int i = 0; i < kKeys; ++i) {
        ASSERT_FALSE(put(*store, "too early").ok()) << i;
        clock_->advance(1s);
        ASSERT_TRUE(succeeded(put(*store, "new" + std::to_string(i), 1000s))) << i;
    }
    EXPECT_EQ(store->stats().swept, static_cast<std::uint64_t>(kKeys));
}

TEST(Value, IsFoundByItsOwnTypeOnly) {
    struct Pair {
        std::int64_t a{0};
        std::int64_t b{0};
    };
    struct Large {
        std::string text{"large"};
        std::int64_t n{7};
    };
    Value value;
    EXPECT_EQ(*value.get_if<std::int64_t>(), 0);
    EXPECT_EQ(value.get_if<Pair>(), nullptr);
    value.emplace<Pair>().b = 5;
    EXPECT_EQ(value.get_if<std::int64_t>(), nullptr);
    Value moved = std::move(value);
    EXPECT_EQ(moved.get_if<Pair>()->b, 5);
    moved.emplace<Large>().n = 8;
    value = std::move(moved);
    EXPECT_EQ(value.get_if<Large>()->text, "large");
    EXPECT_EQ(value.get_if<Large>()->n, 8);
}

TEST(Value, DestroysWhatItHoldsOnce) {
    const auto held = std::make_shared<int>(0);
    using Inline = std::shared_ptr<int>;
    struct Boxed {
        std::shared_ptr<int> shared;
        std::array<std::int64_t, 4> more{};
    };
    {
        Value value;
        value.emplace<Inline>() = held;
        Value other;
        other.emplace<Boxed>().shared = held;
        EXPECT_EQ(held.use_count(), 3);
        std::swap(value, other);
        EXPECT_EQ(held.use_count(), 3);
        EXPECT_EQ(value.get_if<Boxed>()->shared, held);
        value.emplace<std::int64_t>();
        EXPECT_EQ(held.use_count(), 2);
    }
    EXPECT_EQ(held.use_count(), 1);
}

TEST(NamedStore, IsOneWhileHeldAndFreshAfterwards) {
    auto first = *named_store("shared");
    EXPECT_EQ(first, *named_store("shared"));
    EXPECT_NE(first, *named_store("other"));
    ASSERT_TRUE(succeeded(put(*first, "a")));
    first.reset();
    EXPECT_FALSE(holds(**named_store("shared"), "a"));
}

TEST(StoreOptions, RefuseWhatMakesNoStore) {
    StoreOptions none;
    none.max_keys = 0;
    EXPECT_TRUE(failed_with(Store::make(none), ErrorCode::config, "max_keys"));
    StoreOptions no_shards;
    no_shards.shards = 0;
    EXPECT_TRUE(failed_with(Store::make(no_shards), ErrorCode::config, "shards"));
}

}  // namespace
}  // namespace hotcount::memory

// Copies of counts: which one stands, for how long, and what a cache that fails costs. With Redis
// and folds on servers: tests/contract/test_votes_copies.py.
#include "votes/cache/count_copies.hpp"

#include <map>
#include <random>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::succeeded;
using Copy = CopyStore::Copy;

std::int64_t n_of(const std::optional<Copy>& copy) { return copy ? copy->n : -1; }

class CopyStoreTest : public ::testing::Test {
  protected:
    void write(const std::string& item, std::int64_t ver, std::int64_t n, Duration life = 30s) {
        const CopyStore::Named copy{item, {.n = n, .ver = ver}};
        ASSERT_TRUE(succeeded(store_->write("t", std::span{&copy, 1}, life, {})));
    }
    std::optional<Copy> read(const std::string& item, std::string_view space = "t") {
        const auto found = store_->read(space, std::span{&item, 1}, {});
        EXPECT_TRUE(succeeded(found));
        return found ? found->front() : std::nullopt;
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> memory_ = testing::memory_store(clock_);
    std::unique_ptr<CopyStore> store_ = make_memory_copy_store(memory_);
};

TEST_F(CopyStoreTest, TheHigherVerStandsWhicheverComesFirst) {
    write("a", 5, 50);
    EXPECT_EQ(n_of(read("a")), 50);
    write("a", 4, 40);
    write("a", 5, 51);
    EXPECT_EQ(n_of(read("a")), 50);
    write("a", 10, 100);
    EXPECT_EQ(n_of(read("a")), 100);
    EXPECT_EQ(n_of(read("b")), -1);
    EXPECT_EQ(n_of(read("a", "other tables")), -1);
}

TEST_F(CopyStoreTest, ACopyEndsAndOneThatIsNewerLivesAnew) {
    write("a", 1, 10, 10s);
    clock_->advance(6s);
    write("a", 1, 10, 10s);
    write("a", 0, 0, 10s);
    clock_->advance(4s);
    EXPECT_EQ(n_of(read("a")), -1);
    write("a", 1, 10, 10s);
    clock_->advance(6s);
    write("a", 2, 20, 10s);
    clock_->advance(6s);
    EXPECT_EQ(n_of(read("a")), 20);
}

TEST_F(CopyStoreTest, AKeyOfAnotherKindIsNoCopyAndStays) {
    write("a", 1, 10);
    std::string key;
    for (std::size_t shard = 0; shard < memory_->options().shards; ++shard) {
        memory_->visit_shard(shard, [&](std::string_view name, const auto&) { key = name; });
    }
    const auto take = [](memory::Entry* entry) -> Result<void> {
        entry->value.emplace<std::int64_t>() = 7;
        return {};
    };
    ASSERT_TRUE(succeeded(memory_->modify(key, take)));
    EXPECT_EQ(n_of(read("a")), -1);
    write("a", 2, 20);
    EXPECT_EQ(n_of(read("a")), -1);
    EXPECT_EQ(memory_->read(key, [](const auto* e) { return *e->template as<std::int64_t>(); }), 7);
}

TEST_F(CopyStoreTest, WhateverComesLateACopyIsOneThatSqlHadAndItsVerNeverFalls) {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        const std::string item = std::to_string(seed);
        std::mt19937 random{seed};
        // What SQL had, by ver; what readers and folds have read and not yet written.
        std::map<std::int64_t, std::int64_t> history{{0, 0}};
        std::vector<Copy> on_their_way;
        std::int64_t seen = -1;
        for (int step = 0; step < 200; ++step) {
            const auto [ver, n] = *history.rbegin();
            switch (random() % 4) {
                case 0:  // A fold.
                    history[ver + 1 + static_cast<std::int64_t>(random() % 3)] = n + 1;
                    on_their_way.push_back({history.rbegin()->second, history.rbegin()->first});
                    break;
                case 1:  // A reader's fill.
                    on_their_way.push_back({n, ver});
                    break;
                default:
                    if (on_their_way.empty()) break;
                    const std::size_t which = random() % on_their_way.size();
                    write(item, on_their_way[which].ver, on_their_way[which].n);
                    on_their_way.erase(on_their_way.begin() + static_cast<std::ptrdiff_t>(which));
            }
            const auto copy = read(item);
            if (!copy) continue;
            ASSERT_EQ(history.at(copy->ver), copy->n) << "seed " << seed;
            ASSERT_LE(copy->ver, history.rbegin()->first) << "seed " << seed;
            ASSERT_GE(copy->ver, seen) << "seed " << seed;
            seen = copy->ver;
        }
    }
}

// -- over tables -------------------------------------------------------------------------------

/// A cache that does not answer while `away`.
class FailingStore final : public CopyStore {
  public:
    explicit FailingStore(std::unique_ptr<CopyStore> store) : store_(std::move(store)) {}
    Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                  std::span<const std::string> items,
                                                  Timeout timeout) override {
        ++calls;
        if (away) return make_error(ErrorCode::unavailable, "away");
        return store_->read(space, items, timeout);
    }
    Result<void> write(std::string_view space, std::span<const Named> copies, Duration life,
                       Timeout timeout) override {
        ++calls;
        last_life = life;
        if (away) return make_error(ErrorCode::unavailable, "away");
        return store_->write(space, copies, life, timeout);
    }
    bool away{false};
    int calls{0};
    Duration last_life{0};

  private:
    const std::unique_ptr<CopyStore> store_;
};

class CountCopiesTest : public CopyStoreTest {
  protected:
    void SetUp() override {
        const std::vector<sql::Id> items{std::int64_t{1}, std::int64_t{2}};
        const auto votes = *Votes::make(database_, options_);
        ASSERT_TRUE(succeeded(votes->create_tables()));
        ASSERT_TRUE(succeeded(votes->add_items(items)));
    }
    static VotesOptions options(std::shared_ptr<const Clock> clock) {
        VotesOptions options;
        options.strategy = VoteStrategy::slotted;  // SQLite's one that counts in cells.
        options.clock = std::move(clock);
        return options;
    }
    Count count(std::int64_t item) {
        const sql::Id id{item};
        auto counted = copies_.counts(std::span{&id, 1}, database_->deadline({}));
        EXPECT_TRUE(succeeded(counted));
        return counted ? std::move(counted->front()) : Count{-1, false, {}, "", 0};
    }
    void fold(std::int64_t item, std::int64_t n, std::int64_t ver) {
        const auto lease = *database_->writer(database_->deadline({}));
        ASSERT_TRUE(succeeded(lease->execute(cell_, {item, n, ver})));
    }
    void publish(std::int64_t item, std::int64_t n, std::int64_t ver) {
        const FoldedCount folded{item, n, ver};
        copies_.publish(std::span{&folded, 1});
    }

    testing::TemporaryDatabase file_;
    std::shared_ptr<sql::Database> database_ = file_.open();
    const VotesOptions options_ = options(clock_);
    FailingStore* cache_ = new FailingStore(std::move(store_));
    CountCopies copies_{database_, options_, std::unique_ptr<CopyStore>(cache_)};
    const sql::Statement cell_{
        "INSERT OR REPLACE INTO vote_cell (item, slot, n, ver) VALUES (?1, -1, ?2, ?3)"};
};

TEST_F(CountCopiesTest, AReaderFillsAndAFoldPublishes) {
    EXPECT_EQ(count(1).source, "sql");
    EXPECT_EQ(count(1).source, "cache");
    fold(1, 5, 1000);
    EXPECT_EQ(count(1).value, 0) << "not published yet";
    publish(1, 5, 1000);
    const Count copy = count(1);
    EXPECT_EQ(copy.value, 5);
    EXPECT_EQ(copy.source, "cache");
    EXPECT_FALSE(copy.exact);
    EXPECT_EQ(copy.as_of, WallTime{1000us}) << "the fold's time";
    publish(2, 7, 2000);
    EXPECT_EQ(count(2).source, "cache") << "a publish makes a copy that is missing";
    EXPECT_EQ(count(2).value, 7);
}

TEST_F(CountCopiesTest, AnItemThatNoFoldHasCountedIsAsOfNow) {
    EXPECT_EQ(count(2).as_of, clock_->wall_now());
    clock_->advance(1s);
    EXPECT_EQ(count(2).as_of, clock_->wall_now());
}

TEST_F(CountCopiesTest, ManyComeFromBoth) {
    const std::vector<sql::Id> items{std::int64_t{1}, std::int64_t{2}, std::int64_t{1}};
    count(1);
    fold(2, 9, 10);
    const auto counts = copies_.counts(items, database_->deadline({}));
    ASSERT_TRUE(succeeded(counts));
    EXPECT_EQ((*counts)[0].source, "cache");
    EXPECT_EQ((*counts)[1].source, "sql");
    EXPECT_EQ((*counts)[1].value, 9);
    EXPECT_EQ((*counts)[2].source, "cache");
    EXPECT_EQ(count(2).source, "cache");
}

TEST_F(CountCopiesTest, AFoldPublishesForTablesThatNobodyHasReadYet) {
    publish(1, 5, 1000);
    EXPECT_EQ(count(1).source, "cache");
    EXPECT_EQ(count(1).value, 5);
}

TEST_F(CountCopiesTest, ACacheThatFailsIsLeftAloneForASecond) {
    count(1);
    fold(1, 5, 1000);
    cache_->away = true;
    cache_->calls = 0;
    publish(1, 5, 1000);
    EXPECT_EQ(cache_->calls, 1);
    publish(1, 5, 1000);
    EXPECT_EQ(count(1).value, 5);
    EXPECT_EQ(count(1).source, "sql");
    EXPECT_EQ(cache_->calls, 1) << "neither votes nor readers wait for it again";
    cache_->away = false;
    clock_->advance(1s);
    EXPECT_EQ(count(1).value, 0) << "its copy is as old as before, for max_age at most";
    clock_->advance(options_.max_age);
    EXPECT_EQ(count(1).value, 5);
    EXPECT_EQ(cache_->last_life, options_.max_age);
}

}  // namespace
}  // namespace hotcount

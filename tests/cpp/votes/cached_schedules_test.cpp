// Strategy cached in thousands of orders: voters, fills, workers and recounts, cut into the steps
// that are atomic in SQL or in the cache, take turns as drawn from a seed. The steps are the
// library's own; only who comes next is the test's. A failure prints its seed.
#include <functional>
#include <hotcount/detail/base/random.hpp>

#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"
#include "votes/cache/count_cache.hpp"
#include "votes/cache/sync_table.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

using testing::succeeded;
using Step = std::function<void()>;

class CachedSchedules : public ::testing::Test {
  protected:
    CachedSchedules() {
        options_.strategy = VoteStrategy::cached;
        options_.missing_item = MissingItem::create;
        options_.retention = std::chrono::milliseconds{1};
        database_ = *sql::open_database("sqlite:///:memory:");
        store_ = *memory::Store::make({.clock = clock_});
        votes_ = *Votes::make(database_, options_, store_);
        EXPECT_TRUE(succeeded(votes_->create_tables()));
        const auto layout = std::make_shared<Layout>(options_, database_->dialect());
        rows_ = layout->vote_dialect().vote_writer(layout, options_, {});
        table_ = std::make_unique<SyncTable>(options_, database_->dialect());
        cache_ = make_memory_count_cache(store_, options_.retention);
        in_sql([&](sql::Connection& connection) { space_ = *table_->cache_id(connection); });
        const std::string items[] = {text()};
        holder_ = *cache_->identities(space_, items, {}).front();
    }

    void in_sql(const std::function<void(sql::Connection&)>& work) {
        const Deadline deadline = database_->deadline({});
        const auto connection = database_->writer(deadline);
        ASSERT_TRUE(succeeded((*connection)->begin(deadline)));
        work(**connection);
        ASSERT_TRUE(succeeded((*connection)->commit()));
    }

    std::string text() const { return std::to_string(item_); }

    // Fence and land, for the hash that had the token when `token` was filled in.
    void add_fill(std::vector<Step>& steps, const std::shared_ptr<std::string>& token) {
        auto fill = std::make_shared<CountCache::Fill>();
        steps.push_back([=, this] {
            if (token->empty()) return;
            in_sql([&](sql::Connection& connection) {
                const auto state = *table_->fence(connection, sql::Id{item_}, holder_);
                *fill = {text(), *token, state->gen, state->epoch, state->stored};
            });
        });
        steps.push_back([=, this] {
            if (token->empty()) return;
            EXPECT_TRUE(succeeded(cache_->land(space_, *fill, {})));
        });
    }

    std::vector<Step> voter(std::int64_t user, std::vector<std::int64_t> values) {
        std::vector<Step> steps;
        for (const std::int64_t value : values) {
            auto increment = std::make_shared<CountCache::Increment>();
            auto born = std::make_shared<std::string>();
            steps.push_back([=, this] {
                in_sql([&](sql::Connection& connection) {
                    const auto cast =
                        rows_->set(connection, Ballot{sql::Id{item_}, sql::Id{user}, value});
                    ASSERT_TRUE(succeeded(cast));
                    const auto state = *table_->read(connection, sql::Id{item_});
                    *increment = {text(), cast->value - cast->previous, 1, state->epoch};
                });
            });
            steps.push_back([=, this] {
                const std::string token = random_name();
                const auto counted = cache_->increment(space_, {increment.get(), 1}, token, {});
                ASSERT_TRUE(succeeded(counted.states.front()));
                if (*counted.states.front() == CountCache::Counted::born) {
                    *born = token;
                    EXPECT_EQ(counted.identities.front(), holder_);
                }
            });
            add_fill(steps, born);
        }
        return steps;
    }

    std::vector<Step> worker(int rounds) {
        std::vector<Step> steps;
        for (int round = 0; round < rounds; ++round) {
            auto entry = std::make_shared<std::optional<CacheEntry>>();
            auto state = std::make_shared<SaveState>(SaveState::behind);
            auto unfilled = std::make_shared<std::string>();
            const auto mark = [=, this] {
                return CountCache::Mark{text(), (*entry)->gen, (*entry)->version};
            };
            steps.push_back([=, this] {
                const std::string items[] = {text()};
                *entry = *cache_->read(space_, items, {}).front();
                if (*entry && !(*entry)->filled()) *unfilled = (*entry)->token;
            });
            steps.push_back([=, this] {
                if (!*entry || !(*entry)->filled()) return;
                *state = SaveState::saved;
                if (!(*entry)->unsaved()) return;
                in_sql([&](sql::Connection& connection) {
                    *state = *table_->save(connection, sql::Id{item_}, **entry);
                });
                EXPECT_NE(*state, SaveState::doubtful);
                if (*state == SaveState::fenced) *unfilled = (*entry)->token;
            });
            steps.push_back([=, this] {
                const auto marks = *entry ? mark() : CountCache::Mark{};
                if (*state == SaveState::saved) {
                    EXPECT_TRUE(succeeded(cache_->mark(space_, {&marks, 1}, {})));
                } else if (*state == SaveState::outdated) {
                    const CountCache::Outdated old{text(), (*entry)->epoch + 1};
                    EXPECT_TRUE(succeeded(cache_->drop(space_, {&old, 1}, {})));
                }
            });
            steps.push_back([=, this] {
                if (*state != SaveState::saved) return;
                clock_->advance(options_.retention);  // Whatever it finds is past its retention.
                const auto marks = mark();
                const auto removed = cache_->remove(space_, {&marks, 1}, {});
                ASSERT_TRUE(succeeded(removed));
                removed_ += *removed;
            });
            add_fill(steps, unfilled);
        }
        return steps;
    }

    std::vector<Step> recounter() {
        auto outdated = std::make_shared<CountCache::Outdated>();
        return {[=, this] {
                    in_sql([&](sql::Connection& connection) {
                        const auto epoch = table_->recount(connection, sql::Id{item_}, 0);
                        ASSERT_TRUE(succeeded(epoch));
                        *outdated = {text(), *epoch};
                    });
                },
                [=, this] {
                    EXPECT_TRUE(succeeded(cache_->drop(space_, {outdated.get(), 1}, {})));
                }};
    }

    // Runs actors to their ends, then drains.
    void run(std::vector<std::vector<Step>> actors, Random& random) {
        std::vector<std::size_t> next(actors.size(), 0);
        while (true) {
            std::vector<std::size_t> able;
            for (std::size_t i = 0; i < actors.size(); ++i) {
                if (next[i] < actors[i].size()) able.push_back(i);
            }
            if (able.empty()) break;
            const std::size_t chosen = able[random.below(able.size())];
            actors[chosen][next[chosen]++]();
        }
    }

    void expect_drained(std::uint64_t seed) {
        const auto report = votes_->flush();
        ASSERT_TRUE(succeeded(report));
        EXPECT_EQ(report->pending, 0);
        const auto exact = votes_->count(sql::Id{item_}, Consistency::exact);
        const auto cached = votes_->count(sql::Id{item_});
        ASSERT_TRUE(succeeded(exact));
        ASSERT_TRUE(succeeded(cached));
        EXPECT_EQ(cached->value, exact->value) << "seed " << seed;
        const std::string where = " WHERE id = " + text();
        EXPECT_EQ(testing::query_integer(*database_, "SELECT vote_count FROM item" + where),
                  exact->value)
            << "seed " << seed;
    }

    void add_item(std::int64_t item) {
        item_ = item;
        const sql::Id id{item};
        ASSERT_TRUE(succeeded(votes_->add_items({&id, 1})));
    }

    std::shared_ptr<ManualClock> clock_{std::make_shared<ManualClock>()};
    VotesOptions options_;
    std::shared_ptr<sql::Database> database_;
    std::shared_ptr<memory::Store> store_;
    std::shared_ptr<Votes> votes_;
    std::unique_ptr<VoteWriter> rows_;
    std::unique_ptr<SyncTable> table_;
    std::unique_ptr<CountCache> cache_;
    std::string space_;
    std::string holder_;
    std::int64_t item_{0};
    std::int64_t removed_{0};
};

TEST_F(CachedSchedules, VotersAndTwoWorkersInAnyOrderEndWithTheVotes) {
    for (std::uint64_t seed = 1; seed <= 3000 && !HasFailure(); ++seed) {
        add_item(static_cast<std::int64_t>(seed));
        Random random(seed);
        run({voter(1, {1}), voter(2, {1, 0}), voter(3, {5}), voter(4, {1}), worker(3), worker(3)},
            random);
        expect_drained(seed);
    }
    // The orders meant here have deletes among the votes.
    EXPECT_GT(removed_, 1000);
}

TEST_F(CachedSchedules, ARecountMeanwhileCountsEachVoteOnce) {
    for (std::uint64_t seed = 1; seed <= 2000 && !HasFailure(); ++seed) {
        add_item(static_cast<std::int64_t>(seed));
        Random random(seed);
        run({voter(1, {1}), voter(2, {1, 3}), voter(3, {1}), worker(2), worker(2), recounter(),
             recounter()},
            random);
        expect_drained(seed);
    }
}

TEST_F(CachedSchedules, WhoDiesBetweenTwoStepsLeavesTheRestToOthers) {
    for (std::uint64_t seed = 1; seed <= 2000 && !HasFailure(); ++seed) {
        add_item(static_cast<std::int64_t>(seed));
        Random random(seed);
        // A worker dies anywhere, a voter after its increment: before it, see reconcile.
        auto dying_worker = worker(2);
        dying_worker.resize(random.below(dying_worker.size()));
        auto dying_voter = voter(9, {1});
        dying_voter.resize(2 + random.below(2));
        run({voter(1, {1}), voter(2, {1}), voter(3, {1}), worker(2), std::move(dying_worker),
             std::move(dying_voter)},
            random);
        expect_drained(seed);
    }
}

}  // namespace
}  // namespace hotcount

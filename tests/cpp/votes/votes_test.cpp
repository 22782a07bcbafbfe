#include <hotcount/detail/sql/transaction.hpp>
#include <hotcount/votes.hpp>
#include <thread>

#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::query_integer;
using testing::succeeded;

class VotesTest : public ::testing::TestWithParam<VoteStrategy> {
  protected:
    std::shared_ptr<Votes> make(VotesOptions options = {}) {
        options.strategy = GetParam();
        auto votes = *Votes::make(database_, std::move(options));
        EXPECT_TRUE(succeeded(votes->create_tables()));
        return votes;
    }
    std::shared_ptr<Votes> make_with_items(std::int64_t items) {
        auto votes = make();
        std::vector<sql::Id> ids;
        for (std::int64_t id = 1; id <= items; ++id) ids.emplace_back(id);
        EXPECT_TRUE(succeeded(votes->add_items(ids)));
        return votes;
    }
    static Ballot ballot(std::int64_t item, std::int64_t user, std::int64_t value = 1,
                         std::optional<std::int64_t> version = {}) {
        return Ballot{item, user, value, version};
    }
    std::int64_t live_votes() {
        return query_integer(*database_, "SELECT COUNT(*) FROM vote_live");
    }
    void change(const std::string& text) {
        const sql::Statement statement{text};
        ASSERT_TRUE(succeeded(sql::transact(
            *database_, Deadline::after(20s),
            [&](sql::Connection& connection) { return connection.execute(statement); })));
    }
    static std::int64_t count(Votes& votes, std::int64_t item) {
        const auto counted = votes.count(item);
        EXPECT_TRUE(succeeded(counted));
        return counted.ok() ? counted->value : -1;
    }
    testing::TemporaryDatabase file_;
    std::shared_ptr<sql::Database> database_ = file_.open();
};

INSTANTIATE_TEST_SUITE_P(Strategies, VotesTest,
                         ::testing::Values(VoteStrategy::naive, VoteStrategy::slotted,
                                           VoteStrategy::batched),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(VotesTest, AVoteCountsOnceHoweverOftenItIsCast) {
    const auto votes = make_with_items(1);
    const auto first = votes->cast(ballot(1, 7));
    ASSERT_TRUE(succeeded(first));
    EXPECT_TRUE(first->counted && first->changed);
    EXPECT_EQ(first->previous, 0);
    const auto again = votes->cast(ballot(1, 7));
    ASSERT_TRUE(succeeded(again));
    EXPECT_TRUE(again->counted && !again->changed);
    EXPECT_EQ(again->value, 1);
    EXPECT_EQ(count(*votes, 1), 1);
}

TEST_P(VotesTest, AChangedOrRetractedVoteMovesTheCountByTheDifference) {
    const auto votes = make_with_items(1);
    ASSERT_TRUE(succeeded(votes->cast(ballot(1, 7, 5))));
    ASSERT_TRUE(succeeded(votes->cast(ballot(1, 8, 1))));
    const auto changed = votes->cast(ballot(1, 7, -2));
    EXPECT_EQ(changed->previous, 5);
    EXPECT_EQ(count(*votes, 1), -1);
    const auto retracted = votes->cast(ballot(1, 7, 0));
    EXPECT_FALSE(retracted->counted);
    EXPECT_TRUE(retracted->changed);
    EXPECT_EQ(count(*votes, 1), 1);
    EXPECT_EQ(live_votes(), 1);
    const auto never = votes->cast(ballot(1, 99, 0));
    EXPECT_FALSE(never->counted || never->changed) << "a retract of nothing";
    EXPECT_EQ(count(*votes, 1), 1);
}

TEST_P(VotesTest, ConcurrentVotersOfFewItemsAreAllCounted) {
    const auto votes = make_with_items(3);
    std::vector<std::thread> threads;
    std::atomic<int> acknowledged{0};
    for (int t = 0; t < 16; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 30; ++i) {
                // Every vote is sent by two threads: one of them counts.
                const auto cast = votes->cast(ballot(i % 3 + 1, (t / 2) * 1000 + i), 20s);
                EXPECT_TRUE(succeeded(cast));
                if (cast.ok() && cast->changed) ++acknowledged;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(acknowledged, 8 * 30);
    EXPECT_EQ(live_votes(), 8 * 30);
    for (int item = 1; item <= 3; ++item) EXPECT_EQ(count(*votes, item), 80);
    ASSERT_TRUE(succeeded(votes->flush()));
    EXPECT_EQ(query_integer(*database_, "SELECT SUM(vote_count) FROM item"), 240);
    EXPECT_TRUE(votes->reconcile(std::nullopt, true)->empty());
}

TEST_P(VotesTest, AnOlderVersionArrivingLateChangesNothing) {
    const auto votes = make_with_items(1);
    ASSERT_TRUE(votes->cast(ballot(1, 7, 1, 10))->changed);
    ASSERT_TRUE(votes->cast(ballot(1, 7, 0, 12))->changed);
    const auto late = votes->cast(ballot(1, 7, 1, 11));
    ASSERT_TRUE(succeeded(late));
    EXPECT_FALSE(late->counted || late->changed);
    EXPECT_EQ(late->value, 0);
    EXPECT_FALSE(votes->cast(ballot(1, 7, 1, 12))->changed) << "an equal version is not newer";
    EXPECT_EQ(count(*votes, 1), 0);
    EXPECT_TRUE(votes->cast(ballot(1, 7, 1, 13))->changed);
    EXPECT_EQ(count(*votes, 1), 1);
}

TEST_P(VotesTest, ABatchAnswersEachBallotForItself) {
    const auto votes = make_with_items(2);
    const Ballot ballots[] = {ballot(1, 7), ballot(999, 7), ballot(2, 7), ballot(1, 7),
                              ballot(1, 7, 0)};
    const auto casts = votes->cast_many(ballots);
    ASSERT_EQ(casts.size(), 5U);
    EXPECT_TRUE(casts[0]->changed);
    EXPECT_TRUE(failed_with(casts[1], ErrorCode::integrity, "item 999, which does not exist"));
    EXPECT_TRUE(casts[2]->changed);
    EXPECT_FALSE(casts[3]->changed) << "in the order given";
    EXPECT_TRUE(casts[4]->changed);
    EXPECT_EQ(count(*votes, 1), 0);
    EXPECT_EQ(count(*votes, 2), 1);
    EXPECT_EQ(count(*votes, 999), 0);
}

TEST_P(VotesTest, AMissingItemIsMadeWhereTheOptionSaysSo) {
    VotesOptions options;
    options.missing_item = MissingItem::create;
    const auto votes = make(options);
    EXPECT_TRUE(votes->cast(ballot(5, 7))->changed);
    EXPECT_EQ(count(*votes, 5), 1);
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM item"), 1);
}

TEST_P(VotesTest, ACountThatWouldLeave64BitsIsRefusedAndNothingChanges) {
    VotesOptions options;
    options.slots = 1;
    const auto votes = make(options);
    const sql::Id items[] = {std::int64_t{1}, std::int64_t{2}};
    ASSERT_TRUE(succeeded(votes->add_items(items)));
    // As large as it takes four billion of the largest votes to make.
    const bool in_cells = GetParam() == VoteStrategy::slotted;
    const std::string number = std::to_string(INT64_MAX);
    change(in_cells ? "INSERT INTO vote_cell (item, slot, n, ver) VALUES (1, 0, " + number + ", 1)"
                    : "UPDATE item SET vote_count = " + number + " WHERE id = 1");
    const Ballot ballots[] = {ballot(2, 1), ballot(1, 8, 1), ballot(2, 2)};
    const auto casts = votes->cast_many(ballots);
    EXPECT_TRUE(succeeded(casts[0]));
    EXPECT_TRUE(failed_with(casts[1], ErrorCode::overflow, "item 1"));
    EXPECT_TRUE(succeeded(casts[2]));
    EXPECT_EQ(count(*votes, 1), INT64_MAX);
    EXPECT_EQ(count(*votes, 2), 2);
    EXPECT_EQ(live_votes(), 2);
}

TEST_P(VotesTest, TextIdsOfAnyLookAreKeptApart) {
    VotesOptions options;
    options.item_type = IdType::text;
    options.user_type = IdType::text;
    const auto votes = make(options);
    const std::vector<sql::Id> items{"a'b", "A'B", "\"x\"", "é"};
    ASSERT_TRUE(succeeded(votes->add_items(items)));
    for (const auto& item : items) {
        ASSERT_TRUE(succeeded(votes->cast(Ballot{item, std::string{"u; DROP TABLE vote"}})));
    }
    const auto counts = votes->count_many(items);
    ASSERT_TRUE(succeeded(counts));
    for (const auto& counted : *counts) EXPECT_EQ(counted.value, 1);
}

TEST_P(VotesTest, ReconcileFindsAndRepairsADrift) {
    const auto votes = make_with_items(3);
    for (int user = 0; user < 5; ++user) {
        ASSERT_TRUE(succeeded(votes->cast(ballot(2, user))));
    }
    {
        const auto lease = database_->writer(database_->deadline({}));
        ASSERT_TRUE(succeeded((*lease)->run_script(
            "UPDATE item SET vote_count = 77 WHERE id = 2; UPDATE vote_cell SET n = 77")));
    }
    const auto found = votes->reconcile(std::nullopt, true);
    ASSERT_EQ(found->size(), 1U);
    EXPECT_EQ((*found)[0].item, sql::Id{std::int64_t{2}});
    EXPECT_EQ((*found)[0].counted, 77);
    EXPECT_EQ((*found)[0].actual, 5);
    EXPECT_EQ(count(*votes, 2), 77) << "a dry run repairs nothing";
    const sql::Id one[] = {std::int64_t{2}};
    EXPECT_EQ(votes->reconcile(one)->size(), 1U);
    EXPECT_EQ(count(*votes, 2), 5);
    EXPECT_TRUE(votes->reconcile(std::nullopt)->empty());
}

TEST_P(VotesTest, ReconcileReadsPastItsPageSize) {
    const auto votes = make_with_items(2500);
    {
        const auto lease = database_->writer(database_->deadline({}));
        ASSERT_TRUE(succeeded((*lease)->run_script(
            "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 1), (1001, 1, 1), "
            "(2500, 1, 1)")));
    }
    EXPECT_EQ(votes->reconcile(std::nullopt)->size(), 3U);
    EXPECT_EQ(count(*votes, 2500), 1);
}

TEST_P(VotesTest, MissingTablesAreSaidToBeMissing) {
    VotesOptions options;
    options.strategy = GetParam();
    const auto votes = *Votes::make(database_, options);
    EXPECT_TRUE(failed_with(votes->cast(ballot(1, 1)), ErrorCode::database, "create_tables()"));
    EXPECT_TRUE(failed_with(votes->count(std::int64_t{1}), ErrorCode::database, "create_tables()"));
}

TEST_P(VotesTest, CreateTablesAgainKeepsWhatIsThere) {
    const auto votes = make_with_items(1);
    ASSERT_TRUE(succeeded(votes->cast(ballot(1, 7))));
    EXPECT_TRUE(succeeded(votes->create_tables()));
    EXPECT_EQ(count(*make(), 1), 1);
}

TEST_P(VotesTest, VersionsSurviveUnversionedVotesBetweenThem) {
    const auto votes = make_with_items(1);
    ASSERT_TRUE(votes->cast(ballot(1, 7, 1, 10))->changed);
    ASSERT_TRUE(votes->cast(ballot(1, 7, 0))->changed);
    EXPECT_FALSE(votes->cast(ballot(1, 7, 1, 9))->changed);
    EXPECT_EQ(count(*votes, 1), 0);
}

TEST_P(VotesTest, AnIdThatIsNotOfItsTypeIsRefusedBeforeItIsSent) {
    VotesOptions options;
    options.user_type = IdType::uuid;
    const auto votes = make(options);
    const sql::Id item{std::int64_t{1}};
    ASSERT_TRUE(succeeded(votes->add_items({&item, 1})));
    const sql::Id good{std::string{"12345678-9abc-4def-8123-456789abcdef"}};
    const std::pair<Ballot, const char*> refused[]{
        {{sql::Id{std::string{"1"}}, good}, "item is text"},
        {{item, std::int64_t{1}}, "user is an integer"},
        {{item, std::string{"12345678-9ABC-4DEF-8123-456789ABCDEF"}}, "user is not a UUID"},
        {{item, std::string{"x"}}, "user is not a UUID"},
    };
    for (const auto& [vote, says] : refused) {
        EXPECT_TRUE(failed_with(votes->cast(vote), ErrorCode::config, says));
        const Ballot ballots[]{{item, good}, vote, {item, good, 2}};
        const auto casts = votes->cast_many(ballots);
        ASSERT_EQ(casts.size(), 3U);
        EXPECT_TRUE(succeeded(casts[0]));
        EXPECT_TRUE(failed_with(casts[1], ErrorCode::config, says));
        EXPECT_EQ(casts[2]->value, 2);
    }
    EXPECT_TRUE(failed_with(votes->count(sql::Id{std::string{"1"}}), ErrorCode::config, "text"));
    EXPECT_EQ(count(*votes, 1), 2);
}

TEST_P(VotesTest, AnOpeningBalanceIsPartOfTheCount) {
    ASSERT_TRUE(succeeded((*database_->writer(Deadline::after(5s)))
                              ->run_script("CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count "
                                           "INTEGER);\nINSERT INTO item VALUES (1, 500);\n")));
    VotesOptions options;
    options.strategy = GetParam();
    const auto votes = *Votes::make(database_, options);
    EXPECT_TRUE(failed_with(votes->create_tables(), ErrorCode::config, "1 item differs"));
    ASSERT_TRUE(succeeded(votes->create_tables(ExistingCounts::keep)));
    ASSERT_TRUE(succeeded(votes->cast(ballot(1, 7))));
    EXPECT_EQ(count(*votes, 1), 501);
    EXPECT_TRUE(votes->reconcile(std::nullopt, false)->empty());
}

TEST(VotesAdoption, ASwitchOfStrategyIsRefusedUntilReconciledAndThenExact) {
    const testing::TemporaryDatabase file;
    const auto database = file.open();
    const auto make = [&](VoteStrategy strategy) {
        VotesOptions options;
        options.strategy = strategy;
        return *Votes::make(database, options);
    };
    const auto naive = make(VoteStrategy::naive);
    ASSERT_TRUE(succeeded(naive->create_tables()));
    const sql::Id items[] = {std::int64_t{1}};
    ASSERT_TRUE(succeeded(naive->add_items(items)));
    for (std::int64_t user = 0; user < 3; ++user) {
        ASSERT_TRUE(succeeded(naive->cast(Ballot{std::int64_t{1}, user})));
    }
    const auto slotted = make(VoteStrategy::slotted);
    EXPECT_TRUE(failed_with(slotted->cast(Ballot{std::int64_t{1}, std::int64_t{9}}),
                            ErrorCode::config, "create_tables() reconciles"));
    ASSERT_TRUE(succeeded(slotted->create_tables()));
    ASSERT_TRUE(succeeded(slotted->cast(Ballot{std::int64_t{1}, std::int64_t{9}})));
    EXPECT_EQ(slotted->count(std::int64_t{1})->value, 4);
    ASSERT_TRUE(succeeded(naive->create_tables()));
    const auto batched = make(VoteStrategy::batched);
    ASSERT_TRUE(succeeded(batched->cast(Ballot{std::int64_t{1}, std::int64_t{10}})))
        << "naive and batched both count in the item's row";
    EXPECT_EQ(naive->count(std::int64_t{1})->value, 5);
}

TEST_P(VotesTest, VotesAreAskedForAndToggled) {
    const auto votes = make_with_items(2);
    const sql::Id user = 7;
    ASSERT_TRUE(succeeded(votes->cast(ballot(1, 7, 5))));
    ASSERT_TRUE(succeeded(votes->cast(ballot(1, 8, -1))));
    EXPECT_EQ(*votes->get(sql::Id{1}, user), 5);
    const std::vector<sql::Id> items{2, 1, 99};
    EXPECT_EQ(*votes->get_many(items, user), (std::vector<std::int64_t>{0, 5, 0}));
    const auto voters = votes->voters(sql::Id{1}, user, 10);
    ASSERT_TRUE(succeeded(voters));
    ASSERT_EQ(voters->size(), 1U);
    EXPECT_EQ(voters->front().user, sql::Id{8});
    const auto tally = votes->tally(sql::Id{1});
    EXPECT_EQ((std::vector{tally->up, tally->down, tally->score}),
              (std::vector<std::int64_t>{1, 1, 4}));
    EXPECT_EQ(votes->toggle(sql::Id{2}, user)->value, 1);
    EXPECT_EQ(votes->toggle(sql::Id{2}, user)->value, 0);
    ASSERT_TRUE(succeeded(votes->flush()));
    const auto top = votes->top(1);
    ASSERT_TRUE(succeeded(top));
    EXPECT_EQ(top->front().count, 4);
    EXPECT_TRUE(failed_with(votes->top(0), ErrorCode::config, "n"));
    EXPECT_TRUE(failed_with(votes->get(sql::Id{"one"}, user), ErrorCode::config, "item"));
}

TEST_P(VotesTest, WhatIsCleanedIsInNoCount) {
    const auto votes = make_with_items(2);
    for (const std::int64_t item : {1, 2}) {
        for (const std::int64_t user : {7, 8}) {
            ASSERT_TRUE(succeeded(votes->cast(ballot(item, user))));
        }
    }
    const auto erased = votes->erase_user(sql::Id{7});
    ASSERT_TRUE(succeeded(erased));
    EXPECT_EQ(erased->votes, 2);
    EXPECT_NE(erased->missing_index.find("CREATE INDEX"), std::string::npos);
    EXPECT_EQ(*votes->remove_item(sql::Id{1}, true), 1);
    EXPECT_EQ(count(*votes, 2), 1);
    ASSERT_TRUE(succeeded(votes->cast(ballot(2, 8, 0, 5))));
    EXPECT_EQ(*votes->prune(5), 0);
    EXPECT_EQ(*votes->prune(6), 1);
    EXPECT_EQ(count(*votes, 2), 0);
}

TEST(VotesOptionsTest, NamesThatCannotBeOrNumbersOutOfRangeAreRefused) {
    const testing::TemporaryDatabase file;
    const auto database = file.open();
    VotesOptions options;
    options.vote_user = "";
    EXPECT_TRUE(failed_with(Votes::make(database, options), ErrorCode::config, "vote_user"));
    options = {};
    options.slots = 0;
    EXPECT_TRUE(failed_with(Votes::make(database, options), ErrorCode::config, "slots"));
    options = {};
    options.commit.max_batch = 0;
    EXPECT_TRUE(failed_with(Votes::make(database, options), ErrorCode::config, "max_batch"));
    options = {};
    options.fold_interval = 9ms;
    EXPECT_TRUE(failed_with(Votes::make(database, options), ErrorCode::config, "fold_interval"));
    options = {};
    options.read_max_lag = 99ms;
    EXPECT_TRUE(failed_with(Votes::make(database, options), ErrorCode::config, "read_max_lag"));
    options = {};
    options.read_url = "sqlite:///replica.db";
    EXPECT_TRUE(failed_with(Votes::make(database, options), ErrorCode::config, "read_url"));
}

}  // namespace
}  // namespace hotcount

#include <hotcount/detail/sql/transaction.hpp>
#include <hotcount/votes.hpp>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::in_threads;
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
    std::atomic<int> acknowledged{0};
    in_threads(16, [&](int t) {
        for (int i = 0; i < 30; ++i) {
            // Every vote is sent by two threads: one of them counts.
            const auto cast = votes->cast(ballot(i % 3 + 1, (t / 2) * 1000 + i), 20s);
            EXPECT_TRUE(succeeded(cast));
            if (cast.ok() && cast->changed) ++acknowledged;
        }
    });
    EXPECT_EQ(acknowledged, 8 * 30);
    EXPECT_EQ(live_votes(), 8 * 30);
    for (int item = 1; item <= 3; ++item) EXPECT_EQ(count(*votes, item), 80);
    ASSERT_TRUE(succeeded(votes->flush()));
    EXPECT_EQ(query_integer(*database_, "SELECT SUM(vote_count) FROM item"), 240);
    EXPECT_TRUE(votes->reconcile(std::nullopt, true)->empty());
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

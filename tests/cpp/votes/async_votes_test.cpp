// Asynchronous votes with each strategy.
#include <algorithm>
#include <atomic>
#include <future>
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

class AsyncVotesTest : public ::testing::TestWithParam<VoteStrategy> {
  protected:
    std::shared_ptr<Votes> make(VotesOptions options = {}) {
        options.strategy = GetParam();
        VoteCache cache;
        if (GetParam() == VoteStrategy::cached) cache = *memory::Store::make();
        auto votes = *Votes::make(database_, std::move(options), std::move(cache));
        EXPECT_TRUE(succeeded(votes->create_tables()));
        std::vector<sql::Id> ids;
        for (std::int64_t id = 1; id <= 10; ++id) ids.emplace_back(id);
        EXPECT_TRUE(succeeded(votes->add_items(ids)));
        return votes;
    }
    static std::future<Result<Cast>> begin(Votes& votes, const Ballot& ballot,
                                           Timeout timeout = 20s) {
        auto promise = std::make_shared<std::promise<Result<Cast>>>();
        auto future = promise->get_future();
        votes.cast_async(
            ballot, [promise](Result<Cast> cast) { promise->set_value(std::move(cast)); }, timeout);
        return future;
    }
    static Ballot ballot(std::int64_t item, std::int64_t user, std::int64_t value = 1) {
        return Ballot{item, user, value, {}};
    }

    testing::TemporaryDatabase file_;
    std::shared_ptr<sql::Database> database_ = file_.open();
};

INSTANTIATE_TEST_SUITE_P(Strategies, AsyncVotesTest,
                         ::testing::Values(VoteStrategy::naive, VoteStrategy::slotted,
                                           VoteStrategy::batched, VoteStrategy::cached),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(AsyncVotesTest, EachIsToldItsOwnOutcomeAndTheCountsAreTrue) {
    const auto votes = make();
    std::vector<std::future<Result<Cast>>> calls;
    for (std::int64_t user = 0; user < 300; ++user) {
        calls.push_back(begin(*votes, ballot(1 + user % 10, user, user + 1)));
    }
    for (std::size_t user = 0; user < calls.size(); ++user) {
        const auto cast = calls[user].get();
        ASSERT_TRUE(succeeded(cast));
        EXPECT_EQ(cast->value, static_cast<std::int64_t>(user) + 1);
    }
    EXPECT_TRUE(failed_with(begin(*votes, ballot(99, 1)).get(), ErrorCode::integrity));
    ASSERT_TRUE(succeeded(votes->flush()));
    EXPECT_EQ(query_integer(*database_, "SELECT SUM(vote_count) FROM item"), 300 * 301 / 2);
    EXPECT_EQ(query_integer(*database_, "SELECT SUM(val) FROM vote"), 300 * 301 / 2);
    std::promise<Result<Count>> counted;
    votes->count_async(1, [&](Result<Count> count) { counted.set_value(std::move(count)); });
    const auto count = counted.get_future().get();
    ASSERT_TRUE(succeeded(count));
    EXPECT_EQ(count->value, query_integer(*database_, "SELECT vote_count FROM item WHERE id = 1"));
}

TEST_P(AsyncVotesTest, TheLaterVoteOfAUserIsAppliedLater) {
    const auto votes = make();
    std::vector<std::future<Result<Cast>>> calls;
    for (std::int64_t value = 1; value <= 20; ++value) {
        for (std::int64_t user = 0; user < 10; ++user) {
            calls.push_back(begin(*votes, ballot(1, user, value)));
        }
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const auto cast = calls[i].get();
        ASSERT_TRUE(succeeded(cast));
        EXPECT_EQ(cast->previous, static_cast<std::int64_t>(i) / 10) << "the one before it";
    }
    EXPECT_EQ(query_integer(*database_, "SELECT MIN(val) FROM vote"), 20);
}

TEST_P(AsyncVotesTest, ManyAreAnsweredTogetherByIndex) {
    VotesOptions options;
    options.commit.max_queue = 50;
    const auto votes = make(options);
    std::vector<Ballot> ballots;
    for (std::int64_t user = 0; user < 200; ++user) {
        ballots.push_back(ballot(user == 120 ? 99 : 1, user, user + 1));
    }
    std::promise<std::vector<Result<Cast>>> promise;
    votes->cast_many_async(
        ballots, [&](auto casts) { promise.set_value(std::move(casts)); }, 20s);
    const auto casts = promise.get_future().get();
    ASSERT_EQ(casts.size(), 200U);
    for (std::size_t i = 0; i < casts.size(); ++i) {
        if (i == 120) {
            EXPECT_TRUE(failed_with(casts[i], ErrorCode::integrity));
        } else {
            ASSERT_TRUE(succeeded(casts[i]));
            EXPECT_EQ(casts[i]->value, static_cast<std::int64_t>(i) + 1);
        }
    }
    std::promise<std::size_t> none;
    votes->cast_many_async({}, [&](auto no_casts) { none.set_value(no_casts.size()); });
    EXPECT_EQ(none.get_future().get(), 0U);
}

TEST_P(AsyncVotesTest, TheObjectLivesUntilItsCallsAreAnswered) {
    auto votes = make();
    auto lock = std::make_unique<Result<sql::Lease>>(database_->writer(Deadline::after(5s)));
    std::vector<std::future<Result<Cast>>> calls;
    for (std::int64_t user = 0; user < 20; ++user) calls.push_back(begin(*votes, ballot(1, user)));
    const std::weak_ptr<Votes> left = votes;
    votes.reset();
    lock.reset();
    for (auto& call : calls) EXPECT_TRUE(succeeded(call.get()));
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM vote"), 20);
    while (!left.expired()) std::this_thread::yield();
}

TEST_P(AsyncVotesTest, ADeadlineThatPassesAppliesNothing) {
    const auto votes = make();
    auto lock = std::make_unique<Result<sql::Lease>>(database_->writer(Deadline::after(5s)));
    auto hurried = begin(*votes, ballot(1, 1), 50ms);
    EXPECT_TRUE(failed_with(hurried.get(), ErrorCode::deadline));
    lock.reset();
    EXPECT_TRUE(succeeded(begin(*votes, ballot(1, 2)).get()));
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM vote"), 1);
}

}  // namespace
}  // namespace hotcount

// What callers are told when a connection breaks, or when they wait no longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiplexer_fixture.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::failed_with;
using testing::succeeded;

const Script kCombinable{"return combinable", Script::Kind::combinable};

TEST_F(MultiplexerTest, WhatNeverLeftGoesOnceMoreAndTheRestIsUnknown) {
    const auto gone = add("gone");
    const auto read = command({"GET", "gone"});
    const auto half = add("half");
    std::string bytes = multiplexer_.take();
    bytes.erase(0, bytes.size() - 3);
    multiplexer_.put_back_unsent(bytes);
    multiplexer_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(gone), ErrorCode::outcome_unknown));
    multiplexer_.connected();
    EXPECT_THAT(sent(), ElementsAre(Words{"GET", "gone"}, Words{"INCR", "half"}));
    multiplexer_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(half), ErrorCode::outcome_unknown));
    EXPECT_TRUE(failed_with(outcome(read), ErrorCode::unavailable)) << "twice is enough";
}

TEST_F(MultiplexerTest, ACallThatIsCountedOnceGoesAgainAndIsThenUnknown) {
    const auto call = run(kCombinable, "k", "op", "s", Repeat::counted_once);
    sent();
    multiplexer_.lost(lost(), true);
    EXPECT_FALSE(call->is_done());
    multiplexer_.connected();
    EXPECT_EQ(sent().size(), 1U);
    multiplexer_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(call), ErrorCode::outcome_unknown));

    const auto waits = run(kCombinable, "k", "op", "s", Repeat::counted_once);
    sent();
    multiplexer_.lost(lost(), true);
    EXPECT_TRUE(failed_with(multiplexer_.give_up(waits), ErrorCode::outcome_unknown))
        << "the first time may have counted";
    const auto fails = run(kCombinable, "k", "op", "s", Repeat::counted_once);
    multiplexer_.connected();
    sent();
    multiplexer_.lost(lost(), true);
    multiplexer_.fail_queued(lost());
    EXPECT_TRUE(failed_with(outcome(fails), ErrorCode::outcome_unknown));
}

TEST_F(MultiplexerTest, ACutBatchKnowsWhatWasAnsweredAndSendsWhatNeverLeft) {
    const std::vector<std::vector<std::string_view>> commands{
        {"INCR", "a"}, {"INCR", "b"}, {"INCR", "c"}, {"INCR", "d"}};
    const auto batch = push(Request::commands(commands));
    std::string bytes = multiplexer_.take();
    const std::size_t each = bytes.size() / 4;
    bytes.erase(0, 2 * each + 5);
    multiplexer_.put_back_unsent(bytes);
    reply(of(1));
    multiplexer_.lost(lost(), true);
    multiplexer_.connected();
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "c"}, Words{"INCR", "d"}));
    reply(of(3));
    refuse("WRONGTYPE no");
    const auto done = outcome(batch);
    const auto& replies = std::get<ReplyArray>(done->value);
    ASSERT_EQ(replies.size(), 4U);
    EXPECT_EQ(std::get<std::int64_t>(replies[0].value), 1);
    EXPECT_EQ(std::get<ReplyError>(replies[1].value).known, ErrorCode::outcome_unknown);
    EXPECT_EQ(std::get<std::int64_t>(replies[2].value), 3);
    EXPECT_EQ(std::get<ReplyError>(replies[3].value).known, std::nullopt);
}

TEST_F(MultiplexerTest, ABatchThatIsGivenUpTellsWhatItKnows) {
    const std::vector<std::vector<std::string_view>> commands{{"INCR", "a"}, {"INCR", "b"}};
    const auto batch = push(Request::commands(commands));
    sent();
    reply(of(1));
    const auto known = multiplexer_.give_up(batch);
    ASSERT_TRUE(succeeded(known));
    const auto& replies = std::get<ReplyArray>(known->value);
    EXPECT_EQ(std::get<std::int64_t>(replies[0].value), 1);
    EXPECT_EQ(std::get<ReplyError>(replies[1].value).known, ErrorCode::outcome_unknown);
    const auto next = add("next");
    sent();
    reply(of(2));  // Late, and dropped.
    reply(of(77));
    EXPECT_EQ(value(next), 77);
}

TEST_F(MultiplexerTest, ALateReplyIsReadAndDropped) {
    const auto late = add("k");
    const auto same = add("k");
    const auto next = add("m");
    sent();
    EXPECT_TRUE(failed_with(multiplexer_.give_up(late), ErrorCode::outcome_unknown));
    reply(of(2));
    reply(of(9));
    EXPECT_EQ(value(same), 2);
    EXPECT_EQ(value(next), 9);
    EXPECT_FALSE(late->is_done());
    const auto queued = add("k");
    EXPECT_TRUE(failed_with(multiplexer_.give_up(queued), ErrorCode::deadline));
    EXPECT_FALSE(multiplexer_.has_to_send());
}

TEST_F(MultiplexerTest, WhatIsWithdrawnBeforeItIsSentIsNotSent) {
    Cancelled cancelled = true;
    bool told = false;
    multiplexer_.push(std::make_shared<Operation>(
        Request::add("k", 1), Deadline::after(1s), [&](Result<Reply>) { told = true; },
        &cancelled));
    multiplexer_.count_unwaited();
    add("m");
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "m"}));
    EXPECT_EQ(multiplexer_.unwaited(), 0U);
    EXPECT_FALSE(told);
}

TEST_F(MultiplexerTest, WhatIsUnansweredHasABound) {
    options_.max_in_flight = 2;
    add("a");
    add("b");
    add("c");
    EXPECT_EQ(sent().size(), 2U);
    EXPECT_FALSE(multiplexer_.has_to_send());
    reply(of(1));
    EXPECT_EQ(sent().size(), 1U);
    options_.max_in_flight = 100;
    options_.max_send_bytes = 1;
    add("d");
    EXPECT_FALSE(multiplexer_.has_to_send());
    reply(of(1));
    reply(of(1));
    EXPECT_TRUE(multiplexer_.has_to_send());
}

TEST_F(MultiplexerTest, CallsThatNobodyWaitsForEndAtTheirDeadline) {
    std::optional<Result<Reply>> told;
    const auto now = std::chrono::steady_clock::now();
    multiplexer_.push(
        std::make_shared<Operation>(Request::add("k", 1), Deadline::at(now + 1s),
                                    [&](Result<Reply> reply) { told.emplace(std::move(reply)); }));
    multiplexer_.count_unwaited();
    sent();
    multiplexer_.expire(now, 10);
    EXPECT_FALSE(multiplexer_.has_finished());
    multiplexer_.expire(now + 1s, 10);
    for (const auto& operation : multiplexer_.take_finished()) operation->complete();
    ASSERT_TRUE(told);
    EXPECT_TRUE(failed_with(*told, ErrorCode::outcome_unknown));
    EXPECT_EQ(multiplexer_.unwaited(), 0U);
    reply(of(1));
    EXPECT_FALSE(multiplexer_.has_finished());
}

}  // namespace
}  // namespace hotcount::redis

// Hits that INCREX counts: what is asked, what travels together, and what is known when it is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiplexer_fixture.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using ::testing::ElementsAre;
using testing::failed_with;

const Script kHit{"return hit", Script::Kind::combinable};

class MultiplexerWindowsTest : public MultiplexerTest {
  protected:
    OperationPtr hit(std::string_view key, HitWindow window = {5, 1000}) {
        const std::string_view shared = "s";
        const std::string_view argument = "1";
        return push(
            Request::run(kHit, std::span{&key, 1}, std::span{&shared, 1}, std::span{&argument, 1})
                .in_window(window));
    }
    static Reply pair(std::int64_t value, std::int64_t taken) {
        return Reply{ReplyArray{of(value), of(taken)}};
    }
    static std::vector<std::int64_t> numbers(const OperationPtr& operation) {
        std::vector<std::int64_t> all;
        const auto outcome = operation->take_outcome();
        for (const Reply& one : std::get<ReplyArray>(outcome->value)) {
            all.push_back(std::get<std::int64_t>(one.value));
        }
        return all;
    }
    // Asks with a first hit, which goes by the script.
    void ask(bool has) {
        multiplexer_.connected();
        hit("asks");
        ASSERT_EQ(sent().size(), 5U);
        if (has) {
            reply(pair(1, 1));
            reply(pair(2, 1));
            reply(of(60'000));
            reply(of(1));
        } else {
            for (int i = 0; i < 4; ++i) refuse("ERR unknown command 'INCREX'");
        }
        reply(Reply{ReplyArray{of(1)}});
    }
    static Words increx(const std::string& key, const std::string& n) {
        return {"INCREX", key, "BYINT", n, "UBOUND", "5", "SATURATE", "PX", "1000", "ENX"};
    }
    // Takes what is to be sent, and gives all but `bytes` of it to the kernel.
    void send_but(std::size_t bytes) {
        const std::string all = multiplexer_.take();
        multiplexer_.put_back_unsent(all.substr(all.size() - bytes));
    }
    static constexpr std::size_t kPttl = std::string_view{"*2\r\n$4\r\nPTTL\r\n$1\r\nk\r\n"}.size();
};

TEST_F(MultiplexerWindowsTest, HitsOfAKeyAreOneIncrexAndTheFirstOnesPass) {
    ask(true);
    const auto a = hit("k");
    const auto other = hit("other");
    const auto b = hit("k");
    const auto c = hit("k");
    EXPECT_THAT(sent(), ElementsAre(increx("k", "3"), Words{"PTTL", "k"}, increx("other", "1"),
                                    Words{"PTTL", "other"}));
    reply(pair(5, 2));
    reply(of(700));
    EXPECT_THAT(numbers(a), ElementsAre(4, 1, 700));
    EXPECT_THAT(numbers(b), ElementsAre(5, 1, 700));
    EXPECT_THAT(numbers(c), ElementsAre(5, 0, 700));
    reply(pair(1, 1));
    reply(of(-2));
    EXPECT_THAT(numbers(other), ElementsAre(1, 1, 0)) << "it has expired since";
}

TEST_F(MultiplexerWindowsTest, NoHitPassesAnotherCallOfItsKey) {
    ask(true);
    hit("k");
    const std::string_view key = "k";
    const std::string_view word = "s";
    push(Request::run(kHit, std::span{&key, 1}, std::span{&word, 1}, std::span{&word, 1}));
    hit("k");
    EXPECT_THAT(sent(), ElementsAre(increx("k", "1"), Words{"PTTL", "k"}, ::testing::Contains("k"),
                                    increx("k", "1"), Words{"PTTL", "k"}));
}

TEST_F(MultiplexerWindowsTest, HitsInOtherWindowsAreNotCountedTogether) {
    ask(true);
    hit("k");
    hit("k", {6, 1000});
    hit("k", {6, 2000});
    EXPECT_EQ(sent().size(), 6U);
}

TEST_F(MultiplexerWindowsTest, AServerWithoutItIsAskedOnceForEachConnection) {
    ask(false);
    hit("k");
    EXPECT_EQ(sent().front()[0], "EVALSHA");
    reply(Reply{ReplyArray{of(1)}});
    ask(true);
    hit("k");
    EXPECT_THAT(sent(), ElementsAre(increx("k", "1"), Words{"PTTL", "k"}));
}

TEST_F(MultiplexerWindowsTest, ARefusedOneGoesByTheScriptInItsOrder) {
    ask(true);
    const auto a = hit("k");
    const auto b = hit("k");
    sent();
    refuse("ERR value is not an integer or out of range");
    reply(of(-2));
    const auto again = sent();
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0][2], "2");
    reply(Reply{ReplyArray{of(7), of(8)}});
    EXPECT_EQ(value(a), 7);
    EXPECT_EQ(value(b), 8);
    hit("k");
    EXPECT_EQ(sent()[0][0], "INCREX") << "the key was refused, and not the command";
}

TEST_F(MultiplexerWindowsTest, AnIncrexWhoseLastByteLeftMayHaveRun) {
    ask(true);
    const auto whole = hit("k");
    send_but(kPttl);
    multiplexer_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(whole), ErrorCode::outcome_unknown));

    ask(true);
    const auto cut = hit("k");
    send_but(kPttl + 1);
    multiplexer_.lost(lost(), true);
    multiplexer_.connected();
    EXPECT_EQ(sent().back()[0], "EVALSHA") << "this server has not been asked yet";
    for (int i = 0; i < 4; ++i) refuse("LOADING");
    reply(Reply{ReplyArray{of(1)}});
    EXPECT_EQ(value(cut), 1);
}

TEST_F(MultiplexerWindowsTest, AnAnsweredIncrexIsDecidedAlthoughItsExpiryIsLost) {
    ask(true);
    const auto a = hit("k");
    sent();
    reply(pair(1, 1));
    EXPECT_FALSE(a->is_done());
    multiplexer_.lost(lost(), true);
    EXPECT_THAT(numbers(a), ElementsAre(1, 1, -1));
}

TEST_F(MultiplexerWindowsTest, ARefusedIncrexThatLosesItsConnectionWasNotApplied) {
    ask(true);
    const auto a = hit("k");
    sent();
    refuse("OOM no room");
    multiplexer_.lost(lost(), false);
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::unavailable));
}

TEST_F(MultiplexerWindowsTest, ACallerThatLeavesKeepsItsPlaceAmongTheHits) {
    ask(true);
    const auto a = hit("k");
    const auto b = hit("k");
    sent();
    EXPECT_TRUE(failed_with(multiplexer_.give_up(a), ErrorCode::outcome_unknown));
    reply(pair(5, 1));
    reply(of(9));
    EXPECT_THAT(numbers(b), ElementsAre(5, 0, 9));
}

TEST_F(MultiplexerWindowsTest, StrangeRepliesEndTheConnection) {
    for (const Reply& strange :
         {of(1), pair(9, 2), Reply{ReplyArray{of(1)}}, Reply{std::string{"OK"}}, Reply{}}) {
        ask(true);
        const auto a = hit("k");
        sent();
        misfit(strange);
        EXPECT_TRUE(failed_with(outcome(a), ErrorCode::outcome_unknown));
    }
    ask(true);
    hit("k");
    sent();
    reply(pair(1, 1));
    misfit(pair(1, 1));
}

}  // namespace
}  // namespace hotcount::redis

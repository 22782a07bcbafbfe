// What the multiplexer sends and answers while its connection holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "multiplexer_fixture.hpp"
#include "redis/scripts.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::failed_with;

const Script kCombinable{"return combinable", Script::Kind::combinable};
const Script kOther{"return other", Script::Kind::combinable};
const Script kSingle{"return single"};

// Lengths around the blocks of SHA-1; the values are those of Python's hashlib.
TEST(Script, IsNamedByItsSha1) {
    const std::map<std::size_t, std::string> expected{
        {0, "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {55, "c1c8bbdc22796e28c0e15163d20899b65621d65a"},
        {56, "c2db330f6083854c99d4b5bfb6e8f29f201be699"},
        {64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"},
        {119, "ee971065aaa017e0632a8ca6c77bb3bf8b1dfc56"},
        {1000, "291e9a6c66994949b57ba5e650361e98fc36b1ba"}};
    for (const auto& [length, digits] : expected) {
        EXPECT_EQ(Script{std::string(length, 'a')}.sha1(), digits) << length;
    }
    EXPECT_EQ(Script{"abc"}.sha1(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

TEST_F(MultiplexerTest, AddsOfOneKeyTravelAsOneAndEachGetsItsOwnValue) {
    const auto a = add("k", 1);
    const auto b = add("other", 2);
    const auto c = add("k", 5);
    EXPECT_THAT(sent(), ElementsAre(Words{"INCRBY", "k", "6"}, Words{"INCRBY", "other", "2"}));
    reply(of(106));
    reply(of(2));
    EXPECT_EQ(value(a), 101);
    EXPECT_EQ(value(c), 106);
    EXPECT_EQ(value(b), 2);
    EXPECT_EQ(multiplexer_.counts().combined, 1U);
    EXPECT_EQ(multiplexer_.counts().commands, 3U);
}

TEST_F(MultiplexerTest, AddsOfTwoSignsOrBeyond64BitsTravelApart) {
    add("k", 1);
    add("k", -1);
    add("k", INT64_MIN);
    add("m", INT64_MAX);
    add("m", 1);
    EXPECT_THAT(sent(),
                ElementsAre(Words{"INCR", "k"}, Words{"INCRBY", "k", "-1"},
                            Words{"INCRBY", "k", "-9223372036854775808"},
                            Words{"INCRBY", "m", "9223372036854775807"}, Words{"INCR", "m"}));
}

TEST_F(MultiplexerTest, NothingIsMovedPastWhatMayTouchItsKey) {
    add("k");
    command({"DEL", "k"});
    add("k");
    run(kCombinable, "k", "x");
    add("k");
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "k"}, Words{"DEL", "k"}, Words{"INCR", "k"},
                                    Words{"EVALSHA", kCombinable.sha1(), "1", "k", "s", "x"},
                                    Words{"INCR", "k"}));
}

TEST_F(MultiplexerTest, CallsOfOneScriptWithTheSameSharedArgumentsTravelAsOne) {
    const auto a = run(kCombinable, "a", "1");
    add("z");
    const auto b = run(kCombinable, "b", "2");
    const auto again = run(kCombinable, "a", "3");
    run(kCombinable, "c", "4", "another rate");
    run(kOther, "d", "5");
    run(kSingle, "e", "6");
    run(kSingle, "f", "7");
    EXPECT_THAT(
        sent(),
        ElementsAre(Words{"EVALSHA", kCombinable.sha1(), "3", "a", "b", "a", "s", "1", "2", "3"},
                    Words{"INCR", "z"},
                    Words{"EVALSHA", kCombinable.sha1(), "1", "c", "another rate", "4"},
                    Words{"EVALSHA", kOther.sha1(), "1", "d", "s", "5"},
                    Words{"EVALSHA", kSingle.sha1(), "1", "e", "s", "6"},
                    Words{"EVALSHA", kSingle.sha1(), "1", "f", "s", "7"}));
    reply(Reply{ReplyArray{of(10), Reply{ReplyError{"WRONGTYPE no"}}, of(30)}});
    EXPECT_EQ(value(a), 10);
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::wrong_type));
    EXPECT_EQ(value(again), 30);
}

const Script kRows{"return rows", Script::Kind::combinable, is_some<is_integer>, 2};

TEST_F(MultiplexerTest, AScriptMayAnswerSeveralCallsByARowOfIntegersForEach) {
    const std::string_view keys[] = {"b", "c"};
    const std::string_view arguments[] = {"2", "3"};
    const auto one = run(kRows, "a", "1");
    const auto two =
        push(Request::run_many(kRows, 2, keys, std::array{std::string_view{"s"}}, arguments));
    EXPECT_EQ(sent().size(), 1U);
    reply(Reply{ReplyArray{of(10), of(11), of(20), of(21), of(30), of(31)}});
    const auto row = [](const Reply& reply) {
        std::vector<std::int64_t> numbers;
        for (const Reply& number : std::get<ReplyArray>(reply.value)) {
            numbers.push_back(std::get<std::int64_t>(number.value));
        }
        return numbers;
    };
    EXPECT_THAT(row(*outcome(one)), ElementsAre(10, 11));
    const auto both = outcome(two);
    const auto& answers = std::get<ReplyArray>(both->value);
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_THAT(row(answers[0]), ElementsAre(20, 21));
    EXPECT_THAT(row(answers[1]), ElementsAre(30, 31));
}

TEST_F(MultiplexerTest, RowsOfAnotherLengthOrWithAnErrorDoNotFit) {
    for (const ReplyArray& wrong :
         {ReplyArray{of(1), of(2), of(3)}, ReplyArray{of(1), of(2), of(3), of(4), of(5), of(6)},
          ReplyArray{of(1), of(2), of(3), Reply{ReplyError{"WRONGTYPE no"}}}}) {
        const auto one = run(kRows, "a", "1");
        const auto two = run(kRows, "b", "1");
        sent();
        misfit(Reply{wrong});
        EXPECT_TRUE(failed_with(outcome(one), ErrorCode::outcome_unknown));
        EXPECT_TRUE(failed_with(outcome(two), ErrorCode::outcome_unknown));
    }
    // For one call there is an array.
    const auto alone = run(kRows, "a", "1");
    sent();
    misfit(Reply{ReplyArray{of(1), of(2)}});
    EXPECT_TRUE(failed_with(outcome(alone), ErrorCode::outcome_unknown));
}

TEST_F(MultiplexerTest, AScriptIsNotMovedPastAnAddToItsKey) {
    run(kCombinable, "a", "1");
    add("b");
    run(kCombinable, "b", "2");
    EXPECT_EQ(sent().size(), 3U);
}

TEST_F(MultiplexerTest, SeveralCallsHandedInAsOneAreAnsweredByAnArray) {
    const std::string_view keys[] = {"a", "b"};
    const std::string_view arguments[] = {"1", "2"};
    const auto one = run(kCombinable, "x", "0", "");
    const auto two =
        push(Request::run_many(kCombinable, 2, keys, std::array{std::string_view{""}}, arguments));
    EXPECT_THAT(sent(), ElementsAre(Words{"EVALSHA", kCombinable.sha1(), "3", "x", "a", "b", "",
                                          "0", "1", "2"}));
    reply(Reply{ReplyArray{of(1), of(2), of(3)}});
    EXPECT_EQ(value(one), 1);
    const auto both = outcome(two);
    const auto& answers = std::get<ReplyArray>(both->value);
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_EQ(std::get<std::int64_t>(answers[1].value), 3);
}

TEST_F(MultiplexerTest, ACombinedAddThatIsRefusedGoesSinglyInOrder) {
    const auto a = add("k", 2);
    const auto b = add("k", INT64_MAX - 2);
    sent();
    add("k", 7);
    refuse("ERR increment or decrement would overflow");
    EXPECT_FALSE(a->is_done());
    EXPECT_THAT(sent(),
                ElementsAre(Words{"INCRBY", "k", "2"}, Words{"INCRBY", "k", "9223372036854775805"},
                            Words{"INCRBY", "k", "7"}));
    reply(of(10));
    refuse("ERR increment or decrement would overflow");
    EXPECT_EQ(value(a), 10);
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::overflow));
}

TEST_F(MultiplexerTest, ACombinedScriptIsTakenApartOnlyWhereItHadNotBegun) {
    const auto a = run(kCombinable, "a", "1");
    const auto b = run(kCombinable, "b", "2");
    sent();
    refuse("NOPERM no access to one of the keys");
    EXPECT_EQ(sent().size(), 2U);
    reply(Reply{ReplyArray{of(1)}});
    refuse("NOPERM no access to one of the keys");
    EXPECT_EQ(value(a), 1);
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::permission_denied));

    const auto c = run(kCombinable, "a", "1");
    const auto d = run(kCombinable, "b", "2");
    sent();
    refuse("ERR somewhere in the middle of it");
    EXPECT_TRUE(failed_with(outcome(c), ErrorCode::reply));
    EXPECT_TRUE(failed_with(outcome(d), ErrorCode::reply));
    EXPECT_FALSE(multiplexer_.has_to_send()) << "a part of it may have been applied";
}

// What a server says to everybody: taking 256 calls apart would make it say so 256 times more.
constexpr const char* kToEverybody[] = {
    "NOREPLICAS Not enough good replicas to write.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
    "CLUSTERDOWN The cluster is down",
    "NOAUTH Authentication required.",
    "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
    "NOPERM User default has no permissions to run the 'evalsha' command",
    "ERR unknown command 'EVALSHA'",
};

TEST_F(MultiplexerTest, ARefusalThatConcernsEverybodyAnswersAllMembersAtOnce) {
    for (const std::string refusal : kToEverybody) {
        std::vector<OperationPtr> calls;
        calls.reserve(200);
        for (int i = 0; i < 100; ++i) calls.push_back(add("k", 2));
        for (int i = 0; i < 100; ++i) calls.push_back(run(kCombinable, std::to_string(i), "1"));
        EXPECT_EQ(sent().size(), 2U);
        refuse(refusal);
        refuse(refusal);
        EXPECT_FALSE(multiplexer_.has_to_send()) << refusal;
        for (const OperationPtr& call : calls) {
            ASSERT_TRUE(call->is_done()) << refusal;
            EXPECT_FALSE(outcome(call).ok());
        }
    }
}

TEST_F(MultiplexerTest, ARefusalThatPassesSoonIsTriedAgainCombined) {
    for (const std::string refusal :
         {"LOADING Redis is loading", "BUSY a script runs", "MASTERDOWN Link with MASTER is down",
          "READONLY You can't write against a read only replica."}) {
        const auto first = add("k", 2);
        add("k", 2);
        run(kCombinable, "a", "1");
        run(kCombinable, "b", "1");
        EXPECT_EQ(sent().size(), 2U);
        refuse(refusal);
        refuse(refusal);
        EXPECT_FALSE(multiplexer_.has_to_send());
        multiplexer_.requeue_due(std::chrono::steady_clock::now() + 10s);
        EXPECT_EQ(sent().size(), 2U) << refusal;
        reply(of(4));
        reply(Reply{ReplyArray{of(1), of(2)}});
        EXPECT_EQ(value(first), 2);
    }
}

TEST_F(MultiplexerTest, ARefusalOfOneKeyAnswersAllAddsToIt) {
    const auto a = add("k", 2);
    const auto b = add("k", 3);
    sent();
    refuse("WRONGTYPE Operation against a key holding the wrong kind of value");
    EXPECT_FALSE(multiplexer_.has_to_send());
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::wrong_type));
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::wrong_type));
}

TEST_F(MultiplexerTest, WhereOnlyIncrIsAllowedSinglesGoAsThat) {
    const auto one = add("k", 1);
    const auto two = add("k", 2);
    sent();
    refuse("NOPERM User x has no permissions to run the 'incrby' command");
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "k"}, Words{"INCRBY", "k", "2"}));
    reply(of(1));
    refuse("NOPERM User x has no permissions to run the 'incrby' command");
    EXPECT_EQ(value(one), 1);
    EXPECT_TRUE(failed_with(outcome(two), ErrorCode::permission_denied));
}

TEST_F(MultiplexerTest, AScriptIsTakenApartForWhatOneKeyCanCause) {
    for (const std::string refusal : {"NOPERM No permissions to access a key",
                                      "NOPERM this user has no permissions to access one of the "
                                      "keys used as arguments",
                                      "CROSSSLOT Keys in request don't hash to the same slot",
                                      "MOVED 1 127.0.0.1:6379", "ASK 1 127.0.0.1:6379"}) {
        run(kCombinable, "a", "1");
        run(kCombinable, "b", "1");
        EXPECT_EQ(sent().size(), 1U);
        refuse(refusal);
        EXPECT_EQ(sent().size(), 2U) << refusal;
        refuse(refusal);
        reply(Reply{ReplyArray{of(1)}});
    }
}

// -- replies that cannot be a call's

const Script kPairs{"return pairs", Script::Kind::combinable, [](const Reply& reply, std::size_t) {
                        const auto* const pair = std::get_if<ReplyArray>(&reply.value);
                        return pair != nullptr && pair->size() == 2;
                    }};
const Script kPerKey{"return per key", Script::Kind::single,
                     [](const Reply& reply, std::size_t keys) {
                         const auto* const each = std::get_if<ReplyArray>(&reply.value);
                         return each != nullptr && each->size() == keys;
                     }};

TEST_F(MultiplexerTest, AReplyThatCannotBeItsCallsLeavesAllUnderWayUnknown) {
    const Reply text{std::string{"OK"}};
    const Reply pair{ReplyArray{of(1), of(2)}};
    const auto with = [&](Request request, const Reply& wrong) {
        const auto call = push(std::move(request));
        const auto next = add("next");
        const auto read = command({"GET", "k"});
        sent();
        misfit(wrong);
        auto told = outcome(call);
        if (told.ok()) {  // A batch, which tells it of each command.
            const Reply& first = std::get<ReplyArray>(told->value).front();
            EXPECT_EQ(std::get<ReplyError>(first.value).known, ErrorCode::outcome_unknown);
        } else {
            EXPECT_TRUE(failed_with(told, ErrorCode::outcome_unknown)) << call->name();
        }
        EXPECT_TRUE(failed_with(outcome(next), ErrorCode::outcome_unknown));
        EXPECT_THAT(sent(), ElementsAre(Words{"GET", "k"})) << "a read goes again";
        reply(text);
        EXPECT_TRUE(outcome(read).ok());
    };
    const std::string_view keys[] = {"a", "b"};
    const std::string_view none[] = {""};
    const std::vector<std::vector<std::string_view>> commands{{"DEL", "a"}};
    const std::string_view incr[] = {"INCR", "x"};
    const std::string_view set[] = {"SET", "x", "1"};
    with(Request::add("k", 1), text);
    with(Request::add("k", 1), pair);
    with(Request::add("k", 1), Reply{});
    with(Request::command(incr), text);
    with(Request::command(set), of(1));
    with(Request::command(set), pair);
    with(Request::commands(commands), text);
    std::string bytes = "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n";
    with(Request::encoded("INCRBY", bytes, 1, Shape::integer, Repeat::never), text);
    with(Request::run(kPairs, std::span{keys}.first(1), {}, none), of(1));
    with(Request::run(kPairs, std::span{keys}.first(1), {}, none), pair);
    with(Request::run(kPairs, std::span{keys}.first(1), {}, none), Reply{ReplyArray{pair, pair}});
    with(Request::run_many(kPairs, 2, keys, {}, std::array{none[0], none[0]}),
         Reply{ReplyArray{pair}});
    with(Request::run(kPerKey, keys, {}, none), Reply{ReplyArray{of(1)}});
    with(Request::run(kPerKey, keys, {}, none), text);
}

TEST_F(MultiplexerTest, AnErrorFitsEveryCall) {
    const std::string_view keys[] = {"a"};
    const auto a = push(Request::run(kPerKey, keys, {}, {}));
    const auto b = push(Request::run(kPairs, keys, {}, {}));
    sent();
    refuse("ERR no");
    reply(Reply{ReplyArray{Reply{ReplyError{"WRONGTYPE no"}}}});
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::reply));
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::wrong_type));
}

TEST_F(MultiplexerTest, MoreRepliesThanCommandsDoNotFit) {
    const auto answered = add("k");
    sent();
    reply(of(1));
    misfit(of(2));
    EXPECT_EQ(value(answered), 1);
    EXPECT_THAT(multiplexer_.misfit().message, ::testing::HasSubstr("no command asked for"));
}

TEST_F(MultiplexerTest, AReplyBeforeItsCommandHasLeftDoesNotFit) {
    const auto half = add("k");
    std::string bytes = multiplexer_.take();
    multiplexer_.put_back_unsent(bytes.substr(bytes.size() - 1));
    misfit(of(1));
    EXPECT_FALSE(half->is_done()) << "it never left as a whole, and goes once more";
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "k"}));
}

TEST_F(MultiplexerTest, TheRepliesOfABatchHaveOneBoundTogether) {
    options_.max_reply_bytes = 1000;
    const std::vector<std::vector<std::string_view>> commands(3, {"SET", "k", "v", "GET"});
    const auto batch = push(Request::commands(commands));
    sent();
    reply(Reply{std::string(400, 'x')});
    reply(Reply{std::string(400, 'x')});
    misfit(Reply{std::string(400, 'x')});
    const auto done = outcome(batch);
    const auto& replies = std::get<ReplyArray>(done->value);
    EXPECT_TRUE(std::holds_alternative<std::string>(replies[1].value));
    EXPECT_EQ(std::get<ReplyError>(replies[2].value).known, ErrorCode::outcome_unknown);
}

TEST_F(MultiplexerTest, ACommandWithAnEchoMustAnswerExactlyOnce) {
    const std::string_view words[] = {"MODULE.DO", "k"};
    const auto push_checked = [&] { return push(Request::command(words).with_echo()); };
    ASSERT_TRUE(Request::command(words).goes_alone());
    const auto good = push_checked();
    const Words echo = sent()[1];
    reply(of(5));
    reply(Reply{echo[1]});
    EXPECT_EQ(std::get<std::int64_t>(std::get<ReplyArray>(outcome(good)->value)[0].value), 5);

    for (const bool none : {true, false}) {
        const auto bad = push_checked();
        const Words sent_echo = sent()[1];
        if (!none) reply(of(5));
        misfit(none ? Reply{sent_echo[1]} : of(6));
        EXPECT_TRUE(bad->is_done());
    }

    const auto unchecked = push_checked();
    sent();
    reply(of(5));
    misfit(Reply{ReplyError{"NOPERM no ECHO"}});
    EXPECT_EQ(std::get<std::int64_t>(std::get<ReplyArray>(outcome(unchecked)->value)[0].value), 5);
}

TEST_F(MultiplexerTest, OnlyNoscriptBringsTheText) {
    const auto a = run(kCombinable, "a", "1");
    const auto b = run(kCombinable, "b", "2");
    sent();
    refuse("NOSCRIPT No matching script");
    EXPECT_THAT(sent(),
                ElementsAre(Words{"EVAL", "return combinable", "2", "a", "b", "s", "1", "2"}));
    refuse("NOSCRIPT again");
    EXPECT_FALSE(multiplexer_.has_to_send());
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::unavailable));
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::unavailable));
}

TEST_F(MultiplexerTest, EachCallOfACommandIsLoadIfTheServerAnswersSoon) {
    const auto load_of_three = [&] {
        for (const char* const key : {"a", "b", "c"}) run(kCombinable, key, "1");
        EXPECT_EQ(sent().size(), 1U);
        return multiplexer_.load();
    };
    const auto answer_in = [&](Duration taken) {
        const auto left = std::chrono::steady_clock::now();
        EXPECT_TRUE(multiplexer_.settle(Reply{ReplyArray{of(1), of(2), of(3)}}, left + taken));
    };
    EXPECT_EQ(load_of_three(), 1U) << "nothing is known of the server";
    answer_in(-1s);  // However long this thread was kept from running.
    EXPECT_EQ(multiplexer_.load(), 0U);
    EXPECT_EQ(load_of_three(), 3U);
    answer_in(1ms);
    EXPECT_EQ(load_of_three(), 1U) << "over a link";
    answer_in(-1s);
    EXPECT_EQ(load_of_three(), 3U);
    multiplexer_.lost(lost(), true);
    EXPECT_EQ(multiplexer_.load(), 0U);
}

TEST_F(MultiplexerTest, AServerThatWillServeSoonIsAskedAgainInsideTheDeadline) {
    const auto patient = add("k");
    const auto hurried = push(Request::add("m", 1), Deadline::after(1ms));
    sent();
    refuse("LOADING Redis is loading");
    refuse("LOADING Redis is loading");
    EXPECT_TRUE(failed_with(outcome(hurried), ErrorCode::unavailable));
    EXPECT_EQ(patient->state(), Operation::State::postponed);
    EXPECT_FALSE(multiplexer_.has_to_send());
    multiplexer_.requeue_due(patient->retry_at());
    EXPECT_EQ(sent().size(), 1U);
}

}  // namespace
}  // namespace hotcount::redis

// What is sent and what callers are told, without a socket: the test is the server.
#include "redis/multiplexer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::failed_with;
using testing::succeeded;
using Words = std::vector<std::string>;

const Script kCombinable{"return combinable", Script::Kind::combinable};
const Script kOther{"return other", Script::Kind::combinable};
const Script kSingle{"return single"};

// The commands in bytes that are whole commands.
std::vector<Words> decode(std::string_view bytes) {
    std::vector<Words> commands;
    const auto number = [&] {
        const auto end = bytes.find("\r\n");
        const int value = std::stoi(std::string{bytes.substr(1, end - 1)});
        bytes.remove_prefix(end + 2);
        return static_cast<std::size_t>(value);
    };
    while (!bytes.empty()) {
        Words words(number());
        for (std::string& word : words) {
            const std::size_t size = number();
            word = bytes.substr(0, size);
            bytes.remove_prefix(size + 2);
        }
        commands.push_back(std::move(words));
    }
    return commands;
}

class PipelineTest : public ::testing::Test {
  protected:
    OperationPtr push(Request request, Deadline deadline = Deadline::after(10s)) {
        auto operation = std::make_shared<Operation>(std::move(request), deadline);
        pipeline_.push(operation);
        return operation;
    }
    OperationPtr add(const std::string& key, std::int64_t n = 1) {
        return push(Request::add(key, n));
    }
    OperationPtr run(const Script& script, std::string_view key, std::string_view argument,
                     std::string_view shared = "s", Repeat repeat = Repeat::never) {
        return push(Request::run(script, std::span{&key, 1}, std::span{&shared, 1},
                                 std::span{&argument, 1}, repeat));
    }
    OperationPtr command(std::initializer_list<std::string_view> words) {
        return push(Request::command(std::span{words.begin(), words.size()}));
    }
    std::vector<Words> sent() { return decode(pipeline_.take()); }
    void reply(Reply reply) {
        EXPECT_TRUE(pipeline_.settle(std::move(reply), std::chrono::steady_clock::now()))
            << pipeline_.misfit().message;
    }
    // A reply that cannot be the call's, and what a lane does then.
    void misfit(Reply reply) {
        EXPECT_FALSE(pipeline_.settle(std::move(reply), std::chrono::steady_clock::now()));
        pipeline_.lost(pipeline_.misfit(), true);
        pipeline_.connected();
    }
    void refuse(const std::string& message) { reply(Reply{ReplyError{message}}); }
    static Reply of(std::int64_t value) { return Reply{value}; }
    static std::int64_t value(const OperationPtr& operation) {
        EXPECT_TRUE(operation->is_done());
        return std::get<std::int64_t>(operation->take_outcome()->value);
    }
    static Result<Reply> outcome(const OperationPtr& operation) {
        EXPECT_TRUE(operation->is_done());
        return operation->take_outcome();
    }
    static Error lost() { return make_error(ErrorCode::unavailable, "lost"); }

    Options options_;
    Pipeline pipeline_{options_};
};

TEST_F(PipelineTest, AddsOfOneKeyTravelAsOneAndEachGetsItsOwnValue) {
    const auto a = add("k", 1);
    const auto b = add("other", 2);
    const auto c = add("k", 5);
    EXPECT_THAT(sent(), ElementsAre(Words{"INCRBY", "k", "6"}, Words{"INCRBY", "other", "2"}));
    reply(of(106));
    reply(of(2));
    EXPECT_EQ(value(a), 101);
    EXPECT_EQ(value(c), 106);
    EXPECT_EQ(value(b), 2);
    EXPECT_EQ(pipeline_.counts().combined, 1U);
    EXPECT_EQ(pipeline_.counts().commands, 3U);
}

TEST_F(PipelineTest, AddsOfTwoSignsOrBeyond64BitsTravelApart) {
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

TEST_F(PipelineTest, NothingIsMovedPastWhatMayTouchItsKey) {
    add("k");
    command({"DEL", "k"});
    add("k");
    run(kCombinable, "k", "x");
    add("k");
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "k"}, Words{"DEL", "k"}, Words{"INCR", "k"},
                                    Words{"EVALSHA", kCombinable.sha1(), "1", "k", "s", "x"},
                                    Words{"INCR", "k"}));
}

TEST_F(PipelineTest, CallsOfOneScriptWithTheSameSharedArgumentsTravelAsOne) {
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

TEST_F(PipelineTest, AScriptIsNotMovedPastAnAddToItsKey) {
    run(kCombinable, "a", "1");
    add("b");
    run(kCombinable, "b", "2");
    EXPECT_EQ(sent().size(), 3U);
}

TEST_F(PipelineTest, SeveralCallsHandedInAsOneAreAnsweredByAnArray) {
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

TEST_F(PipelineTest, ACombinedAddThatIsRefusedGoesSinglyInOrder) {
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

TEST_F(PipelineTest, ACombinedScriptIsTakenApartOnlyWhereItHadNotBegun) {
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
    EXPECT_FALSE(pipeline_.has_to_send()) << "a part of it may have been applied";
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

TEST_F(PipelineTest, ARefusalThatConcernsEverybodyAnswersAllMembersAtOnce) {
    for (const std::string refusal : kToEverybody) {
        std::vector<OperationPtr> calls;
        calls.reserve(200);
        for (int i = 0; i < 100; ++i) calls.push_back(add("k", 2));
        for (int i = 0; i < 100; ++i) calls.push_back(run(kCombinable, std::to_string(i), "1"));
        EXPECT_EQ(sent().size(), 2U);
        refuse(refusal);
        refuse(refusal);
        EXPECT_FALSE(pipeline_.has_to_send()) << refusal;
        for (const OperationPtr& call : calls) {
            ASSERT_TRUE(call->is_done()) << refusal;
            EXPECT_FALSE(outcome(call).ok());
        }
    }
}

TEST_F(PipelineTest, ARefusalThatPassesSoonIsTriedAgainCombined) {
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
        EXPECT_FALSE(pipeline_.has_to_send());
        pipeline_.requeue_due(std::chrono::steady_clock::now() + 10s);
        EXPECT_EQ(sent().size(), 2U) << refusal;
        reply(of(4));
        reply(Reply{ReplyArray{of(1), of(2)}});
        EXPECT_EQ(value(first), 2);
    }
}

TEST_F(PipelineTest, ARefusalOfOneKeyAnswersAllAddsToIt) {
    const auto a = add("k", 2);
    const auto b = add("k", 3);
    sent();
    refuse("WRONGTYPE Operation against a key holding the wrong kind of value");
    EXPECT_FALSE(pipeline_.has_to_send());
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::wrong_type));
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::wrong_type));
}

TEST_F(PipelineTest, WhereOnlyIncrIsAllowedSinglesGoAsThat) {
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

TEST_F(PipelineTest, AScriptIsTakenApartForWhatOneKeyCanCause) {
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

TEST_F(PipelineTest, AReplyThatCannotBeItsCallsLeavesAllUnderWayUnknown) {
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

TEST_F(PipelineTest, AnErrorFitsEveryCall) {
    const std::string_view keys[] = {"a"};
    const auto a = push(Request::run(kPerKey, keys, {}, {}));
    const auto b = push(Request::run(kPairs, keys, {}, {}));
    sent();
    refuse("ERR no");
    reply(Reply{ReplyArray{Reply{ReplyError{"WRONGTYPE no"}}}});
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::reply));
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::wrong_type));
}

TEST_F(PipelineTest, MoreRepliesThanCommandsDoNotFit) {
    const auto answered = add("k");
    sent();
    reply(of(1));
    misfit(of(2));
    EXPECT_EQ(value(answered), 1);
    EXPECT_THAT(pipeline_.misfit().message, ::testing::HasSubstr("no command asked for"));
}

TEST_F(PipelineTest, AReplyBeforeItsCommandHasLeftDoesNotFit) {
    const auto half = add("k");
    std::string bytes = pipeline_.take();
    pipeline_.put_back_unsent(bytes.substr(bytes.size() - 1));
    misfit(of(1));
    EXPECT_FALSE(half->is_done()) << "it never left as a whole, and goes once more";
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "k"}));
}

TEST_F(PipelineTest, TheRepliesOfABatchHaveOneBoundTogether) {
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

TEST_F(PipelineTest, ACommandWithAnEchoMustAnswerExactlyOnce) {
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

TEST_F(PipelineTest, OnlyNoscriptBringsTheText) {
    const auto a = run(kCombinable, "a", "1");
    const auto b = run(kCombinable, "b", "2");
    sent();
    refuse("NOSCRIPT No matching script");
    EXPECT_THAT(sent(),
                ElementsAre(Words{"EVAL", "return combinable", "2", "a", "b", "s", "1", "2"}));
    refuse("NOSCRIPT again");
    EXPECT_FALSE(pipeline_.has_to_send());
    EXPECT_TRUE(failed_with(outcome(a), ErrorCode::unavailable));
    EXPECT_TRUE(failed_with(outcome(b), ErrorCode::unavailable));
}

TEST_F(PipelineTest, AServerThatWillServeSoonIsAskedAgainInsideTheDeadline) {
    const auto patient = add("k");
    const auto hurried = push(Request::add("m", 1), Deadline::after(1ms));
    sent();
    refuse("LOADING Redis is loading");
    refuse("LOADING Redis is loading");
    EXPECT_TRUE(failed_with(outcome(hurried), ErrorCode::unavailable));
    EXPECT_EQ(patient->state(), Operation::State::postponed);
    EXPECT_FALSE(pipeline_.has_to_send());
    pipeline_.requeue_due(patient->retry_at());
    EXPECT_EQ(sent().size(), 1U);
}

TEST_F(PipelineTest, WhatNeverLeftGoesOnceMoreAndTheRestIsUnknown) {
    const auto gone = add("gone");
    const auto read = command({"GET", "gone"});
    const auto half = add("half");
    std::string bytes = pipeline_.take();
    bytes.erase(0, bytes.size() - 3);
    pipeline_.put_back_unsent(bytes);
    pipeline_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(gone), ErrorCode::outcome_unknown));
    pipeline_.connected();
    EXPECT_THAT(sent(), ElementsAre(Words{"GET", "gone"}, Words{"INCR", "half"}));
    pipeline_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(half), ErrorCode::outcome_unknown));
    EXPECT_TRUE(failed_with(outcome(read), ErrorCode::unavailable)) << "twice is enough";
}

TEST_F(PipelineTest, ACallThatIsCountedOnceGoesAgainAndIsThenUnknown) {
    const auto call = run(kCombinable, "k", "op", "s", Repeat::counted_once);
    sent();
    pipeline_.lost(lost(), true);
    EXPECT_FALSE(call->is_done());
    pipeline_.connected();
    EXPECT_EQ(sent().size(), 1U);
    pipeline_.lost(lost(), true);
    EXPECT_TRUE(failed_with(outcome(call), ErrorCode::outcome_unknown));

    const auto waits = run(kCombinable, "k", "op", "s", Repeat::counted_once);
    sent();
    pipeline_.lost(lost(), true);
    EXPECT_TRUE(failed_with(pipeline_.give_up(waits), ErrorCode::outcome_unknown))
        << "the first time may have counted";
    const auto fails = run(kCombinable, "k", "op", "s", Repeat::counted_once);
    pipeline_.connected();
    sent();
    pipeline_.lost(lost(), true);
    pipeline_.fail_queued(lost());
    EXPECT_TRUE(failed_with(outcome(fails), ErrorCode::outcome_unknown));
}

TEST_F(PipelineTest, ACutBatchKnowsWhatWasAnsweredAndSendsWhatNeverLeft) {
    const std::vector<std::vector<std::string_view>> commands{
        {"INCR", "a"}, {"INCR", "b"}, {"INCR", "c"}, {"INCR", "d"}};
    const auto batch = push(Request::commands(commands));
    std::string bytes = pipeline_.take();
    const std::size_t each = bytes.size() / 4;
    bytes.erase(0, 2 * each + 5);
    pipeline_.put_back_unsent(bytes);
    reply(of(1));
    pipeline_.lost(lost(), true);
    pipeline_.connected();
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

TEST_F(PipelineTest, ABatchThatIsGivenUpTellsWhatItKnows) {
    const std::vector<std::vector<std::string_view>> commands{{"INCR", "a"}, {"INCR", "b"}};
    const auto batch = push(Request::commands(commands));
    sent();
    reply(of(1));
    const auto known = pipeline_.give_up(batch);
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

TEST_F(PipelineTest, ALateReplyIsReadAndDropped) {
    const auto late = add("k");
    const auto same = add("k");
    const auto next = add("m");
    sent();
    EXPECT_TRUE(failed_with(pipeline_.give_up(late), ErrorCode::outcome_unknown));
    reply(of(2));
    reply(of(9));
    EXPECT_EQ(value(same), 2);
    EXPECT_EQ(value(next), 9);
    EXPECT_FALSE(late->is_done());
    const auto queued = add("k");
    EXPECT_TRUE(failed_with(pipeline_.give_up(queued), ErrorCode::deadline));
    EXPECT_FALSE(pipeline_.has_to_send());
}

TEST_F(PipelineTest, WhatIsWithdrawnBeforeItIsSentIsNotSent) {
    Cancelled cancelled = true;
    bool told = false;
    pipeline_.push(std::make_shared<Operation>(
        Request::add("k", 1), Deadline::after(1s), [&](Result<Reply>) { told = true; },
        &cancelled));
    pipeline_.count_unwaited();
    add("m");
    EXPECT_THAT(sent(), ElementsAre(Words{"INCR", "m"}));
    EXPECT_EQ(pipeline_.unwaited(), 0U);
    EXPECT_FALSE(told);
}

TEST_F(PipelineTest, WhatIsUnansweredHasABound) {
    options_.max_in_flight = 2;
    add("a");
    add("b");
    add("c");
    EXPECT_EQ(sent().size(), 2U);
    EXPECT_FALSE(pipeline_.has_to_send());
    reply(of(1));
    EXPECT_EQ(sent().size(), 1U);
    options_.max_in_flight = 100;
    options_.max_send_bytes = 1;
    add("d");
    EXPECT_FALSE(pipeline_.has_to_send());
    reply(of(1));
    reply(of(1));
    EXPECT_TRUE(pipeline_.has_to_send());
}

TEST_F(PipelineTest, CallsThatNobodyWaitsForEndAtTheirDeadline) {
    std::optional<Result<Reply>> told;
    const auto now = std::chrono::steady_clock::now();
    pipeline_.push(
        std::make_shared<Operation>(Request::add("k", 1), Deadline::at(now + 1s),
                                    [&](Result<Reply> reply) { told.emplace(std::move(reply)); }));
    pipeline_.count_unwaited();
    sent();
    pipeline_.expire(now, 10);
    EXPECT_FALSE(pipeline_.has_finished());
    pipeline_.expire(now + 1s, 10);
    for (const auto& operation : pipeline_.take_finished()) operation->complete();
    ASSERT_TRUE(told);
    EXPECT_TRUE(failed_with(*told, ErrorCode::outcome_unknown));
    EXPECT_EQ(pipeline_.unwaited(), 0U);
    reply(of(1));
    EXPECT_FALSE(pipeline_.has_finished());
}

// Random calls against a server that is a map, over connections that break anywhere: what callers
// are told must be what the map says.
void check_drawn_schedule(unsigned seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 draw{seed};
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
    Options options;
    Pipeline pipeline{options};
    std::map<std::string, std::int64_t> server;  // Key "bad" holds no number.
    struct Call {
        OperationPtr operation;
        std::string key;
        std::int64_t n;
    };
    std::vector<Call> calls;
    std::string wire;  // Sent and not yet run.
    std::vector<Reply> replies;
    const auto run = [&](const Words& words) {
        const std::string& key = words[1];
        if (key == "bad") return Reply{ReplyError{"WRONGTYPE no"}};
        std::int64_t sum = 0;
        const std::int64_t n = words.size() > 2 ? std::stoll(words[2]) : 1;
        if (__builtin_add_overflow(server[key], n, &sum)) {
            return Reply{ReplyError{"ERR increment or decrement would overflow"}};
        }
        server[key] = sum;
        return Reply{sum};
    };
    // Runs what has arrived as a whole.
    const auto serve = [&] {
        while (!wire.empty()) {
            std::size_t end = 0;
            std::size_t line = wire.find("\r\n");
            if (line == std::string::npos) return;
            const int words = std::stoi(wire.substr(1, line - 1));
            end = line + 2;
            for (int i = 0; i < words; ++i) {
                line = wire.find("\r\n", end);
                if (line == std::string::npos) return;
                end = line + 2 + std::stoul(wire.substr(end + 1, line - end - 1)) + 2;
                if (end > wire.size()) return;
            }
            replies.push_back(run(decode(std::string_view{wire}.substr(0, end))[0]));
            wire.erase(0, end);
        }
    };
    const std::string keys[] = {"a", "b", "huge", "bad"};
    server["huge"] = INT64_MAX - 3;
    for (int step = 0; step < 300; ++step) {
        switch (below(8)) {
            case 0:
            case 1:
            case 2: {
                const std::string& key = keys[below(4)];
                const std::int64_t n = static_cast<std::int64_t>(below(9)) - 3;
                auto operation =
                    std::make_shared<Operation>(Request::add(key, n), Deadline::after(1h));
                pipeline.push(operation);
                calls.push_back({operation, key, n});
                break;
            }
            case 3:
            case 4: {
                std::string bytes = pipeline.take();
                const std::size_t taken = bytes.empty() ? 0 : below(bytes.size() + 1);
                wire += bytes.substr(0, taken);
                pipeline.put_back_unsent(bytes.substr(taken));
                break;
            }
            case 5:
            case 6:
                serve();
                for (std::size_t some = below(replies.size() + 1); some > 0; --some) {
                    ASSERT_TRUE(pipeline.settle(std::move(replies.front()),
                                                std::chrono::steady_clock::now()));
                    replies.erase(replies.begin());
                }
                break;
            default:
                if (below(6) > 0) break;
                serve();  // What has arrived is run; its replies, and half a command, are lost.
                wire.clear();
                replies.clear();
                pipeline.lost(make_error(ErrorCode::unavailable, "lost"), true);
                pipeline.connected();
        }
    }
    while (pipeline.has_to_send() || pipeline.in_flight() > 0) {
        wire += pipeline.take();
        serve();
        while (!replies.empty()) {
            ASSERT_TRUE(
                pipeline.settle(std::move(replies.front()), std::chrono::steady_clock::now()));
            replies.erase(replies.begin());
        }
    }
    std::map<std::string, std::int64_t> acknowledged;
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> unknown;  // Least, most.
    for (const Call& call : calls) {
        ASSERT_TRUE(call.operation->is_done());
        const auto outcome = call.operation->take_outcome();
        if (outcome.ok()) {
            EXPECT_NE(call.key, "bad");
            acknowledged[call.key] += call.n;
        } else if (outcome.error().code == ErrorCode::outcome_unknown) {
            auto& [least, most] = unknown[call.key];
            (call.n < 0 ? least : most) += call.n;
        } else if (outcome.error().code == ErrorCode::wrong_type) {
            EXPECT_EQ(call.key, "bad");
        } else if (outcome.error().code == ErrorCode::overflow) {
            EXPECT_EQ(call.key, "huge");
        } else {
            EXPECT_EQ(outcome.error().code, ErrorCode::unavailable) << outcome.error().message;
        }
    }
    for (const auto& [key, value] : server) {
        const auto [least, most] = unknown[key];
        // From where it began: calls end in another order than the server ran them, and a sum of
        // the first of them could leave 64 bits.
        const std::int64_t added = value - (key == "huge" ? INT64_MAX - 3 : 0);
        EXPECT_GE(added - acknowledged[key], least) << key;
        EXPECT_LE(added - acknowledged[key], most) << key;
    }
}

TEST(DrawnSchedules, EveryCallerIsToldWhatHappened) {
    for (unsigned seed = 0; seed < 2000 && !::testing::Test::HasFailure(); ++seed) {
        check_drawn_schedule(seed);
    }
}

}  // namespace
}  // namespace hotcount::redis

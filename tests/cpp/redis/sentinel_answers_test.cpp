#include "redis/sentinel_answers.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using hotcount::testing::failed_with;
using hotcount::testing::succeeded;
using Kind = SentinelAnswer::Kind;

const Endpoint kA{"10.0.0.1", 6379};
const Endpoint kB{"10.0.0.2", 6379};

Options options() {
    Options made;
    made.service = "votes";
    return made;
}
SentinelAnswer says(const Endpoint& primary, std::uint64_t epoch, bool replaces_it = false) {
    SentinelAnswer answer;
    answer.kind = Kind::primary;
    answer.primary = primary;
    answer.epoch = epoch;
    answer.replaces_it = replaces_it;
    return answer;
}
SentinelAnswer no_service() {
    SentinelAnswer answer;
    answer.kind = Kind::no_service;
    return answer;
}
SentinelAnswer away(ErrorCode code = ErrorCode::unavailable) {
    return SentinelAnswer::failed(make_error(code, "it is away"));
}

TEST(Sentinels, ThatAreLateAreWaitedFor) {
    const SentinelAnswer silent;
    for (const auto& answers : {std::vector{silent, silent, silent},
                                std::vector{away(), away(ErrorCode::deadline), away()}}) {
        const auto none = choose_primary(options(), answers, 0);
        ASSERT_TRUE(failed_with(none, ErrorCode::unavailable, "none of the 3 Sentinels answers"));
        EXPECT_EQ(none.error().server_code, "MASTERDOWN");
    }
    EXPECT_TRUE(failed_with(choose_primary(options(), std::vector{silent, says(kA, 1), silent}, 0),
                            ErrorCode::unavailable, "1 of 3 answer: 2 said nothing within"));
    EXPECT_EQ(choose_primary(options(), std::vector{away(), away(), away()}, 0).error().server_code,
              "");
}

TEST(Sentinels, OfAMajorityTheHighestEpochWins) {
    const std::vector<SentinelAnswer> cases[] = {
        {says(kB, 3), says(kB, 3), says(kB, 3)},
        {says(kA, 2), says(kB, 3), says(kA, 2)},
        {says(kB, 3), away(), says(kA, 2)},
    };
    for (const auto& answers : cases) {
        const auto primary = choose_primary(options(), answers, 2);
        ASSERT_TRUE(succeeded(primary));
        EXPECT_EQ(primary->endpoint, kB);
        EXPECT_EQ(primary->epoch, 3U);
    }
    // That A is being replaced says nothing against B.
    EXPECT_EQ(
        choose_primary(options(), std::vector{says(kB, 3), says(kA, 2, true), away()}, 2)->endpoint,
        kB);
    EXPECT_TRUE(succeeded(choose_primary(options(), std::vector{says(kA, 1)}, 0)));
}

struct Wrong {
    std::vector<SentinelAnswer> answers;
    ErrorCode code;
    std::string says;
    bool waits;
};

TEST(Sentinels, SayWhyThereIsNoPrimary) {
    const Wrong cases[] = {
        {{away(), away(), away()}, ErrorCode::unavailable, "none of the 3", false},
        {{away(), {}, says(kA, 1)}, ErrorCode::unavailable, "1 of 3 answer: it is away", true},
        {{no_service(), away(), says(kA, 1)}, ErrorCode::unavailable, "1 of 3", true},
        {{no_service(), no_service(), says(kA, 1)}, ErrorCode::config, "no service of", false},
        {{away(ErrorCode::config), away(ErrorCode::config), says(kA, 1)},
         ErrorCode::config,
         "it is away",
         false},
        {{away(ErrorCode::auth), away(ErrorCode::auth), says(kA, 1)},
         ErrorCode::auth,
         "sentinel_credentials",
         false},
        {{says(kA, 2), says(kA, 2, true), says(kA, 2)},
         ErrorCode::unavailable,
         "are replacing 10.0.0.1:6379",
         true},
        {{says(kA, 2), says(kB, 2), away()}, ErrorCode::unavailable, "disagree", true},
        {{says(kA, 2), says(kA, 2), away()}, ErrorCode::unavailable, "last failover", true},
        {{says(kA, 1), says(kA, 2), says(kA, 2)}, ErrorCode::unavailable, "last failover", true},
    };
    for (const Wrong& each : cases) {
        const auto chosen = choose_primary(options(), each.answers, 3);
        ASSERT_TRUE(failed_with(chosen, each.code, each.says));
        EXPECT_EQ(chosen.error().server_code == "MASTERDOWN", each.waits) << each.says;
    }
}

TEST(Sentinels, ThatWereAllSetUpAnewBeginWithALowEpoch) {
    const auto primary =
        choose_primary(options(), std::vector{says(kA, 0), says(kA, 0), says(kA, 0)}, 9);
    ASSERT_TRUE(succeeded(primary));
    EXPECT_EQ(primary->epoch, 0U);
}

Reply text(const std::string& value) { return Reply{value}; }
Reply state(const std::string& ip, const std::string& flags, const std::string& epoch) {
    return Reply{ReplyArray{text("name"), text("votes"), text("ip"), text(ip), text("port"),
                            text("6379"), text("flags"), text(flags), text("config-epoch"),
                            text(epoch)}};
}
const Reply kAddress{ReplyArray{text(kA.host), text("6379")}};

TEST(SentinelAnswer, IsReadFromItsReplies) {
    const auto plain = read_answer(kAddress, state(kA.host, "master", "7"), "s");
    EXPECT_EQ(plain.kind, Kind::primary);
    EXPECT_EQ(plain.primary, kA);
    EXPECT_EQ(plain.epoch, 7U);
    EXPECT_FALSE(plain.replaces_it);
    const std::string failing = "master,s_down,o_down,failover_in_progress";
    EXPECT_TRUE(read_answer(kAddress, state(kA.host, failing, "7"), "s").replaces_it);
    // It names the promoted one already, and goes on with the old one's other replicas.
    EXPECT_FALSE(read_answer(kAddress, state(kB.host, failing, "8"), "s").replaces_it);
    EXPECT_EQ(
        read_answer(Reply{}, Reply{ReplyError{"ERR No such master with that name"}}, "s").kind,
        Kind::no_service);
    EXPECT_EQ(read_answer(Reply{}, state(kA.host, "master", "1"), "s").kind, Kind::no_service);
}

TEST(SentinelAnswer, ThatMakesNoSenseIsAFailure) {
    const Reply noperm{ReplyError{"NOPERM no permissions"}};
    EXPECT_EQ(read_answer(noperm, noperm, "s").why->code, ErrorCode::permission_denied);
    const Reply right = state(kA.host, "master", "7");
    for (const Reply& address :
         {text("x"), Reply{ReplyArray{}}, Reply{ReplyArray{text("h"), text("0")}},
          Reply{ReplyArray{text(""), text("1")}}, Reply{ReplyArray{text("h"), Reply{}}},
          Reply{ReplyArray{text("h"), text("65536")}}}) {
        EXPECT_EQ(read_answer(address, right, "s").kind, Kind::failed);
    }
    for (const Reply& wrong : {Reply{}, text("x"), Reply{ReplyArray{}}, state("h", "master", "x"),
                               state("h", "master", "-1")}) {
        EXPECT_EQ(read_answer(kAddress, wrong, "s").kind, Kind::failed);
    }
}

TEST(SentinelEvent, IsReadIfItIsAboutTheService) {
    const auto switched =
        read_event("+switch-master", "votes 10.0.0.1 6379 10.0.0.2 6379", "votes");
    ASSERT_TRUE(switched.has_value());
    EXPECT_EQ(switched->old, kA);
    EXPECT_EQ(switched->now, kB);
    const auto elected = read_event("+elected-leader", "master votes 10.0.0.1 6379", "votes");
    ASSERT_TRUE(elected.has_value());
    EXPECT_EQ(elected->old, kA);
    EXPECT_FALSE(elected->now);
    for (const char* wrong :
         {"", "votes", "other 10.0.0.1 6379 10.0.0.2 6379", "votes 10.0.0.1 x 10.0.0.2 6379",
          "votes 10.0.0.1 6379 10.0.0.2", "votes 10.0.0.1 6379 10.0.0.2 6379 x"}) {
        EXPECT_FALSE(read_event("+switch-master", wrong, "votes")) << wrong;
    }
    EXPECT_FALSE(read_event("+elected-leader", "master other 10.0.0.1 6379", "votes"));
    EXPECT_FALSE(read_event("+elected-leader", "slave votes 10.0.0.1 6379", "votes"));
    EXPECT_FALSE(read_event("+sdown", "master votes 10.0.0.1 6379", "votes"));
}

}  // namespace
}  // namespace hotcount::redis

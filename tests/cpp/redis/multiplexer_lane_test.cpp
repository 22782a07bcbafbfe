// Answers of a node of a cluster after a silence: held, delivered or dropped.
#include <gtest/gtest.h>

#include "multiplexer_fixture.hpp"

namespace hotcount::redis {
namespace {

class LaneTest : public ::testing::Test {
  protected:
    struct Lane {
        explicit Lane(const Options& options, NodeHeard& heard) : multiplexer(options, &heard) {}
        OperationPtr send_add() {
            auto operation = std::make_shared<Operation>(Request::add("k", 1),
                                                         Deadline::after(std::chrono::minutes{1}));
            multiplexer.push(operation);
            (void)multiplexer.take();
            return operation;
        }
        // False if the reply ends the connection.
        bool read_reply(SteadyTime now, Reply reply = Reply{std::int64_t{1}}) {
            multiplexer.heard(now);
            return multiplexer.settle(std::move(reply), now);
        }
        Multiplexer multiplexer;
    };

    LaneTest() : begin_(std::chrono::steady_clock::now()) {
        heard_.hear(begin_, kSilence);
        heard_.confirm(begin_);
    }
    SteadyTime at(int ms) const { return begin_ + std::chrono::milliseconds{ms}; }
    static ErrorCode error(const OperationPtr& operation) {
        EXPECT_TRUE(operation->is_done());
        return operation->take_outcome().error().code;
    }

    static constexpr Duration kSilence = std::chrono::milliseconds{1500};
    Options options_{[] {
        Options options;
        options.silence_limit = kSilence;
        return options;
    }()};
    const SteadyTime begin_;
    NodeHeard heard_;
    Lane lane_{options_, heard_};
};

TEST_F(LaneTest, AnswerFromBeforeASecondSilenceSettlesNothing) {
    const auto first = lane_.send_add();
    const auto second = lane_.send_add();
    EXPECT_TRUE(lane_.read_reply(at(2000)));
    // The process stands still once more. The node is replaced meanwhile, and answers the second add.
    EXPECT_TRUE(lane_.read_reply(at(4000)));
    EXPECT_EQ(lane_.multiplexer.confirm(true, at(2001)), std::nullopt);
    EXPECT_FALSE(first->is_done());
    EXPECT_FALSE(second->is_done());
    EXPECT_EQ(lane_.multiplexer.confirm(true, at(4001)), true);
    EXPECT_TRUE(first->is_done());
    EXPECT_TRUE(second->is_done());
}

TEST_F(LaneTest, HeldReplyFromBeforeAReplacementIsUnknown) {
    const auto add = lane_.send_add();
    EXPECT_TRUE(lane_.read_reply(at(2000)));
    // The map that showed the replacement was followed by another before this lane heard of either.
    heard_.replaced(at(2500));
    EXPECT_EQ(lane_.multiplexer.confirm(true, at(3000)), false);
    EXPECT_EQ(error(add), ErrorCode::outcome_unknown);
}

TEST_F(LaneTest, LateReplyFromBeforeAReplacementEndsTheConnection) {
    const auto late = lane_.send_add();
    // The node has its slots again, and another lane has settled the doubt.
    heard_.replaced(at(2500));
    heard_.hear(at(2600), kSilence);
    heard_.confirm(at(2700));
    EXPECT_FALSE(lane_.read_reply(at(3000)));
    lane_.multiplexer.lost(lane_.multiplexer.misfit(), true);
    EXPECT_EQ(error(late), ErrorCode::outcome_unknown);
}

TEST_F(LaneTest, LateRefusalFromBeforeAReplacementIsFollowed) {
    const auto late = lane_.send_add();
    // A planned failover demoted the node before the add came, and a map of before the read shows it.
    heard_.replaced(at(2500));
    heard_.hear(at(2600), kSilence);
    heard_.confirm(at(2700));
    EXPECT_TRUE(lane_.read_reply(at(3000), Reply{ReplyError{"MOVED 1 127.0.0.1:7001"}}));
    ASSERT_TRUE(late->has_left());
    EXPECT_FALSE(late->maybe_ran());
}

TEST_F(LaneTest, ReplyInTimeCountsBesideAReplacement) {
    // A node gets a new epoch by taking slots over, too.
    const auto add = lane_.send_add();
    heard_.replaced(at(500));
    EXPECT_TRUE(lane_.read_reply(at(600)));
    EXPECT_TRUE(add->is_done());
}

}  // namespace
}  // namespace hotcount::redis

// Calls on a cluster that no lane takes: a lane is full, or the client was closed meanwhile.
#include <gtest/gtest.h>

#include <map>

#include "redis/cluster_calls.hpp"
#include "redis/cluster_map.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

// Port 1 refuses connections.
Options options_of_nobody() {
    Options options;
    options.host = "127.0.0.1";
    options.port = 1;
    return options;
}

class NoOwner final : public LaneOwner {
    void left(std::uint16_t, const OperationPtr&) override {}
    void answered(std::uint16_t) override {}
    void doubts(std::uint16_t) override {}
    void lost(std::uint16_t) override {}
};

class HandedBackCall : public ::testing::Test {
  protected:
    std::shared_ptr<SharedConnection> make_lane(const Options& options) const {
        const auto dialer = std::make_shared<Dialer>(options, scripts_);
        return std::make_shared<SharedConnection>(options, dialer, LaneOf{owner_, 0, heard_});
    }
    // A call that has left a lane, as its node cannot be reached.
    OperationPtr lost_call(Duration timeout) const {
        const auto call =
            std::make_shared<Operation>(Request::add("k", 1), Deadline::after(timeout));
        (void)make_lane(options_of_nobody())->execute(call);
        EXPECT_TRUE(call->has_left());
        return call;
    }

    const std::shared_ptr<KnownScripts> scripts_ = std::make_shared<KnownScripts>();
    const std::shared_ptr<LaneOwner> owner_ = std::make_shared<NoOwner>();
    const std::shared_ptr<NodeHeard> heard_ = std::make_shared<NodeHeard>();
};

TEST_F(HandedBackCall, EndsAtAClosedLane) {
    const auto lane = make_lane(options_of_nobody());
    lane->close();
    const auto call = lost_call(10s);
    EXPECT_EQ(lane->execute(call).error().code, ErrorCode::closed);
    EXPECT_FALSE(call->has_left()) << "its thread would look for another lane for ever";
}

TEST_F(HandedBackCall, EndsAtItsDeadlineAtAFullLane) {
    Options options = options_of_nobody();
    options.max_queue = 0;
    const auto call = lost_call(100ms);
    EXPECT_EQ(make_lane(options)->execute(call).error().code, ErrorCode::deadline);
    EXPECT_FALSE(call->has_left()) << "its thread would try again for ever";
}

TEST(ClosedMap, DialsNoNewNode) {
    const auto map =
        std::make_shared<ClusterMap>(options_of_nobody(), std::make_shared<KnownScripts>());
    map->close();
    const auto asked = map->node(0).dialer->ask(Dialer::Scripts::none, [](const auto&) {});
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().code, ErrorCode::closed);
}

// One lane, which is full from the second call on.
class FullLanes final : public Lanes {
  public:
    explicit FullLanes(const Options& options) : multiplexer_(options, &heard_) {}
    Multiplexer& lane() { return multiplexer_; }

    std::optional<Error> push(std::uint16_t, const OperationPtr& operation) override {
        if (std::exchange(is_full_, true)) {
            return make_error(ErrorCode::capacity, "1 calls are waiting (max_queue)");
        }
        multiplexer_.push(operation);
        multiplexer_.count_unwaited();
        return {};
    }
    void outstanding(std::uint16_t, SlotSet&) override {}
    void evict(std::uint16_t) override {}
    void want_map() override {}
    void look_at(SteadyTime) override {}
    std::optional<Error> no_map_since(SteadyTime) override { return {}; }
    Error why_none() override { return make_error(ErrorCode::unavailable, "no map"); }

  private:
    NodeHeard heard_;
    Multiplexer multiplexer_;
    bool is_full_{false};
};

class FullLane : public ::testing::Test {
  protected:
    FullLane() {
        Topology map;
        map.nodes.push_back({"id", {"n", 7000}});
        map.owner.assign(kSlots, 0);
        router_.apply(map, {"n", 7000});
    }
    void send_call() {
        // A call that may be sent twice.
        static const Script kScript{"once", Script::Kind::combinable};
        const std::string_view keys[] = {"k"};
        calls_.submit(
            Request::run(kScript, keys, {}, {}, Repeat::counted_once), Deadline::after(1h),
            [this](Result<Reply> reply) { outcome_.emplace(std::move(reply)); }, nullptr);
        EXPECT_FALSE(lanes_.lane().take().empty());
    }
    void expect_error(ErrorCode code) {
        ASSERT_TRUE(outcome_.has_value());
        EXPECT_EQ(outcome_->error().code, code);
    }

    const Options options_;
    Router router_;
    FullLanes lanes_{options_};
    ClusterCalls calls_{router_, lanes_};
    std::optional<Result<Reply>> outcome_;
};

TEST_F(FullLane, MakesACallThatMayHaveRunUnknown) {
    send_call();
    lanes_.lane().lost(make_error(ErrorCode::unavailable, "lost"), true);
    calls_.left(0, lanes_.lane().take_finished().at(0));
    expect_error(ErrorCode::outcome_unknown);
}

// A lane hands back what it holds after the calls were closed. Nothing would end a pause then.
TEST_F(FullLane, EndsARefusedCallAfterTheClose) {
    send_call();
    (void)lanes_.lane().settle(Reply{ReplyError{"CLUSTERDOWN The cluster is down"}},
                               std::chrono::steady_clock::now());
    const OperationPtr refused = lanes_.lane().take_finished().at(0);
    calls_.close(make_error(ErrorCode::closed, "closed"));
    calls_.left(0, refused);
    expect_error(ErrorCode::closed);
}

}  // namespace
}  // namespace hotcount::redis

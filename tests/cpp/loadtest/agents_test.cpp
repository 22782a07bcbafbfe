// Parts of one plan, the clocks of several machines, and the frames between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agents/clock_offset.hpp"
#include "agents/link.hpp"
#include "fake_drivers.hpp"
#include "load/planner.hpp"
#include "load/runner.hpp"
#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::unique_ptr<Ledger> new_ledger(const TemporaryFolder& folder, const std::string& name,
                                   std::uint64_t capacity) {
    auto made = Ledger::create(folder / name, capacity, 1);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made).value();
}

TEST(PlanParts, TogetherAreThePlanOfOne) {
    const TemporaryFolder folder;
    const TrafficSettings traffic{.seed = 9};
    const Schedule schedule(Arrival::poisson, 1e6, 9);
    const auto whole = new_ledger(folder, "whole", 5000);
    Planner one(*whole, traffic, schedule, 3'000'000, UnvoteValue::numbered);
    one.reach(4999);
    ASSERT_GT(whole->planned(), 2000U);
    std::uint64_t records = 0;
    for (std::uint32_t part = 0; part < 3; ++part) {
        const auto ledger = new_ledger(folder, "part" + std::to_string(part), 5000);
        Planner planner(*ledger, traffic, schedule, 3'000'000, UnvoteValue::numbered, {part, 3});
        planner.reach(4999);
        for (std::uint64_t index = 0; index < ledger->planned(); ++index) {
            const LedgerRecord& mine = (*ledger)[index];
            const LedgerRecord& its = (*whole)[index * 3 + part];
            ASSERT_EQ(mine.item, its.item);
            ASSERT_EQ(mine.user, its.user);
            ASSERT_EQ(mine.value, its.value);
            ASSERT_EQ(mine.kind, its.kind);
            ASSERT_EQ(mine.intended_ns, its.intended_ns);
        }
        records += ledger->planned();
    }
    EXPECT_EQ(records, whole->planned());
}

TEST(PlanParts, ShareTheRoomOfTheLedger) {
    LoadSettings load;
    std::uint64_t sum = 0;
    for (std::uint32_t part = 0; part < 3; ++part) {
        load.part = {part, 3};
        sum += ledger_capacity(load, 1000);
    }
    EXPECT_EQ(sum, 1000U);
}

TEST(PlanParts, TheLedgerAloneGivesTheFiguresOfTheRun) {
    const TemporaryFolder folder;
    FailingDriver driver;
    LoadSettings load;
    load.arrival = Arrival::uniform;
    load.rate_per_s = 5000;
    load.workers = 4;
    load.warmup = milliseconds{20};
    load.duration = milliseconds{100};
    const auto ledger = new_ledger(folder, "ledger", ledger_capacity(load, 1000));
    const std::atomic<bool> interrupt{false};
    const LoadResult ran = run_load(load, driver, *ledger, interrupt);
    const LoadResult merged = merge_parts(load, *ledger, {ran}, false, {});
    EXPECT_EQ(merged.tally.votes_ok, ran.tally.votes_ok);
    EXPECT_EQ(merged.tally.reads_ok, ran.tally.reads_ok);
    EXPECT_EQ(merged.tally.failed, ran.tally.failed);
    EXPECT_EQ(merged.tally.unknown, ran.tally.unknown);
    EXPECT_EQ(merged.tally.errors, ran.tally.errors);
    EXPECT_EQ(merged.operations, ran.operations);
    EXPECT_EQ(merged.scheduled, ran.scheduled);
    EXPECT_EQ(merged.window_s, ran.window_s);
    EXPECT_EQ(merged.response_ns.count(), ran.response_ns.count());
    EXPECT_EQ(merged.response_ns.value_at(0.5), ran.response_ns.value_at(0.5));
    EXPECT_EQ(merged.service_ns.max(), ran.service_ns.max());
    EXPECT_EQ(merged.outcomes.size(), ran.outcomes.size());
}

TEST(Clocks, TheErrorCoversWhateverTheWayThereTook) {
    // The other clock is 1,000,000 ahead; a round trip of 3,000, all of it on one of the two ways.
    for (const std::int64_t there : {0, 1500, 3000}) {
        ClockProbe probe;
        probe.add(10'000, 10'000 + there + 1'000'000, 13'000);
        ASSERT_TRUE(probe.best());
        EXPECT_LE(std::abs(probe.best()->ns - 1'000'000), probe.best()->error_ns);
        // A longer one does not replace it.
        probe.add(20'000, 20'000 + 1'000'000, 29'000);
        EXPECT_LE(probe.best()->error_ns, 1501);
    }
}

TEST(Clocks, TheErrorCoversClocksThatDrift) {
    const ClockOffset both = between({1000, 50}, {1400, 20});
    EXPECT_LE(both.ns - both.error_ns, 950);
    EXPECT_GE(both.ns + both.error_ns, 1420);
}

TEST(Addresses, AreHostAndPort) {
    EXPECT_EQ(format_address(parse_address("127.0.0.1:7420").value()), "127.0.0.1:7420");
    EXPECT_EQ(parse_address("[::1]:0").value().host, "::1");
    EXPECT_EQ(format_address(parse_address("[::1]:80").value()), "[::1]:80");
    for (const char* const wrong : {"", ":1", "host", "host:", "host:99999", "::1:80", "host:80x",
                                    "redis://host:80", "a@b:80", "host: 80"}) {
        EXPECT_FALSE(parse_address(wrong)) << wrong;
    }
    EXPECT_TRUE(is_loopback({"127.0.0.1", 0}));
    EXPECT_FALSE(is_loopback({"0.0.0.0", 0}));
}

class LinkTest : public testing::Test {
  protected:
    LinkTest() {
        int pair[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        link_ = std::make_unique<Link>(pair[0]);
        other_ = pair[1];
    }
    ~LinkTest() override { hang_up(); }
    void write(std::string_view bytes) const {
        EXPECT_EQ(::send(other_, bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
    }
    void hang_up() {
        if (other_ >= 0) close(other_);
        other_ = -1;
    }
    std::unique_ptr<Link> link_;
    int other_{-1};
};

TEST_F(LinkTest, AFrameMayComeInPieces) {
    using namespace std::string_view_literals;
    write("\0\0\0\3\7a"sv);
    EXPECT_FALSE(link_->receive(Duration{0}).value());
    write("bc\0\0"sv);
    const auto frame = link_->receive(Duration{0}).value();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->kind, FrameKind::stop);
    EXPECT_EQ(frame->body, "abc");
    hang_up();
    const auto ended = link_->receive(std::chrono::seconds{60});
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, ErrorCode::closed);
}

TEST_F(LinkTest, WhatIsNoFrameOrTooLongIsRefusedAtItsFirstBytes) {
    write("HTTP/1.1 400 Bad Request\r\n");
    const auto garbage = link_->receive(std::chrono::seconds{60});
    ASSERT_FALSE(garbage);
    EXPECT_EQ(garbage.error().code, ErrorCode::reply);
}

TEST_F(LinkTest, AStrangerMaySayLittle) {
    using namespace std::string_view_literals;
    write("\0\0\x10\1\1"sv);
    EXPECT_FALSE(link_->receive(Duration{0}, kMostHello));
}

TEST_F(LinkTest, APeerThatReadsNothingEndsTheSending) {
    const std::string body(kMostFrame, 'x');
    Result<void> sent;
    for (int frame = 0; frame < 64 && sent; ++frame) {
        sent = link_->send(FrameKind::records, body, milliseconds{20});
    }
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().code, ErrorCode::deadline);
}

}  // namespace
}  // namespace hotcount::loadtest

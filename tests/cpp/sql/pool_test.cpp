// The pool before a server that has room for few: who opens, who waits, who is told what.
#include <gtest/gtest.h>

#include <atomic>
#include <hotcount/detail/base/random.hpp>
#include <latch>
#include <thread>
#include <vector>

#include "sql/pool.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::succeeded;

// A server that has room for a number of sessions.
class SmallServer {
  public:
    explicit SmallServer(int room) : room_(room) {}

    class Session final : public Connection {
      public:
        explicit Session(SmallServer& server)
            : is_late(server.pool_is_closed_.load()), server_(server) {}
        ~Session() override {
            std::this_thread::sleep_for(server_.end_);
            server_.open_.fetch_sub(1);
        }
        Result<void> begin(Deadline) override { return {}; }
        Result<void> begin_read(Deadline) override { return {}; }
        Result<void> commit() override { return {}; }
        void rollback() override {}
        bool in_transaction() const override { return false; }
        bool broken() const override { return lost; }
        Result<std::int64_t> run(const Statement&, std::span<const Value>,
                                 const RowVisitor*) override {
            return 0;
        }
        Result<void> run_script(const std::string&) override { return {}; }
        bool lost{false};
        const bool is_late;  // Opened after the pool was closed.

      private:
        SmallServer& server_;
    };

    Pool::Open opener() {
        return [this](Deadline) -> Result<std::unique_ptr<Connection>> {
            const int dialling = dialling_.fetch_add(1) + 1;
            int most = most_dialling_.load();
            while (dialling > most && !most_dialling_.compare_exchange_weak(most, dialling)) {
            }
            dials_.fetch_add(1);
            std::this_thread::sleep_for(dial_);
            dialling_.fetch_sub(1);
            if (broken_.load()) return make_error(ErrorCode::auth, "no such user", "28000");
            if (open_.fetch_add(1) >= room_.load()) {
                open_.fetch_sub(1);
                return make_error(ErrorCode::unavailable, "server: too many clients already",
                                  "53300", SqlCondition::too_many_connections);
            }
            return std::unique_ptr<Connection>{std::make_unique<Session>(*this)};
        };
    }
    void set_room(int room) { room_.store(room); }
    void break_login() { broken_.store(true); }
    void take_for_dialling(Duration time) { dial_ = time; }
    void take_for_ending(Duration time) { end_ = time; }
    void note_closed_pool() { pool_is_closed_.store(true); }
    int open() const { return open_.load(); }
    int dials() const { return dials_.load(); }
    int dialling() const { return dialling_.load(); }
    int forget_most_dialling() { return most_dialling_.exchange(0); }

  private:
    std::atomic<int> room_;
    std::atomic<int> open_{0};
    std::atomic<int> dialling_{0};
    std::atomic<int> most_dialling_{0};
    std::atomic<int> dials_{0};
    std::atomic<bool> broken_{false};
    std::atomic<bool> pool_is_closed_{false};
    Duration dial_{0};
    Duration end_{0};
};

std::shared_ptr<Pool> make_pool(SmallServer& server, std::size_t most,
                                std::optional<Duration> idle_timeout = {}) {
    return std::make_shared<Pool>("server", most, server.opener(), idle_timeout);
}

// Runs work(0), work(1), ... at the same time.
template <class Work>
void at_once(int threads, Work work) {
    std::latch gate{threads};
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
        running.emplace_back([&gate, &work, i] {
            gate.arrive_and_wait();
            work(i);
        });
    }
}

void eventually(const std::function<bool()>& fact) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!fact()) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "it never came to be";
        std::this_thread::sleep_for(1ms);
    }
}

TEST(PoolTest, MoreCallersThanTheServerHasRoomForTakeTurns) {
    SmallServer server{2};
    const auto pool = make_pool(server, 16);
    std::atomic<int> done{0};
    at_once(12, [&](int) {
        for (int i = 0; i < 20; ++i) {
            const auto lease = pool->lease(Deadline::after(30s));
            ASSERT_TRUE(succeeded(lease));
            std::this_thread::sleep_for(100us);
            done.fetch_add(1);
        }
    });
    EXPECT_EQ(done.load(), 12 * 20);
    EXPECT_LE(server.open(), 2);
    EXPECT_FALSE(pool->refusal());
}

TEST(PoolTest, TheRefusalIsTheReasonAtTheDeadline) {
    SmallServer server{0};
    const auto pool = make_pool(server, 4);
    at_once(3, [&](int) {
        const auto lease = pool->lease(Deadline::after(100ms));
        EXPECT_TRUE(failed_with(lease, ErrorCode::deadline, "too many clients already"));
        EXPECT_TRUE(failed_with(lease, ErrorCode::deadline, "nothing was applied"));
        EXPECT_EQ(lease.error().server_code, "53300");
    });
    EXPECT_TRUE(pool->refusal());
    server.set_room(1);
    EXPECT_TRUE(succeeded(pool->lease(Deadline::after(20s))));
    EXPECT_FALSE(pool->refusal());
}

TEST(PoolTest, OneCallerTriesForAllThatWait) {
    SmallServer server{0};
    server.take_for_dialling(2ms);
    const auto pool = make_pool(server, 16);
    std::vector<std::jthread> callers;
    for (int i = 0; i < 8; ++i) {
        callers.emplace_back([&] { EXPECT_TRUE(succeeded(pool->lease(Deadline::after(30s)))); });
    }
    eventually([&] { return server.dials() >= 12; });
    (void)server.forget_most_dialling();
    const int dials = server.dials();
    eventually([&] { return server.dials() >= dials + 3; });
    EXPECT_LE(server.forget_most_dialling(), 1);
    server.set_room(4);
    callers.clear();
    EXPECT_LE(server.forget_most_dialling(), 1) << "all of them dialled when there was room";
}

TEST(PoolTest, TheNextOneTriesWhenTheFirstHasNoTimeLeft) {
    SmallServer server{0};
    const auto pool = make_pool(server, 4);
    std::jthread patient;
    {
        std::jthread hasty{[&] {
            EXPECT_TRUE(failed_with(pool->lease(Deadline::after(300ms)), ErrorCode::deadline));
        }};
        eventually([&] { return server.dials() > 0; });
        patient = std::jthread{[&] { EXPECT_TRUE(succeeded(pool->lease(Deadline::after(30s)))); }};
    }
    server.set_room(1);
}

TEST(PoolTest, AnotherRefusalIsToldAtOnceAndTheOthersGoOn) {
    SmallServer server{0};
    const auto pool = make_pool(server, 4);
    std::atomic<int> refused{0};
    std::vector<std::jthread> callers;
    for (int i = 0; i < 3; ++i) {
        callers.emplace_back([&] {
            const auto lease = pool->lease(Deadline::after(30s));
            if (failed_with(lease, ErrorCode::auth)) refused.fetch_add(1);
        });
    }
    eventually([&] { return server.dials() >= 4; });
    server.break_login();
    callers.clear();
    EXPECT_EQ(refused.load(), 3);
}

TEST(PoolTest, WhatIsIdleElsewhereMakesRoom) {
    SmallServer server{1};
    const auto first = make_pool(server, 4);
    const auto second = make_pool(server, 4);
    first->on_no_room([&] { second->close_idle(); });
    second->on_no_room([&] { first->close_idle(); });
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(succeeded(first->lease(Deadline::after(20s))));
        EXPECT_TRUE(succeeded(second->lease(Deadline::after(20s))));
    }
}

TEST(PoolTest, CallersThatWaitForRoomAreToldOfTheEnd) {
    SmallServer server{0};
    const auto pool = make_pool(server, 4);
    std::jthread caller{
        [&] { EXPECT_TRUE(failed_with(pool->lease(Deadline::after(30s)), ErrorCode::closed)); }};
    eventually([&] { return server.dials() > 0; });
    pool->close();
}

TEST(PoolTest, CallersThatWaitForAConnectionAreToldOfTheEnd) {
    SmallServer server{8};
    const auto pool = make_pool(server, 1);
    std::atomic<int> told{0};
    {
        const auto lease = pool->lease(Deadline::after(5s));
        std::vector<std::jthread> callers;
        for (int i = 0; i < 3; ++i) {
            callers.emplace_back([&] {
                EXPECT_TRUE(failed_with(pool->lease(Deadline::after(30s)), ErrorCode::closed));
                told.fetch_add(1);
            });
        }
        std::this_thread::sleep_for(20ms);
        pool->close();
        eventually([&] { return told.load() == 3; });
        EXPECT_TRUE((*lease)->commit().ok()) << "a connection in use stays valid";
    }
    EXPECT_EQ(server.dials(), 1);
    EXPECT_EQ(server.open(), 0);
    EXPECT_TRUE(failed_with(pool->lease(Deadline::after(5s)), ErrorCode::closed));
}

TEST(PoolTest, ASessionThatOpensDuringCloseGoesToNobody) {
    SmallServer server{8};
    server.take_for_dialling(100ms);
    const auto pool = make_pool(server, 4);
    {
        std::jthread caller{[&] {
            EXPECT_TRUE(failed_with(pool->lease(Deadline::after(30s)), ErrorCode::closed));
        }};
        eventually([&] { return server.dialling() == 1; });
        pool->close();
    }
    EXPECT_EQ(server.open(), 0);
    EXPECT_TRUE(pool->empty());
}

// Callers that wait, open, retry for room and return connections while the pool is closed.
TEST(PoolTest, WheneverThePoolIsClosedNobodyGetsASessionThatIsOpenedLater) {
    for (int round = 0; round < 60; ++round) {
        SmallServer server{1 + round % 4};
        server.take_for_dialling(round % 3 * 300us);
        const auto pool = make_pool(server, 3, 1ms);
        std::atomic<int> late{0};
        std::jthread closer{[&] {
            std::this_thread::sleep_for(std::chrono::microseconds{thread_random().below(4000)});
            pool->close();
            server.note_closed_pool();
            pool->close();
        }};
        at_once(8, [&](int) {
            while (true) {
                const bool hasty = thread_random().below(4) == 0;
                auto lease = pool->lease(Deadline::after(hasty ? 500us : 60s));
                if (!lease) {
                    if (hasty && lease.error().code == ErrorCode::deadline) continue;
                    EXPECT_TRUE(failed_with(lease, ErrorCode::closed));
                    return;
                }
                const auto& session = static_cast<SmallServer::Session&>(**lease);
                if (session.is_late) late.fetch_add(1);
                std::this_thread::sleep_for(100us);
            }
        });
        closer.join();
        EXPECT_EQ(late.load(), 0);
        EXPECT_TRUE(pool->empty());
        pool->stop();
        EXPECT_EQ(server.open(), 0);
    }
}

TEST(PoolTest, AForkWaitsUntilConnectionsOfAClosedPoolAreClosed) {
    SmallServer server{8};
    server.take_for_ending(50ms);
    const auto pool = make_pool(server, 4);
    auto lease = std::optional{pool->lease(Deadline::after(5s))};
    pool->close();
    std::jthread caller{[&] { lease.reset(); }};
    pool->freeze(AtFork::close);
    const int open = server.open();
    pool->thaw(/*in_child=*/false);
    EXPECT_EQ(open, 0);
}

TEST(PoolTest, IdleConnectionsAreClosedInTime) {
    SmallServer server{8};
    const auto pool = make_pool(server, 8, 30ms);
    {
        std::vector<Result<Lease>> leases;
        for (int i = 0; i < 8; ++i) leases.push_back(pool->lease(Deadline::after(5s)));
        EXPECT_EQ(server.open(), 8);
    }
    eventually([&] { return server.open() == 0; });
    EXPECT_TRUE(succeeded(pool->lease(Deadline::after(5s))));
    eventually([&] { return server.open() == 0; });
    EXPECT_EQ(server.dials(), 9);
}

TEST(PoolTest, TheOneInUseStaysWhenTheOthersGo) {
    SmallServer server{8};
    const auto pool = make_pool(server, 8, 50ms);
    {
        std::vector<Result<Lease>> leases;
        for (int i = 0; i < 8; ++i) leases.push_back(pool->lease(Deadline::after(5s)));
    }
    const int dials = server.dials();
    eventually([&] {
        EXPECT_TRUE(succeeded(pool->lease(Deadline::after(5s))));
        return server.open() == 1;
    });
    EXPECT_EQ(server.dials(), dials);
    pool->stop();
}

TEST(PoolTest, AfterStopNoThreadClosesConnections) {
    for (int round = 0; round < 200; ++round) {
        SmallServer server{8};  // Its sessions refer to it.
        const auto pool = make_pool(server, 8, 100us);
        {
            const auto first = pool->lease(Deadline::after(5s));
            const auto second = pool->lease(Deadline::after(5s));
        }
        if (round % 2 == 0) std::this_thread::sleep_for(100us);
        pool->stop();
        EXPECT_EQ(server.open(), 0);
    }
}

TEST(PoolTest, AnIdleConnectionIsLentToOneAndComesBack) {
    SmallServer server{8};
    const auto pool = make_pool(server, 2);
    std::atomic<bool> lent{true};
    EXPECT_FALSE(pool->lease_idle(Deadline::after(5s), lent).has_value());
    { const auto lease = pool->lease(Deadline::after(5s)); }
    {
        const auto borrowed = pool->lease_idle(Deadline::after(5s), lent);
        ASSERT_TRUE(borrowed.has_value());
        EXPECT_TRUE(lent.load());
        EXPECT_TRUE(succeeded(pool->lease(Deadline::after(5s))));
        EXPECT_FALSE(pool->lease_idle(Deadline::after(5s), lent).has_value())
            << "the last one is for writers";
    }
    EXPECT_FALSE(lent.load());
    EXPECT_EQ(server.open(), 2);
}

// Callers of all kinds, sessions that end, and room that comes and goes.
TEST(PoolTest, WhateverHappensEveryCallerIsServedAndTheBoundHolds) {
    SmallServer server{3};
    const auto pool = make_pool(server, 6, 1ms);
    std::atomic<int> served{0};
    std::atomic<bool> over{false};
    std::jthread weather{[&] {
        while (!over.load()) {
            server.set_room(1 + static_cast<int>(thread_random().below(5)));
            std::this_thread::sleep_for(1ms);
        }
    }};
    at_once(10, [&](int) {
        for (int i = 0; i < 60; ++i) {
            const bool hasty = thread_random().below(4) == 0;
            auto lease = pool->lease(Deadline::after(hasty ? 1ms : 60s));
            if (hasty && !lease) continue;
            ASSERT_TRUE(succeeded(lease));
            if (thread_random().below(5) == 0) {
                static_cast<SmallServer::Session&>(**lease).lost = true;
            }
            if (thread_random().below(3) == 0) std::this_thread::sleep_for(300us);
            served.fetch_add(1);
        }
    });
    over.store(true);
    EXPECT_GT(served.load(), 300);
    pool->stop();
    EXPECT_EQ(server.open(), 0);
}

}  // namespace
}  // namespace hotcount::sql

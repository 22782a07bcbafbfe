// Random schedules of calls, replies and broken connections against the multiplexer.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "multiplexer_fixture.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

// Random calls against a server that is a map, over connections that break anywhere. What callers
// are told must agree with the map.
void check_random_schedule(unsigned seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 draw{seed};
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
    Options options;
    Multiplexer multiplexer{options};
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
                multiplexer.push(operation);
                calls.push_back({operation, key, n});
                break;
            }
            case 3:
            case 4: {
                std::string bytes = multiplexer.take();
                const std::size_t taken = bytes.empty() ? 0 : below(bytes.size() + 1);
                wire += bytes.substr(0, taken);
                multiplexer.put_back_unsent(bytes.substr(taken));
                break;
            }
            case 5:
            case 6:
                serve();
                for (std::size_t some = below(replies.size() + 1); some > 0; --some) {
                    ASSERT_TRUE(multiplexer.settle(std::move(replies.front()),
                                                   std::chrono::steady_clock::now()));
                    replies.erase(replies.begin());
                }
                break;
            default:
                if (below(6) > 0) break;
                serve();  // What has arrived is run; its replies, and half a command, are lost.
                wire.clear();
                replies.clear();
                multiplexer.lost(make_error(ErrorCode::unavailable, "lost"), true);
                multiplexer.connected();
        }
    }
    while (multiplexer.has_to_send() || multiplexer.in_flight() > 0) {
        wire += multiplexer.take();
        serve();
        while (!replies.empty()) {
            ASSERT_TRUE(
                multiplexer.settle(std::move(replies.front()), std::chrono::steady_clock::now()));
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

TEST(MultiplexerSchedules, EveryCallerIsToldWhatTheServerDid) {
    for (unsigned seed = 0; seed < 2000 && !::testing::Test::HasFailure(); ++seed) {
        check_random_schedule(seed);
    }
}

}  // namespace
}  // namespace hotcount::redis

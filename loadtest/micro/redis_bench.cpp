// The cost of a command without the socket: encoding, combining, and parsing of the replies that
// counters get.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "redis/commands.hpp"
#include "redis/multiplexer.hpp"
#include "redis/reply_reader.hpp"

namespace {

using hotcount::redis::encode_add;
using hotcount::redis::encode_command;
using hotcount::redis::Reply;
using hotcount::redis::ReplyArray;
using hotcount::redis::ReplyReader;
using hotcount::redis::Request;
using hotcount::redis::Script;

constexpr std::int64_t kCalls = 64;

void encode_an_add(benchmark::State& state) {
    const std::string key = "count:user:12345";
    std::string out;
    for (auto _ : state) {
        out.clear();  // The string keeps its memory, as a connection's buffer does.
        encode_add(out, key, 5);
        benchmark::DoNotOptimize(out.data());
    }
    state.SetItemsProcessed(state.iterations());
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(out.size()));
}
BENCHMARK(encode_an_add);

void encode_a_script_call(benchmark::State& state) {
    const std::string sha1(40, 'a');
    const std::string_view command[] = {
        "EVALSHA",   sha1, "1",   "limit:default:gcra:100/minute:user:12345",
        "600000000", "1",  "100", "0"};
    std::string out;
    for (auto _ : state) {
        out.clear();
        encode_command(out, command);
        benchmark::DoNotOptimize(out.data());
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(encode_a_script_call);

void encode_a_batch_of_adds(benchmark::State& state) {
    std::string out;
    for (auto _ : state) {
        out.clear();
        for (std::int64_t i = 0; i < state.range(0); ++i) {
            const std::string key = "count:user:" + std::to_string(10'000 + i);
            encode_add(out, key, 1);
        }
        benchmark::DoNotOptimize(out.data());
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(encode_a_batch_of_adds)->Arg(100)->Arg(1000);

// Feeds `replies` as a socket does: as many bytes at a time as the reader has room for.
void parse(benchmark::State& state, std::string_view replies, std::int64_t count) {
    ReplyReader reader{std::size_t{16} << 20};
    for (auto _ : state) {
        std::int64_t parsed = 0;
        for (std::string_view left = replies; !left.empty();) {
            const std::span<char> room = reader.room();
            const std::string_view some = left.substr(0, room.size());
            std::memcpy(room.data(), some.data(), some.size());
            left.remove_prefix(some.size());
            reader.add(some.size());
            while (true) {
                auto reply = reader.next();
                if (!reply) {
                    state.SkipWithError("not a valid reply");
                    return;
                }
                if (!*reply) break;
                benchmark::DoNotOptimize((*reply)->value);
                ++parsed;
            }
        }
        if (parsed != count) {
            state.SkipWithError("some replies are missing");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * count);
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(replies.size()));
}

void parse_integers(benchmark::State& state) {
    std::string replies;
    for (std::int64_t i = 0; i < state.range(0); ++i) {
        replies += ":" + std::to_string(1'000'000 + i) + "\r\n";
    }
    parse(state, replies, state.range(0));
}
BENCHMARK(parse_integers)->Arg(1)->Arg(100)->Arg(10'000);

void parse_values_of_get(benchmark::State& state) {
    std::string replies;
    for (std::int64_t i = 0; i < state.range(0); ++i) {
        const std::string value = std::to_string(1'000'000 + i);
        replies += "$" + std::to_string(value.size()) + "\r\n" + value + "\r\n";
    }
    parse(state, replies, state.range(0));
}
BENCHMARK(parse_values_of_get)->Arg(1)->Arg(100);

void parse_arrays_of_integers(benchmark::State& state) {
    constexpr std::int64_t kArrays = 100;
    std::string replies;
    for (std::int64_t i = 0; i < kArrays; ++i) {
        replies += "*" + std::to_string(state.range(0)) + "\r\n";
        for (std::int64_t j = 0; j < state.range(0); ++j) {
            replies += ":" + std::to_string(1'000 + j) + "\r\n";
        }
    }
    parse(state, replies, kArrays);
}
BENCHMARK(parse_arrays_of_integers)->Arg(4)->Arg(400);

void parse_a_bulk_string(benchmark::State& state) {
    const auto size = static_cast<std::size_t>(state.range(0));
    const std::string reply = "$" + std::to_string(size) + "\r\n" + std::string(size, 'x') + "\r\n";
    parse(state, reply, 1);
}
BENCHMARK(parse_a_bulk_string)->Arg(1'000)->Arg(10'000'000);

// Takes 64 calls at once from the queue to the wire, and their replies back, over `keys` keys.
void combine(benchmark::State& state, const auto& request_of, const auto& reply_to) {
    const hotcount::redis::Options options;
    hotcount::redis::Multiplexer multiplexer{options};
    const auto keys = state.range(0);
    const auto deadline = hotcount::Deadline::after(std::chrono::hours{1});
    for (auto _ : state) {
        for (std::int64_t i = 0; i < kCalls; ++i) {
            multiplexer.push(std::make_shared<hotcount::redis::Operation>(
                request_of("count:user:" + std::to_string(i % keys)), deadline));
        }
        benchmark::DoNotOptimize(multiplexer.take());
        const auto now = std::chrono::steady_clock::now();
        while (multiplexer.in_flight() > 0) multiplexer.settle(reply_to(keys), now);
        benchmark::DoNotOptimize(multiplexer.take_finished());
    }
    state.SetItemsProcessed(state.iterations() * kCalls);
}

void combine_adds(benchmark::State& state) {
    combine(
        state, [](std::string key) { return Request::add(std::move(key), 1); },
        [](std::int64_t) { return Reply{std::int64_t{1'000}}; });
}
BENCHMARK(combine_adds)->Arg(1)->Arg(8)->Arg(64);

void combine_script_calls(benchmark::State& state) {
    static const Script script{"return 1", Script::Kind::combinable};
    constexpr std::string_view kShared[] = {"60000"};
    constexpr std::string_view kArguments[] = {"1"};
    combine(
        state,
        [&](const std::string& key) {
            const std::string_view keys[] = {key};
            return Request::run(script, keys, kShared, kArguments);
        },
        [](std::int64_t) { return Reply{ReplyArray(kCalls, Reply{std::int64_t{1}})}; });
}
BENCHMARK(combine_script_calls)->Arg(1)->Arg(64);

}  // namespace

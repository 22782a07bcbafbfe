// What a command costs on its way to Redis and back, without the socket: encoding, and parsing of
// the replies that counters get.
#include <benchmark/benchmark.h>
#include <hiredis/hiredis.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "redis/encode.hpp"

namespace {

using hotcount::redis::encode_command;

void encode_an_add(benchmark::State& state) {
    const std::string key = "count:user:12345";
    std::string out;
    for (auto _ : state) {
        out.clear();  // Its memory stays, as that of a lane does.
        const std::string amount = std::to_string(1);
        const std::string_view command[] = {"INCRBY", key, amount};
        encode_command(out, command);
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

void encode_a_pipeline_of_adds(benchmark::State& state) {
    std::string out;
    for (auto _ : state) {
        out.clear();
        for (std::int64_t i = 0; i < state.range(0); ++i) {
            const std::string key = "count:user:" + std::to_string(10'000 + i);
            const std::string_view command[] = {"INCRBY", key, "1"};
            encode_command(out, command);
        }
        benchmark::DoNotOptimize(out.data());
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(encode_a_pipeline_of_adds)->Arg(100)->Arg(1000);

struct FreeReader {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
};

// `replies` in slices as a socket gives them, which must not be what takes the time.
void parse(benchmark::State& state, std::string_view replies, std::int64_t count) {
    constexpr std::size_t kSliceBytes = 16 * 1024;
    const std::unique_ptr<redisReader, FreeReader> reader{redisReaderCreate()};
    for (auto _ : state) {
        std::int64_t parsed = 0;
        for (std::string_view left = replies; !left.empty();) {
            const std::string_view slice = left.substr(0, kSliceBytes);
            left.remove_prefix(slice.size());
            redisReaderFeed(reader.get(), slice.data(), slice.size());
            while (true) {
                void* reply = nullptr;
                if (redisReaderGetReply(reader.get(), &reply) != REDIS_OK) {
                    state.SkipWithError("not a valid reply");
                    return;
                }
                if (reply == nullptr) break;
                benchmark::DoNotOptimize(static_cast<redisReply*>(reply)->integer);
                freeReplyObject(reply);
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

}  // namespace

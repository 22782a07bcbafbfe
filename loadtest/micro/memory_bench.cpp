// The memory store and what Counter costs on top of it.
#include <benchmark/benchmark.h>

#include <hotcount/counter.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <string>
#include <vector>

namespace {

using namespace hotcount;

std::shared_ptr<Counter> shared_counter() {
    static const auto counter = *Counter::make(*memory::Store::make());
    return counter;
}

void add_one_hot_key(benchmark::State& state) {
    const auto counter = shared_counter();
    for (auto _ : state) benchmark::DoNotOptimize(counter->add("hot"));
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(add_one_hot_key)->ThreadRange(1, 8)->UseRealTime();

void add_many_keys(benchmark::State& state) {
    const auto counter = shared_counter();
    std::vector<std::string> keys;
    for (int i = 0; i < 10'000; ++i) keys.push_back("user:" + std::to_string(i));
    Random random{static_cast<std::uint64_t>(state.thread_index()) + 1};
    for (auto _ : state) benchmark::DoNotOptimize(counter->add(keys[random.below(keys.size())]));
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(add_many_keys)->ThreadRange(1, 8)->UseRealTime();

void compose_full_key(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(full_key("app:", "count", "user:12345"));
}
BENCHMARK(compose_full_key);

void encode_a_tuple_key(benchmark::State& state) {
    const std::string_view parts[] = {"api", "user:12345", "/v1/items"};
    for (auto _ : state) benchmark::DoNotOptimize(encode_parts(parts));
}
BENCHMARK(encode_a_tuple_key);

}  // namespace

// Callers in threads, and a store in memory with a clock of the test's.
#pragma once

#include <hotcount/memory.hpp>
#include <thread>
#include <vector>

namespace hotcount::testing {

/// Runs work(0) to work(count - 1), each in a thread of its own, and waits for all of them.
template <class Index, class Work>
void in_threads(Index count, const Work& work) {
    std::vector<std::thread> threads;
    for (Index index{}; index < count; ++index) {
        threads.emplace_back([&work, index] { work(index); });
    }
    for (std::thread& thread : threads) thread.join();
}

inline std::shared_ptr<memory::Store> memory_store(
    std::shared_ptr<const Clock> clock, std::size_t max_keys = memory::StoreOptions{}.max_keys) {
    memory::StoreOptions options;
    options.clock = std::move(clock);
    options.max_keys = max_keys;
    return *memory::Store::make(options);
}

}  // namespace hotcount::testing

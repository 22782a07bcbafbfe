// Threads that share the work of the thread that starts them, such as the pages of one round.
//
// If the starting thread is interrupted while it waits for them (interrupt.hpp), they are interrupted too:
// a round that is abandoned ends within kInterruptSlice, however long their servers stand still.
// For one thread. The destructor joins.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hotcount {

class HelperThreads {
  public:
    HelperThreads() = default;
    HelperThreads(const HelperThreads&) = delete;
    HelperThreads& operator=(const HelperThreads&) = delete;
    ~HelperThreads() { join(); }

    /// False if the system starts no more threads: those that there are do the work. `work` must not
    /// throw.
    bool start(std::function<void()> work);
    /// Waits for the end of each work.
    void join();

  private:
    std::atomic<bool> interrupted_{false};
    std::mutex mutex_{};
    std::condition_variable ended_{};
    std::size_t running_{0};
    std::vector<std::thread> threads_{};
};

}  // namespace hotcount

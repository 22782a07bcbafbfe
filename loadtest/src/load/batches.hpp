// Calls that travel in batches: so many operations are one call of the driver below.
//
// Operations come without waiting, from the closed loop that has `threads` batches under way. A thread
// takes a batch as soon as it is full, or what there is when no more has come for a while, as at the
// end of the load.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driver.hpp"

namespace hotcount::loadtest {

class Batches final : public Driver {
  public:
    Batches(Driver& inner, std::size_t batch, std::uint32_t threads);
    ~Batches() override;

    Answer apply(const Operation& operation) override { return inner_.apply(operation); }
    void start(const Operation& operation, Done done) override;

  private:
    using Waiting = std::pair<Operation, Done>;

    void work();
    std::vector<Waiting> take();

    Driver& inner_;
    const std::size_t batch_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Waiting> waiting_;
    bool ended_{false};
    std::vector<std::thread> threads_;
};

}  // namespace hotcount::loadtest

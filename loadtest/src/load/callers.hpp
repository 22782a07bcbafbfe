// The layers between the load and a strategy's driver: caller processes, batches, and callers that
// are slower on purpose.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driver.hpp"
#include "processes.hpp"
#include "runner.hpp"
#include "settings.hpp"

namespace hotcount::loadtest {

/// Calls in batches: `batch` operations are one call of the inner driver.
///
/// Operations come without waiting, from the closed loop that has `threads` batches in flight. A
/// thread takes a batch as soon as it is full. If no operation comes for a while, as at the end of
/// the load, the thread takes a partial batch.
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

/// A driver that is slower than the one below it by a known share, to see whether a comparison would
/// find such a difference.
///
/// Each thread waits after its calls until it has lost `share` of its time. Threads call it; it does
/// nothing for calls that are answered by completions.
class SlowedDriver final : public Driver {
  public:
    /// share: 0 to less than 1.
    SlowedDriver(Driver& inner, double share) : inner_(inner), owed_per_s_(share / (1 - share)) {}

    Answer apply(const Operation& operation) override;
    std::vector<Answer> apply_many(std::span<const Operation> operations) override;
    void start(const Operation& operation, Done done) override {
        inner_.start(operation, std::move(done));
    }

  private:
    void wait() const;

    Driver& inner_;
    double owed_per_s_;  ///< Seconds to wait for each second in and between calls.
};

/// The load that a trial's settings ask for.
LoadSettings load_settings(const TrialSettings& settings, UnvoteValue unvote);

class Callers {
  public:
    /// Returns when all processes are forked and have called `driver` once, so that no first call
    /// falls into the load. `driver` must outlive this.
    static Result<Callers> start(const TrialSettings& settings, Driver& driver);

    Driver& driver() { return *driver_; }
    /// Ends the callers after the load. Returns the kills and stalls of processes.
    Processes::Faults stop();

  private:
    explicit Callers(Driver& driver) : driver_(&driver) {}

    Driver* driver_;
    std::unique_ptr<Processes> processes_{};
    std::unique_ptr<Batches> batches_{};  // Last: it calls the processes.
};

}  // namespace hotcount::loadtest

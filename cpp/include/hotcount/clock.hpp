// Time as a parameter: a Clock tells the time, and a Deadline bounds how long a call may wait.
//
// Expiry and timestamps use a Clock, which tests replace by a ManualClock. A Deadline bounds real
// waiting, so it always runs on the machine's monotonic clock. Both are thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

namespace hotcount {

using Duration = std::chrono::nanoseconds;
using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

/// A call's time limit. nullopt: the store's default. No call waits for ever.
using Timeout = std::optional<Duration>;

/// The source of the time. Implementations are thread-safe.
class Clock {
  public:
    virtual ~Clock() = default;
    virtual SteadyTime steady_now() const = 0;  ///< Monotonic; for expiry.
    virtual WallTime wall_now() const = 0;      ///< UTC; for timestamps that people read.
};

/// The machine's clocks.
const std::shared_ptr<const Clock>& system_clock();

/// A clock that moves only by advance(). For tests.
class ManualClock final : public Clock {
  public:
    SteadyTime steady_now() const override;
    WallTime wall_now() const override;
    void advance(Duration by);

  private:
    mutable std::mutex mutex_;
    Duration elapsed_{std::chrono::hours{24}};
};

/// The moment by which a call must have returned.
class Deadline {
  public:
    static Deadline after(Duration duration);
    static Deadline at(SteadyTime time) { return Deadline{time}; }

    SteadyTime time() const { return time_; }
    bool passed() const;         ///< Also true if the thread is interrupted (interrupt.hpp).
    Duration remaining() const;  ///< Never negative; 0 once passed.

  private:
    explicit Deadline(SteadyTime time) : time_(time) {}
    SteadyTime time_;
};

}  // namespace hotcount

// Drivers that answer without a strategy behind them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "load/driver.hpp"

namespace hotcount::loadtest {

/// Acknowledges everything at once: what is left is the generator's own cost.
class NoopDriver final : public Driver {
  public:
    Answer apply(const Operation&) override { return {}; }
};

/// Takes its time.
class SlowDriver final : public Driver {
  public:
    explicit SlowDriver(std::chrono::microseconds each) : each_(each) {}
    Answer apply(const Operation&) override {
        std::this_thread::sleep_for(each_);
        return {};
    }

  private:
    std::chrono::microseconds each_;
};

/// Answers at once, but for one call that takes long.
class StallingDriver final : public Driver {
  public:
    StallingDriver(std::uint64_t at, std::chrono::milliseconds stall) : at_(at), stall_(stall) {}
    Answer apply(const Operation&) override {
        if (calls_.fetch_add(1) == at_) std::this_thread::sleep_for(stall_);
        return {};
    }

  private:
    std::uint64_t at_;
    std::chrono::milliseconds stall_;
    std::atomic<std::uint64_t> calls_{0};
};

/// Of ten calls, the first is refused and the second unknown.
class FailingDriver final : public Driver {
  public:
    Answer apply(const Operation&) override {
        switch (calls_.fetch_add(1) % 10) {
            case 0:
                return {Outcome::failed, ErrorCode::deadline};
            case 1:
                return {Outcome::unknown, ErrorCode::outcome_unknown};
            default:
                return {};
        }
    }

  private:
    std::atomic<std::uint64_t> calls_{0};
};

}  // namespace hotcount::loadtest

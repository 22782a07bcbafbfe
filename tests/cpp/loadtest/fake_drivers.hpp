// Drivers that answer without a strategy behind them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

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

/// Answers from a thread of its own, when `together` calls wait or no more come.
class LateDriver final : public Driver {
  public:
    explicit LateDriver(std::size_t together) : together_(together) {}
    Answer apply(const Operation&) override { return {Outcome::failed, ErrorCode::closed}; }
    void start(const Operation&, Done done) override {
        std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(done));
        most_ = std::max(most_, waiting_.size());
        if (waiting_.size() == together_) enough_.notify_one();
    }
    /// The most calls that waited at once.
    std::size_t most() const { return most_; }

  private:
    void answer(const std::stop_token& over) {
        for (std::size_t before = 0; !over.stop_requested();) {
            std::unique_lock lock(mutex_);
            const auto enough = [&] { return waiting_.size() >= together_; };
            const bool came = enough_.wait_for(lock, over, std::chrono::seconds{2}, enough);
            // Fewer calls are the last ones if none has come for 2 s.
            if (!came && waiting_.size() != before) {
                before = waiting_.size();
                continue;
            }
            std::vector<Done> answered;
            answered.swap(waiting_);
            before = 0;
            lock.unlock();
            for (const Done& done : answered) done({});
        }
    }

    std::size_t together_;
    std::mutex mutex_{};
    std::condition_variable_any enough_{};
    std::vector<Done> waiting_{};
    std::size_t most_{0};
    std::jthread thread_{[this](const std::stop_token& over) { answer(over); }};
};

}  // namespace hotcount::loadtest

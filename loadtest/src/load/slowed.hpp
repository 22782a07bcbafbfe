// A driver that is slower than the one below it by a known share, to see whether a comparison would
// find such a difference.
#pragma once

#include "driver.hpp"

namespace hotcount::loadtest {

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
    double owed_per_s_;  ///< Of waiting, for each second in and between calls.
};

}  // namespace hotcount::loadtest

// Which rate to try next: the search for the highest one that holds, without the trials.
//
//   ramp      each rate 1.5 times the one before, until one is refused (or downwards until one holds)
//   bisect    between the highest that held and the lowest refused, until they are 3 % apart
//   confirm   the highest that held is tried until it has held three times more; if it is refused,
//             the next lower one, by 3 %, 6 %, 12 % ... of the rate
//
// A rate is refused when it failed twice: a disk that hesitates once does not end the ramp. The same
// holds for confirming, where it may fail once of four times.
#pragma once

#include <cstdint>
#include <optional>

namespace hotcount::loadtest {

class RateSearch {
  public:
    static constexpr double kRamp = 1.5;
    static constexpr double kPrecision = 1.03;
    static constexpr int kConfirmations = 3;
    static constexpr int kMostMisses = 2;
    static constexpr double kLeast = 1;
    static constexpr double kMost = 1e7;

    enum class Phase : std::uint8_t { ramp, bisect, confirm, over };

    /// The first rate to try.
    explicit RateSearch(double from_per_s) : rate_(from_per_s) {}

    /// The rate of the next trial; none: the search is over.
    std::optional<double> next() const;
    /// Whether the trial at that rate held.
    void note(bool held);

    Phase phase() const { return phase_; }
    /// The rate that held three times; 0: none did.
    double confirmed() const { return confirmed_; }
    /// The highest that held at least once, if none is confirmed; 0: none did.
    double held() const { return held_; }
    /// The lowest rate above those that was refused; 0: none was.
    double refused() const { return refused_; }

  private:
    void accept();
    void refuse();
    void choose();

    Phase phase_{Phase::ramp};
    double rate_;
    int hits_{0};  // At this rate, in this phase.
    int misses_{0};
    double held_{0};
    double refused_{0};
    double confirmed_{0};
    double step_{kPrecision - 1};  // Downwards while confirming.
    double fall_{kRamp};           // Downwards while nothing has held.
};

}  // namespace hotcount::loadtest

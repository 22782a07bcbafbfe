#include "slowed.hpp"

#include <algorithm>
#include <chrono>

#include "pacer.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

// A wait takes longer than reading the clock, and is far shorter than a round. So is the time between
// two looks at the clock, which costs as much as a short call.
constexpr double kLeastWaitS = 50e-6;
constexpr double kMostUnseen = 256;
// A sleep ends late: what is longer than this may sleep, and its lateness counts as waited.
constexpr double kLeastSleepS = 1e-3;

/// What a thread owes. A thread calls one driver at a time.
struct Debt {
    const void* of{nullptr};
    SteadyTime since{};
    double s{0};
    double calls{0};  ///< Since the last look at the clock ...
    double look{1};   ///< ... which comes after so many.
};
thread_local Debt debt;

}  // namespace

void SlowedDriver::wait() const {
    if (debt.of == this && ++debt.calls < debt.look) return;
    const SteadyTime now = steady_clock::now();
    if (debt.of != this) debt = {this, now, 0, 1, 1};
    const double spent = duration<double>(now - debt.since).count();
    debt.s += owed_per_s_ * spent;
    debt.since = now;
    if (spent > 0) debt.look = std::clamp(debt.calls * kLeastWaitS / spent, 1.0, kMostUnseen);
    debt.calls = 0;
    if (debt.s < kLeastWaitS) return;
    const SteadyTime until =
        now + std::chrono::duration_cast<steady_clock::duration>(duration<double>(debt.s));
    if (debt.s >= kLeastSleepS) sleep_until(until);
    SteadyTime waited = steady_clock::now();
    while (waited < until) waited = steady_clock::now();
    debt.s -= duration<double>(waited - now).count();
    debt.since = waited;
}

Answer SlowedDriver::apply(const Operation& operation) {
    const Answer answer = inner_.apply(operation);
    wait();
    return answer;
}

std::vector<Answer> SlowedDriver::apply_many(std::span<const Operation> operations) {
    std::vector<Answer> answers = inner_.apply_many(operations);
    wait();
    return answers;
}

}  // namespace hotcount::loadtest

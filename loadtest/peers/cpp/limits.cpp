// hotcount-peers-limits: hits of limits, all of which are admitted. memory: WIDTH threads that hit one
// limiter in memory; PORT says nothing. redis: one thread that keeps WIDTH hits under way.
#include <hotcount/limiter.hpp>
#include <hotcount/memory.hpp>

#include "closed_loop.hpp"

namespace {

using hotcount::Decision;
using hotcount::Limiter;
using peers::value_of;

// Looking at the clock would cost as much as a hit in memory.
constexpr int kAtOnce = 64;

void check(hotcount::Result<Decision> decision) {
    if (!value_of(std::move(decision)).allowed) peers::fail("a hit was not admitted");
}

peers::Outcome run(const peers::Settings& settings) {
    hotcount::LimiterOptions wide;
    wide.rates = {value_of(hotcount::Rate::parse("1000000000/minute"))};
    if (settings.mode == "memory") {
        const auto limiter =
            value_of(Limiter::make(value_of(hotcount::memory::Store::make()), wide));
        return peers::by_threads(settings, kAtOnce,
                                 [&](const std::string& key) { check(limiter->hit(key)); });
    }
    const auto client = peers::connect(settings);
    const auto limiter = value_of(Limiter::make(client, wide));
    return peers::by_completions(settings, *client, [&](const std::string& key, auto done) {
        limiter->hit_async(key, 1, [done](hotcount::Result<Decision> decision) {
            check(std::move(decision));
            done();
        });
    });
}

}  // namespace

int main(int count, char** words) {
    return peers::run_program(count, words, "hotcount-peers-limits", "memory", "redis", run);
}

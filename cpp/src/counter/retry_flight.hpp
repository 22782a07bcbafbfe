// What the two files of RetryEngine have in common.
#pragma once

#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <string>
#include <vector>

#include "retry_engine.hpp"

namespace hotcount {

namespace retry {

inline SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

inline Error unknown(const std::string& key, const std::string& why) {
    return make_error(ErrorCode::outcome_unknown, "the add to " + printable(key) +
                                                      " was sent and not answered, and " + why +
                                                      "; it is counted once or not at all")
        .about(&ErrorFacts::key, key);
}

}  // namespace retry

// One call of the script under way, or of TIME.
struct RetryEngine::Flight {
    std::vector<UnsettledAdd> adds;
    bool replay{false};
    bool clock{false};
    SteadyTime begun{retry::steady_now()};
    Result<redis::Reply> outcome{redis::Reply{}};
    SteadyTime ended{};
    std::atomic<bool> finished{false};
};

}  // namespace hotcount

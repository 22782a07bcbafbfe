// Limiters by plain commands: the ways of the Redis documentation's INCR page, holes included, and a
// list in one script. The library has none of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "checkers/limiter_checker.hpp"
#include "load/driver.hpp"

namespace hotcount::loadtest {

struct PlainLimiter {
    std::string_view name;
    std::string_view promise;  ///< "a hit is admitted (...): ".
    Windows windows;
    bool racy;  ///< It may admit more than its limit and refuse for ever.

    bool on_callers_clock() const { return windows == Windows::clock; }
};
/// Null: the library has this way.
const PlainLimiter* plain_limiter(std::string_view way);
/// A period of whole seconds without a burst; per_second_key takes 1 second.
Result<void> check_plain_limit(const PlainLimiter& way, const Rate& rate);

class PlainLimiterDriver final : public Driver {
  public:
    PlainLimiterDriver(std::shared_ptr<redis::Client> client, const PlainLimiter& way, Rate rate,
                       Timeout timeout)
        : client_(std::move(client)), way_(way), rate_(rate), timeout_(timeout) {}
    Answer apply(const Operation& operation) override;

  private:
    Result<std::int64_t> ask(const std::vector<std::string_view>& words, Deadline deadline) const;
    Result<bool> hit(const std::string& key, bool take) const;

    const std::shared_ptr<redis::Client> client_;
    const PlainLimiter& way_;
    const Rate rate_;
    const Timeout timeout_;
};

}  // namespace hotcount::loadtest

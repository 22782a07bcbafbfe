// Rate: so many in so long, read from text.
//
//   "100/minute"   "5/s"   "10/2 hours"   "100/min burst 20"
//
// Units: us ms s m h d; sec min hr and the full words, each with a plural.
#pragma once

#include <chrono>
#include <cstdint>
#include <hotcount/result.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

struct Rate {
    static constexpr std::int64_t kMaxLimit = 1'000'000'000'000;
    static constexpr std::chrono::microseconds kMaxPeriod = std::chrono::hours{24 * 366};

    std::int64_t limit{1};                                      ///< How many, 1 to kMaxLimit.
    std::chrono::microseconds period{std::chrono::seconds{1}};  ///< In how long, 1 ms to 366 days.
    /// How many an idle key admits at once where the algorithm is a bucket; equal to limit unless
    /// said otherwise. Windows admit `limit` and take no other burst.
    std::int64_t burst{1};

    /// One rate; text that is none is a config error that quotes it.
    static Result<Rate> parse(std::string_view text);
    /// Several, separated by ";".
    static Result<std::vector<Rate>> parse_many(std::string_view text);
    /// The text that every spelling of this rate comes to: "100/minute burst 20", "10/2 hours".
    std::string str() const;

    bool operator==(const Rate&) const = default;
};

/// A config error where a number is outside of what the comments above say.
Result<void> check_rate(const Rate& rate);

}  // namespace hotcount

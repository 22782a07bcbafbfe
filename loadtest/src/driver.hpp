// The side of a strategy that the load drives: one blocking call per operation.
//
// Tests put broken drivers here, to see that the audit catches them.
#pragma once

#include <cstdint>
#include <hotcount/counter/counter.hpp>
#include <hotcount/votes/votes.hpp>
#include <memory>
#include <optional>

#include "workload.hpp"

namespace hotcount::loadtest {

enum class Outcome : std::uint8_t {
    ok,       ///< Acknowledged.
    failed,   ///< Certainly not applied.
    unknown,  ///< Applied or not.
};

struct Answer {
    Outcome outcome{Outcome::ok};
    std::optional<ErrorCode> error{};
};

class Driver {
  public:
    virtual ~Driver() = default;
    /// Called by many threads at once.
    virtual Answer apply(const Operation& operation) = 0;
};

/// Votes: vote casts 1, unvote casts 0, read counts.
class VotesDriver final : public Driver {
  public:
    VotesDriver(std::shared_ptr<Votes> votes, Timeout timeout)
        : votes_(std::move(votes)), timeout_(timeout) {}
    Answer apply(const Operation& operation) override;

  private:
    std::shared_ptr<Votes> votes_;
    Timeout timeout_;
};

/// Counters: vote adds 1 to the item's key, unvote adds -1, read gets.
class CounterDriver final : public Driver {
  public:
    CounterDriver(std::shared_ptr<Counter> counter, Timeout timeout)
        : counter_(std::move(counter)), timeout_(timeout) {}
    Answer apply(const Operation& operation) override;
    /// The item's count, for the audit.
    Result<std::int64_t> value(std::int64_t item);

  private:
    std::shared_ptr<Counter> counter_;
    Timeout timeout_;
};

}  // namespace hotcount::loadtest

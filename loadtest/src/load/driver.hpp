// The side of a strategy that the load drives: one blocking call per operation.
//
// Tests put broken drivers here, to see that the audit catches them.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/counter.hpp>
#include <hotcount/limiter.hpp>
#include <hotcount/live_sets.hpp>
#include <hotcount/retry_queue.hpp>
#include <hotcount/slotted_counter.hpp>
#include <hotcount/votes.hpp>
#include <hotcount/write_behind_counter.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ledger.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {

enum class Outcome : std::uint8_t {
    ok,       ///< Acknowledged.
    failed,   ///< Not applied.
    unknown,  ///< Sent, and applied or not.
};

std::string_view to_string(Outcome outcome);

struct Answer {
    Outcome outcome{Outcome::ok};
    std::optional<ErrorCode> error{};
    /// Acknowledged as refused: a limiter's denial, an upsert into no set. Nothing was applied.
    bool refused{false};
    /// The answer to the caller, as a LedgerRecord keeps it: bits of namespace said, ...
    std::uint8_t said{0};
    std::int32_t now{0};  ///< ... a cast's vote after it, ...
    std::int64_t returned{
        0};  ///< ... and the number: a count, a value, a limiter's yes, an Upsert.

    /// A read's count or value, or the value after an add.
    void tell(std::int64_t number) {
        said |= said::kNumber;
        returned = number;
    }
    /// The user's vote before the cast and after it.
    void tell_cast(std::int64_t previous, std::int64_t value, bool changed, bool counted);
};

/// The ledger's answer for a call that returned a number, and for one that admitted or refused a hit.
Answer answer_of(const Result<std::int64_t>& number);
Answer answer_of(const Result<bool>& admitted);

class Driver {
  public:
    using Done = std::function<void(const Answer&)>;

    virtual ~Driver() = default;
    /// Called by many threads at once.
    virtual Answer apply(const Operation& operation) = 0;
    /// Several in one call, where the library has one; the answers in their order.
    virtual std::vector<Answer> apply_many(std::span<const Operation> operations);
    /// apply() without waiting: `done` gets the answer, in any thread, perhaps before this returns.
    virtual void start(const Operation& operation, Done done) { done(apply(operation)); }
    /// The error after which no call can succeed, so that the load ends; empty: the load goes on.
    /// Called from one thread.
    virtual std::optional<Error> broken() const { return std::nullopt; }
};

/// Votes: vote casts 1, unvote casts 0, read counts.
class VotesDriver final : public Driver {
  public:
    VotesDriver(std::shared_ptr<Votes> votes, Timeout timeout)
        : votes_(std::move(votes)), timeout_(timeout) {}
    Answer apply(const Operation& operation) override;
    void start(const Operation& operation, Done done) override;

  private:
    std::shared_ptr<Votes> votes_;
    Timeout timeout_;
};

/// Counters: vote adds 1 to the item's key, unvote adds -1, read gets.
std::unique_ptr<Driver> make_driver(std::shared_ptr<Counter> counter, Timeout timeout);
/// Over a counter with a queue: a queued add is acknowledged without a value. `counter` reads.
std::unique_ptr<Driver> make_driver(std::shared_ptr<RetryingCounter> retrying,
                                    std::shared_ptr<Counter> counter, Timeout timeout);
/// Over rows of a table, and over a counter that is written behind: an add returns no value.
std::unique_ptr<Driver> make_driver(std::shared_ptr<SlottedCounter> counter, Timeout timeout);
std::unique_ptr<Driver> make_driver(std::shared_ptr<WriteBehindCounter> views, Ack ack,
                                    Timeout timeout);

/// Limiter: vote hits the item's key, read looks at it. There is no unvote.
class LimiterDriver final : public Driver {
  public:
    LimiterDriver(std::shared_ptr<Limiter> limiter, Timeout timeout)
        : limiter_(std::move(limiter)), timeout_(timeout) {}
    Answer apply(const Operation& operation) override;

  private:
    std::shared_ptr<Limiter> limiter_;
    Timeout timeout_;
};

/// Sorted sets: vote upserts the user with the operation's value for a score into the item's set,
/// unvote removes the user, read gets the first ten.
class SetsDriver : public Driver {
  public:
    SetsDriver(std::shared_ptr<LiveSets> sets, Timeout timeout)
        : sets_(std::move(sets)), timeout_(timeout) {}
    Answer apply(const Operation& operation) override;
    std::vector<Answer> apply_many(std::span<const Operation> operations) override;

  protected:
    virtual Result<Upsert> upsert(const UpsertItem& item);
    virtual Result<std::vector<Result<Upsert>>> upsert_many(std::span<const UpsertItem> items);
    Timeout timeout() const { return timeout_; }

  private:
    std::shared_ptr<LiveSets> sets_;
    Timeout timeout_;
};

/// The drivers' names of an item, and of a user in a set.
std::string item_key(std::int64_t item);
std::string member_name(std::int64_t user);

}  // namespace hotcount::loadtest

// Ways of the seeds that the library does not have, over plain commands: counters, limiters and sets.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkers/store_checkers.hpp"
#include "load/driver.hpp"

namespace hotcount::loadtest {

/// Adds to counters with a TTL.
///
///   incr          INCRBY, then PEXPIRE if the value is that of a first add
///   set_nx_none   SET NX PX, then INCRBY
///   set_nx_first  ... then PEXPIRE if the value is that of a first add
///   set_nx_ttl    ... then PTTL, and PEXPIRE if there is none
///   set_nx_both   ... then both
///
/// RACY, all of them: a caller that dies, or a key that expires, between two commands leaves a key that
/// never expires.
class PlainCounterDriver final : public Driver {
  public:
    /// `reads` answers the reads.
    PlainCounterDriver(std::unique_ptr<Driver> reads, std::shared_ptr<redis::Client> client,
                       std::string way, Duration ttl, Timeout timeout);
    Answer apply(const Operation& operation) override;

  private:
    Result<std::int64_t> add(const std::string& key, std::int64_t n) const;

    const std::unique_ptr<Driver> reads_;
    const std::shared_ptr<redis::Client> client_;
    const std::string way_;
    const std::string ttl_ms_;
    const Timeout timeout_;
};

/// The ways of the Redis documentation's INCR page, holes included, and a list in one script.
struct PlainLimiter {
    std::string_view name;
    std::string_view promise;  ///< "a hit is admitted (...): ".
    Windows windows;

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

/// Upserts into sorted sets.
///
///   exists_then_add     EXISTS, then ZADD                       RACY: a set that expires in between
///   unguarded_pipeline  EXISTS and ZADD in one pipeline         WRONG: it adds in any case
///   watch               WATCH, PTTL, then MULTI, ZADD, EXEC     again while the set changes
enum class PlainWay : std::uint8_t { exists_then_add, unguarded_pipeline, watch };
/// Empty: the way of a sorted set is the library's.
std::optional<PlainWay> plain_way(std::string_view way);

class PlainSetsDriver final : public SetsDriver {
  public:
    /// `sets` reads and removes. `gate`: for watch.
    PlainSetsDriver(std::shared_ptr<redis::Client> client, std::shared_ptr<LiveSets> sets,
                    PlainWay way, Duration gate, Timeout timeout)
        : SetsDriver(std::move(sets), timeout),
          client_(std::move(client)),
          way_(way),
          gate_(gate) {}

  private:
    using Upserts = std::vector<Result<Upsert>>;

    Result<Upsert> upsert(const UpsertItem& item) override;
    Result<Upserts> upsert_many(std::span<const UpsertItem> items) override;
    Result<Upsert> watch_and_add(const UpsertItem& item, Deadline deadline);
    Result<std::shared_ptr<redis::Client>> take_client();

    const std::shared_ptr<redis::Client> client_;
    const PlainWay way_;
    const Duration gate_;
    std::mutex mutex_{};
    std::vector<std::shared_ptr<redis::Client>> idle_{};  // WATCH is a state of a connection.
};

}  // namespace hotcount::loadtest

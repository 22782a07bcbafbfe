// Adds to counters with a TTL by plain commands: ways of the seeds that the library does not have.
//
//   incr          INCRBY, then PEXPIRE if the value is that of a first add
//   set_nx_none   SET NX PX, then INCRBY
//   set_nx_first  ... then PEXPIRE if the value is that of a first add
//   set_nx_ttl    ... then PTTL, and PEXPIRE if there is none
//   set_nx_both   ... then both
//
// RACY, all of them: a caller that dies, or a key that expires, between two commands leaves a key that
// never expires.
#pragma once

#include <memory>
#include <string>

#include "load/driver.hpp"

namespace hotcount::loadtest {

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

}  // namespace hotcount::loadtest

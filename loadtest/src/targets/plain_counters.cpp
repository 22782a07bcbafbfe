#include "plain_counters.hpp"

#include <chrono>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

namespace hotcount::loadtest {

PlainCounterDriver::PlainCounterDriver(std::unique_ptr<Driver> reads,
                                       std::shared_ptr<redis::Client> client, std::string way,
                                       Duration ttl, Timeout timeout)
    : reads_(std::move(reads)),
      client_(std::move(client)),
      way_(std::move(way)),
      ttl_ms_(std::to_string(std::chrono::ceil<std::chrono::milliseconds>(ttl).count())),
      timeout_(timeout) {}

Answer PlainCounterDriver::apply(const Operation& operation) {
    if (operation.kind == OperationKind::read) return reads_->apply(operation);
    const std::string key = client_->options().prefix + "count:" + item_key(operation.item);
    return answer_of(add(key, operation.kind == OperationKind::vote ? 1 : -1));
}

Result<std::int64_t> PlainCounterDriver::add(const std::string& key, std::int64_t n) const {
    const Deadline deadline = client_->deadline(timeout_);
    const auto ask = [&](std::initializer_list<std::string_view> words) {
        return client_->execute(std::span{words.begin(), words.size()}, deadline.remaining());
    };
    if (way_ != "incr") HOTCOUNT_TRY(ask({"SET", key, "0", "NX", "PX", ttl_ms_}));
    HOTCOUNT_TRY_ASSIGN(const std::int64_t value, client_->add(key, n, deadline.remaining()));
    const bool both = way_ == "set_nx_both";
    const auto compensate = [&]() -> Result<void> {
        if ((way_ == "incr" || way_ == "set_nx_first" || both) && value == n) {
            HOTCOUNT_TRY(ask({"PEXPIRE", key, ttl_ms_}));
        }
        if (way_ != "set_nx_ttl" && !both) return {};
        HOTCOUNT_TRY_ASSIGN(const redis::Reply left, ask({"PTTL", key}));
        if (redis::to_integer(left) == -1) HOTCOUNT_TRY(ask({"PEXPIRE", key, ttl_ms_}));
        return {};
    };
    // The add is counted by now, whatever happens next.
    if (const auto done = compensate(); !done) {
        return make_error(ErrorCode::outcome_unknown, done.error().message);
    }
    return value;
}

}  // namespace hotcount::loadtest

#include "plain_limiters.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "plain_commands.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::string_view kNeverExpires =
    "may over-admit, by one and by one more for each caller racing; a key may be left without a "
    "TTL, and is then denied for ever";

constexpr std::array kWays{
    PlainLimiter{"list",
                 "at most the limit in each window from a first hit, and each caller is remembered",
                 Windows::after_first, false},
    PlainLimiter{
        "per_second_key",
        "may over-admit, by one and by one more for each caller racing, in a second of the "
        "caller's clock",
        Windows::clock, true},
    PlainLimiter{"racy_incr", kNeverExpires, Windows::after_first, true},
    PlainLimiter{"incr_expire", kNeverExpires, Windows::after_first, true},
    PlainLimiter{"racy_list",
                 "may over-admit, by one and by one more for each caller racing; any number pass "
                 "uncounted when the list expires between EXISTS and RPUSHX",
                 Windows::after_first, true}};

// The page's, with the period for its 1 second.
constexpr std::string_view kIncrExpire = R"(local current
current = redis.call("incr",KEYS[1])
if tonumber(current) == 1 then
    redis.call("expire",KEYS[1],ARGV[1])
end)";

// KEYS[1] the callers   ARGV limit, period in seconds, caller, '1' to take   RETURNS 1 if admitted
constexpr std::string_view kList = R"(
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
if ARGV[4] == '1' and redis.call('RPUSH', KEYS[1], ARGV[3]) == 1 then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return 1)";

}  // namespace

const PlainLimiter* plain_limiter(std::string_view way) {
    const auto* const found = std::find_if(
        kWays.begin(), kWays.end(), [&](const PlainLimiter& one) { return one.name == way; });
    return found == kWays.end() ? nullptr : found;
}

Result<void> check_plain_limit(const PlainLimiter& way, const Rate& rate) {
    const auto bad = [&](std::string_view why) {
        return make_error(ErrorCode::config,
                          fmt::format("{} takes {}, not {}", way.name, why, rate.str()));
    };
    HOTCOUNT_TRY(check_rate(rate));
    if (rate.burst != rate.limit) return bad("no burst");
    if (rate.period % std::chrono::seconds{1} != std::chrono::seconds{0}) {
        return bad("a period of whole seconds");
    }
    if (way.on_callers_clock() && rate.period != std::chrono::seconds{1}) {
        return bad("a rate per second");
    }
    return {};
}

Answer PlainLimiterDriver::apply(const Operation& operation) {
    const std::string key = fmt::format("{}limit:{}:{}", client_->options().prefix, way_.name,
                                        item_key(operation.item));
    return answer_of(hit(key, operation.kind != OperationKind::read));
}

Result<std::int64_t> PlainLimiterDriver::ask(const std::vector<std::string_view>& words,
                                             Deadline deadline) const {
    HOTCOUNT_TRY_ASSIGN(const redis::Reply reply, client_->execute(words, deadline.remaining()));
    return redis::to_integer(reply).value_or(0);  // Nil: there is no such key.
}

Result<bool> PlainLimiterDriver::hit(const std::string& item, bool take) const {
    const Deadline deadline = client_->deadline(timeout_);
    const std::string seconds =
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(rate_.period).count());
    if (way_.name == "list") {
        const std::string limit = std::to_string(rate_.limit);
        HOTCOUNT_TRY_ASSIGN(
            const std::int64_t admitted,
            ask({"EVAL", kList, "1", item, limit, seconds, "caller", take ? "1" : "0"}, deadline));
        return admitted == 1;
    }
    std::string key = item;
    if (way_.on_callers_clock()) {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        key += fmt::format(":{}", std::chrono::duration_cast<std::chrono::seconds>(now).count());
    }
    const bool lists = way_.name == "racy_list";
    HOTCOUNT_TRY_ASSIGN(const std::int64_t current, ask({lists ? "LLEN" : "GET", key}, deadline));
    // As the page has it: it admits one more than the limit.
    if (current > rate_.limit) return false;
    if (!take) return true;
    if (way_.on_callers_clock()) {
        HOTCOUNT_TRY(send_plainly(
            *client_, {{"MULTI"}, {"INCR", key}, {"EXPIRE", key, "10"}, {"EXEC"}}, deadline));
    } else if (way_.name == "incr_expire") {
        HOTCOUNT_TRY(ask({"EVAL", kIncrExpire, "1", key, seconds}, deadline));
    } else if (way_.name == "racy_incr") {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, ask({"INCR", key}, deadline));
        if (value == 1) HOTCOUNT_TRY(ask({"EXPIRE", key, seconds}, deadline));
    } else {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t there, ask({"EXISTS", key}, deadline));
        if (there > 0) {
            HOTCOUNT_TRY(ask({"RPUSHX", key, "caller"}, deadline));
        } else {
            HOTCOUNT_TRY(send_plainly(
                *client_, {{"MULTI"}, {"RPUSH", key, "caller"}, {"EXPIRE", key, seconds}, {"EXEC"}},
                deadline));
        }
    }
    return true;
}

}  // namespace hotcount::loadtest

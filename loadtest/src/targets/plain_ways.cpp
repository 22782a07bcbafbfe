#include "plain_ways.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount::loadtest {

namespace {

// The commands as a program with a plain client sends them: the unsafe ways that the library does not
// have. Sends the commands together, WATCH and MULTI too, which Client::execute() refuses: MULTI to EXEC in
// one call is safe on a connection that threads share, and WATCH needs a client of its own. The first
// error among the replies is the call's error.
Result<redis::ReplyArray> send_plainly(redis::Client& client,
                                       const std::vector<std::vector<std::string_view>>& commands,
                                       Deadline deadline) {
    std::string bytes;
    for (const auto& words : commands) {
        bytes += "*" + std::to_string(words.size()) + "\r\n";
        for (const std::string_view word : words) {
            bytes += "$" + std::to_string(word.size()) + "\r\n";
            bytes.append(word).append("\r\n");
        }
    }
    Result<redis::Reply> outcome = redis::Reply{};
    // The channel waits: `done` is called before it returns.
    client.waiting().submit(
        redis::Request::encoded(std::string{commands.front().front()}, std::move(bytes),
                                commands.size(), redis::Shape::any, redis::Repeat::never),
        deadline, [&](Result<redis::Reply> reply) { outcome = std::move(reply); }, nullptr);
    if (!outcome) return std::move(outcome).error();
    auto replies = std::get<redis::ReplyArray>(std::move(outcome->value));
    for (const redis::Reply& reply : replies) {
        if (const auto* const error = std::get_if<redis::ReplyError>(&reply.value)) {
            return redis::error_from_reply(error->message, client.options().address());
        }
    }
    return replies;
}

}  // namespace

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

namespace {

constexpr std::string_view kNeverExpires =
    "may over-admit, by one and by one more for each caller racing; a key may be left without a "
    "TTL, and is then denied for ever";

constexpr std::array kWays{
    PlainLimiter{"list",
                 "at most the limit in each window from a first hit, and each caller is remembered",
                 Windows::after_first},
    PlainLimiter{
        "per_second_key",
        "may over-admit, by one and by one more for each caller racing, in a second of the "
        "caller's clock",
        Windows::clock},
    PlainLimiter{"racy_incr", kNeverExpires, Windows::after_first},
    PlainLimiter{"incr_expire", kNeverExpires, Windows::after_first},
    PlainLimiter{"racy_list",
                 "may over-admit, by one and by one more for each caller racing; any number pass "
                 "uncounted when the list expires between EXISTS and RPUSHX",
                 Windows::after_first}};

// The page's, with the period for its 1 second.
constexpr std::string_view kIncrExpire = R"(local current
current = redis.call("incr",KEYS[1])
if tonumber(current) == 1 then
    redis.call("expire",KEYS[1],ARGV[1])
end)";

// KEYS[1] the callers   ARGV limit, period in seconds, caller, '1' to take   RETURNS 1 if admitted
constexpr std::string_view kPlainList = R"(
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
        HOTCOUNT_TRY_ASSIGN(const std::int64_t admitted, ask({"EVAL", kPlainList, "1", item, limit,
                                                              seconds, "caller", take ? "1" : "0"},
                                                             deadline));
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

namespace {

using redis::Reply;
using Commands = std::vector<std::vector<std::string_view>>;

Result<std::int64_t> number_of(const Result<Reply>& reply) {
    if (!reply) return reply.error();
    if (const auto number = redis::to_integer(*reply)) return *number;
    return make_error(ErrorCode::reply, "a number was expected");
}

}  // namespace

std::optional<PlainWay> plain_way(std::string_view way) {
    if (way == "exists_then_add") return PlainWay::exists_then_add;
    if (way == "unguarded_pipeline") return PlainWay::unguarded_pipeline;
    if (way == "watch") return PlainWay::watch;
    return std::nullopt;
}

Result<Upsert> PlainSetsDriver::upsert(const UpsertItem& item) {
    HOTCOUNT_TRY_ASSIGN(auto upserts, upsert_many({&item, 1}));
    return std::move(upserts.front());
}

Result<PlainSetsDriver::Upserts> PlainSetsDriver::upsert_many(std::span<const UpsertItem> items) {
    const Deadline deadline = client_->deadline(timeout());
    Upserts upserts;
    if (way_ == PlainWay::watch) {
        for (const UpsertItem& item : items) upserts.push_back(watch_and_add(item, deadline));
        return upserts;
    }
    std::vector<std::array<std::string, 2>> held;  // Key and score of each.
    Commands looks;
    Commands adds;
    Commands both;
    for (const UpsertItem& item : items) {
        held.push_back(
            {client_->options().prefix + std::string{item.key}, fmt::format("{}", item.score)});
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
        looks.push_back({"EXISTS", held[i][0]});
        adds.push_back({"ZADD", held[i][0], held[i][1], items[i].member});
        both.insert(both.end(), {looks.back(), adds.back()});
    }
    const bool at_once = way_ == PlainWay::unguarded_pipeline;
    const auto seen = client_->execute_many(at_once ? both : looks, deadline.remaining());
    const std::size_t step = at_once ? 2 : 1;
    Commands passed;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const auto exists = number_of(seen[i * step]);
        if (!exists) {
            upserts.emplace_back(exists.error());
        } else if (at_once && !seen[i * step + 1]) {
            upserts.emplace_back(seen[i * step + 1].error());
        } else {
            upserts.emplace_back(*exists > 0 ? Upsert::applied : Upsert::absent);
            if (*exists > 0) passed.push_back(adds[i]);
        }
    }
    if (at_once || passed.empty()) return upserts;
    const auto added = client_->execute_many(passed, deadline.remaining());
    for (auto next = added.begin(); Result<Upsert> & upsert : upserts) {
        if (!upsert || *upsert != Upsert::applied) continue;
        if (!*next) upsert = next->error();
        ++next;
    }
    return upserts;
}

Result<Upsert> PlainSetsDriver::watch_and_add(const UpsertItem& item, Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const auto client, take_client());
    const std::string key = client->options().prefix + std::string{item.key};
    const std::string score = fmt::format("{}", item.score);
    const auto attempt = [&]() -> Result<Upsert> {
        while (true) {
            // A client without a connection makes its first one now.
            const std::uint64_t connects = std::max<std::uint64_t>(client->stats().connects, 1);
            HOTCOUNT_TRY_ASSIGN(
                const auto seen,
                send_plainly(*client, {{"UNWATCH"}, {"WATCH", key}, {"PTTL", key}}, deadline));
            HOTCOUNT_TRY_ASSIGN(const std::int64_t left, number_of(seen[2]));
            if (left < 0) return left == -2 ? Upsert::absent : Upsert::no_ttl;
            if (std::chrono::milliseconds{left} <= gate_) return Upsert::expiring;
            HOTCOUNT_TRY_ASSIGN(
                const auto done,
                send_plainly(*client, {{"MULTI"}, {"ZADD", key, score, item.member}, {"EXEC"}},
                             deadline));
            if (client->stats().connects > connects) {
                return make_error(ErrorCode::outcome_unknown,
                                  "the connection that watched the key was lost before EXEC");
            }
            // Nil: another client has changed the set, so the transaction is repeated.
            if (std::holds_alternative<redis::ReplyArray>(done[2].value)) return Upsert::applied;
            if (deadline.passed()) {
                return make_error(ErrorCode::deadline, "the set changed in every attempt");
            }
        }
    };
    auto outcome = attempt();
    const std::lock_guard lock(mutex_);
    idle_.push_back(client);
    return outcome;
}

Result<std::shared_ptr<redis::Client>> PlainSetsDriver::take_client() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            auto client = std::move(idle_.back());
            idle_.pop_back();
            return client;
        }
    }
    return redis::Client::make(client_->options());
}

}  // namespace hotcount::loadtest

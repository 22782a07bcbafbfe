// What a RetryEngine sends, and what it makes of the answers.
#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <utility>

#include "backend.hpp"
#include "hotcount_embedded/counter/lua.hpp"
#include "redis/commands.hpp"
#include "redis/scripts.hpp"
#include "retry_flight.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;
using redis::ReplyError;
using redis::Request;
using retry::steady_now;
using retry::unknown;

// Keys of one script call: the server does nothing else while it runs.
constexpr std::size_t kMostKeys = 256;
// Longer than the adds wait: a call that a paused server finds in its buffers comes late.
constexpr Duration kSlack = std::chrono::minutes{10};
// The server's clock is asked for again after this long.
constexpr Duration kClockKeeps = std::chrono::seconds{5};
// How long Redis' refusal of a key is believed.
constexpr Duration kHeldFor = std::chrono::milliseconds{100};

std::string hex(std::uint64_t number) {
    constexpr std::string_view kDigits{"0123456789abcdef"};
    std::string text(16, '0');
    for (std::size_t i = 16; i-- > 0; number >>= 4) text[i] = kDigits[number & 15];
    return text;
}

// Redis was not reached or said nothing, or the client has no room: it will be tried again.
bool passes(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::outcome_unknown || code == ErrorCode::capacity;
}

// The key holds no counter, or the sum is too large: to try again would not help.
bool stays(const Error& error) {
    return error.code == ErrorCode::wrong_type || error.code == ErrorCode::overflow;
}

Error about(const UnsettledAdd& add, Error error) {
    error.about(&ErrorFacts::key, add.key);
    return error;
}

}  // namespace

const redis::Script& RetryEngine::script() {
    static const redis::Script kScript{
        lua::counter::kAddInSequenceLua, redis::Script::Kind::combinable,
        [](const Reply& reply, std::size_t) {
            return std::holds_alternative<std::int64_t>(reply.value) ||
                   std::holds_alternative<std::string>(reply.value);
        }};
    return kScript;
}

// -- what is sent ---------------------------------------------------------------------------------

void RetryEngine::launch() {
    if (store_closed_) {
        for (UnsettledAdd& add : direct_) {
            answer(add, make_error(ErrorCode::closed, "the store is closed; nothing was applied"));
        }
        direct_.clear();
        return;
    }
    const bool may_replay = !waiting_.empty() && steady_now() >= retry_at_;
    if (!may_replay && direct_.empty()) return;
    if (expires() && (!asked_ || steady_now() - *asked_ > kClockKeeps)) return ask_for_time();
    // In turns, so that a long queue holds up nobody.
    const bool replay = may_replay && (direct_.empty() || !direct_next_);
    direct_next_ = replay;
    send(replay ? waiting_ : direct_, replay);
}

void RetryEngine::ask_for_time() {
    flight_ = std::make_shared<Flight>();
    flight_->clock = true;
    const std::string_view words[] = {"TIME"};
    settings_->client->without_waiting().submit(
        Request::command(words), settings_->client->deadline({}),
        [flight = flight_](Result<Reply> reply) {
            flight->outcome = std::move(reply);
            flight->ended = steady_now();
            flight->finished.store(true, std::memory_order_release);
        });
}

void RetryEngine::send(Adds& from, bool replay) {
    const SteadyTime now = steady_now();
    const std::size_t keys_each = expires() ? 3 : 2;
    const std::size_t most = singly_ > 0 ? 1 : kMostKeys / keys_each;
    auto flight = std::make_shared<Flight>();
    flight->replay = replay;
    // One caller's long timeout does not hold up the others: the store's is the most.
    const SteadyTime most_time = settings_->client->deadline({}).time();
    SteadyTime deadline = replay ? most_time : SteadyTime::min();
    SteadyTime earliest = SteadyTime::max();
    while (!from.empty() && flight->adds.size() < most) {
        UnsettledAdd add = std::move(from.front());
        from.pop_front();
        if (replay && held_keys_.contains(add.key)) {
            hold(std::move(add));
            continue;
        }
        if (!replay) {
            if (add.cancelled != nullptr && add.cancelled->load(std::memory_order_acquire)) {
                const std::lock_guard lock(mutex_);
                --under_way_;
                continue;
            }
            deadline = std::min(std::max(deadline, add.deadline), most_time);
            earliest = std::min(earliest, add.deadline);
        }
        flight->adds.push_back(std::move(add));
    }
    if (flight->adds.empty()) return;
    if (singly_ > 0) --singly_;

    // Their clock's time of a moment of ours, as early as it may be: an add that came between two lives
    // of its key belongs to the earlier one.
    const auto on_server = [this](SteadyTime time) {
        const auto since = std::chrono::floor<std::chrono::milliseconds>(time - *asked_).count();
        return std::max<std::int64_t>(server_ms_ - half_trip_ms_ + since, 0);
    };
    const std::string keep = std::to_string(
        std::chrono::ceil<std::chrono::milliseconds>(settings_->queue.max_age + kSlack).count());
    const std::string latest =
        expires() && !replay ? std::to_string(on_server(earliest) + 2 * half_trip_ms_) : "";
    std::vector<std::string> keys;
    std::vector<std::string> arguments;
    keys.reserve(flight->adds.size() * keys_each);
    arguments.reserve(flight->adds.size() * 4);
    for (UnsettledAdd& add : flight->adds) {
        keys.push_back(add.key);
        keys.push_back(key_beside(add.key, "retry." + hex(add.writer)).value());
        if (expires()) keys.push_back(key_beside(add.key, "window").value());
        arguments.push_back(std::to_string(add.n));
        arguments.push_back(std::to_string(add.sequence));
        arguments.push_back(expires() ? std::to_string(add.ttl_ms > 0 ? add.ttl_ms : ttl_ms_) : "");
        if (!replay) {
            arguments.emplace_back();
        } else if (now - add.accepted > settings_->queue.max_age) {
            arguments.emplace_back("old");
        } else {
            arguments.push_back(expires() ? std::to_string(on_server(add.accepted)) : "0");
        }
    }
    const std::vector<std::string_view> key_views(keys.begin(), keys.end());
    const std::vector<std::string_view> argument_views(arguments.begin(), arguments.end());
    const std::string_view shared[] = {keep, expires() ? "1" : "", latest};
    flight_ = flight;
    settings_->client->without_waiting().submit(
        Request::run_many(script(), flight->adds.size(), key_views, shared, argument_views),
        Deadline::at(deadline), [flight](Result<Reply> reply) {
            flight->outcome = std::move(reply);
            flight->ended = steady_now();
            flight->finished.store(true, std::memory_order_release);
        });
}

// -- what comes back ------------------------------------------------------------------------------

void RetryEngine::land() {
    const auto flight = std::exchange(flight_, nullptr);
    if (!flight->outcome) {
        take_back(*flight, flight->outcome.error());
        return;
    }
    const auto* const replies = std::get_if<ReplyArray>(&flight->outcome->value);
    if (flight->clock) {
        const auto part = [&](std::size_t i) {
            return replies != nullptr && replies->size() == 2 ? redis::to_integer((*replies)[i])
                                                              : std::nullopt;
        };
        const auto seconds = part(0);
        const auto micro = part(1);
        if (!seconds || !micro) {
            return take_back(*flight, make_error(ErrorCode::reply, "TIME got a strange reply"));
        }
        const Duration trip = flight->ended - flight->begun;
        asked_ = flight->begun + trip / 2;
        server_ms_ = *seconds * 1000 + *micro / 1000;
        half_trip_ms_ = std::chrono::ceil<std::chrono::milliseconds>(trip / 2).count();
        return;
    }
    if (replies == nullptr || replies->size() != flight->adds.size()) {
        return take_back(*flight, make_error(ErrorCode::outcome_unknown,
                                             "a script got a reply of another shape"));
    }
    away_ = false;
    backoff_ = {};
    retry_at_ = {};
    settle_replies(*flight, *replies);
}

void RetryEngine::settle_replies(Flight& flight, const ReplyArray& replies) {
    std::vector<UnsettledAdd> again;
    std::vector<UnsettledAdd> first;
    std::vector<UnsettledAdd> unanswered;
    const std::string server = settings_->client->options().address() + ": EVALSHA";
    for (std::size_t i = 0; i < replies.size(); ++i) {
        UnsettledAdd& add = flight.adds[i];
        if (const auto* const refusal = std::get_if<ReplyError>(&replies[i].value)) {
            Error error = redis::to_error(*refusal, server);
            if (error.code == ErrorCode::overflow) error = counter_overflow(add.key);
            error.about(&ErrorFacts::key, add.key);
            if (add.waits) {
                if (stays(error)) {
                    settled(add, &RetryStats::refused);
                } else {
                    held_until_ = steady_now() + kHeldFor;
                    held_keys_.insert(add.key);
                    hold(std::move(add));
                }
            } else if (passes(error.code) && error.server_code != "OOM") {
                unanswered.push_back(std::move(add));
            } else {
                answer(add, std::move(error));
            }
            continue;
        }
        const auto* const word = std::get_if<std::string>(&replies[i].value);
        if (word != nullptr && *word == "late") {
            asked_.reset();  // The clocks differ by more than was known.
            again.push_back(std::move(add));
        } else if (word != nullptr && *word == "expired") {
            settled(add, &RetryStats::expired);
        } else if (word != nullptr && *word == "counted") {
            settled(add, &RetryStats::replayed);
        } else if (add.waits) {
            settled(add, &RetryStats::replayed);
        } else if (const auto value = redis::to_integer(replies[i])) {
            answer(add, Added{*value});
        } else {
            answer(add, unknown(add.key, "the script got a strange reply"));
        }
    }
    // Not sent yet, as far as they are known; those that wait already stay in the queue.
    std::vector<UnsettledAdd> queue;
    for (UnsettledAdd& add : again) {
        if (add.waits) {
            queue.push_back(std::move(add));
        } else if (add.done) {
            next_deadline_ = std::min(next_deadline_, add.deadline);
            first.push_back(std::move(add));
        }
    }
    direct_.insert(direct_.begin(), std::make_move_iterator(first.begin()),
                   std::make_move_iterator(first.end()));
    for (UnsettledAdd& add : unanswered) queue.push_back(std::move(add));
    enqueue(std::move(queue), true);
}

// A call that failed as a whole.
void RetryEngine::take_back(Flight& flight, const Error& why) {
    if (why.code == ErrorCode::closed) store_closed_ = true;
    if (passes(why.code)) went_away();
    const bool of_a_key = flight.adds.size() > 1 && redis::concerns_a_key(why);
    if (of_a_key) singly_ = flight.adds.size();
    for (UnsettledAdd& add : flight.adds) {
        if (why.code == ErrorCode::outcome_unknown) add.sent = true;
    }
    if (flight.replay) {
        if (!passes(why.code) && !of_a_key) {
            if (flight.adds.size() == 1) {  // Its key alone, perhaps: others go on.
                held_until_ = steady_now() + kHeldFor;
                held_keys_.insert(flight.adds.front().key);
                hold(std::move(flight.adds.front()));
                flight.adds.clear();
            } else {
                backoff_ = redis::next_pause(backoff_);
                retry_at_ = steady_now() + backoff_;
            }
        }
        waiting_.insert(waiting_.begin(), std::make_move_iterator(flight.adds.begin()),
                        std::make_move_iterator(flight.adds.end()));
    } else {
        std::vector<UnsettledAdd> queue;
        std::vector<UnsettledAdd> first;
        for (UnsettledAdd& add : flight.adds) {
            if (add.waits || (passes(why.code) && add.done)) {
                queue.push_back(std::move(add));
            } else if (of_a_key && add.done) {
                first.push_back(std::move(add));
            } else {
                answer(add, about(add, why));
            }
        }
        direct_.insert(direct_.begin(), std::make_move_iterator(first.begin()),
                       std::make_move_iterator(first.end()));
        enqueue(std::move(queue), true);
    }
    if (passes(why.code) || flight.clock) {
        // Nobody waits for a server that is away; without the clock nothing can be sent.
        std::vector<UnsettledAdd> rest(std::make_move_iterator(direct_.begin()),
                                       std::make_move_iterator(direct_.end()));
        direct_.clear();
        if (passes(why.code)) return enqueue(std::move(rest), false);
        for (UnsettledAdd& add : rest) answer(add, about(add, why));
        backoff_ = redis::next_pause(backoff_);
        retry_at_ = steady_now() + backoff_;
    }
}

void RetryEngine::went_away() {
    backoff_ = redis::next_pause(backoff_);
    retry_at_ = steady_now() + backoff_;
    asked_.reset();
    if (std::exchange(away_, true)) return;
    const std::lock_guard lock(mutex_);
    ++stats_.outages;
}

}  // namespace hotcount

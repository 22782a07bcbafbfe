// The script calls of a RetryEngine, and the handling of their answers.
#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <utility>

#include "backend.hpp"
#include "hotcount_embedded/counter/lua.hpp"
#include "redis/cluster_client.hpp"
#include "redis/commands.hpp"
#include "redis/scripts.hpp"
#include "retry_flight.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;
using redis::ReplyError;
using redis::Request;
using retry::about;
using retry::is_sent_again;
using retry::is_transient;
using retry::refused_period;
using retry::steady_now;
using retry::unknown;

// The most keys of one script call, because the server does nothing else while the script runs.
constexpr std::size_t kMostKeys = 256;
// A reading of the server's clock is used for this long.
constexpr Duration kClockKeeps = std::chrono::seconds{5};
// For a max_age alone it is used this much longer.
constexpr Duration kClockKeepsForAges = std::chrono::minutes{1};
// The pause before a refused key is tried again. The second one is for a config error (a wrong
// node or database), which rarely passes.
constexpr Duration kHeldFor = std::chrono::milliseconds{100};
constexpr Duration kMisplacedFor = std::chrono::seconds{1};

// The key holds no counter, or the sum leaves 64 bits: a retry would fail too.
bool is_permanent(const Error& error) {
    return error.code == ErrorCode::wrong_type || error.code == ErrorCode::overflow;
}

}  // namespace

// One add of a call was refused.
Error RetryEngine::to_error(const UnsettledAdd& add, const ReplyError& refusal) const {
    Error error = redis::to_error(refusal, settings_->client->options().address() + ": EVALSHA");
    if (error.code == ErrorCode::overflow) return counter_overflow(add.key);
    return about(add, std::move(error));
}

const redis::Script& RetryEngine::script() {
    static const redis::Script kScript{
        lua::counter::kAddInSequenceLua, redis::Script::Kind::combinable,
        [](const Reply& reply, std::size_t) {
            return std::holds_alternative<std::int64_t>(reply.value) ||
                   std::holds_alternative<std::string>(reply.value);
        }};
    return kScript;
}

// -- sending --------------------------------------------------------------------------------------

void RetryEngine::launch(Lane& lane) {
    if (store_closed_) {
        for (UnsettledAdd& add : lane.direct) {
            answer(add, make_error(ErrorCode::closed, "the store is closed; nothing was applied"));
        }
        lane.direct.clear();
        return;
    }
    lane.blocked = false;
    const bool may_replay = !lane.waiting.empty() && steady_now() >= lane.retry_at;
    if (!may_replay && lane.direct.empty()) return;
    // Queued and direct adds take turns, so that a long queue does not delay new adds.
    const bool replay = may_replay && (lane.direct.empty() || !lane.direct_next);
    lane.direct_next = replay;
    const UnsettledAdd& first = (replay ? lane.waiting : lane.direct).front();
    if (!clock_of(lane.node).serves(mode_of(first))) return ask_for_time(lane, first.key);
    send(lane, replay ? lane.waiting : lane.direct, replay);
    if (lane.flights.empty() && may_replay && !lane.direct.empty()) {
        send(lane, replay ? lane.direct : lane.waiting, !replay);
    }
    lane.blocked = lane.flights.empty() && (!lane.direct.empty() || may_replay);
}

void RetryEngine::start(Lane& lane, std::shared_ptr<Flight> flight, Request request,
                        Deadline deadline) {
    lane.flights.push_back(flight);
    settings_->client->without_waiting().submit(
        std::move(request), deadline, [flight = std::move(flight)](Result<Reply> reply) {
            flight->outcome = std::move(reply);
            flight->ended = steady_now();
            flight->finished.store(true, std::memory_order_release);
        });
}

// On a cluster the key selects the node.
void RetryEngine::ask_for_time(Lane& lane, const std::string& key) {
    static const redis::Script kScript{lua::counter::kTimeLua};
    auto flight = std::make_shared<Flight>();
    flight->clock = true;
    const std::string_view words[] = {"TIME"};
    const std::string_view keys[] = {key};
    start(lane, std::move(flight),
          nodes_ == nullptr ? Request::command(words)
                            : Request::run(kScript, keys, {}, {}, redis::Repeat::reads),
          settings_->client->deadline({}));
}

std::int64_t RetryEngine::ServerClock::at(SteadyTime time) const {
    const auto since = std::chrono::floor<std::chrono::milliseconds>(time - asked).count();
    return std::max<std::int64_t>(unix_ms - half_trip_ms + since, 0);
}

bool RetryEngine::ServerClock::serves(Mode mode) const {
    return steady_now() <= (mode == Mode::plain ? good_until + kClockKeepsForAges : good_until);
}

void RetryEngine::fix_since(UnsettledAdd& add, const ServerClock& clock, SteadyTime time) {
    if (clock.unix_ms == 0) return;
    const std::lock_guard lock(mutex_);
    add.since_ms = last_since_ms_ = std::max(last_since_ms_, clock.at(time));
}

void RetryEngine::send(Lane& lane, Adds& from, bool replay) {
    const SteadyTime now = steady_now();
    const ServerClock& clock = clock_of(lane.node);
    const Mode mode = mode_of(from.front());
    const std::size_t most = lane.singly > 0 ? 1 : kMostKeys / Call{.mode = mode}.keys_each();
    struct Part {
        Call call;
        std::shared_ptr<Flight> flight;
    };
    std::map<std::uint16_t, Part> parts;  // By slot on a cluster.
    std::size_t count = 0;
    // A call's deadline is at most the store's timeout, so a caller's long one delays no others.
    const SteadyTime most_time = settings_->client->deadline({}).time();
    SteadyTime deadline = replay ? most_time : SteadyTime::min();
    std::vector<UnsettledAdd> busy;
    while (!from.empty() && count < most) {
        if (mode_of(from.front()) != mode) break;
        UnsettledAdd add = std::move(from.front());
        from.pop_front();
        if (busy_.contains(add.key)) {
            busy.push_back(std::move(add));
            continue;
        }
        if (replay && lane.held_keys.contains(add.key)) {
            lane.held.push_back(std::move(add));
            continue;
        }
        const std::uint16_t slot = nodes_ == nullptr ? 0 : redis::slot_of(add.key);
        Part& part = parts.try_emplace(slot, Part{Call{.mode = mode}, nullptr}).first->second;
        std::string accepted;
        if (!replay) {
            if (add.cancelled != nullptr && add.cancelled->load(std::memory_order_acquire)) {
                const std::lock_guard lock(mutex_);
                --under_way_;
                continue;
            }
            deadline = std::min(std::max(deadline, add.deadline), most_time);
            accepted = part.call.under_way(add, clock);
            fix_since(add, clock, std::min(add.deadline, most_time));
        } else if (now - add.accepted > add.max_age) {
            accepted = "old";
        } else if (mode == Mode::ttl) {
            accepted = std::to_string(add.server_ms > 0 ? add.server_ms : clock.at(add.accepted));
        } else if (mode == Mode::period) {
            accepted = "waits";
        }
        if (replay && !add.sent) fix_since(add, clock, now);
        if (add.since_ms == 0) fix_since(add, clock, add.accepted);  // Of an earlier process.
        part.call.put(add, ttl_ms_, std::move(accepted));
        if (!part.flight) part.flight = std::make_shared<Flight>();
        part.flight->replay = replay;
        part.flight->adds.push_back(std::move(add));
        ++count;
    }
    from.insert(from.begin(), std::make_move_iterator(busy.begin()),
                std::make_move_iterator(busy.end()));
    if (count == 0) return;
    if (lane.singly > 0) --lane.singly;
    for (auto& [slot, part] : parts) {
        if (!part.flight) continue;
        const std::size_t adds = part.flight->adds.size();
        start(lane, std::move(part.flight), part.call.request(adds), Deadline::at(deadline));
    }
}

// -- answers --------------------------------------------------------------------------------------

void RetryEngine::land(Lane& lane) {
    while (true) {
        const auto landed = std::ranges::find_if(lane.flights, [](const auto& each) {
            return each->finished.load(std::memory_order_acquire);
        });
        if (landed == lane.flights.end()) return;
        const auto flight = std::move(*landed);
        lane.flights.erase(landed);
        // The adds that stayed behind this flight may belong to another lane by now.
        if (!staying_.empty() || flight->clock) follow_again_ = true;
        land(lane, *flight);
    }
}

void RetryEngine::land(Lane& lane, Flight& flight) {
    if (!flight.outcome) return take_back(lane, flight, flight.outcome.error());
    const auto* const replies = std::get_if<ReplyArray>(&flight.outcome->value);
    if (flight.clock) {
        const auto part = [&](std::size_t i) {
            return replies != nullptr && replies->size() == 2 ? redis::to_integer((*replies)[i])
                                                              : std::nullopt;
        };
        const auto seconds = part(0);
        const auto micro = part(1);
        if (!seconds || !micro) {
            return take_back(lane, flight,
                             make_error(ErrorCode::reply, "TIME got a reply of another shape"));
        }
        const Duration trip = flight.ended - flight.begun;
        const std::lock_guard lock(mutex_);
        clocks_[lane.node] = {
            .asked = flight.begun + trip / 2,
            .unix_ms = *seconds * 1000 + *micro / 1000,
            .half_trip_ms = std::chrono::ceil<std::chrono::milliseconds>(trip / 2).count(),
            .good_until = flight.ended + kClockKeeps};
        return;
    }
    if (replies == nullptr || replies->size() != flight.adds.size()) {
        return take_back(
            lane, flight,
            make_error(ErrorCode::outcome_unknown, "a script got a reply of another shape"));
    }
    lane.away = false;
    lane.backoff = {};
    lane.retry_at = {};
    settle_replies(lane, flight, *replies);
}

void RetryEngine::settle_replies(Lane& lane, Flight& flight, const ReplyArray& replies) {
    std::vector<UnsettledAdd> again;
    std::vector<UnsettledAdd> first;
    std::vector<UnsettledAdd> unanswered;
    for (std::size_t i = 0; i < replies.size(); ++i) {
        UnsettledAdd& add = flight.adds[i];
        if (!misplaced_.empty()) misplaced_.erase(add.key);
        if (const auto* const refusal = std::get_if<ReplyError>(&replies[i].value)) {
            Error error = to_error(add, *refusal);
            add.sent |= error.code == ErrorCode::outcome_unknown;
            if (add.waits) {
                if (is_permanent(error)) {
                    settled(add, &RetryStats::refused);
                } else {
                    lane.held_until = steady_now() + kHeldFor;
                    lane.held_keys.insert(add.key);
                    lane.held.push_back(std::move(add));
                }
            } else if (is_sent_again(error)) {
                unanswered.push_back(std::move(add));
            } else {
                answer(add, std::move(error));
            }
            continue;
        }
        const auto* const word = std::get_if<std::string>(&replies[i].value);
        const auto refused = word != nullptr ? refused_period(*word) : std::nullopt;
        if (refused) {
            settle_refused(add, *refused, again);
        } else if (word != nullptr && *word == "late") {
            distrust_clock(lane);  // The clocks differ by more than was known.
            add.sent = false;
            again.push_back(std::move(add));
        } else if (word != nullptr && *word == "expired") {
            settled(add, &RetryStats::expired);
        } else if (word != nullptr && *word == "counted") {
            settled(add, &RetryStats::replayed);
        } else if (add.waits) {
            settled(add, &RetryStats::replayed);
        } else if (const auto value = redis::to_integer(replies[i])) {
            answer(add, AddAnswer{*value});
        } else {
            answer(add, unknown(add.key, "the script got a reply of another shape"));
        }
    }
    // Adds in `again` count as not sent: queued ones stay in the queue, direct ones are sent again.
    std::vector<UnsettledAdd> queue;
    for (UnsettledAdd& add : again) {
        if (add.waits) {
            queue.push_back(std::move(add));
        } else if (add.done) {
            next_deadline_ = std::min(next_deadline_, add.deadline);
            first.push_back(std::move(add));
        }
    }
    lane.direct.insert(lane.direct.begin(), std::make_move_iterator(first.begin()),
                       std::make_move_iterator(first.end()));
    for (UnsettledAdd& add : unanswered) queue.push_back(std::move(add));
    enqueue(lane, std::move(queue), true);
}

// The script did nothing. The caller gets the refusal, unless it was told Queued before.
void RetryEngine::settle_refused(UnsettledAdd& add, const PeriodAnswer& refused,
                                 std::vector<UnsettledAdd>& again) {
    using Kind = PeriodAnswer::Kind;
    if (!add.waits) return answer(add, AddAnswer{refused});
    if (refused.kind == Kind::elsewhere) return again.push_back(std::move(add));
    settled(add, refused.kind == Kind::gone ? &RetryStats::expired : &RetryStats::refused);
}

// A call that failed as a whole.
void RetryEngine::take_back(Lane& lane, Flight& flight, const Error& why) {
    if (why.code == ErrorCode::closed) store_closed_ = true;
    if (is_transient(why.code)) went_away(lane);
    const bool of_a_key = flight.adds.size() > 1 && redis::concerns_a_key(why);
    if (of_a_key) lane.singly += flight.adds.size();
    for (UnsettledAdd& add : flight.adds) {
        if (why.code == ErrorCode::outcome_unknown) add.sent = true;
    }
    const bool by_cluster = why.code == ErrorCode::config;
    if (flight.replay) {
        if (by_cluster && !of_a_key) take_for_misplaced(flight, why);
        if (!is_transient(why.code) && !of_a_key) {
            if (flight.adds.size() == 1) {  // Perhaps only its key: other adds go on.
                lane.held_until = steady_now() + (by_cluster ? kMisplacedFor : kHeldFor);
                lane.held_keys.insert(flight.adds.front().key);
                lane.held.push_back(std::move(flight.adds.front()));
                flight.adds.clear();
            } else {
                lane.backoff = redis::next_pause(lane.backoff);
                lane.retry_at = steady_now() + lane.backoff;
            }
        }
        lane.waiting.insert(lane.waiting.begin(), std::make_move_iterator(flight.adds.begin()),
                            std::make_move_iterator(flight.adds.end()));
    } else {
        std::vector<UnsettledAdd> queue;
        std::vector<UnsettledAdd> first;
        for (UnsettledAdd& add : flight.adds) {
            if (add.waits || (is_transient(why.code) && add.done)) {
                queue.push_back(std::move(add));
            } else if (of_a_key && add.done) {
                first.push_back(std::move(add));
            } else {
                answer(add, about(add, why));
            }
        }
        lane.direct.insert(lane.direct.begin(), std::make_move_iterator(first.begin()),
                           std::make_move_iterator(first.end()));
        enqueue(lane, std::move(queue), true);
    }
    if (is_transient(why.code) || flight.clock) {
        // Direct adds do not wait for a server that is away, nor for a clock that is unknown.
        std::vector<UnsettledAdd> rest(std::make_move_iterator(lane.direct.begin()),
                                       std::make_move_iterator(lane.direct.end()));
        lane.direct.clear();
        if (is_transient(why.code)) return enqueue(lane, std::move(rest), false);
        for (UnsettledAdd& add : rest) answer(add, about(add, why));
        lane.backoff = redis::next_pause(lane.backoff);
        lane.retry_at = steady_now() + lane.backoff;
    }
}

// A node of a cluster, or a server without the URL's database, may never serve these keys. So an
// add older than its max_age expires, although another server may have counted it, and no further
// add to these keys is accepted.
void RetryEngine::take_for_misplaced(Flight& flight, const Error& why) {
    misplaced_why_ = why;
    const SteadyTime now = steady_now();
    std::erase_if(flight.adds, [&](UnsettledAdd& add) {
        if (now - add.accepted <= add.max_age) {
            misplaced_.insert(add.key);
            return false;
        }
        settled(add, &RetryStats::expired);
        return true;
    });
}

void RetryEngine::distrust_clock(const Lane& lane) {
    const std::lock_guard lock(mutex_);
    clocks_[lane.node].good_until = SteadyTime::min();
}

void RetryEngine::went_away(Lane& lane) {
    lane.backoff = redis::next_pause(lane.backoff);
    lane.retry_at = steady_now() + lane.backoff;
    distrust_clock(lane);
    if (std::exchange(lane.away, true)) return;
    note_silent(lane);
    const std::lock_guard lock(mutex_);
    ++stats_.outages;
}

}  // namespace hotcount

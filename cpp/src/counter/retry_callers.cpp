// The callers' side of RetryEngine: queueing adds, sending adds directly, stats and stop.
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <utility>

#include "redis/commands.hpp"
#include "redis/scripts.hpp"
#include "retry_flight.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;
using redis::ReplyError;
using retry::about;
using retry::is_sent_again;
using retry::is_transient;
using retry::refused_period;
using retry::steady_now;
using retry::unknown;

constexpr Duration kStopWait = std::chrono::seconds{2};

// An add without a period never gets the answer of a refused period.
Completion<AddAnswer> of_no_period(Completion<Added> done) {
    return [done = std::move(done)](Result<AddAnswer> outcome) {
        if (!outcome) return done(std::move(outcome).error());
        if (const auto* const queued = std::get_if<Queued>(&*outcome)) return done(Added{*queued});
        done(Added{std::get<std::int64_t>(*outcome)});
    };
}

}  // namespace

Result<void> RetryEngine::start() {
    const std::lock_guard lock(mutex_);
    if (running_) return {};
    HOTCOUNT_TRY(spawn_thread([self = shared_from_this()] { self->work(); }));
    running_ = true;
    return {};
}

void RetryEngine::push(std::string key, std::int64_t n, Deadline deadline, Completion<Added> done,
                       const redis::Cancelled* cancelled) {
    push(NewAdd{.key = std::move(key),
                .n = n,
                .deadline = deadline,
                .done = of_no_period(std::move(done)),
                .cancelled = cancelled});
}

// Requires the lock.
UnsettledAdd RetryEngine::number(NewAdd add) {
    ++under_way_;
    return {.key = std::move(add.key),
            .n = add.n,
            .period = std::move(add.period),
            .writer = writer_,
            .sequence = next_sequence_++,
            .ttl_ms = ttl_ms_,
            .max_age = settings_->queue.max_age,
            .deadline = add.deadline.time(),
            .done = std::move(add.done),
            .cancelled = add.cancelled};
}

void RetryEngine::push(NewAdd add) {
    if (auto started = start(); !started) {
        return add.done(
            make_error(started.error().code, started.error().message + "; nothing was applied"));
    }
    std::optional<Error> refused;
    {
        const std::lock_guard lock(mutex_);
        const std::size_t most = settings_->client->options().max_queue;
        if (closed_) {
            refused = make_error(ErrorCode::closed, "the counter is closed; nothing was applied");
        } else if (under_way_ >= most) {
            refused = make_error(
                ErrorCode::capacity,
                std::to_string(most) + " adds are under way (max_queue); nothing was applied");
        } else {
            incoming_.push_back(number(std::move(add)));
            changed_.notify_all();
            return;
        }
    }
    add.done(std::move(*refused));
}

void RetryEngine::answer(UnsettledAdd& add, Result<AddAnswer> outcome) {
    const auto done = std::exchange(add.done, {});
    add.cancelled = nullptr;
    if (!done) return;
    done(std::move(outcome));
    const std::lock_guard lock(mutex_);
    --under_way_;
}

Instant RetryEngine::store_time() const {
    using std::chrono::seconds;
    const std::lock_guard lock(mutex_);
    const ServerClock* last = nullptr;
    for (const auto& [node, clock] : clocks_) {
        if (clock.unix_ms == 0 || (last != nullptr && clock.asked < last->asked)) continue;
        last = &clock;
    }
    if (last == nullptr) return std::chrono::floor<seconds>(system_clock()->wall_now());
    // The error is at most half of the round trip that read the server's clock.
    const auto since = std::chrono::floor<std::chrono::milliseconds>(steady_now() - last->asked);
    return Instant{std::chrono::floor<seconds>(std::chrono::milliseconds{last->unix_ms} + since)};
}

// -- adds that callers send themselves ------------------------------------------------------------

std::optional<UnsettledAdd> RetryEngine::take_to_send(NewAdd& add, ServerClock& clock) {
    const std::lock_guard lock(mutex_);
    const bool idle = under_way_ == here_.size() && stats_.waiting == 0;
    if (!idle || closed_ || under_way_ >= settings_->client->options().max_queue) return {};
    const Mode mode = add.period ? Mode::period : ttl_ms_ > 0 ? Mode::ttl : Mode::plain;
    clock = clock_of(node_of(add.key));
    if (!clock.serves(mode) || !here_.insert(add.key).second) return {};
    return number(std::move(add));
}

void RetryEngine::add_waiting(std::string key, std::int64_t n, Deadline deadline,
                              Completion<Added> done) {
    add_waiting(NewAdd{.key = std::move(key),
                       .n = n,
                       .deadline = deadline,
                       .done = of_no_period(std::move(done))});
}

void RetryEngine::add_waiting(NewAdd new_add) {
    ServerClock clock;
    auto taken = take_to_send(new_add, clock);
    if (!taken) return push(std::move(new_add));
    Returned returned{.add = std::move(*taken)};
    UnsettledAdd& add = returned.add;
    const SteadyTime deadline = std::min(add.deadline, settings_->client->deadline({}).time());
    fix_since(add, clock, deadline);
    Call call{.mode = mode_of(add)};
    call.put(add, ttl_ms_, call.under_way(add, clock));
    std::optional<Result<Reply>> outcome;
    settings_->client->waiting().submit(
        call.request(1), Deadline::at(deadline),
        [&outcome](Result<Reply> reply) { outcome.emplace(std::move(reply)); });
    if (!*outcome) {
        const Error& why = outcome->error();
        if (!is_transient(why.code)) return end_here(add, about(add, why));
        add.sent = why.code == ErrorCode::outcome_unknown;
        returned.away = true;
        return hand_over(std::move(returned));
    }
    const auto* const replies = std::get_if<ReplyArray>(&(*outcome)->value);
    if (replies == nullptr || replies->size() != 1) {
        return end_here(add, unknown(add.key, "the script got a reply of another shape"));
    }
    const Reply& reply = replies->front();
    if (const auto* const refusal = std::get_if<ReplyError>(&reply.value)) {
        Error error = to_error(add, *refusal);
        if (!is_sent_again(error)) return end_here(add, std::move(error));
        return hand_over(std::move(returned));
    }
    const auto* const word = std::get_if<std::string>(&reply.value);
    if (word != nullptr && *word == "late") {
        returned.late = true;
        return hand_over(std::move(returned));
    }
    if (const auto refused = word != nullptr ? refused_period(*word) : std::nullopt) {
        return end_here(add, AddAnswer{*refused});
    }
    if (const auto value = redis::to_integer(reply)) return end_here(add, AddAnswer{*value});
    end_here(add, unknown(add.key, "the script got a reply of another shape"));
}

void RetryEngine::end_here(UnsettledAdd& add, Result<AddAnswer> outcome) {
    {
        const std::lock_guard lock(mutex_);
        here_.erase(add.key);
        --under_way_;
        if (outcome && stats_.is_away) {
            answered_.insert(node_of(add.key));
            if (nodes_ == nullptr) stats_.is_away = false;
        }
        // The worker thread may have adds for this key, and drain() waits for the last add.
        if (under_way_ > here_.size() || stats_.waiting > 0 || closed_ || !answered_.empty()) {
            changed_.notify_all();
        }
    }
    add.done(std::move(outcome));
}

void RetryEngine::hand_over(Returned returned) {
    UnsettledAdd& add = returned.add;
    if (auto started = start(); !started) {
        const std::string& why = started.error().message;
        return end_here(add, add.sent
                                 ? unknown(add.key, why)
                                 : make_error(started.error().code, why + "; nothing was applied"));
    }
    {
        const std::lock_guard lock(mutex_);
        if (!stop_) {
            here_.erase(add.key);
            returned_.push_back(std::move(returned));
            changed_.notify_all();
            return;
        }
    }
    const std::string why = "the counter was closed";
    end_here(add, add.sent ? unknown(add.key, why)
                           : make_error(ErrorCode::closed, why + "; nothing was applied"));
}

// Puts returned adds before other adds of their keys.
void RetryEngine::take_over(std::vector<Returned> returned) {
    Late queue;
    std::set<Lane*> away;
    for (Returned& one : returned) {
        Lane& lane = lane_of(one.add.key);
        if (one.away) away.insert(&lane);
        if (one.late) {
            distrust_clock(lane);
            next_deadline_ = std::min(next_deadline_, one.add.deadline);
            lane.direct.push_front(std::move(one.add));
        } else {
            queue[&lane].push_back(std::move(one.add));
        }
    }
    for (Lane* const lane : away) {
        if (!lane->away) went_away(*lane);
    }
    for (auto& [lane, adds] : queue) enqueue(*lane, std::move(adds), true);
}

// -- stats and stop -------------------------------------------------------------------------------

RetryStats RetryEngine::stats() const {
    const std::lock_guard lock(mutex_);
    RetryStats stats = stats_;
    if (oldest_) {
        stats.oldest_age = std::chrono::duration<double>(steady_now() - *oldest_).count();
    }
    return stats;
}

std::size_t RetryEngine::drain(Deadline deadline) {
    {
        std::unique_lock lock(mutex_);
        closed_ = true;
        (void)wait_or_interrupt(changed_, lock, deadline, [&] {
            if (!running_) return here_.empty();
            return under_way_ == 0 && stats_.waiting == 0;
        });
    }
    return stop();
}

std::size_t RetryEngine::stop() {
    std::unique_lock lock(mutex_);
    closed_ = stop_ = true;
    changed_.notify_all();
    if (thread_ != std::this_thread::get_id()) {
        changed_.wait_for(lock, kStopWait, [&] { return !running_; });
    }
    if (!running_) journal_.reset();
    return static_cast<std::size_t>(stats_.waiting);
}

}  // namespace hotcount

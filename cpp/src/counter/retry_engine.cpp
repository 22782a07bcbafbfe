
#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <utility>

#include "retry_flight.hpp"

namespace hotcount {
namespace {

using retry::steady_now;
using retry::unknown;

constexpr Duration kSyncEvery = std::chrono::seconds{1};
// How long the thread drives the client before it looks at incoming adds again.
constexpr Duration kTurn = std::chrono::milliseconds{2};

// The period of a queued add. Its end is not needed any more.
std::shared_ptr<const PeriodWindow> period_of(const JournaledAdd& add) {
    if (!add.period) return nullptr;
    const auto [begins, gone] = *add.period;
    return std::make_shared<const PeriodWindow>(PeriodWindow{begins, begins, gone, false});
}

}  // namespace

Result<std::shared_ptr<RetryEngine>> RetryEngine::open(
    std::shared_ptr<const RetrySettings> settings) {
    std::vector<JournaledAdd> found;
    std::unique_ptr<RetryJournal> journal;
    const RetryQueue& queue = settings->queue;
    if (!queue.path.empty()) {
        HOTCOUNT_TRY_ASSIGN(journal, RetryJournal::open(queue.path, queue.fsync, found));
    }
    const bool some_wait = !found.empty();
    auto engine =
        std::make_shared<RetryEngine>(std::move(settings), std::move(journal), std::move(found));
    if (some_wait) HOTCOUNT_TRY(engine->start());
    return engine;
}

RetryEngine::RetryEngine(std::shared_ptr<const RetrySettings> settings,
                         std::unique_ptr<RetryJournal> journal, std::vector<JournaledAdd> found)
    : settings_(std::move(settings)),
      writer_(thread_random().next()),
      ttl_ms_(settings_->options.ttl
                  ? std::chrono::ceil<std::chrono::milliseconds>(*settings_->options.ttl).count()
                  : 0),
      nodes_(redis::nodes_of(*settings_->client)),
      journal_(std::move(journal)) {
    settings_->client->prepare(script());
    const SteadyTime now = steady_now();
    const auto wall = std::chrono::duration_cast<std::chrono::microseconds>(
        system_clock()->wall_now().time_since_epoch());
    for (JournaledAdd& add : found) {
        const auto age = std::max(wall - std::chrono::microseconds{add.accepted_us},
                                  std::chrono::microseconds{0});
        ++waiting_keys_[add.key];
        lane_of(add.key).waiting.push_back({.key = std::move(add.key),
                                            .n = add.n,
                                            .period = period_of(add),
                                            .writer = add.writer,
                                            .sequence = add.sequence,
                                            .ttl_ms = add.ttl_ms,
                                            .max_age = std::chrono::milliseconds{add.max_age_ms},
                                            .accepted = now - age,
                                            .server_ms = add.server_ms,
                                            .since_ms = add.server_ms,
                                            .waits = true,
                                            .sent = true});
    }
    stats_.queued = static_cast<std::int64_t>(waiting_count());
    publish();
}

// -- the thread -----------------------------------------------------------------------------------

void RetryEngine::work() {
    std::unique_lock lock(mutex_);
    thread_ = std::this_thread::get_id();
    while (!stop_) {
        lock.unlock();
        {
            const CompletionBatch together;
            take_in();
            for (auto& [node, lane] : lanes_) land(lane);
            look_at_deadlines();
            for (auto& [node, lane] : lanes_) {
                if (lane.flights.empty()) launch(lane);
            }
            forget(std::exchange(forgotten_, {}));
            publish();
        }
        lock.lock();
        pause(lock);
    }
    lock.unlock();
    {
        const CompletionBatch together;
        take_in();
        const auto end = [this](UnsettledAdd& add) {
            if (add.sent) return answer(add, unknown(add.key, "the counter was closed"));
            answer(add,
                   make_error(ErrorCode::closed, "the counter is closed; nothing was applied"));
        };
        for (auto& [node, lane] : lanes_) {
            for (UnsettledAdd& add : lane.direct) end(add);
            for (const auto& flight : lane.flights) {
                for (UnsettledAdd& add : flight->adds) {
                    add.sent = true;
                    end(add);
                }
            }
        }
        publish();
        journal_.reset();
    }
    lock.lock();
    running_ = false;
    changed_.notify_all();
}

void RetryEngine::pause(std::unique_lock<std::mutex>& lock) {
    if (stop_) return;
    bool under_way = false;
    bool blocked = false;
    SteadyTime until = SteadyTime::max();
    for (const auto& [node, lane] : lanes_) {
        for (const auto& flight : lane.flights) {
            if (flight->finished.load(std::memory_order_acquire)) return;
            under_way = true;
        }
        if (!lane.flights.empty()) continue;
        if (!lane.direct.empty() && !lane.blocked) return;
        blocked |= lane.blocked;
        if (!lane.waiting.empty() && !store_closed_ && !lane.blocked) {
            until = std::min(until, lane.retry_at);
        }
        if (!lane.held.empty()) until = std::min(until, lane.held_until);
    }
    if (under_way) {
        lock.unlock();
        (void)settings_->client->run_once(kTurn);
        lock.lock();
        return;
    }
    if (!incoming_.empty() || !returned_.empty()) return;
    if (blocked) until = std::min(until, next_deadline_);
    if (journal_ && journal_->has_unsynced() && settings_->queue.fsync == Fsync::interval) {
        until = std::min(until, next_sync_);
    }
    const auto woken = [this, blocked] {
        return stop_ || !incoming_.empty() || !returned_.empty() || !answered_.empty() ||
               (blocked && here_.size() != busy_.size());
    };
    if (until == SteadyTime::max()) {
        changed_.wait(lock, woken);
    } else {
        changed_.wait_until(lock, until, woken);
    }
}

void RetryEngine::publish() {
    const std::lock_guard lock(mutex_);
    stats_.waiting = static_cast<std::int64_t>(waiting_count());
    stats_.is_away = is_away();
    stats_.journal_bytes = journal_ ? static_cast<std::int64_t>(journal_->bytes()) : 0;
    oldest_.reset();
    const auto look = [&](const UnsettledAdd& add) {
        if (add.waits && (!oldest_ || add.accepted < *oldest_)) oldest_ = add.accepted;
    };
    for (const auto& [node, lane] : lanes_) {
        for (const auto& flight : lane.flights) {
            if (!flight->adds.empty()) look(flight->adds.front());
        }
        if (!lane.waiting.empty()) look(lane.waiting.front());
        if (!lane.held.empty()) look(lane.held.front());
    }
    changed_.notify_all();
}

// -- adds that come in ----------------------------------------------------------------------------

void RetryEngine::take_in() {
    std::vector<UnsettledAdd> came;
    std::vector<Returned> returned;
    std::set<std::uint16_t> answered;
    follow_slots();
    {
        const std::lock_guard lock(mutex_);
        came.swap(incoming_);
        returned.swap(returned_);
        // While the thread has adds, take_to_send() gives callers no further keys.
        if (!busy_.empty() || !here_.empty()) busy_ = here_;
        answered = std::exchange(answered_, {});
    }
    for (auto& [node, lane] : lanes_) {
        if (!answered.contains(node)) continue;
        lane.away = false;
        lane.backoff = {};
        lane.retry_at = {};
    }
    take_over(std::move(returned));
    Late late;
    for (UnsettledAdd& add : came) {
        if (add.cancelled != nullptr && add.cancelled->load(std::memory_order_acquire)) {
            const std::lock_guard lock(mutex_);
            --under_way_;
            continue;
        }
        if (misplaced_.contains(add.key)) {
            answer(add, retry::about(add, *misplaced_why_));
            continue;
        }
        // The first add of an idle lane is sent although Redis is away: it tests whether Redis is back.
        Lane& lane = lane_of(add.key);
        const bool asks = lane.direct.empty() && lane.flights.empty() && waiting_count(lane) == 0 &&
                          !late.contains(&lane);
        if ((lane.away && !asks) || waiting_keys_.contains(add.key)) {
            late[&lane].push_back(std::move(add));
        } else {
            next_deadline_ = std::min(next_deadline_, add.deadline);
            lane.direct.push_back(std::move(add));
        }
    }
    for (auto& [lane, adds] : late) enqueue(*lane, std::move(adds), false);
}

// The next process uses server_ms as since_ms, so server_ms is the earlier of the two.
JournaledAdd RetryEngine::to_journaled(const Lane& lane, const UnsettledAdd& add) const {
    std::int64_t server_ms = add.server_ms;
    const ServerClock& clock = clock_of(lane.node);
    if (server_ms == 0 && clock.unix_ms > 0) {
        server_ms = clock.at(add.accepted);
        if (add.since_ms > 0) server_ms = std::min(server_ms, add.since_ms);
    }
    const auto accepted = std::chrono::duration_cast<std::chrono::microseconds>(
        system_clock()->wall_now().time_since_epoch() - (steady_now() - add.accepted));
    return {
        .writer = add.writer,
        .sequence = add.sequence,
        .n = add.n,
        .accepted_us = accepted.count(),
        .server_ms = server_ms,
        .max_age_ms = std::chrono::duration_cast<std::chrono::milliseconds>(add.max_age).count(),
        .ttl_ms = add.ttl_ms,
        .period = add.period ? std::optional{JournaledPeriod{add.period->begins, add.period->gone}}
                             : std::nullopt,
        .key = add.key};
}

Result<void> RetryEngine::write(const Lane& lane, std::vector<UnsettledAdd>& adds) {
    if (settings_->queue.path.empty()) return {};
    if (!journal_) {
        return make_error(ErrorCode::unavailable,
                          "the journal " + settings_->queue.path +
                              " belongs to the process that opened it, not to this fork of it");
    }
    std::vector<JournaledAdd> journaled;
    journaled.reserve(adds.size());
    for (const UnsettledAdd& add : adds) journaled.push_back(to_journaled(lane, add));
    if (!journal_->has_unsynced()) next_sync_ = steady_now() + kSyncEvery;
    return journal_->append(journaled);
}

// Refuses the adds for which the queue has no room, or drops the oldest queued ones.
void RetryEngine::make_room(std::vector<UnsettledAdd>& adds) {
    const std::size_t most = settings_->queue.max_items;
    std::size_t free = most - std::min(most, waiting_count());
    if (settings_->queue.when_full == WhenFull::drop_oldest) {
        for (; free < adds.size(); ++free) {
            Adds* oldest = nullptr;
            for (auto& [node, lane] : lanes_) {
                if (lane.waiting.empty()) continue;
                if (oldest == nullptr || lane.waiting.front().accepted < oldest->front().accepted) {
                    oldest = &lane.waiting;
                }
            }
            if (oldest == nullptr) break;
            settled(oldest->front(), &RetryStats::dropped);
            oldest->pop_front();
        }
    }
    for (std::size_t i = free; i < adds.size(); ++i) {
        const std::string full = "the retry queue is full: " + std::to_string(most) + " adds wait";
        answer(adds[i], adds[i].sent ? unknown(adds[i].key, full)
                                     : make_error(ErrorCode::capacity,
                                                  full + " (max_items); nothing was applied")
                                           .about(&ErrorFacts::key, adds[i].key));
    }
    if (free < adds.size()) adds.resize(free);
}

// Appends to `adds` the direct adds of the same keys, which must follow them into the queue.
void RetryEngine::pull_direct(Lane& lane, std::vector<UnsettledAdd>& adds) {
    std::unordered_set<std::string_view, KeyedHash, std::equal_to<>> keys;
    for (const UnsettledAdd& add : adds) keys.insert(add.key);
    Adds others;
    std::vector<UnsettledAdd> pulled;
    for (UnsettledAdd& add : lane.direct) {
        if (keys.contains(add.key)) {
            pulled.push_back(std::move(add));
        } else {
            others.push_back(std::move(add));
        }
    }
    lane.direct.swap(others);
    keys.clear();
    for (UnsettledAdd& add : pulled) adds.push_back(std::move(add));
    // All are this process's: one writer.
    std::sort(adds.begin(), adds.end(),
              [](const UnsettledAdd& a, const UnsettledAdd& b) { return a.sequence < b.sequence; });
}

// Puts adds of this process into the queue and answers their waiting callers. A key never has adds
// both in the queue and in `direct`. `in_front`: the adds were under way, so their numbers are
// lower than those of other adds to their keys.
void RetryEngine::enqueue(Lane& lane, std::vector<UnsettledAdd> adds, bool in_front) {
    if (adds.empty()) return;
    pull_direct(lane, adds);
    std::vector<UnsettledAdd> back;  // Adds that are queued already.
    for (UnsettledAdd& add : adds) {
        if (add.waits) back.push_back(std::move(add));
    }
    std::erase_if(adds, [](const UnsettledAdd& add) { return !add.done; });
    accept(lane, adds);
    for (UnsettledAdd& add : back) adds.push_back(std::move(add));
    std::sort(adds.begin(), adds.end(),
              [](const UnsettledAdd& a, const UnsettledAdd& b) { return a.sequence < b.sequence; });
    lane.waiting.insert(in_front ? lane.waiting.begin() : lane.waiting.end(),
                        std::make_move_iterator(adds.begin()), std::make_move_iterator(adds.end()));
}

// Writes adds to the journal and answers their callers. Removes the adds that it refuses.
void RetryEngine::accept(Lane& lane, std::vector<UnsettledAdd>& adds) {
    make_room(adds);
    if (adds.empty()) return;
    const SteadyTime now = steady_now();
    for (UnsettledAdd& add : adds) {
        add.accepted = now;
        if (!add.sent) fix_since(add, clock_of(lane.node), now);
    }
    if (auto wrote = write(lane, adds); !wrote) {
        const Error& why = wrote.error();
        for (UnsettledAdd& add : adds) {
            answer(add, add.sent ? unknown(add.key, why.message)
                                 : make_error(why.code, why.message + "; nothing was applied")
                                       .about(&ErrorFacts::key, add.key));
        }
        adds.clear();
        return;
    }
    std::size_t waiting = waiting_count();
    {
        const std::lock_guard lock(mutex_);
        stats_.queued += static_cast<std::int64_t>(adds.size());
        stats_.waiting = static_cast<std::int64_t>(waiting + adds.size());
        stats_.is_away = is_away();
        stats_.journal_bytes = journal_ ? static_cast<std::int64_t>(journal_->bytes()) : 0;
        if (!oldest_) oldest_ = now;
    }
    const bool durable = journal_ != nullptr && settings_->queue.fsync == Fsync::always;
    for (UnsettledAdd& add : adds) {
        add.waits = true;
        ++waiting_keys_[add.key];
        answer(add, AddAnswer{Queued{static_cast<std::int64_t>(++waiting), durable}});
    }
}

// Expires unsent queued adds older than their max_age, releases held adds, syncs the journal, and
// queues adds whose deadline has passed.
void RetryEngine::look_at_deadlines() {
    const SteadyTime now = steady_now();
    for (auto& [node, lane] : lanes_) {
        Adds& waiting = lane.waiting;
        while (!waiting.empty() && !waiting.front().sent &&
               now - waiting.front().accepted > waiting.front().max_age) {
            settled(waiting.front(), &RetryStats::expired);
            waiting.pop_front();
        }
        if (now >= lane.held_until) release_held(lane);
    }
    if (journal_ && journal_->has_unsynced() && settings_->queue.fsync == Fsync::interval &&
        now >= next_sync_) {
        journal_->sync();
        next_sync_ = now + kSyncEvery;
    }
    if (now < next_deadline_) return;
    next_deadline_ = SteadyTime::max();
    for (auto& [node, lane] : lanes_) look_at_deadlines(lane, now);
}

void RetryEngine::look_at_deadlines(Lane& lane, SteadyTime now) {
    std::vector<UnsettledAdd> late;
    for (const auto& flight : lane.flights) {
        if (flight->finished.load(std::memory_order_acquire)) continue;
        // Copies are accepted; the adds themselves stay in the flight.
        std::vector<UnsettledAdd> copies;
        for (UnsettledAdd& add : flight->adds) {
            if (!add.done) continue;
            if (add.deadline > now) {
                next_deadline_ = std::min(next_deadline_, add.deadline);
                continue;
            }
            add.sent = true;
            UnsettledAdd& copy = copies.emplace_back(add);
            add.done = {};
            copy.cancelled = add.cancelled = nullptr;
        }
        if (!copies.empty()) note_silent(lane);
        accept(lane, copies);
        std::unordered_set<std::uint64_t> taken;
        for (const UnsettledAdd& copy : copies) taken.insert(copy.sequence);
        for (UnsettledAdd& add : flight->adds) {
            if (!taken.contains(add.sequence) || add.waits) continue;
            add.waits = true;
            add.accepted = now;
        }
        // Adds behind these go into the queue as well.
        pull_direct(lane, copies);
        for (UnsettledAdd& copy : copies) {
            if (!taken.contains(copy.sequence)) late.push_back(std::move(copy));
        }
    }
    Adds in_time;
    for (UnsettledAdd& add : lane.direct) {
        if (add.deadline <= now) {
            late.push_back(std::move(add));
        } else {
            next_deadline_ = std::min(next_deadline_, add.deadline);
            in_time.push_back(std::move(add));
        }
    }
    lane.direct.swap(in_time);
    if (!late.empty()) note_silent(lane);
    enqueue(lane, std::move(late), false);
}

// -- adds of the queue that end -------------------------------------------------------------------

void RetryEngine::settled(UnsettledAdd& add, std::int64_t RetryStats::*count) {
    if (!add.waits) return answer(add, unknown(add.key, "its answer was lost"));
    forgotten_.push_back({add.writer, add.sequence});
    const auto at = waiting_keys_.find(add.key);
    if (at != waiting_keys_.end() && --at->second == 0) {
        waiting_keys_.erase(at);
        misplaced_.erase(add.key);
    }
    const std::lock_guard lock(mutex_);
    ++(stats_.*count);
}

void RetryEngine::forget(const std::vector<AddId>& ids) {
    if (ids.empty() || !journal_) return;
    journal_->settle(ids, [this] {
        std::vector<JournaledAdd> live;
        for (const auto& each : lanes_) {
            const Lane& lane = each.second;
            const auto keep = [&](const UnsettledAdd& add) {
                if (add.waits) live.push_back(to_journaled(lane, add));
            };
            for (const auto& flight : lane.flights) std::ranges::for_each(flight->adds, keep);
            std::ranges::for_each(lane.held, keep);
            std::ranges::for_each(lane.waiting, keep);
        }
        return live;
    });
}

}  // namespace hotcount

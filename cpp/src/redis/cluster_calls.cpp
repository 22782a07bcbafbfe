#include "cluster_calls.hpp"

#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>
#include <string>

namespace hotcount::redis {
namespace {

// How late a look may be.
constexpr Duration kLookIsLost = std::chrono::seconds{1};

Error moved_error() { return make_error(ErrorCode::unavailable, "the slot has moved"); }

// A batch in parts, one for each command. Each part ends by itself, and its error is its own.
class Fan : public std::enable_shared_from_this<Fan> {
  public:
    Fan(std::size_t size, Completion<Reply> done)
        : replies_(size), left_(size), done_(std::move(done)) {}

    Completion<Reply> part(std::size_t index) {
        return [self = shared_from_this(), index](Result<Reply> outcome) {
            self->take(index, std::move(outcome));
        };
    }

  private:
    void take(std::size_t index, Result<Reply> outcome) {
        auto* const one = outcome.ok() ? std::get_if<ReplyArray>(&outcome->value) : nullptr;
        if (!outcome) {
            replies_[index].value = ReplyError{outcome.error().message, outcome.error().code};
        } else if (one != nullptr && one->size() == 1) {
            replies_[index] = std::move(one->front());
        }
        if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
        done_(Reply{std::move(replies_)});
    }

    ReplyArray replies_;
    std::atomic<std::size_t> left_;
    Completion<Reply> done_;
};

}  // namespace

ClusterCalls::ClusterCalls(Router& router, Lanes& lanes) : router_(router), lanes_(lanes) {
    for (auto& node : view_) node.store(Router::kNobody, std::memory_order_relaxed);
}

// -- new calls ------------------------------------------------------------------------------------

void ClusterCalls::submit(Request&& request, Deadline deadline, Completion<Reply>&& done,
                          const Cancelled* cancelled) {
    if (request.goes_alone()) {
        return done(make_error(ErrorCode::config,
                               "command " + request.name() +
                                   " is not known, and neither are its keys: " +
                                   (request.name().find(' ') != std::string::npos
                                        ? "give each argument by itself"
                                        : "send it to a node of the cluster by a store of its "
                                          "own, redis://host:port")));
    }
    if (request.is_batch()) {
        std::vector<Request> parts = std::move(request).parts();
        const auto fan = std::make_shared<Fan>(parts.size(), std::move(done));
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const auto slot = parts[i].slot();
            auto operation =
                std::make_shared<Operation>(std::move(parts[i]), deadline, fan->part(i), cancelled);
            if (!slot) {
                operation->refuse(slot.error());
                continue;
            }
            operation->route.slot = *slot;
            operation->route.number = next_number();
            start(operation);
        }
        return;
    }
    const auto slot = request.slot();
    auto operation =
        std::make_shared<Operation>(std::move(request), deadline, std::move(done), cancelled);
    if (!slot) return operation->refuse(slot.error());
    operation->route.slot = *slot;
    operation->route.number = next_number();
    start(operation);
}

void ClusterCalls::start(const OperationPtr& operation) {
    const std::uint16_t node = place(operation->route.slot);
    if (node < kMoving) {
        if (const auto refused = lanes_.push(node, operation)) operation->refuse(*refused);
        return;
    }
    operation->route.begun = std::chrono::steady_clock::now();
    Ended ended;
    {
        Lock lock(mutex_);
        route(operation, /*redirected=*/false, ended);
    }
    end(ended);
}

std::uint16_t ClusterCalls::place(std::uint16_t slot) {
    if (seen_.load(std::memory_order_acquire) != router_.version()) {
        Lock lock(mutex_);
        sync(lock);
    }
    return view_[slot].load(std::memory_order_acquire);
}

// Takes over the router's owners. A slot moves when its former owner has answered everything.
void ClusterCalls::sync(Lock& lock) {
    const std::uint64_t version = router_.version();
    if (seen_.load(std::memory_order_relaxed) == version) return;
    std::map<std::uint16_t, SlotSet> asked;
    for (std::uint16_t slot = 0; slot < kSlots; ++slot) {
        const std::uint16_t now = router_.owner(slot);
        const std::uint16_t before = view_[slot].load(std::memory_order_relaxed);
        if (before == now || before == kMoving) continue;
        if (before != Router::kNobody) {
            const auto [found, is_new] = asked.try_emplace(before);
            if (is_new) lanes_.outstanding(before, found->second);
            if (found->second.test(slot)) {
                moving_.emplace(slot, Moving{before, {}, {}});
                view_[slot].store(kMoving, std::memory_order_release);
                if (std::ranges::find(evictions_, before) == evictions_.end()) {
                    evictions_.push_back(before);
                }
                continue;
            }
        }
        view_[slot].store(now, std::memory_order_release);
    }
    moving_count_.store(moving_.size(), std::memory_order_release);
    seen_.store(version, std::memory_order_release);
    changed_.notify_all();
    run_evictions(lock);
}

// Calls that were not sent go to the new owners. A lane hands them back at once, so without the lock.
void ClusterCalls::run_evictions(Lock& lock) {
    if (evictions_.empty()) return;
    std::vector<std::uint16_t> nodes;
    nodes.swap(evictions_);
    lock.unlock();
    for (const std::uint16_t node : nodes) {
        lanes_.evict(node);
        answered(node);
    }
    lock.lock();
}

// Under the lock.
void ClusterCalls::route(const OperationPtr& operation, bool redirected, Ended& ended) {
    if (closed_) {
        ended.emplace_back(operation, *closed_);
        return;
    }
    if (operation->route.asking) return put(operation->route.target, operation, ended);
    const std::uint16_t slot = operation->route.slot;
    const std::uint16_t node = view_[slot].load(std::memory_order_relaxed);
    if (node == kMoving) {
        Moving& moving = moving_.find(slot)->second;
        auto& calls = redirected ? moving.redirected : moving.fresh;
        // Two threads may hand back calls of the slot out of order.
        const auto behind =
            std::ranges::upper_bound(calls, operation->route.number, {},
                                     [](const OperationPtr& each) { return each->route.number; });
        calls.insert(behind, operation);
        look_by(operation->deadline().time());
    } else if (node == Router::kNobody) {
        wait_with(operation, kForMap, no_owner());
        lanes_.want_map();
    } else {
        put(node, operation, ended);
    }
}

void ClusterCalls::put(std::uint16_t node, const OperationPtr& operation, Ended& ended) {
    if (auto refused = lanes_.push(node, operation)) {
        ended.emplace_back(operation, std::move(*refused));
    }
}

void ClusterCalls::wait_with(const OperationPtr& operation, SteadyTime until, Error why) {
    waiting_.push_back({operation, until, std::move(why)});
    look_by(std::min(until, operation->deadline().time()));
}

// Under the lock. Each look asks for the next one, so a look that is due covers all later times:
// one task for each waiting call at each look would be their square. A look that is long overdue
// was lost, because no thread could be started for it.
void ClusterCalls::look_by(SteadyTime time) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (time >= next_look_ && now - next_look_ < kLookIsLost) return;
    next_look_ = time;
    lanes_.look_at(time);
}

Error ClusterCalls::no_owner() {
    if (!router_.has_map()) return lanes_.why_none();
    return make_error(ErrorCode::unavailable, "no node of the cluster has the key's slot",
                      "CLUSTERDOWN");
}

// No lane takes the call; an earlier one may have run it.
Error ClusterCalls::outcome_of(const Operation& operation, const Error& why) {
    const bool says_so = why.code == ErrorCode::outcome_unknown;
    return operation.maybe_ran() && !says_so ? Router::unserved(operation, why) : why;
}

void ClusterCalls::end(const Ended& ended) {
    for (const auto& [operation, error] : ended) operation->refuse(outcome_of(*operation, error));
}

// -- calls that left a lane -----------------------------------------------------------------------

void ClusterCalls::left(std::uint16_t node, const OperationPtr& operation) {
    if (operation->is_cancelled()) return operation->drop();
    if (operation->route.slot >= kSlots) {
        return operation->refuse(Router::unserved(*operation, operation->departure().error));
    }
    Router::Next next = router_.decide(*operation, node);
    Ended ended;
    {
        Lock lock(mutex_);
        if (next.doubts_map) lanes_.want_map();
        sync(lock);
        if (next.what == Router::Next::Do::end) {
            ended.emplace_back(operation, *next.error);
        } else if (next.pause > Duration{0} && !closed_) {
            wait_with(operation, std::chrono::steady_clock::now() + next.pause,
                      operation->departure().error);
        } else {
            route(operation, /*redirected=*/true, ended);
        }
    }
    end(ended);
}

void ClusterCalls::answered(std::uint16_t node) {
    if (moving_count_.load(std::memory_order_acquire) == 0) return;
    Ended ended;
    {
        Lock lock(mutex_);
        release(node, ended);
    }
    end(ended);
}

// Under the lock: releases the slots of which the former owner has answered all calls.
void ClusterCalls::release(std::uint16_t node, Ended& ended) {
    std::optional<SlotSet> open;
    for (auto it = moving_.begin(); it != moving_.end();) {
        auto& [slot, moving] = *it;
        if (moving.from != node) {
            ++it;
            continue;
        }
        if (!open) lanes_.outstanding(node, open.emplace());
        if (open->test(slot)) {
            ++it;
            continue;
        }
        view_[slot].store(router_.owner(slot), std::memory_order_release);
        const Moving released = std::move(moving);
        it = moving_.erase(it);
        for (const auto* const calls : {&released.redirected, &released.fresh}) {
            for (const OperationPtr& operation : *calls) {
                route(operation, /*redirected=*/true, ended);
            }
        }
    }
    moving_count_.store(moving_.size(), std::memory_order_release);
    changed_.notify_all();
}

void ClusterCalls::look() {
    Ended ended;
    {
        Lock lock(mutex_);
        sync(lock);
        changed_.notify_all();
        const SteadyTime now = std::chrono::steady_clock::now();
        if (next_look_ <= now) next_look_ = SteadyTime::max();
        const auto is_over = [&](const OperationPtr& operation, const Error& why) {
            if (operation->is_cancelled()) {
                operation->drop();
                return true;
            }
            if (operation->deadline().time() > now) return false;
            ended.emplace_back(operation, Router::unserved(*operation, why));
            return true;
        };
        for (auto& [slot, moving] : moving_) {
            for (auto* const calls : {&moving.redirected, &moving.fresh}) {
                std::erase_if(*calls, [&](const OperationPtr& operation) {
                    return is_over(operation, moved_error());
                });
                for (const OperationPtr& operation : *calls) look_by(operation->deadline().time());
            }
        }
        std::deque<Waiting> waiting;
        waiting.swap(waiting_);
        for (Waiting& each : waiting) {
            const bool for_map = each.until == kForMap;
            if (is_over(each.operation, for_map ? no_owner() : each.why)) continue;
            const auto none = for_map && !router_.has_map()
                                  ? lanes_.no_map_since(each.operation->route.begun)
                                  : std::nullopt;
            if (none) {
                ended.emplace_back(each.operation, *none);
            } else if (!for_map && each.until > now) {
                wait_with(each.operation, each.until, std::move(each.why));
            } else {
                route(each.operation, /*redirected=*/true, ended);
            }
        }
        std::vector<std::uint16_t> sources;
        for (const auto& [slot, moving] : moving_) {
            if (std::ranges::find(sources, moving.from) == sources.end()) {
                sources.push_back(moving.from);
            }
        }
        for (const std::uint16_t node : sources) release(node, ended);
        // A loop looks only while calls wait, so that the next one must ask for its look again.
        const bool none_moves = std::ranges::all_of(moving_, [](const auto& each) {
            return each.second.redirected.empty() && each.second.fresh.empty();
        });
        if (waiting_.empty() && none_moves) next_look_ = SteadyTime::max();
    }
    end(ended);
}

// -- calls that a thread waits for ----------------------------------------------------------------

Result<std::uint16_t> ClusterCalls::wait_for_node(Operation& operation) {
    if (operation.route.asking) return operation.route.target;
    std::uint16_t node = place(operation.route.slot);
    if (node < kMoving) [[likely]]
        return node;
    Lock lock(mutex_);
    const Deadline deadline = operation.deadline();
    while (true) {
        sync(lock);
        if (closed_) return outcome_of(operation, *closed_);
        node = view_[operation.route.slot].load(std::memory_order_relaxed);
        if (node < kMoving) return node;
        if (node == Router::kNobody) {
            if (!router_.has_map()) {
                if (auto none = lanes_.no_map_since(operation.route.begun)) return *none;
            }
            lanes_.want_map();
        }
        if (deadline.passed()) {
            return Router::unserved(operation,
                                    node == Router::kNobody ? no_owner() : moved_error());
        }
        const Deadline until = Deadline::at(std::min(
            deadline.time(), std::chrono::steady_clock::now() + std::chrono::milliseconds{20}));
        (void)wait_or_interrupt(changed_, lock, until, [&] {
            return closed_.has_value() ||
                   view_[operation.route.slot].load(std::memory_order_relaxed) < kMoving;
        });
    }
}

Result<void> ClusterCalls::follow(Operation& operation, std::uint16_t from) {
    const Router::Next next = router_.decide(operation, from);
    if (next.doubts_map) lanes_.want_map();
    if (next.what == Router::Next::Do::end) return *next.error;
    if (next.pause > Duration{0}) {
        sleep_or_interrupt(next.pause);
        if (operation.deadline().passed()) {
            return Router::unserved(operation, operation.departure().error);
        }
    }
    return {};
}

// -- the end --------------------------------------------------------------------------------------

void ClusterCalls::close(const Error& closed) {
    Ended ended;
    {
        Lock lock(mutex_);
        closed_ = closed;
        for (auto& [slot, moving] : moving_) {
            for (const auto* const calls : {&moving.redirected, &moving.fresh}) {
                for (const OperationPtr& operation : *calls) ended.emplace_back(operation, closed);
            }
            moving.redirected.clear();
            moving.fresh.clear();
        }
        for (const Waiting& each : waiting_) ended.emplace_back(each.operation, closed);
        waiting_.clear();
        changed_.notify_all();
    }
    end(ended);
}

std::size_t ClusterCalls::waiting() const {
    const std::lock_guard lock(mutex_);
    std::size_t count = waiting_.size();
    for (const auto& [slot, moving] : moving_) {
        count += moving.redirected.size() + moving.fresh.size();
    }
    return count;
}

}  // namespace hotcount::redis

// Calls of many writes. Only a portion of a call is in the queue at a time, so other callers wait for
// no more than a portion, and a call whose deadline passes removes no more than that from the queue.
#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>

#include "queue.hpp"

namespace hotcount::sql {
namespace {

// Pause of a call that found the queue full.
constexpr Duration kRoomPause = std::chrono::milliseconds{2};

}  // namespace

// An asynchronous call of many writes.
struct BulkCall : std::enable_shared_from_this<BulkCall> {
    BulkCall(ManyWrites all, Deadline to_send, std::function<void()> told)
        : writes(std::move(all)), until(to_send), done(std::move(told)) {}

    void refuse_rest(const Result<void>& why) {
        for (; begun < writes.count; ++begun) writes.settle(begun, nullptr, why);
    }

    const ManyWrites writes;
    const Deadline until;
    std::function<void()> done;
    std::size_t begun{0};  // Writes queued or refused. Only the thread in hand_in() uses it.
    // Writes of the last portion that wait to be written, plus one during hand_in().
    std::atomic<std::size_t> waiting{0};
    std::atomic<std::size_t> open{1};  // Unanswered writes, plus one until all are queued.
};

Portion GroupQueue::next_portion(const ManyWrites& writes, std::size_t begun) const {
    const std::size_t size = portion_.next(writes.count - begun);
    Portion portion;
    portion.places.reserve(size);
    portion.writes.reserve(size);
    for (std::size_t i = begun; i < begun + size; ++i) portion.add(i, writes.make(i));
    return portion;
}

// -- callers that wait ----------------------------------------------------------------------------

void GroupQueue::submit_all(const ManyWrites& writes, Deadline deadline) {
    if (writes.count == 1) {
        const auto only = writes.make(0);
        return writes.settle(0, only.get(), submit(only, deadline));
    }
    const Deadline until = time_to_send(deadline, writes.count);
    const bool large = portion_.is_large(writes.count);
    Portion behind;
    std::size_t begun = 0;
    while (begun < writes.count && !until.passed()) {
        const Portion portion = next_portion(writes, begun);
        std::shared_ptr<QueuedWrite> leads;
        if (!enqueue_in_time(portion.writes, until, large, leads)) break;
        begun += portion.writes.size();
        std::optional<Result<void>> led;
        if (leads != nullptr) led = lead_once(leads.get(), until);
        const bool is_last = begun == writes.count;
        await_all(portion, writes, until, leads.get(), led, is_last ? nullptr : &behind);
    }
    await_all(behind, writes, until, nullptr, std::nullopt, nullptr);
    if (begun == writes.count) return;
    const Result<void> late = late_in_queue();
    for (; begun < writes.count; ++begun) writes.settle(begun, nullptr, late);
}

// False if the deadline has passed before there was room.
bool GroupQueue::enqueue_in_time(Writes writes, Deadline until, bool large,
                                 std::shared_ptr<QueuedWrite>& leads) {
    while (true) {
        {
            const std::lock_guard lock(mutex_);
            if (has_room(writes.size())) {
                enqueue(writes, until, large, leads);
                return true;
            }
        }
        if (until.passed()) return false;
        sleep_or_interrupt(std::min(kRoomPause, until.remaining()));
    }
}

// Awaits the writes in order: a write whose caller must lead is always the first of the portion that
// is not written. `answer`: the result of `led` if it has led. Writes that the held thread has are
// appended to `behind` unless that is null.
void GroupQueue::await_all(const Portion& portion, const ManyWrites& call, Deadline until,
                           const QueuedWrite* led, std::optional<Result<void>> answer,
                           Portion* behind) {
    const Writes writes{portion.writes};
    std::vector<std::optional<Result<void>>> left(writes.size());
    bool over = false;
    for (std::size_t i = 0; i < writes.size(); ++i) {
        std::optional<Result<void>> outcome = std::move(left[i]);
        if (!outcome && writes[i].get() == led) outcome = answer;
        if (!outcome) outcome = await(writes[i], until, behind != nullptr);
        if (!outcome) {
            behind->add(portion.places[i], writes[i]);
            continue;
        }
        call.settle(portion.places[i], writes[i].get(), *outcome);
        if (over || !until.passed()) continue;
        over = true;
        auto rest = leave(writes.subspan(i + 1));
        std::move(rest.begin(), rest.end(), left.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
}

// The caller's deadline has passed: takes out the writes that are not being written. Returns their
// errors, and nullopt for the others.
std::vector<std::optional<Result<void>>> GroupQueue::leave(Writes writes) {
    std::vector<std::optional<Result<void>>> errors(writes.size());
    const std::lock_guard lock(mutex_);
    const Result<void> late = late_in_queue();
    const Result<void> late_held = late_while_held();
    std::vector<std::shared_ptr<Group>> groups;
    bool some_held = false;
    for (std::size_t i = 0; i < writes.size(); ++i) {
        const auto& write = writes[i];
        const auto& group = write->group_;
        if (group->stage == Stage::held) {
            some_held = true;
            errors[i] = late_held;
        } else if (group->stage == Stage::queued) {
            // This write's caller was asked to lead: await() leads and passes the role on.
            if (group->turn.is_set() && group->writes.front() == write) continue;
            if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
                groups.push_back(group);
            }
            errors[i] = late;
        } else {
            continue;
        }
        write->gone_ = true;
    }
    const auto is_gone = [](const auto& write) { return write->gone_; };
    for (const auto& group : groups) take_out(group, is_gone);
    if (some_held) take_out_held(is_gone);
    return errors;
}

// -- callers that do not --------------------------------------------------------------------------

void GroupQueue::submit_all_async(ManyWrites writes, Deadline deadline,
                                  std::function<void()> done) {
    const Deadline until = time_to_send(deadline, writes.count);
    const auto call = std::make_shared<BulkCall>(std::move(writes), until, std::move(done));
    {
        const std::lock_guard lock(mutex_);
        ++in_flight_;
    }
    hand_in(call);
}

// Queues the next portion, and further ones while each is answered at once.
void GroupQueue::hand_in(const std::shared_ptr<BulkCall>& call) {
    const bool large = portion_.is_large(call->writes.count);
    while (call->begun < call->writes.count) {
        if (call->until.passed()) {
            call->refuse_rest(late_in_queue());
            break;
        }
        const Portion portion = next_portion(call->writes, call->begun);
        const std::size_t size = portion.writes.size();
        for (std::size_t i = 0; i < size; ++i) {
            QueuedWrite& write = *portion.writes[i];
            write.bulk_ = call.get();
            // Only this queue calls it, so `this` is valid then.
            write.done_ = [this, call, &write, place = portion.places[i]](Result<void> result) {
                call->writes.settle(place, &write, result);
                stop_waiting_for(write);
                end_one(call);
            };
        }
        call->waiting.store(size + 1, std::memory_order_relaxed);
        call->open.fetch_add(size, std::memory_order_relaxed);
        const std::size_t before = std::exchange(call->begun, call->begun + size);
        const auto queued = enqueue_async(portion.writes, call->until, large);
        if (!queued || !*queued) {
            for (const auto& write : portion.writes) write->done_ = nullptr;
            call->open.fetch_sub(size, std::memory_order_relaxed);
            call->begun = before;
            if (queued) {
                return pool_.run_at(
                    std::min(std::chrono::steady_clock::now() + kRoomPause, call->until.time()),
                    [self = shared_from_this(), call] { self->hand_in(call); });
            }
            call->refuse_rest(queued.error());
            break;
        }
        if (call->waiting.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    }
    end_one(call);
}

// Called when the write is answered, or, under the mutex, left to the held thread.
void GroupQueue::stop_waiting_for(QueuedWrite& write) {
    BulkCall* const call = std::exchange(write.bulk_, nullptr);
    if (call == nullptr || call->waiting.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    pool_.run(
        [self = shared_from_this(), ended = call->shared_from_this()] { self->hand_in(ended); });
}

void GroupQueue::end_one(const std::shared_ptr<BulkCall>& call) {
    if (call->open.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    // A completion that runs before submit_all_async() returns may call close(), which waits for
    // in_flight_ to be 0.
    const bool waited_for = pool_.is_own_thread();
    if (waited_for) std::exchange(call->done, nullptr)();
    {
        const std::lock_guard lock(mutex_);
        if (--in_flight_ == 0) none_in_flight_.notify_all();
    }
    if (!waited_for) std::exchange(call->done, nullptr)();
}

}  // namespace hotcount::sql

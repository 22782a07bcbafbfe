#include "shared_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>

namespace hotcount::redis {
namespace {

// How often run_once() checks for calls that are late or whose pause is over.
constexpr Duration kTick = std::chrono::milliseconds{20};

// From 16 concurrent calls on, waking callers before the next send raised throughput; with 12 it
// did not.
constexpr std::size_t kCompany = 16;

// Calls that run_once() ends at a time because their deadline has passed.
constexpr std::size_t kMostLate = 1024;

}  // namespace

// -- calls --------------------------------------------------------------------------------------

Result<Reply> SharedConnection::execute(Request&& request, Deadline deadline) {
    return execute(std::make_shared<Operation>(std::move(request), deadline));
}

Result<Reply> SharedConnection::execute(const OperationPtr& operation) {
    const Deadline deadline = operation->deadline();
    Lock lock(mutex_);
    if (const auto queued = enqueue(lock, operation, deadline); !queued) {
        return multiplexer_.refuse(*operation, queued.error());
    }
    auto outcome = await(lock, operation, deadline);
    if (is_lane() && operation->has_left()) {
        // No caller here may wake it once it is in another lane.
        if (!lock.owns_lock()) lock.lock();
        multiplexer_.forget(operation);
    }
    const bool gave_up = operation->state() == Operation::State::abandoned;
    if (lock.owns_lock()) leave(lock);
    if (is_lane() && gave_up) {
        lock.unlock();
        if (const auto owner = lane_.owner.lock()) owner->answered(lane_.node);
    }
    return outcome;
}

void SharedConnection::submit(const OperationPtr& operation) {
    if (const auto refused = take(operation)) operation->refuse(*refused);
}

std::optional<Error> SharedConnection::take(const OperationPtr& operation) {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_error();
    auto full = push(operation);
    if (!full) hand_on();
    return full;
}

Result<void> SharedConnection::enqueue(Lock& lock, const OperationPtr& operation,
                                       Deadline deadline) {
    const auto has_room = [this] { return closed_ || multiplexer_.queued() < options_.max_queue; };
    if (!wait_or_interrupt(room_, lock, deadline, has_room)) {
        const Error full = make_error(
            ErrorCode::deadline, options_.address() + ": " + std::to_string(multiplexer_.queued()) +
                                     " calls are waiting (max_queue) and the deadline passed" +
                                     (operation->maybe_ran() ? "" : "; nothing was applied"));
        dialer_->full_queue().begin(full.message);
        return full;
    }
    if (closed_) return closed_error();
    note_room();
    // While there is a reader it checks this.
    if (!roles_.reading() && multiplexer_.in_flight() > 0) give_up_silent();
    operation->join(gathering_, places_++);
    multiplexer_.push(operation);
    return {};
}

// Returns without the lock if nothing is left to do under it.
Result<Reply> SharedConnection::await(Lock& lock, const OperationPtr& operation,
                                      Deadline deadline) {
    const Goal goal{operation.get(), completed_};
    while (!operation->is_done()) {
        if (deadline.passed()) {
            auto known = multiplexer_.give_up(operation);
            room_.notify_one();
            return known;
        }
        if (operation->state() == Operation::State::postponed) {
            multiplexer_.requeue_due(std::chrono::steady_clock::now());
        }
        switch (roles_.next(work())) {
            case ConnectionRoles::Next::write:
                write(lock, goal, deadline);
                break;
            case ConnectionRoles::Next::read:
                read(lock, goal, deadline);
                break;
            case ConnectionRoles::Next::sleep:
                if (multiplexer_.has_finished()) {
                    tell_finished(lock);
                    break;
                }
                sleep(lock, *operation, Deadline::at(wait_until(goal, deadline)));
                // An answered call returns without the lock, for which 60 callers woken at the same
                // time may compete. The caller that answered it hands on its own role.
                if (operation->is_done()) return operation->take_outcome();
                check_interrupt();
                lock.lock();
                operation->awake();
        }
    }
    return operation->take_outcome();
}

// Returns without the lock.
void SharedConnection::sleep(Lock& lock, Sleeper& sleeper, Deadline deadline) {
    const std::uint32_t seen = sleeper.wave().epoch();
    roles_.sleep(sleeper);
    lock.unlock();
    sleeper.wave().wait(seen, deadline, sleeper.place());
}

// The caller of a postponed call wakes at the end of the pause, to send it again.
SteadyTime SharedConnection::wait_until(const Goal& goal, Deadline deadline) const {
    const bool postponed = goal.own != nullptr && goal.own->state() == Operation::State::postponed;
    return postponed ? std::min(goal.own->retry_at(), deadline.time()) : deadline.time();
}

std::size_t SharedConnection::run_once(Deadline deadline) {
    Sleeper driver;
    driver.join(std::make_shared<Signal>(), 0);
    Lock lock(mutex_);
    const Goal goal{nullptr, completed_};
    while (!closed_) {
        const SteadyTime now = std::chrono::steady_clock::now();
        multiplexer_.requeue_due(now);
        multiplexer_.expire(now, kMostLate);
        room_.notify_all();
        tell_finished(lock);
        if (reached(goal) || now >= deadline.time()) break;
        const Deadline until = Deadline::at(std::min(deadline.time(), now + kTick));
        switch (roles_.next(work())) {
            case ConnectionRoles::Next::write:
                write(lock, goal, until);
                break;
            case ConnectionRoles::Next::read:
                read(lock, goal, until);
                break;
            case ConnectionRoles::Next::sleep:
                sleep(lock, driver, until);
                lock.lock();
                driver.awake();
        }
    }
    const auto ended = static_cast<std::size_t>(completed_ - goal.completed_before);
    leave(lock);
    return ended;
}

std::size_t SharedConnection::unwaited() {
    const std::lock_guard lock(mutex_);
    return multiplexer_.unwaited();
}

bool SharedConnection::reached(const Goal& goal) const {
    return goal.own != nullptr ? goal.own->is_done() : completed_ != goal.completed_before;
}

// Called when a caller leaves, or adds work that another caller may do.
void SharedConnection::hand_on() {
    if (Sleeper* const called = roles_.successor(work())) called->wave().wake(called->place());
}

void SharedConnection::leave(Lock& lock) {
    hand_on();
    tell_finished(lock);
}

// A wakeup is a system call and a completion is foreign code, so neither runs under the lock. Callers
// whose commands left together are mostly answered together, and one system call wakes them all.
void SharedConnection::tell_finished(Lock& lock) {
    if (!multiplexer_.has_finished()) return;
    const std::vector<OperationPtr> finished = multiplexer_.take_finished();
    if (is_lane()) return tell_finished_in_lane(lock, finished);
    lock.unlock();
    std::size_t completed = 0;
    for (std::size_t i = 0; i < finished.size();) {
        const OperationPtr& operation = finished[i];
        if (!operation->waited_for()) {
            operation->complete();
            ++completed;
            ++i;
            continue;
        }
        Signal& wave = operation->wave();
        std::uint32_t places = 0;
        for (; i < finished.size() && finished[i]->waited_for() && &finished[i]->wave() == &wave;
             ++i) {
            places |= finished[i]->place();
        }
        wave.wake(places);
    }
    lock.lock();
    completed_ += completed;
}

// -- writing ------------------------------------------------------------------------------------

// It never waits for the socket: the server may be waiting for us to read its replies.
void SharedConnection::write(Lock& lock, const Goal& goal, Deadline deadline) {
    if (!connected()) return;  // The callers that wait are woken when there is a connection.
    roles_.begin_writing();
    const std::shared_ptr<Connection> connection = connection_;
    while (connection_ == connection && multiplexer_.has_to_send()) {
        // All bytes count as sent while the lock is free: if the connection breaks now, the number
        // of bytes that were sent is unknown.
        std::string sending = multiplexer_.take();
        if (multiplexer_.queued() == 0) gathering_ = std::make_shared<Signal>();
        room_.notify_all();
        if (sending.empty()) continue;  // All of it was withdrawn.
        lock.unlock();
        auto taken = connection->write_some(sending);
        lock.lock();
        if (connection_ != connection) break;  // It broke meanwhile, and these bytes with it.
        if (!taken) {
            if (!options_.tls.enabled) multiplexer_.put_back_unsent(std::move(sending));
            break_connection(taken.error());
            break;
        }
        sent(std::move(sending), *taken);
        // The kernel's buffer is full: the reader waits for room.
        if (*taken == 0) {
            roles_.set_blocked(true);
            break;
        }
        if (reached(goal) || deadline.passed()) break;
    }
    roles_.end_writing();
}

// Returns false without a connection, after it asked the dialer for one or failed all queued calls.
bool SharedConnection::connected() {
    if (connection_ != nullptr && multiplexer_.in_flight() == 0 && !multiplexer_.half_sent() &&
        !roles_.reading() && connection_->stale()) {
        dialer_->lost(kEndedByServer);
        release_connection();
        roles_.set_blocked(false);
    }
    if (connection_ == nullptr && !dialing_) ask_for_connection();
    return connection_ != nullptr;
}

// Callers sleep until the connection arrives, or until their deadlines. The dial goes on meanwhile.
void SharedConnection::ask_for_connection() {
    dialing_ = true;
    auto asked = dialer_->ask(Dialer::Scripts::all, [weak = weak_from_this()](auto opened) {
        if (const auto self = weak.lock()) self->dialed(std::move(opened));
    });
    if (asked) {
        if (const auto why = dialer_->last_failure()) multiplexer_.unreachable(*why);
        return;
    }
    dialing_ = false;
    multiplexer_.fail_queued(asked.error());
    room_.notify_all();
}

void SharedConnection::dialed(Result<std::unique_ptr<Connection>> opened) {
    Lock lock(mutex_);
    dialing_ = false;
    if (closed_) return;
    take_dialed(std::move(opened));
    if (connection_ == nullptr) {
        room_.notify_all();
        if (multiplexer_.has_to_send()) ask_for_connection();
    }
    leave(lock);
}

// -- reading ------------------------------------------------------------------------------------

void SharedConnection::read(Lock& lock, const Goal& goal, Deadline deadline) {
    roles_.begin_reading();
    const std::shared_ptr<Connection> connection = connection_;
    const auto goes_on = [&] {
        return connection != nullptr && connection_ == connection && roles_.has_to_read(work()) &&
               !reached(goal);
    };
    std::optional<Pace> pace;
    while (goes_on()) {
        const auto received = receive(lock, connection);
        if (received && gather(lock) && !goes_on()) break;
        // Else send first, so that the server works while this thread wakes the callers it answered.
        if (roles_.may_send(work())) write(lock, goal, deadline);
        if (!received || !goes_on()) break;
        tell_finished(lock);
        // A server that never pauses must not keep a caller beyond its deadline.
        if (std::chrono::steady_clock::now() >= wait_until(goal, deadline)) break;
        if (*received) {
            if (!pace) pace.emplace(deadline);
            if (!pace->due()) continue;
            lock.unlock();
            check_interrupt();
            lock.lock();
            if (deadline.passed()) break;
            continue;
        }
        if (!goes_on() || !roles_.may_wait_for_socket(work())) break;
        if (!wait_for_socket(lock, connection, goal, deadline)) break;
    }
    roles_.end_reading();
}

// With many callers, the reader wakes the answered ones and yields its core to them before it
// sends: their next calls then go in the same command. Returns whether it did. If the reader's own
// call was answered, it leaves, and its successor sends. A yield that takes longer than a reply is
// a sign of a busy machine: then, as with AdaptiveSpin for one caller, only one yield in 256 is
// tried.
bool SharedConnection::gather(Lock& lock) {
    const bool many = multiplexer_.has_finished() && multiplexer_.unwaited() == 0 &&
                      multiplexer_.answers_soon() && multiplexer_.company() >= kCompany;
    if (!many || !pause_.pays()) return false;
    tell_finished(lock);
    lock.unlock();
    bool yielded = false;
    (void)pause_.run([&] {
        return std::exchange(yielded, true) ? AdaptiveSpin::Seen::reply
                                            : AdaptiveSpin::Seen::nothing;
    });
    lock.lock();
    return true;
}

// False at the deadline.
bool SharedConnection::wait_for_socket(Lock& lock, const std::shared_ptr<Connection>& connection,
                                       const Goal& goal, Deadline deadline) {
    const SteadyTime due = wait_until(goal, deadline);
    // Bytes that are withheld are no silence.
    const bool withholds = connection->withholds();
    const Deadline until = Deadline::at(withholds ? due : std::min(due, multiplexer_.silent_at()));
    // With other calls in the connection, their callers need the core.
    const bool alone = multiplexer_.in_flight() == 1 && multiplexer_.queued() == 0;
    const bool spins = alone && !withholds && spin_.pays();
    const bool blocked = roles_.blocked();
    lock.unlock();
    // Only the reader uses spin_ and replies_.
    const bool found = spins && spin_.run([&] {
        return connection->readable() ? AdaptiveSpin::Seen::reply : AdaptiveSpin::Seen::nothing;
    });
    const auto events = static_cast<short>(blocked ? POLLIN | POLLOUT : POLLIN);
    const bool ready = found || connection->wait_for(events, until);
    lock.lock();
    if (connection_ != connection) return false;
    if (!ready) {
        give_up_silent();
    } else if (blocked) {
        // A server that takes more bytes is alive.
        multiplexer_.heard(std::chrono::steady_clock::now());
        roles_.set_blocked(false);
    }
    return ready;
}

// One read and all replies in it; false without new bytes. Breaks the connection on failure.
Result<bool> SharedConnection::receive(Lock& lock, const std::shared_ptr<Connection>& connection) {
    lock.unlock();
    replies_.clear();
    const auto read_and_parse = [&]() -> Result<bool> {
        HOTCOUNT_TRY_ASSIGN(const bool some, connection->read_some());
        while (some) {
            HOTCOUNT_TRY_ASSIGN(auto reply, connection->next_reply());
            if (!reply) break;
            replies_.push_back(std::move(*reply));
        }
        return some;
    };
    auto received = read_and_parse();
    lock.lock();
    if (connection_ != connection) return make_error(ErrorCode::unavailable, "broken meanwhile");
    const SteadyTime now = std::chrono::steady_clock::now();
    if (received && *received) multiplexer_.heard(now);
    for (Reply& reply : replies_) {
        if (multiplexer_.settle(std::move(reply), now)) continue;
        received = multiplexer_.misfit();
        break;
    }
    report_doubts();
    if (!received) {
        break_connection(received.error());
    } else if (const auto replica = leave_replica(now)) {
        break_connection(*replica);
    }
    return received;
}

// -- endings ------------------------------------------------------------------------------------

void SharedConnection::break_connection(const Error& why, bool resend) {
    if (connection_ == nullptr) return;
    if (!closed_) dialer_->lost(why.message);
    connection_->shut_down();  // The reader and the writer wake, and release it.
    release_connection();
    roles_.set_blocked(false);
    multiplexer_.lost(why, resend);
    hand_on();
}

// Replies that no thread has read yet do not count as silence of the server.
void SharedConnection::give_up_silent() {
    if (std::chrono::steady_clock::now() < multiplexer_.silent_at() || connection_->readable())
        return;
    break_connection(multiplexer_.silent_error());
}

void SharedConnection::close() {
    Lock lock(mutex_);
    closed_ = true;
    const Error closed = closed_error();
    multiplexer_.end_late(multiplexer_.unwaited());
    multiplexer_.fail_queued(closed);
    break_connection(closed, /*resend=*/false);
    room_.notify_all();
    tell_finished(lock);
}

SharedConnection::Counts SharedConnection::counts() {
    const std::lock_guard lock(mutex_);
    return all_counts();
}

}  // namespace hotcount::redis

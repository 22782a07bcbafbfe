#include "lane.hpp"

#include <poll.h>

#include <algorithm>
#include <hotcount/base/interrupt.hpp>

namespace hotcount::redis {
namespace {

// Under so many commands on the wire a newcomer waits for the reader to send its own along.
constexpr std::size_t kEagerFlights = 4;

// How often calls that nobody waits for, or that are to be tried again, are looked after.
constexpr Duration kTick = std::chrono::milliseconds{20};

}  // namespace

// -- calls --------------------------------------------------------------------------------------

Result<Reply> Lane::execute(Request request, Deadline deadline) {
    const auto operation = std::make_shared<Operation>(std::move(request), deadline);
    Lock lock(mutex_);
    HOTCOUNT_TRY(enqueue(lock, operation, deadline));
    auto outcome = await(lock, operation, deadline);
    if (lock.owns_lock()) leave(lock);
    return outcome;
}

void Lane::submit(const OperationPtr& operation) {
    std::optional<Error> refused;
    {
        const std::lock_guard lock(mutex_);
        if (closed_) {
            refused = make_error(ErrorCode::closed, options_.address() + " is closed");
        } else if (pipeline_.queued() >= options_.max_queue) {
            refused = make_error(ErrorCode::capacity,
                                 options_.address() + ": " + std::to_string(options_.max_queue) +
                                     " calls are waiting (max_queue); nothing was applied");
        } else {
            pipeline_.push(operation);
            pipeline_.count_unwaited();
            if (drivers_ > 0) driver_woken_.notify_one();
        }
    }
    if (refused) operation->refuse(*refused);
}

Result<void> Lane::enqueue(Lock& lock, const OperationPtr& operation, Deadline deadline) {
    const auto has_room = [this] { return closed_ || pipeline_.queued() < options_.max_queue; };
    if (!wait_or_interrupt(room_, lock, deadline, has_room)) {
        return make_error(ErrorCode::deadline,
                          options_.address() + ": " + std::to_string(pipeline_.queued()) +
                              " calls are waiting (max_queue) and the deadline passed; nothing "
                              "was applied");
    }
    if (closed_) return make_error(ErrorCode::closed, options_.address() + " is closed");
    if (connection_ != nullptr && pipeline_.stuck(std::chrono::steady_clock::now())) {
        break_connection(make_error(ErrorCode::unavailable,
                                    options_.address() + ": the server stopped answering"));
    }
    operation->join(gathering_);
    pipeline_.push(operation);
    return {};
}

// Returns without the lock where nothing is left to do under it.
Result<Reply> Lane::await(Lock& lock, const OperationPtr& operation, Deadline deadline) {
    const Goal goal{operation.get(), completed_};
    while (!operation->is_done()) {
        if (deadline.passed()) {
            auto known = pipeline_.give_up(operation);
            room_.notify_one();
            return known;
        }
        if (may_write()) {
            write(lock, goal, deadline);
        } else if (may_read_for(goal)) {
            read(lock, goal, deadline);
        } else {
            const bool postponed = operation->state() == Operation::State::postponed;
            const Deadline until =
                postponed ? Deadline::at(std::min(operation->retry_at(), deadline.time()))
                          : deadline;
            const std::uint32_t seen = operation->wave()->epoch();
            lock.unlock();
            operation->wave()->wait(seen, until);
            // Answered, it needs the lock no more, and 60 others who were woken with it might hold
            // it. Whoever answered it has a role, and hands that on.
            if (operation->is_done()) break;
            lock.lock();
            if (postponed) pipeline_.requeue_due(std::chrono::steady_clock::now());
        }
    }
    return operation->take_outcome();
}

std::size_t Lane::run_once(Deadline deadline) {
    Lock lock(mutex_);
    const Goal goal{nullptr, completed_};
    ++drivers_;
    while (!closed_) {
        const SteadyTime now = std::chrono::steady_clock::now();
        pipeline_.requeue_due(now);
        pipeline_.expire(now);
        tell_finished(lock);
        if (reached(goal) || now >= deadline.time()) break;
        const Deadline until = Deadline::at(std::min(deadline.time(), now + kTick));
        if (may_write()) {
            write(lock, goal, until);
        } else if (may_read_for(goal)) {
            read(lock, goal, until);
        } else {
            driver_woken_.wait_until(lock, until.time());
        }
    }
    --drivers_;
    const auto ended = static_cast<std::size_t>(completed_ - goal.completed_before);
    leave(lock);
    return ended;
}

std::size_t Lane::unwaited() {
    const std::lock_guard lock(mutex_);
    return pipeline_.unwaited();
}

bool Lane::reached(const Goal& goal) const {
    return goal.own != nullptr ? goal.own->is_done() : completed_ != goal.completed_before;
}

bool Lane::may_read_for(const Goal& goal) const {
    if (reading_ || pipeline_.in_flight() == 0) return false;
    return goal.own == nullptr || goal.own->state() == Operation::State::in_flight;
}

// While few commands are under way a newcomer sends its own at once. With many, replies stream in,
// and the reader sends what has gathered with each of them: fewer, larger sends.
bool Lane::may_write() const {
    if (writing_ || !pipeline_.has_to_send()) return false;
    return pipeline_.half_sent() || !reading_ || pipeline_.in_flight() < kEagerFlights;
}

// Wakes a caller for each role that is free and has work. Called by whoever leaves.
void Lane::hand_on() {
    const bool write_role = !writing_ && pipeline_.has_to_send();
    const bool read_role = !reading_ && pipeline_.in_flight() > 0;
    if (!write_role && !read_role) return;
    if (drivers_ > 0) driver_woken_.notify_one();
    if (write_role) {
        if (Operation* const waiting = pipeline_.first_queued()) waiting->wave()->wake_one();
    }
    if (read_role || pipeline_.half_sent()) {
        if (Operation* const waiting = pipeline_.first_in_flight()) waiting->wave()->wake_one();
    }
}

void Lane::leave(Lock& lock) {
    hand_on();
    tell_finished(lock);
}

// Waking is a system call, and completions are others' code: not under the lock that all callers
// pass. Callers whose commands left together are mostly answered together, and woken at once.
void Lane::tell_finished(Lock& lock) {
    if (!pipeline_.has_finished()) return;
    const std::vector<OperationPtr> finished = pipeline_.take_finished();
    lock.unlock();
    std::size_t completed = 0;
    const Signal* told = nullptr;
    for (const OperationPtr& operation : finished) {
        if (operation->waited_for()) {
            if (operation->wave().get() != told) operation->wave()->wake_all();
            told = operation->wave().get();
        } else {
            operation->complete();
            ++completed;
        }
    }
    lock.lock();
    completed_ += completed;
}

// -- writing ------------------------------------------------------------------------------------

void Lane::write(Lock& lock, const Goal& goal, Deadline deadline) {
    writing_ = true;
    auto connection = connect(lock, deadline);
    if (!connection) {
        // Nothing of anybody's was sent. Where only this caller's time is up, the others try again.
        if (connection.error().code != ErrorCode::deadline) {
            pipeline_.fail_queued(connection.error());
            room_.notify_all();
        }
        writing_ = false;
        return;
    }
    while (connection_ == *connection && pipeline_.has_to_send()) {
        // Ours while we send. All of it counts as sent meanwhile: were the connection to break now,
        // nobody could say how much of it had left.
        std::string sending = pipeline_.take();
        if (pipeline_.queued() == 0) gathering_ = std::make_shared<Signal>();
        room_.notify_all();
        if (sending.empty()) continue;  // All of it was withdrawn.
        lock.unlock();
        auto taken = (*connection)->write_some(sending);
        lock.lock();
        if (connection_ != *connection) break;  // Broken meanwhile, and what we hold with it.
        if (!taken) {
            if (!options_.tls.enabled) pipeline_.put_back_unsent(std::move(sending));
            break_connection(taken.error());
            break;
        }
        counts_.bytes_sent += *taken;
        if (*taken > 0) ++counts_.sends;
        if (*taken == sending.size()) continue;
        sending.erase(0, *taken);
        pipeline_.put_back_unsent(std::move(sending));
        if (*taken > 0) continue;
        // The kernel's buffer is full: the server may be waiting for us to read its replies. If
        // nobody does that, it is done here.
        const bool reads = !reading_;
        if (reads) reading_ = true;
        lock.unlock();
        const auto events = static_cast<short>(reads ? POLLOUT | POLLIN : POLLOUT);
        const bool ready = (*connection)->wait_for(events, deadline);
        lock.lock();
        if (reads) {
            if (ready && connection_ == *connection) (void)receive(lock, *connection);
            reading_ = false;
        }
        if (!ready || reached(goal)) break;
    }
    writing_ = false;
}

Result<std::shared_ptr<Connection>> Lane::connect(Lock& lock, Deadline deadline) {
    if (connection_ != nullptr && pipeline_.in_flight() == 0 && !pipeline_.half_sent() &&
        !reading_ && connection_->stale()) {
        counts_.bytes_received += connection_->bytes_received();
        connection_.reset();
    }
    if (connection_ != nullptr) return connection_;
    lock.unlock();
    auto opened = dialer_.dial(deadline);
    lock.lock();
    if (!opened) return std::move(opened).error();
    if (closed_) return make_error(ErrorCode::closed, options_.address() + " is closed");
    connection_ = std::move(*opened);
    if (counts_.connects++ > 0) ++counts_.reconnects;
    pipeline_.connected();
    return connection_;
}

// -- reading ------------------------------------------------------------------------------------

void Lane::read(Lock& lock, const Goal& goal, Deadline deadline) {
    reading_ = true;
    const std::shared_ptr<Connection> connection = connection_;
    const auto goes_on = [&] {
        if (connection_ != connection || pipeline_.in_flight() == 0) return false;
        return goal.own != nullptr ? goal.own->state() == Operation::State::in_flight
                                   : !reached(goal);
    };
    while (goes_on()) {
        const auto received = receive(lock, connection);
        // The next commands first, so that the server works while we wake those it answered.
        if (!writing_ && pipeline_.has_to_send()) write(lock, goal, deadline);
        if (!received || !goes_on()) break;
        tell_finished(lock);
        if (*received) continue;
        if (!goes_on() || !wait_for_reply(lock, connection, deadline)) break;
    }
    reading_ = false;
}

// False at the deadline.
bool Lane::wait_for_reply(Lock& lock, const std::shared_ptr<Connection>& connection,
                          Deadline deadline) {
    // Others would want the core for their own calls.
    const bool alone = pipeline_.in_flight() == 1 && pipeline_.queued() == 0 && !writing_;
    const bool looks = alone && look_.pays();
    lock.unlock();
    // The read role's, as replies_ are.
    const bool found = looks && look_.look([&] {
        return connection->readable() ? Look::Seen::reply : Look::Seen::nothing;
    });
    const bool ready = found || connection->wait_for(POLLIN, deadline);
    lock.lock();
    return ready;
}

// One read and all replies in it; false where nothing was there. Breaks the connection on failure.
Result<bool> Lane::receive(Lock& lock, const std::shared_ptr<Connection>& connection) {
    lock.unlock();
    // The read role's own: nobody else touches it.
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
    for (Reply& reply : replies_) {
        if (pipeline_.in_flight() == 0) {
            received = make_error(ErrorCode::unavailable,
                                  options_.address() + ": a reply that no command asked for");
            break;
        }
        pipeline_.settle(std::move(reply), now);
    }
    if (!received) break_connection(received.error());
    return received;
}

// -- endings ------------------------------------------------------------------------------------

void Lane::break_connection(const Error& why, bool resend) {
    if (connection_ == nullptr) return;
    connection_->shut_down();  // Whoever waits for it, reader or writer, wakes and lets go of it.
    counts_.bytes_received += connection_->bytes_received();
    connection_.reset();
    pipeline_.lost(why, resend);
    hand_on();
}

void Lane::close() {
    Lock lock(mutex_);
    closed_ = true;
    const Error closed = make_error(ErrorCode::closed, options_.address() + " is closed");
    pipeline_.fail_queued(closed);
    break_connection(closed, /*resend=*/false);
    room_.notify_all();
    driver_woken_.notify_all();
    tell_finished(lock);
}

Lane::Counts Lane::counts() {
    const std::lock_guard lock(mutex_);
    Counts counts = counts_;
    static_cast<Pipeline::Counts&>(counts) = pipeline_.counts();
    if (connection_ != nullptr) counts.bytes_received += connection_->bytes_received();
    return counts;
}

}  // namespace hotcount::redis

#include "pool.hpp"

#include <algorithm>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>

namespace hotcount::sql {
namespace {

// A connection that was idle for longer is checked by a round trip before its use: a firewall or a
// balancer may have dropped it silently. Shorter: more calls of an infrequent caller pay the round
// trip.
constexpr Duration kAskAfter = std::chrono::seconds{2};

// The thread that closes idle connections, for all pools of the process.
WorkerPool& idle_closer() {
    static auto* const own =
        new ForkLocal<WorkerPool>{[] { return std::make_unique<WorkerPool>(1); }};
    return own->get();
}

}  // namespace

bool is_out_of_room(const Error& error) {
    return error.code == ErrorCode::unavailable &&
           error.condition == SqlCondition::too_many_connections;
}

void note_reached(Trouble& outage, const Result<void>& connected, SteadyTime began) {
    if (connected) return outage.end();
    const Error& why = connected.error();
    const bool is_late = why.code == ErrorCode::deadline &&
                         std::chrono::steady_clock::now() - began >= std::chrono::seconds{1};
    if (why.code == ErrorCode::unavailable || is_late) outage.begin(why.message);
}

Error no_room_in_time(Error refusal, int attempts) {
    static constexpr std::string_view kKnown = "; nothing was applied";
    if (refusal.message.ends_with(kKnown)) {
        refusal.message.resize(refusal.message.size() - kKnown.size());
    }
    refusal.code = ErrorCode::deadline;
    refusal.message += "; no connection came free until the deadline (" + std::to_string(attempts) +
                       (attempts == 1 ? " attempt" : " attempts") + "); nothing was applied";
    return refusal;
}

Pool::Pool(std::string name, std::size_t max_connections, Open open,
           std::optional<Duration> idle_timeout)
    : name_(std::move(name)),
      max_connections_(max_connections),
      open_(std::move(open)),
      idle_timeout_(idle_timeout) {}

Lease Pool::wrap(std::unique_ptr<Connection> connection) {
    return Lease{connection.release(), [this](Connection* returned) { give_back(returned); }};
}

// -- leases ------------------------------------------------------------------

Result<Lease> Pool::lease(Deadline deadline) {
    Waiter self;
    {
        const std::lock_guard lock(mutex_);
        if (closed_) return closed_error();
        waiters_.push_back(&self);
        serve_waiters();
    }
    while (true) {
        if (Step done = advance(self, deadline)) return std::move(*done);
    }
}

// Waits until the caller is woken, then gets it a connection or an error. The sole opener sleeps for a
// pause only, and then opens a connection itself.
Pool::Step Pool::advance(Waiter& self, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!self.served) {
        Deadline until = deadline;
        if (sole_opener_ == &self) {
            const SteadyTime next =
                std::chrono::steady_clock::now() + kServerBackoff.draw(++self.pauses);
            until = Deadline::at(std::min(next, deadline.time()));
        }
        lock.unlock();
        (void)self.woken.wait(until);
        lock.lock();
    }
    if (self.served) {
        if (sole_opener_ == &self) {
            pass_on_opening();
            forget_refusal();
        }
        lock.unlock();
        return use(self, deadline);
    }
    self.woken.clear();
    if (closed_ || deadline.passed()) {
        Error error = closed_ ? closed_error() : late_error();
        leave(self);
        return error;
    }
    if (sole_opener_ != &self || out_ >= max_connections_) return {};
    std::erase(waiters_, &self);
    self.served = true;
    ++out_;
    lock.unlock();
    return open(self, deadline);
}

// Uses the given connection, or another idle one if that is lost, or opens one.
Pool::Step Pool::use(Waiter& self, Deadline deadline) {
    while (self.given.connection != nullptr) {
        const bool ask = std::chrono::steady_clock::now() - self.given.since >= kAskAfter;
        if (self.given.connection->still_there(ask, deadline)) {
            return wrap(std::move(self.given.connection));
        }
        std::deque<Idle> closing;  // Destroyed without the lock: closing a session takes time.
        closing.push_back(std::move(self.given));
        const std::lock_guard lock(mutex_);
        // The other idle sessions were idle for longer, so they are lost too.
        if (ask) {
            for (Idle& each : idle_) closing.push_back(std::move(each));
            idle_.clear();
        }
        self.given = take_idle();
    }
    return open(self, deadline);
}

// Opens a connection for a caller that is counted in out_. If the server has no room, the caller waits
// again, at the head of the queue. Of a closed pool nobody gets a connection that was not open before.
Pool::Step Pool::open(Waiter& self, Deadline deadline) {
    auto opened = is_closed() ? closed_error() : open_(deadline);
    {
        std::unique_lock lock(mutex_);
        if (opened && !closed_) {
            if (sole_opener_ == &self) pass_on_opening();
            forget_refusal();
            return wrap(std::move(*opened));
        }
        --out_;
        const bool waits = !closed_ && is_out_of_room(opened.error());
        if (waits) wait_for_room(self, opened.error());
        serve_waiters();
        if (!waits) {
            if (sole_opener_ == &self) pass_on_opening();
            if (!closed_) return open_error(std::move(opened).error());
            if (opened) close_apart(lock, *opened);
            return closed_error();
        }
    }
    if (make_room_) make_room_();
    return {};
}

// After a refusal of the server: returns the caller to the head of the queue.
void Pool::wait_for_room(Waiter& self, const Error& refusal) {
    server_is_full_ = true;
    refusal_ = Refusal{refusal, refusal_ ? refusal_->attempts + 1 : 1};
    self.served = false;
    self.woken.clear();
    waiters_.push_front(&self);
    if (sole_opener_ == nullptr) sole_opener_ = &self;
}

// Called when the sole opener is served or leaves: the next waiter takes its place and tries at once.
void Pool::pass_on_opening() {
    sole_opener_ = waiters_.empty() ? nullptr : waiters_.front();
    if (sole_opener_ != nullptr) {
        sole_opener_->woken.set();
    } else {
        server_is_full_ = false;
    }
}

// Called when a caller gets a connection.
void Pool::forget_refusal() {
    if (!server_is_full_) refusal_.reset();
}

void Pool::leave(Waiter& self) {
    std::erase(waiters_, &self);
    if (sole_opener_ == &self) pass_on_opening();
}

bool Pool::is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
}

Error Pool::closed_error() const { return make_error(ErrorCode::closed, name_ + " is closed"); }

// For a caller that could not open a connection.
Error Pool::open_error(Error error) const {
    const bool was_full = error.code == ErrorCode::deadline && refusal_.has_value();
    return was_full ? no_room_in_time(refusal_->error, refusal_->attempts) : error;
}

// For a caller whose deadline passed in the queue.
Error Pool::late_error() const {
    if (server_is_full_ && refusal_) return no_room_in_time(refusal_->error, refusal_->attempts);
    return make_error(ErrorCode::deadline,
                      name_ + ": the deadline passed while waiting for a connection; " +
                          std::to_string(max_connections_) + " in use by other callers");
}

std::optional<Error> Pool::refusal() {
    const std::lock_guard lock(mutex_);
    if (!refusal_) return {};
    return refusal_->error;
}

std::optional<Lease> Pool::lease_idle(Deadline deadline, std::atomic<bool>& lent) {
    Idle given;
    {
        const std::lock_guard lock(mutex_);
        if (closed_ || frozen_ || !waiters_.empty() || out_ + 1 >= max_connections_) return {};
        given = take_idle();
        if (given.connection == nullptr) return {};
        ++out_;
    }
    const bool ask = std::chrono::steady_clock::now() - given.since >= kAskAfter;
    if (given.connection->still_there(ask, deadline)) {
        return Lease{given.connection.release(), [this, &lent](Connection* returned) {
                         give_back(returned);
                         lent.store(false, std::memory_order_release);
                     }};
    }
    given.connection.reset();
    const std::lock_guard lock(mutex_);
    --out_;
    serve_waiters();
    return {};
}

bool Pool::empty() {
    const std::lock_guard lock(mutex_);
    return out_ == 0 && idle_.empty();
}

void Pool::serve_waiters() {
    while (!frozen_ && !closed_ && !waiters_.empty() && out_ < max_connections_) {
        // Of a full server only the sole opener opens connections.
        if (server_is_full_ && idle_.empty()) break;
        Waiter* next = waiters_.front();
        waiters_.pop_front();
        ++out_;
        next->given = take_idle();
        next->served = true;
        if (next->given.connection != nullptr) forget_refusal();
        next->woken.set();  // `next` may be destroyed as soon as the mutex is unlocked.
    }
    if (out_ == 0) all_back_.notify_all();
}

Pool::Idle Pool::take_idle() {
    if (idle_.empty()) return {};
    Idle taken = std::move(idle_.back());
    idle_.pop_back();
    return taken;
}

void Pool::give_back(Connection* connection) {
    std::unique_ptr<Connection> returned{connection};
    if (returned->in_transaction()) returned->rollback();
    std::unique_lock lock(mutex_);
    --out_;
    if (!closed_ && !returned->broken()) {
        idle_.push_back({std::move(returned), std::chrono::steady_clock::now()});
    }
    serve_waiters();
    schedule_sweep();
    if (returned != nullptr) close_apart(lock, returned);
}

// -- ends --------------------------------------------------------------------

void Pool::close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    for (Waiter* each : waiters_) each->woken.set();  // Each leaves with closed_error().
    std::deque<Idle> idle = std::exchange(idle_, {});
    close_apart(lock, idle);
}

void Pool::close_idle() {
    std::unique_lock lock(mutex_);
    std::deque<Idle> idle = std::exchange(idle_, {});
    close_apart(lock, idle);
}

void Pool::stop() {
    close();
    std::unique_lock lock(mutex_);
    all_back_.wait(lock, [this] { return closing_ == 0; });
}

// Closes a connection, or several, without the lock, because that takes time. A fork that closes all
// connections waits for it: SQLite's locks must not be inherited.
template <class Connections>
void Pool::close_apart(std::unique_lock<std::mutex>& lock, Connections& connections) {
    ++closing_;
    lock.unlock();
    connections = Connections{};
    lock.lock();
    --closing_;
    all_back_.notify_all();
}

void Pool::schedule_sweep() {
    if (!idle_timeout_ || closed_ || idle_.empty() || sweep_is_due_) return;
    sweep_is_due_ = true;
    idle_closer().run_at(idle_.front().since + *idle_timeout_, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->sweep();
    });
}

void Pool::sweep() {
    std::unique_lock lock(mutex_);
    sweep_is_due_ = false;
    const SteadyTime last = std::chrono::steady_clock::now() - *idle_timeout_;
    std::deque<Idle> expired;
    while (!idle_.empty() && idle_.front().since <= last) {
        expired.push_back(std::move(idle_.front()));
        idle_.pop_front();
    }
    schedule_sweep();
    close_apart(lock, expired);
}

void Pool::freeze(AtFork connections) {
    std::unique_lock lock(mutex_);
    frozen_ = true;
    at_fork_ = connections;
    if (connections != AtFork::abandon) {
        // Every lease is bounded by its caller's deadline, so this wait is too.
        all_back_.wait(lock, [this] { return out_ == 0 && closing_ == 0; });
    }
    if (connections == AtFork::close) idle_.clear();
    lock.release();  // Stays locked until thaw(), in parent and child alike.
}

void Pool::thaw(bool in_child) {
    frozen_ = false;
    if (in_child) {
        waiters_.clear();
        sole_opener_ = nullptr;
        server_is_full_ = false;
        refusal_.reset();
        sweep_is_due_ = false;
        closing_ = 0;
        if (at_fork_ == AtFork::abandon) {
            // Leaked: their destructors would end the parent's sessions. Leased connections belong
            // to threads that do not exist in the child.
            for (Idle& idle : idle_) (void)idle.connection.release();
            idle_.clear();
            out_ = 0;
        }
    }
    serve_waiters();
    mutex_.unlock();
}

}  // namespace hotcount::sql

#include "pool.hpp"

#include <algorithm>

namespace hotcount::sql {

Pool::Pool(std::string name, std::size_t max_connections, Open open)
    : name_(std::move(name)), max_connections_(max_connections), open_(std::move(open)) {}

Lease Pool::wrap(std::unique_ptr<Connection> connection) {
    return Lease{connection.release(), [this](Connection* returned) { give_back(returned); }};
}

Result<Lease> Pool::open_now(Deadline deadline) {
    auto opened = open_(deadline);
    if (!opened) {
        std::lock_guard lock(mutex_);
        --out_;
        serve_waiters();
        return std::move(opened).error();
    }
    return wrap(std::move(*opened));
}

Result<Lease> Pool::lease(Deadline deadline) {
    Waiter self;
    bool queued = false;
    {
        std::lock_guard lock(mutex_);
        if (closed_) return make_error(ErrorCode::closed, name_ + " is closed");
        if (waiters_.empty() && !frozen_ && out_ < max_connections_) {
            ++out_;
            if (!idle_.empty()) {
                auto connection = std::move(idle_.back());
                idle_.pop_back();
                return wrap(std::move(connection));
            }
        } else {
            waiters_.push_back(&self);
            queued = true;
        }
    }
    if (queued && !self.granted.wait(deadline)) {
        std::lock_guard lock(mutex_);
        if (!self.granted.is_set()) {
            waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &self));
            return make_error(ErrorCode::deadline,
                              name_ + ": the deadline passed while waiting for a connection; " +
                                  std::to_string(max_connections_) + " in use by other callers");
        }
    }
    if (self.connection != nullptr) return wrap(std::move(self.connection));
    return open_now(deadline);
}

void Pool::serve_waiters() {
    while (!frozen_ && !waiters_.empty() && out_ < max_connections_) {
        Waiter* next = waiters_.front();
        waiters_.pop_front();
        ++out_;
        if (!idle_.empty()) {
            next->connection = std::move(idle_.back());
            idle_.pop_back();
        }
        next->granted.set();  // `next` may be gone from here on.
    }
    if (out_ == 0) all_back_.notify_all();
}

void Pool::give_back(Connection* connection) {
    std::unique_ptr<Connection> returned{connection};
    if (returned->in_transaction()) returned->rollback();
    std::unique_ptr<Connection> closing;  // Outside of the lock: a goodbye to a server takes time.
    std::lock_guard lock(mutex_);
    --out_;
    if (closed_ || returned->broken()) {
        closing = std::move(returned);
    } else {
        idle_.push_back(std::move(returned));
    }
    serve_waiters();
}

void Pool::close() {
    std::vector<std::unique_ptr<Connection>> closing;
    std::lock_guard lock(mutex_);
    closed_ = true;
    closing.swap(idle_);
}

void Pool::freeze(AtFork connections) {
    std::unique_lock lock(mutex_);
    frozen_ = true;
    at_fork_ = connections;
    if (connections != AtFork::abandon) {
        // Every lease is bounded by its caller's deadline, so this wait is too.
        all_back_.wait(lock, [this] { return out_ == 0; });
    }
    if (connections == AtFork::close) idle_.clear();
    lock.release();  // Stays locked until thaw(), in parent and child alike.
}

void Pool::thaw(bool in_child) {
    frozen_ = false;
    if (in_child) {
        waiters_.clear();
        if (at_fork_ == AtFork::abandon) {
            // Leaked: to destroy them would say goodbye in the parent's name. The threads that had
            // leased the others do not exist here.
            for (auto& connection : idle_) (void)connection.release();
            idle_.clear();
            out_ = 0;
        }
    }
    serve_waiters();
    mutex_.unlock();
}

}  // namespace hotcount::sql

#include "dedicated_connections.hpp"

#include <poll.h>

#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/random.hpp>
#include <string>

#include "commands.hpp"

namespace hotcount::redis {
namespace {

const ReplyError* error_in(const Reply& reply) { return std::get_if<ReplyError>(&reply.value); }

}  // namespace

class DedicatedConnections::Taken {
  public:
    explicit Taken(DedicatedConnections& owner) : owner_(owner) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

    ~Taken() {
        if (!held_) return;
        const std::lock_guard lock(owner_.mutex_);
        --owner_.taken_;
        if (connection_ != nullptr) {
            std::erase(owner_.busy_, connection_.get());
            if (clean_ && !owner_.closed_) owner_.idle_.push_back(std::move(connection_));
        }
        owner_.room_.notify_one();
    }

    /// Waits until a place is free, and opens a connection if the idle list is empty.
    Result<void> take(Deadline deadline) {
        std::unique_lock lock(owner_.mutex_);
        const auto has_room = [this] {
            return owner_.closed_ || owner_.taken_ < owner_.options_.exclusive_connections;
        };
        if (!wait_or_interrupt(owner_.room_, lock, deadline, has_room)) {
            return make_error(ErrorCode::deadline,
                              owner_.options_.address() + ": all " +
                                  std::to_string(owner_.options_.exclusive_connections) +
                                  " exclusive_connections are in use and the deadline passed; "
                                  "nothing was applied");
        }
        if (owner_.closed_) return owner_.closed_error();
        ++owner_.taken_;
        held_ = true;
        while (connection_ == nullptr && !owner_.idle_.empty()) {
            if (!owner_.idle_.back()->stale()) connection_ = std::move(owner_.idle_.back());
            owner_.idle_.pop_back();
        }
        if (connection_ == nullptr) {
            lock.unlock();
            HOTCOUNT_TRY_ASSIGN(connection_, owner_.open(deadline));
            lock.lock();
            ++owner_.connects_;
            if (owner_.closed_) return owner_.closed_error();
        }
        owner_.busy_.push_back(connection_.get());
        return {};
    }

    Connection& connection() { return *connection_; }
    /// Nothing is under way on the connection: another call may have it.
    void set_clean() { clean_ = true; }

    /// Sends all bytes; false at the deadline. `left`: the bytes that the kernel did not take.
    Result<bool> send(std::string_view& left, Deadline deadline) {
        while (!left.empty()) {
            HOTCOUNT_TRY_ASSIGN(const std::size_t taken, connection_->write_some(left));
            left.remove_prefix(taken);
            if (taken > 0) continue;
            if (deadline.passed() || !connection_->wait_for(POLLOUT, deadline)) return false;
        }
        return true;
    }

    /// The next reply, or nullopt at the deadline.
    Result<std::optional<Reply>> receive(Deadline deadline) {
        Pace pace{deadline};
        while (true) {
            HOTCOUNT_TRY_ASSIGN(auto reply, connection_->next_reply());
            if (reply) return reply;
            HOTCOUNT_TRY_ASSIGN(const bool more, connection_->read_some());
            if (!more && !connection_->wait_for(POLLIN, deadline)) return std::optional<Reply>{};
            // Also while bytes keep coming that are no reply.
            if (pace.due() && (check_interrupt() || deadline.passed())) {
                return std::optional<Reply>{};
            }
        }
    }

  private:
    DedicatedConnections& owner_;
    std::shared_ptr<Connection> connection_;
    bool held_{false};
    bool clean_{false};
};

Error DedicatedConnections::closed_error() const {
    return make_error(ErrorCode::closed, options_.address() + " is closed");
}

Result<std::shared_ptr<Connection>> DedicatedConnections::open(Deadline deadline) {
    std::unique_lock lock(arrivals_->mutex);
    ++arrivals_->wanted;
    auto taken = take_arrival(lock, deadline);
    --arrivals_->wanted;
    return taken;
}

// Whether to leave the connection and the idle ones: the server refused a write because it is a
// replica, and its name may stand for another server by now.
bool DedicatedConnections::leaves_replica(const Connection& connection,
                                          const std::optional<Error>& refused) {
    if (!refused || refused->server_code != "READONLY") return false;
    const std::lock_guard lock(mutex_);
    if (!moves_.due(std::chrono::steady_clock::now())) return false;
    idle_.clear();
    dialer_->put_last(connection.peer());
    return true;
}

Result<void> DedicatedConnections::ask_for_connection() {
    auto asked = dialer_->ask(Dialer::Scripts::none, [arrivals = arrivals_](auto opened) {
        const std::lock_guard lock(arrivals->mutex);
        --arrivals->asked;
        if (opened) {
            arrivals->ready.push_back(std::move(*opened));
            arrivals->why.reset();
        } else {
            ++arrivals->failures;
            arrivals->why = std::move(opened).error();
        }
        arrivals->changed.notify_all();
    });
    if (asked) {
        ++arrivals_->asked;
        if (!arrivals_->why) arrivals_->why = dialer_->last_failure();
    }
    return asked;
}

Result<std::shared_ptr<Connection>> DedicatedConnections::take_arrival(
    std::unique_lock<std::mutex>& lock, Deadline deadline) {
    Arrivals& arrivals = *arrivals_;
    while (true) {
        if (arrivals.closed) return closed_error();
        while (!arrivals.ready.empty()) {
            std::shared_ptr<Connection> connection = std::move(arrivals.ready.front());
            arrivals.ready.pop_front();
            if (!connection->stale()) return connection;
        }
        if (arrivals.asked < arrivals.wanted) HOTCOUNT_TRY(ask_for_connection());
        const std::uint64_t seen = arrivals.failures;
        const bool told = wait_or_interrupt(arrivals.changed, lock, deadline, [&] {
            // If another caller took the one that came, ask for one more.
            return arrivals.closed || !arrivals.ready.empty() || arrivals.failures != seen ||
                   arrivals.asked < arrivals.wanted;
        });
        const bool failed = arrivals.failures != seen && arrivals.ready.empty();
        if (failed && arrivals.why && !Dialer::worth_waiting(*arrivals.why)) return *arrivals.why;
        if (told) continue;
        if (arrivals.why) {
            return make_error(arrivals.why->code,
                              arrivals.why->message + "; the deadline passed; nothing was applied",
                              arrivals.why->server_code);
        }
        return make_error(ErrorCode::deadline, options_.address() +
                                                   ": the deadline passed while connecting; "
                                                   "nothing was applied");
    }
}

Error DedicatedConnections::not_applied(const Error& error) const {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_error();
    return make_error(error.code, error.message + "; nothing was applied");
}

Result<Reply> DedicatedConnections::execute(std::span<const std::string_view> command,
                                            Deadline deadline) {
    Taken taken(*this);
    HOTCOUNT_TRY(taken.take(deadline));
    const std::string name{command.front()};
    const std::string context = options_.address() + ": " + name;
    const std::string nonce = "hotcount:" + std::to_string(thread_random().next());
    const std::string_view echo[] = {"ECHO", nonce};
    std::string bytes;
    encode_command(bytes, command);
    const std::size_t end = bytes.size();
    encode_command(bytes, echo);
    std::string_view left = bytes;
    const auto sent = taken.send(left, deadline);
    const bool whole = bytes.size() - left.size() >= end || (!sent.ok() && options_.tls.enabled);
    if (!whole) {
        if (!sent) return not_applied(sent.error());
        return make_error(
            ErrorCode::deadline,
            context + ": the deadline passed before it was sent; nothing was applied");
    }
    const auto unknown = [&](const std::string& why) {
        return make_error(ErrorCode::outcome_unknown,
                          context + ": " + why + "; it may or may not be applied");
    };
    if (!sent) return unknown(sent.error().message);
    const auto is_echo = [&](const Reply& reply) {
        const auto* const text = std::get_if<std::string>(&reply.value);
        return text != nullptr && *text == nonce;
    };
    auto reply = taken.receive(deadline);
    if (!reply) return unknown(reply.error().message);
    if (!*reply) return unknown("it was sent and not answered before the deadline");
    if (is_echo(**reply)) return unknown("it was sent and got no reply");
    // Without a reply to the ECHO the command is answered, and only the connection is dropped.
    const auto checked = taken.receive(deadline);
    const auto* const error = error_in(**reply);
    std::optional<Error> refused;
    if (error != nullptr) refused = error_from_reply(error->message, context);
    if (checked && *checked && is_echo(**checked)) {
        if (!leaves_replica(taken.connection(), refused)) taken.set_clean();
    } else if (checked && *checked && error_in(**checked) == nullptr) {
        return unknown("it got more than one reply");
    }
    if (refused) return *refused;
    return std::move(**reply);
}

void DedicatedConnections::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        idle_.clear();
        for (Connection* const connection : busy_) connection->shut_down();
        room_.notify_all();
    }
    const std::lock_guard lock(arrivals_->mutex);
    arrivals_->closed = true;  // A dial under way ends by itself.
    arrivals_->ready.clear();
    arrivals_->changed.notify_all();
}

std::uint64_t DedicatedConnections::connects() const {
    const std::lock_guard lock(mutex_);
    return connects_;
}

}  // namespace hotcount::redis

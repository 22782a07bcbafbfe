#include "lane.hpp"

#include <poll.h>

#include <algorithm>
#include <hotcount/base/check.hpp>
#include <hotcount/base/interrupt.hpp>
#include <unordered_map>

#include "encode.hpp"
#include "error_word.hpp"

namespace hotcount::redis {
namespace {

// Calls in one merged command: bounds what one refusal makes us send again.
constexpr std::size_t kMaxMerged = 256;

// Under so many commands on the wire a newcomer waits for the reader to send its own along.
constexpr std::size_t kEagerFlights = 4;

// Calls of one large batch that are queued at a time.
constexpr std::size_t kPortion = 1000;

// A connection on which a given-up call stays unanswered for so long is taken for dead.
constexpr Duration kGrace = std::chrono::milliseconds{250};

bool same_sign(std::int64_t a, std::int64_t b) { return (a < 0) == (b < 0); }

}  // namespace

Result<Reply> Lane::execute(const std::shared_ptr<Operation>& operation, Deadline deadline) {
    Lock lock(mutex_);
    HOTCOUNT_TRY(enqueue(lock, operation, deadline));
    auto outcome = await(lock, operation, deadline);
    leave(lock);
    return outcome;
}

std::vector<Result<Reply>> Lane::execute_all(std::span<const std::shared_ptr<Operation>> operations,
                                             Deadline deadline) {
    std::vector<Result<Reply>> outcomes;
    outcomes.reserve(operations.size());
    Lock lock(mutex_);
    // In portions, so that a large call does not fill the queue that single calls wait in.
    while (!operations.empty()) {
        const auto portion = operations.first(std::min(operations.size(), kPortion));
        operations = operations.subspan(portion.size());
        std::size_t queued = 0;
        Result<void> refused;
        for (; queued < portion.size() && refused.ok(); ++queued) {
            refused = enqueue(lock, portion[queued], deadline);
        }
        if (!refused) --queued;
        for (std::size_t i = 0; i < queued; ++i) {
            outcomes.push_back(await(lock, portion[i], deadline));
        }
        for (std::size_t i = queued; i < portion.size(); ++i) outcomes.push_back(refused.error());
    }
    leave(lock);
    return outcomes;
}

Result<Reply> Lane::await(Lock& lock, const std::shared_ptr<Operation>& operation,
                          Deadline deadline) {
    while (operation->state_ != Operation::State::done) {
        if (deadline.passed()) return give_up(operation);
        if (may_write()) {
            write(lock, operation, deadline);
        } else if (!reading_ && operation->state_ == Operation::State::in_flight) {
            read(lock, operation, deadline);
        } else {
            operation->woken_.clear();
            lock.unlock();
            operation->woken_.wait(deadline);
            lock.lock();
        }
    }
    return std::move(*operation->outcome_);
}

// While few commands are under way a newcomer sends its own at once. With many, replies stream in,
// and the reader sends what has gathered with each of them: fewer, larger sends.
bool Lane::may_write() const {
    if (writing_) return false;
    if (!out_.empty()) return true;
    return !queue_.empty() && (!reading_ || flights_.size() < kEagerFlights);
}

void Lane::leave(Lock& lock) {
    hand_on();
    wake_finished(lock);
}

// Waking is a system call each: not under the lock that all callers pass.
void Lane::wake_finished(Lock& lock) {
    if (finished_.empty()) return;
    Operations finished;
    finished.swap(finished_);
    lock.unlock();
    for (const auto& operation : finished) operation->woken_.set();
    lock.lock();
}

Result<void> Lane::enqueue(Lock& lock, const std::shared_ptr<Operation>& operation,
                           Deadline deadline) {
    const auto has_room = [this] { return closed_ || queue_.size() < options_.max_queue; };
    if (!wait_or_interrupt(room_, lock, deadline, has_room)) {
        return make_error(ErrorCode::deadline,
                          options_.address() + ": " + std::to_string(queue_.size()) +
                              " calls are waiting (max_queue) and the deadline passed; nothing "
                              "was applied");
    }
    if (closed_) return make_error(ErrorCode::closed, options_.address() + " is closed");
    break_if_stuck();
    queue_.push_back(operation);
    return {};
}

// -- writing ------------------------------------------------------------------------------------

void Lane::write(Lock& lock, const std::shared_ptr<Operation>& own, Deadline deadline) {
    writing_ = true;
    auto connection = connect(lock, deadline);
    if (!connection) {
        // Nothing of anybody's was sent. Where only this caller's time is up, the others try again.
        if (connection.error().code != ErrorCode::deadline) {
            for (const auto& waiting : queue_) finish(waiting, connection.error());
            queue_.clear();
            room_.notify_all();
        }
        writing_ = false;
        return;
    }
    while (connection_ == *connection && (!queue_.empty() || !out_.empty())) {
        if (out_.empty()) encode_queue();
        // Ours while we send. All of it counts as sent meanwhile: were the connection to break now,
        // nobody could say how much of it had left.
        std::string sending;
        sending.swap(out_);
        sent_bytes_ += sending.size();
        lock.unlock();
        auto taken = (*connection)->write_some(sending);
        lock.lock();
        if (connection_ != *connection) break;  // Broken meanwhile, and what we hold with it.
        if (!taken) {
            if (!options_.tls.enabled) sent_bytes_ -= sending.size();
            break_connection(taken.error());
            break;
        }
        sent_bytes_ -= sending.size() - *taken;
        sending.erase(0, *taken);
        out_ = std::move(sending);
        if (*taken > 0) {
            ++stats_.sends;
            continue;
        }
        // The kernel's buffer is full: the server may be waiting for us to read its replies. If
        // nobody does that, it is done here.
        const bool reads = !reading_;
        if (reads) reading_ = true;
        lock.unlock();
        const bool ready =
            (*connection)
                ->wait_for(static_cast<short>(reads ? POLLOUT | POLLIN : POLLOUT), deadline);
        lock.lock();
        if (reads) {
            if (ready && connection_ == *connection) (void)receive(lock, *connection);
            reading_ = false;
        }
        if (!ready || own->state_ == Operation::State::done) break;
    }
    writing_ = false;
}

Result<std::shared_ptr<Connection>> Lane::connect(Lock& lock, Deadline deadline) {
    if (connection_ != nullptr && flights_.empty() && out_.empty() && !reading_ &&
        connection_->stale()) {
        connection_.reset();
    }
    if (connection_ != nullptr) return connection_;
    lock.unlock();
    const auto open = [&]() -> Result<std::unique_ptr<Connection>> {
        if (options_.tls.enabled && tls_ == nullptr) {
            HOTCOUNT_TRY_ASSIGN(tls_, make_tls_context(options_));
        }
        return Connection::open(options_, tls_.get(), deadline);
    };
    auto opened = open();
    lock.lock();
    if (!opened) return std::move(opened).error();
    if (closed_) return make_error(ErrorCode::closed, options_.address() + " is closed");
    connection_ = std::move(*opened);
    ++stats_.connects;
    encoded_bytes_ = 0;
    sent_bytes_ = 0;
    unanswered_since_.reset();
    return connection_;
}

void Lane::encode_queue() {
    for (Flight& flight : merge_queue()) {
        const std::size_t before = out_.size();
        const Operation& first = *flight.members.front();
        if (first.is_add()) {
            const std::string amount = std::to_string(flight.total);
            const std::string_view command[] = {"INCRBY", first.key_, amount};
            encode_command(out_, command);
        } else {
            out_ += first.encoded_;
        }
        encoded_bytes_ += out_.size() - before;
        flight.end = encoded_bytes_;
        flights_.push_back(std::move(flight));
    }
}

// Takes calls from the queue, at most max_send_bytes of them, and merges adds of one key and sign
// whose sum stays inside 64 bits. No add is moved past another operation that might touch its key.
std::vector<Lane::Flight> Lane::merge_queue() {
    std::vector<Flight> flights;
    std::unordered_map<std::string_view, std::size_t> open;  // Key -> its flight, still to grow.
    std::size_t bytes = 0;
    while (!queue_.empty() && bytes < options_.max_send_bytes) {
        std::shared_ptr<Operation> operation = std::move(queue_.front());
        queue_.pop_front();
        operation->state_ = Operation::State::in_flight;
        bytes += operation->encoded_.size() + operation->key_.size() + 64;
        if (!operation->is_add()) {
            open.clear();  // It may name any key.
        } else if (operation->alone_) {
            open.erase(operation->key_);
        } else if (const auto found = open.find(operation->key_); found != open.end()) {
            Flight& flight = flights[found->second];
            const auto total = checked_add(flight.total, operation->n_);
            if (total && same_sign(flight.total, operation->n_) &&
                flight.members.size() < kMaxMerged) {
                flight.total = *total;
                flight.members.push_back(std::move(operation));
                ++stats_.merged;
                continue;
            }
            found->second = flights.size();
        } else {
            open.emplace(operation->key_, flights.size());
        }
        Flight flight;
        flight.total = operation->n_;
        flight.members.push_back(std::move(operation));
        flights.push_back(std::move(flight));
    }
    room_.notify_all();
    return flights;
}

// -- reading ------------------------------------------------------------------------------------

void Lane::read(Lock& lock, const std::shared_ptr<Operation>& own, Deadline deadline) {
    reading_ = true;
    const std::shared_ptr<Connection> connection = connection_;
    while (connection_ == connection && own->state_ == Operation::State::in_flight) {
        const auto received = receive(lock, connection);
        // The next commands first, so that the server works while we wake those it answered.
        if (may_write() || (!writing_ && !queue_.empty())) write(lock, own, deadline);
        if (!received || own->state_ != Operation::State::in_flight) break;
        wake_finished(lock);
        if (*received) continue;
        lock.unlock();
        const bool ready = connection->wait_for(POLLIN, deadline);
        lock.lock();
        if (!ready) break;
    }
    reading_ = false;
}

// One read and all replies in it; false where nothing was there. Breaks the connection on failure.
Result<bool> Lane::receive(Lock& lock, const std::shared_ptr<Connection>& connection) {
    lock.unlock();
    std::vector<Reply> replies;
    const auto read_and_parse = [&]() -> Result<bool> {
        HOTCOUNT_TRY_ASSIGN(const bool some, connection->read_some());
        while (some) {
            HOTCOUNT_TRY_ASSIGN(auto reply, connection->next_reply());
            if (!reply) break;
            replies.push_back(std::move(*reply));
        }
        return some;
    };
    auto received = read_and_parse();
    lock.lock();
    if (connection_ != connection) return make_error(ErrorCode::unavailable, "broken meanwhile");
    for (Reply& reply : replies) settle(std::move(reply));
    if (!received) break_connection(received.error());
    return received;
}

void Lane::settle(Reply reply) {
    if (flights_.empty()) {
        break_connection(make_error(ErrorCode::unavailable,
                                    options_.address() + ": a reply that no command asked for"));
        return;
    }
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    unanswered_since_.reset();
    const std::shared_ptr<Operation>& first = flight.members.front();
    if (first->is_add()) {
        settle_adds(flight, std::move(reply));
    } else if (const auto* error = std::get_if<ReplyError>(&reply.value)) {
        finish(first, error_from_reply(error->message, options_.address() + ": " + first->name()));
    } else {
        finish(first, std::move(reply));
    }
}

// Each caller's own value: what stood before the merged add, and then one after the other.
void Lane::settle_adds(Flight& flight, Reply reply) {
    if (const auto* value = std::get_if<std::int64_t>(&reply.value)) {
        std::int64_t running = *value - flight.total;
        for (const auto& member : flight.members) {
            running += member->n_;
            finish(member, Reply{running});
        }
        return;
    }
    const auto* error = std::get_if<ReplyError>(&reply.value);
    if (flight.members.size() == 1) {
        finish(flight.members.front(),
               error_from_reply(error != nullptr ? error->message : "ERR not an integer",
                                options_.address() + ": INCRBY"));
        return;
    }
    // The whole was refused, so nothing was applied: each by itself, in order, for its own answer.
    Operations members;
    for (auto& member : flight.members) {
        if (member->state_ != Operation::State::in_flight) continue;
        member->alone_ = true;
        members.push_back(std::move(member));
    }
    put_back(members);
}

// To the head of the queue, in the order that they had.
void Lane::put_back(const Operations& operations) {
    for (const auto& operation : operations) operation->state_ = Operation::State::queued;
    queue_.insert(queue_.begin(), operations.begin(), operations.end());
    hand_on();
}

// -- endings ------------------------------------------------------------------------------------

void Lane::finish(const std::shared_ptr<Operation>& operation, Result<Reply> outcome) {
    if (operation->state_ == Operation::State::abandoned) return;
    operation->state_ = Operation::State::done;
    operation->outcome_.emplace(std::move(outcome));
    ++stats_.commands;
    finished_.push_back(operation);
}

Error Lane::give_up(const std::shared_ptr<Operation>& own) {
    if (own->state_ == Operation::State::queued) {
        queue_.erase(std::find(queue_.begin(), queue_.end(), own));
        room_.notify_one();
        return make_error(ErrorCode::deadline, options_.address() +
                                                   ": the deadline passed before " + own->name_ +
                                                   " was sent; nothing was applied");
    }
    own->state_ = Operation::State::abandoned;
    // Ctrl-C says nothing of the server.
    if (!unanswered_since_ && !interrupted()) unanswered_since_ = std::chrono::steady_clock::now();
    if (own->read_only_) {
        return make_error(
            ErrorCode::deadline,
            options_.address() + ": the deadline passed before " + own->name_ + " was answered");
    }
    return make_error(ErrorCode::outcome_unknown,
                      options_.address() + ": " + own->name_ +
                          " was sent and not answered before the deadline; it may or may not be "
                          "applied");
}

// So that a black hole does not hold the connection for ever.
void Lane::break_if_stuck() {
    if (connection_ == nullptr || !unanswered_since_) return;
    if (std::chrono::steady_clock::now() - *unanswered_since_ < kGrace) return;
    break_connection(
        make_error(ErrorCode::unavailable, options_.address() + ": the server stopped answering"));
}

void Lane::break_connection(const Error& why, bool resend) {
    if (connection_ == nullptr) return;
    connection_->shut_down();  // Whoever waits for it, reader or writer, wakes and lets go of it.
    connection_.reset();
    out_.clear();
    unanswered_since_.reset();
    std::deque<Flight> flights;
    flights.swap(flights_);
    Operations again;
    for (const Flight& flight : flights) {
        // The server runs a command only when it has all of it.
        const bool whole = flight.end <= sent_bytes_;
        for (const auto& member : flight.members) {
            if (member->state_ != Operation::State::in_flight) continue;
            if (whole && !member->read_only_) {
                finish(member, make_error(ErrorCode::outcome_unknown,
                                          why.message + "; " + member->name_ +
                                              " was sent and not answered: it may or may not be "
                                              "applied"));
            } else if (!resend || member->resent_) {
                finish(member,
                       make_error(ErrorCode::unavailable, why.message + "; nothing was applied"));
            } else {
                member->resent_ = true;
                again.push_back(member);
            }
        }
    }
    put_back(again);
}

// Wakes a caller for each role that is free and has work. Called by whoever leaves.
void Lane::hand_on() {
    if (!writing_ && !queue_.empty()) {
        queue_.front()->woken_.set();
    }
    if (flights_.empty() || (reading_ && (writing_ || out_.empty()))) return;
    for (const Flight& flight : flights_) {
        for (const auto& member : flight.members) {
            if (member->state_ != Operation::State::in_flight) continue;
            member->woken_.set();
            return;
        }
    }
}

void Lane::close() {
    Lock lock(mutex_);
    closed_ = true;
    const Error closed = make_error(ErrorCode::closed, options_.address() + " is closed");
    for (const auto& waiting : queue_) finish(waiting, closed);
    queue_.clear();
    break_connection(closed, /*resend=*/false);
    room_.notify_all();
    wake_finished(lock);
}

Lane::Stats Lane::stats() {
    const Lock lock(mutex_);
    return stats_;
}

}  // namespace hotcount::redis

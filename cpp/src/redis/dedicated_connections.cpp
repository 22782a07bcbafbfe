#include "dedicated_connections.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/random.hpp>
#include <string>

#include "commands.hpp"
#include "server_role.hpp"

namespace hotcount::redis {
namespace {

const ReplyError* error_in(const Reply& reply) { return std::get_if<ReplyError>(&reply.value); }

// Whether a transaction's end can have this reply: QUEUED for each write; for EXEC an array with the
// writes' replies, or nil; OK for DISCARD, which has no writes.
bool ends_so(const Reply& reply, bool last, std::size_t writes) {
    if (error_in(reply) != nullptr) return true;
    if (!last || writes == 0) return std::holds_alternative<std::string>(reply.value);
    const auto* const replies = std::get_if<ReplyArray>(&reply.value);
    return std::holds_alternative<std::monostate>(reply.value) ||
           (replies != nullptr && replies->size() == writes);
}

// Older servers run EXEC although a watched key has expired and nobody has removed it yet
// (redis#9194). What is no version is not trusted.
bool sees_watched_keys_expire(const std::string& version) {
    constexpr std::array<int, 3> kMended{6, 2, 5};
    std::array<int, 3> parts{};
    const char* at = version.data();
    const char* const end = at + version.size();
    for (int& part : parts) {
        const auto [stop, error] = std::from_chars(at, end, part);
        if (error != std::errc{}) return false;
        at = stop;
        if (at == end || *at != '.') break;  // "8.0" is 8.0.0.
        ++at;
    }
    return parts >= kMended;
}

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

    /// Waits until one is free, and opens a connection if none is idle.
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

    /// Sends all bytes; false at the deadline. `left` is what the kernel did not take.
    Result<bool> send(std::string_view& left, Deadline deadline) {
        while (!left.empty()) {
            HOTCOUNT_TRY_ASSIGN(const std::size_t taken, connection_->write_some(left));
            left.remove_prefix(taken);
            if (taken > 0) continue;
            if (deadline.passed() || !connection_->wait_for(POLLOUT, deadline)) return false;
        }
        return true;
    }

    /// The next reply: none at the deadline.
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

Result<std::optional<Reply>> DedicatedConnections::attempt(const CheckAndSet& steps,
                                                           Deadline deadline) {
    Taken taken(*this);
    HOTCOUNT_TRY(taken.take(deadline));
    if (!steps.keys.empty()) HOTCOUNT_TRY(check_watch(taken, deadline));
    const std::string context = options_.address() + ": transaction";
    std::string bytes;
    constexpr std::string_view kMulti[] = {"MULTI"};
    // Nothing is to be decided: all of it travels at once.
    if (steps.keys.empty() && steps.reads.empty()) {
        encode_command(bytes, kMulti);
        return end(taken, steps, End{std::move(bytes), true, {}}, deadline);
    }
    std::vector<std::string_view> watch{"WATCH"};
    watch.insert(watch.end(), steps.keys.begin(), steps.keys.end());
    encode_command(bytes, watch);
    for (const auto& read : steps.reads) encode_command(bytes, read);
    encode_command(bytes, kMulti);
    std::string_view left = bytes;
    const auto sent = taken.send(left, deadline);
    if (!sent) return not_applied(sent.error());
    if (!*sent) return too_late();
    std::vector<Reply> seen;
    std::optional<Error> refused;
    for (std::size_t i = 0; i < steps.reads.size() + 2; ++i) {
        auto reply = taken.receive(deadline);
        if (!reply) return not_applied(reply.error());
        if (!*reply) return too_late();
        const bool is_read = i > 0 && i <= steps.reads.size();
        const Shape shape = is_read ? known_command(steps.reads[i - 1]).shape : Shape::text_or_nil;
        if (!fits(shape, **reply)) {
            return not_applied(
                make_error(ErrorCode::unavailable, context + " got a reply of another shape"));
        }
        if (const auto* error = error_in(**reply)) {
            if (!refused) refused = error_from_reply(error->message, context);
        } else if (is_read) {
            seen.push_back(std::move(**reply));
        }
    }

    // The writes are sent only now: after a refused MULTI the server would run them at once.
    const bool writes = !refused && steps.should_write(seen);
    return end(taken, steps, End{{}, writes, std::move(refused)}, deadline);
}

// Whether this server's WATCH may be trusted. The version is of the connection: a name may stand for
// another server after the next dial.
Result<void> DedicatedConnections::check_watch(Taken& taken, Deadline deadline) const {
    Connection& connection = taken.connection();
    const auto refuse = [&](ErrorCode code, const std::string& why, const std::string& word = {}) {
        return make_error(code,
                          options_.address() + ": WATCH needs Redis 6.2.5 or newer, " + why +
                              "; nothing was applied",
                          word);
    };
    if (connection.server_version().empty()) {  // RESP2: HELLO said nothing.
        constexpr std::string_view kInfo[] = {"INFO", "server"};
        std::string bytes;
        encode_command(bytes, kInfo);
        std::string_view left = bytes;
        const auto sent = taken.send(left, deadline);
        if (!sent) return not_applied(sent.error());
        if (!*sent) return too_late();
        const auto reply = taken.receive(deadline);
        if (!reply) return not_applied(reply.error());
        if (!*reply) return too_late();
        if (const auto* const error = error_in(**reply)) {
            taken.set_clean();
            const Error refused = error_from_reply(error->message, "INFO");
            return refuse(refused.code,
                          "and this one does not say its version (" + refused.message + ")",
                          refused.server_code);
        }
        auto found = info_field(**reply, "redis_version");
        if (!found) {
            return not_applied(
                make_error(ErrorCode::unavailable,
                           options_.address() + ": INFO got a reply of another shape"));
        }
        connection.set_server_version(std::move(*found));
    }
    const std::string& version = connection.server_version();
    if (sees_watched_keys_expire(version)) return {};
    taken.set_clean();
    if (version.empty()) return refuse(ErrorCode::config, "and this one does not say its version");
    return refuse(ErrorCode::config, "and this is " + printable(version) +
                                         ", which runs EXEC although a watched key has expired");
}

Error DedicatedConnections::too_late() const {
    return make_error(
        ErrorCode::deadline,
        options_.address() + ": the deadline passed before EXEC was sent; nothing was applied");
}

Result<std::optional<Reply>> DedicatedConnections::end(Taken& taken, const CheckAndSet& steps,
                                                       End how, Deadline deadline) {
    const std::string context = options_.address() + ": transaction";
    auto& [bytes, writes, refused] = how;
    if (writes && taken.connection().stale()) {
        return not_applied(make_error(ErrorCode::unavailable,
                                      options_.address() + ": the connection broke before EXEC"));
    }
    const std::size_t begins = bytes.empty() ? 0 : 1;
    if (writes) {
        for (const auto& write : steps.writes) encode_command(bytes, write);
    }
    const std::string_view last[] = {writes ? "EXEC" : "DISCARD"};
    encode_command(bytes, last);
    std::string_view left = bytes;
    const auto ended = taken.send(left, deadline);
    // When TLS fails nobody can say how much of it has left.
    const bool whole = left.empty() || (!ended.ok() && options_.tls.enabled);
    if (writes && !whole) return ended.ok() ? too_late() : not_applied(ended.error());
    std::optional<Reply> answer;
    std::string why = options_.address() + ": the deadline passed";
    if (!ended) why = ended.error().message;
    const std::size_t replies = begins + (writes ? steps.writes.size() : 0) + 1;
    bool without_multi = false;
    for (std::size_t left_to_read = left.empty() ? replies : 0; left_to_read > 0; --left_to_read) {
        auto reply = taken.receive(deadline);
        if (!reply) why = reply.error().message;
        if (!reply || !*reply) break;
        const auto* const error = error_in(**reply);
        if (without_multi && left_to_read > 1 && error == nullptr) {
            return make_error(ErrorCode::outcome_unknown,
                              context + ": MULTI was refused (" + refused->message +
                                  "), and commands behind it were run one by one");
        }
        if (!ends_so(**reply, left_to_read == 1, writes ? steps.writes.size() : 0)) {
            why = context + " got a reply of another shape";
            break;
        }
        if (left_to_read == 1) {
            answer = std::move(**reply);
        } else if (error != nullptr && !refused) {
            refused = error_from_reply(error->message, context);
            without_multi = begins > 0 && left_to_read == replies;
        }
    }
    // WATCH and MULTI end with EXEC, whatever it answers, and with DISCARD unless an ACL denies it.
    // Otherwise the connection is dropped.
    if (answer && (writes || error_in(*answer) == nullptr) &&
        !leaves_replica(taken.connection(), refused)) {
        taken.set_clean();
    }
    // One refused write makes EXEC fail, with or without a reply to EXEC.
    if (refused) return *refused;
    if (!writes) return std::optional<Reply>{};
    if (!answer) {
        return make_error(ErrorCode::outcome_unknown,
                          why + "; EXEC was sent and not answered: it may or may not be applied");
    }
    if (const auto* error = error_in(*answer)) {
        // "EXECABORT Transaction discarded because of: READONLY ..."
        constexpr std::string_view kBecause = "because of: ";
        std::string_view text = error->message;
        const auto at = text.find(kBecause);
        if (at != std::string_view::npos) text.remove_prefix(at + kBecause.size());
        return error_from_reply(text, context);
    }
    return answer;
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

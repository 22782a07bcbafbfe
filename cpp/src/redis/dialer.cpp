#include "dialer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

namespace hotcount::redis {
namespace {

// Parallel dials to a server that answers. A client with more event loops waits for a thread.
constexpr std::size_t kMostDials = 16;

bool of_the_connection(const Error& error) {
    return error.code == ErrorCode::unavailable || error.code == ErrorCode::deadline;
}

}  // namespace

Dialer::Dialer(Options options, std::shared_ptr<KnownScripts> scripts)
    : options_(std::move(options)),
      scripts_(std::move(scripts)),
      logins_(options_.credentials ? std::make_shared<Logins>(options_.credentials, kLateLogin)
                                   : nullptr) {}

bool Dialer::is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
}

Error Dialer::closed_error() const {
    return make_error(ErrorCode::closed, options_.address() + " is closed");
}

Result<void> Dialer::ask(Scripts scripts, Arrived arrived) {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_error();
    waiting_.push_back({scripts, std::move(arrived)});
    const auto started = start_threads();
    if (!started && threads_ == 0) {
        waiting_.pop_back();
        return make_error(
            started.error().code,
            options_.address() + ": " + started.error().message + "; nothing was applied");
    }
    return {};  // The threads that there are take it later.
}

// Under the mutex.
Result<void> Dialer::start_threads() {
    const std::size_t wanted =
        reached_ ? std::min(kMostDials, dialing_ + waiting_.size()) : std::size_t{1};
    while (threads_ < wanted) {
        HOTCOUNT_TRY(spawn_thread([self = shared_from_this()] { self->work(); }));
        ++threads_;
    }
    return {};
}

void Dialer::work() {
    Lock lock(mutex_);
    while (true) {
        // Until a dial has succeeded, a single thread dials.
        if (!reached_ && threads_ > 1) break;
        wait_for_turn(lock);
        if (closed_ || waiting_.empty()) break;
        const Asked asked = std::move(waiting_.front());
        waiting_.pop_front();
        const SteadyTime began = std::chrono::steady_clock::now();
        ++dialing_;
        lock.unlock();
        auto opened = dial(asked.scripts);
        lock.lock();
        --dialing_;
        if (closed_) opened = closed_error();
        std::vector<Asked> told;
        if (opened) {
            reached_ = true;
            knows_hello_.store((*opened)->knows_hello(), std::memory_order_relaxed);
            failures_before_ = std::exchange(failures_, 0);
            next_at_ = {};
            why_.reset();
            tell_reached();
            (void)start_threads();
        } else {
            if (note_failure(began)) next_at_ = std::max(next_at_, budget_.spend(began));
            why_ = opened.error();
            if (of_the_connection(*why_)) outage_.begin(why_->message);
            told.assign(std::make_move_iterator(waiting_.begin()),
                        std::make_move_iterator(waiting_.end()));
            waiting_.clear();
        }
        lock.unlock();
        for (const Asked& each : told) each.arrived(opened.error());
        asked.arrived(std::move(opened));
        lock.lock();
    }
    --threads_;
}

void Dialer::wait_for_turn(Lock& lock) {
    while (!closed_ && next_at_ > std::chrono::steady_clock::now()) {
        changed_.wait_until(lock, next_at_);
    }
}

// Parallel dials that fail together count as one failure. Returns true for the first of them.
bool Dialer::note_failure(SteadyTime began) {
    reached_ = false;
    if (began < failed_at_) return false;
    failed_at_ = std::chrono::steady_clock::now();
    next_at_ = failed_at_ + kDialBackoff.draw(++failures_);
    return true;
}

// Under the mutex. Logs the end of an outage, or a lost connection that was replaced at once; the
// latter at most once in kQuiet.
void Dialer::tell_reached() {
    const std::string why = std::exchange(lost_why_, {});
    if (outage_.is_on()) return outage_.end();
    const SteadyTime now = std::chrono::steady_clock::now();
    if (why.empty() || (told_lost_ != SteadyTime{} && now - told_lost_ < Trouble::kQuiet)) return;
    told_lost_ = now;
    log_line(false, options_.address() + " was connected again: " + why);
}

void Dialer::lost(std::string_view why) {
    const std::lock_guard lock(mutex_);
    const std::string named = options_.address() + ": ";
    if (why.starts_with(named)) why.remove_prefix(named.size());
    lost_why_ = why;
}

bool Dialer::worth_waiting(const Error& error) {
    if (error.code == ErrorCode::deadline) return true;
    return error.code == ErrorCode::unavailable && error.server_code != "READONLY" &&
           (is_transient_refusal(error.server_code) ||
            error.message.find("max number of clients") != std::string::npos);
}

std::optional<Error> Dialer::last_failure() {
    const std::lock_guard lock(mutex_);
    return why_;
}

void Dialer::came_to_nothing() {
    const std::lock_guard lock(mutex_);
    if (!reached_) return;
    failures_ = failures_before_;
    (void)note_failure(std::chrono::steady_clock::now());
    outage_.begin("the connection ended before the server answered anything");
}

void Dialer::put_last(const Address& address) {
    const std::lock_guard lock(mutex_);
    reached_ = false;
    last_.assign(1, address);
}

void Dialer::hurry() {
    const std::lock_guard lock(mutex_);
    next_at_ = {};
    changed_.notify_all();
}

void Dialer::close() {
    std::deque<Asked> waiting;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        if (sentinels_ != nullptr) sentinels_->close();
        waiting.swap(waiting_);
        changed_.notify_all();
    }
    for (const Asked& each : waiting) each.arrived(closed_error());
}

Result<TlsContext> Dialer::tls() {
    if (!options_.tls.enabled) return TlsContext{};
    {
        const std::lock_guard lock(mutex_);
        if (tls_ != nullptr) return tls_;
    }
    HOTCOUNT_TRY_ASSIGN(TlsContext made, make_tls_context(options_));
    const std::lock_guard lock(mutex_);
    if (tls_ == nullptr) tls_ = std::move(made);
    return tls_;
}

Result<std::unique_ptr<Connection>> Dialer::dial(Scripts scripts) {
    HOTCOUNT_TRY_ASSIGN(const TlsContext context, tls());
    if (!options_.service.empty()) return dial_primary(scripts, context);
    auto resolved = resolve(options_);
    if (!resolved) {
        return make_error(resolved.error().code,
                          options_.address() + ": " + resolved.error().message);
    }
    std::vector<Address>& addresses = *resolved;
    {
        const std::lock_guard lock(mutex_);
        std::stable_partition(addresses.begin(), addresses.end(), [this](const Address& address) {
            return std::find(last_.begin(), last_.end(), address) == last_.end();
        });
    }
    return dial_any(std::move(addresses), scripts, context);
}

std::shared_ptr<Sentinels> Dialer::sentinels() {
    const std::lock_guard lock(mutex_);
    if (sentinels_ == nullptr) {
        sentinels_ = std::make_shared<Sentinels>(options_, [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->hurry();
        });
        if (closed_) sentinels_->close();
    }
    return sentinels_;
}

Result<std::unique_ptr<Connection>> Dialer::dial_primary(Scripts scripts,
                                                         const TlsContext& context) {
    const auto sentinels = this->sentinels();
    HOTCOUNT_TRY_ASSIGN(const Primary primary,
                        sentinels->find(Deadline::after(options_.connect_timeout)));
    // Another primary may be elected soon, so calls wait.
    const auto waits = [&](const Error& why) {
        return make_error(of_the_connection(why) ? ErrorCode::unavailable : why.code,
                          why.message + " (the primary is " + primary.endpoint.str() + ")",
                          of_the_connection(why) ? "MASTERDOWN" : why.server_code);
    };
    const auto lease = sentinels->lease(primary.endpoint);
    auto resolved = resolve(primary.endpoint);
    if (!resolved) {
        return waits(make_error(resolved.error().code,
                                options_.address() + ": " + resolved.error().message));
    }
    auto opened = dial_any(std::move(*resolved), scripts, context, lease);
    if (!opened) return waits(opened.error());
    // A paused server completes the handshake when it resumes, even if it was replaced meanwhile.
    HOTCOUNT_TRY_ASSIGN(const Primary still,
                        sentinels->find(Deadline::after(options_.connect_timeout)));
    if (still.endpoint != primary.endpoint || lease->ended()) {
        return waits(
            make_error(ErrorCode::unavailable, options_.address() + ": it was replaced by " +
                                                   still.endpoint.str() + " while it greeted"));
    }
    return opened;
}

Result<std::unique_ptr<Connection>> open_by_name(const Options& options, const TlsContext& tls,
                                                 const Login& login, Deadline deadline) {
    const auto addresses = resolve(options);
    if (!addresses) {
        return make_error(addresses.error().code,
                          options.address() + ": " + addresses.error().message);
    }
    return open_any(options, tls, login, *addresses, deadline);
}

Result<std::unique_ptr<Connection>> open_any(const Options& options, const TlsContext& tls,
                                             const Login& login,
                                             const std::vector<Address>& addresses,
                                             Deadline deadline) {
    std::optional<Error> why;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const auto left = static_cast<Duration::rep>(addresses.size() - i);
        auto opened = Connection::open(options, tls, {}, addresses[i],
                                       Deadline::after(deadline.remaining() / left), login);
        if (opened) return opened;
        if (!why || opened.error().code != ErrorCode::deadline) why = std::move(opened).error();
    }
    return *why;
}

bool ended_without_a_word(const Error& error) {
    if (error.code != ErrorCode::unavailable) return false;
    const auto ends_with = [&](const char* why) { return error.message.ends_with(why); };
    return ends_with(kEndedByServer) || ends_with(std::strerror(ECONNRESET)) ||
           ends_with(std::strerror(EPIPE));
}

Result<Login> Dialer::login(Deadline deadline) {
    if (logins_ == nullptr) return Login{options_.user, options_.password};
    auto login = logins_->ask(deadline);
    if (login) return login;
    return make_error(login.error().code, options_.address() + ": " + login.error().message);
}

Result<std::unique_ptr<Connection>> Dialer::dial_any(std::vector<Address> addresses,
                                                     Scripts scripts, const TlsContext& context,
                                                     std::shared_ptr<Lease> lease) {
    const auto known = scripts == Scripts::all ? scripts_->all() : std::vector<const Script*>{};
    const Deadline end = Deadline::after(options_.connect_timeout);
    HOTCOUNT_TRY_ASSIGN(Login login, this->login(end));
    std::vector<Address> failed;
    std::optional<Error> why;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const auto left = static_cast<Duration::rep>(addresses.size() - i);
        const auto open = [&]() -> Result<std::unique_ptr<Connection>> {
            if (is_closed()) return closed_error();
            return Connection::open(options_, context, known, addresses[i],
                                    Deadline::after(end.remaining() / left), login, lease);
        };
        const auto renew = [&]() -> Result<bool> {
            const Login refused = std::exchange(login, {});
            HOTCOUNT_TRY_ASSIGN(login, this->login(end));
            return login != refused;
        };
        bool asked = false;
        auto opened = logins_ == nullptr ? open() : open_in_rotation(open, renew, asked);
        if (opened || !of_the_connection(opened.error())) {
            if (opened && !failed.empty()) {
                const std::lock_guard lock(mutex_);
                last_ = std::move(failed);
            }
            return opened;
        }
        failed.push_back(addresses[i]);
        if (!why) {
            why = std::move(opened).error();
            continue;
        }
        why->message += "; " + opened.error().message;
        // A refusal says more than silence.
        if (opened.error().code == ErrorCode::unavailable) why->code = ErrorCode::unavailable;
    }
    return *why;
}

}  // namespace hotcount::redis

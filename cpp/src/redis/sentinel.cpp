#include "sentinel.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <utility>

#include "dialer.hpp"

namespace hotcount::redis {
namespace {

// The interval of the periodic question to each Sentinel.
constexpr Duration kLook = std::chrono::seconds{1};

// How long find() waits for the others once a majority has answered.
constexpr Duration kGrace = std::chrono::milliseconds{50};

// How long the report of an elected Sentinel counts after its last message.
constexpr Duration kElectedHolds = std::chrono::seconds{5};

// How long a failover counts if no Sentinel that answers knows it, because the elected one died
// before it told the others. After 8 s (four of their 2 s message intervals) these make the
// promoted server a replica of the old primary again, or replace the old primary with a higher
// epoch. Other client libraries follow a single Sentinel's answer at once.
constexpr Duration kUnknownHolds = std::chrono::seconds{10};

// How long a round waits for the Sentinels, while this process runs.
constexpr Duration kConfirm = std::chrono::seconds{1};

// The age of a majority's answers at which it is asked again: the next question is late, and an answer
// after kConfirm comes before Belief::kRecent has passed.
constexpr Duration kLate = kLook + kLook / 4;
static_assert(kLate + kConfirm < Belief::kRecent);

SteadyTime now() { return std::chrono::steady_clock::now(); }

// A connection to a Sentinel speaks RESP2, where messages are replies.
Options options_of(const Options& options, const Endpoint& sentinel) {
    Options own = options;
    own.host = sentinel.host;
    own.port = sentinel.port;
    own.seeds.clear();
    own.service.clear();
    own.user = options.sentinel_credentials.user;
    own.password = options.sentinel_credentials.password;
    own.tls.enabled = options.tls.enabled && options.sentinel_tls;
    own.database = 0;
    own.protocol = 2;
    return own;
}

}  // namespace

struct Sentinels::Watched {
    explicit Watched(Options its) : options(std::move(its)) {}
    ~Watched() {
        if (wake >= 0) ::close(wake);
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    const Options options;
    int wake{-1};  // An eventfd: ask now.
    bool runs{false};
    bool away{true};  // It accepts no session, or a round ended without it. No round waits for it.
    SentinelAnswer answer{};
    SteadyTime asked_at{};

    // The primary that this Sentinel replaces, and when it last reported the failover. The other
    // Sentinels name the old primary until this one tells them, and it may answer late: an elected
    // Sentinel writes its configuration to disk.
    std::optional<Endpoint> replaces{};
    SteadyTime replaces_since{};

    /// Whether this Sentinel still replaces the primary: then no other Sentinel's answer counts.
    bool still_replaces(const Endpoint& primary) const {
        if (replaces != primary || now() > replaces_since + kElectedHolds) return false;
        const bool gave_up = asked_at > replaces_since &&
                             answer.kind == SentinelAnswer::Kind::primary && !answer.replaces_it &&
                             answer.primary == primary;
        return !gave_up;
    }
    void sees_replaced(const Endpoint& primary) {
        replaces = primary;
        replaces_since = now();
    }
};

// Two connections to a Sentinel: in RESP2 a subscribed connection takes no other commands.
// A forked child closes both: it makes its own, and a Sentinel would keep sending messages to the
// inherited sockets after the parent has ended.
class Sentinels::Session final : ForkAware {
  public:
    static Result<std::unique_ptr<Session>> open(const Options& options) {
        HOTCOUNT_TRY_ASSIGN(const TlsContext tls, make_tls_context(options));
        const Deadline deadline = Deadline::after(options.connect_timeout);
        auto session = std::make_unique<Session>(options);
        for (auto* connection : {&session->events_, &session->asks_}) {
            HOTCOUNT_TRY_ASSIGN(
                *connection,
                open_by_name(options, tls, {options.user, options.password}, deadline));
        }
        const std::vector<std::string_view> subscribe[] = {{"SUBSCRIBE", kElected},
                                                           {"SUBSCRIBE", kSwitched}};
        HOTCOUNT_TRY_ASSIGN(const ReplyArray done, session->events_->ask(subscribe, deadline));
        for (const Reply& reply : done) {
            const auto* const refused = std::get_if<ReplyError>(&reply.value);
            if (refused != nullptr) return to_error(*refused, options.address() + ": SUBSCRIBE");
        }
        return session;
    }
    explicit Session(const Options& options) : options_(options) { start_watching_forks(); }
    ~Session() { stop_watching_forks(); }

    SentinelAnswer ask(const std::string& service) {
        const std::vector<std::string_view> both[] = {
            {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", service}, {"SENTINEL", "MASTER", service}};
        auto replies = asks_->ask(both, Deadline::after(options_.connect_timeout));
        if (!replies) return SentinelAnswer::failed(replies.error());
        return read_answer((*replies)[0], (*replies)[1], options_.address());
    }

    int descriptor() const { return events_->descriptor(); }

    /// The messages that have arrived.
    Result<std::vector<SentinelEvent>> events(const std::string& service) {
        std::vector<SentinelEvent> events;
        HOTCOUNT_TRY(events_->read_some());
        while (true) {
            HOTCOUNT_TRY_ASSIGN(const auto reply, events_->next_reply());
            if (!reply) return events;
            const auto* const parts = std::get_if<ReplyArray>(&reply->value);
            if (parts == nullptr || parts->size() != 3) continue;
            const auto* const channel = std::get_if<std::string>(&(*parts)[1].value);
            const auto* const text = std::get_if<std::string>(&(*parts)[2].value);
            if (channel == nullptr || text == nullptr) continue;
            if (auto event = read_event(*channel, *text, service)) events.push_back(*event);
        }
    }

  private:
    void before_fork() override {}
    void after_fork(bool in_child) override {
        if (!in_child) return;
        for (const auto* connection : {&events_, &asks_}) {
            if (*connection != nullptr) ::close((*connection)->descriptor());
        }
    }

    const Options& options_;
    std::unique_ptr<Connection> events_;
    std::unique_ptr<Connection> asks_;
};

Sentinels::Sentinels(const Options& options, std::function<void()> changed)
    : options_(options), changed_(std::move(changed)) {
    for (const Endpoint& seed : options_.seeds) {
        watched_.push_back(std::make_unique<Watched>(options_of(options_, seed)));
    }
}

Sentinels::~Sentinels() = default;

// Under the mutex.
Result<void> Sentinels::start_threads() {
    for (const auto& each : watched_) {
        if (each->wake < 0) each->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (each->wake < 0) {
            return make_error(ErrorCode::unavailable,
                              options_.address() + ": " + std::strerror(errno));
        }
    }
    if (!confirms_) {
        HOTCOUNT_TRY(spawn_thread([self = shared_from_this()] { self->keep_confirmed(); }));
        confirms_ = true;
    }
    for (const auto& each : watched_) {
        if (each->runs) continue;
        auto spawned = spawn_thread(
            [self = shared_from_this(), sentinel = each.get()] { self->watch(*sentinel); });
        each->runs = static_cast<bool>(spawned);
        if (each->runs) continue;
        // Without its thread the Sentinel counts as failed, until the next call of find().
        each->answer = SentinelAnswer::failed(spawned.error());
        each->asked_at = now();
    }
    return {};
}

void Sentinels::ask_all() const {
    const std::uint64_t one = 1;
    for (const auto& each : watched_) {
        if (each->wake >= 0) (void)!write(each->wake, &one, sizeof(one));
    }
}

// -- the threads --------------------------------------------------------------------------------

void Sentinels::watch(Watched& sentinel) {
    while (!closed_) {
        const SteadyTime began = now();
        auto session = Session::open(sentinel.options);
        if (session) {
            follow(sentinel, **session);
        } else {
            record(sentinel, began, SentinelAnswer::failed(std::move(session).error()));
            const std::lock_guard lock(mutex_);
            sentinel.away = true;
        }
        // Subscribe again at once, unless sessions end as soon as they begin.
        if (now() < began + kLook) rest(sentinel);
    }
}

// Sleeps until the next look is due, or until ask_all() wakes the thread.
void Sentinels::rest(const Watched& sentinel) const {
    pollfd waiting{sentinel.wake, POLLIN, 0};
    if (!closed_) (void)poll(&waiting, 1, static_cast<int>(kLook / std::chrono::milliseconds{1}));
    std::uint64_t asked = 0;
    (void)!read(sentinel.wake, &asked, sizeof(asked));
}

void Sentinels::follow(Watched& sentinel, Session& session) {
    while (!closed_) {
        const SteadyTime began = now();
        SentinelAnswer answer = session.ask(options_.service);
        const bool lost = answer.why && (answer.why->code == ErrorCode::unavailable ||
                                         answer.why->code == ErrorCode::deadline);
        record(sentinel, began, std::move(answer));
        if (lost) return;
        bool look = false;
        while (!look && !closed_) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(began + kLook - now());
            pollfd waiting[] = {{session.descriptor(), POLLIN, 0}, {sentinel.wake, POLLIN, 0}};
            const auto most = std::clamp<std::int64_t>(left.count(), 0, INT_MAX);
            (void)poll(waiting, 2, static_cast<int>(most));
            if (waiting[0].revents != 0) {
                auto events = session.events(options_.service);
                if (!events) return;  // If it fails, the next session reports the error.
                for (const SentinelEvent& event : *events) note(sentinel, event);
            }
            std::uint64_t asked = 0;
            look = read(sentinel.wake, &asked, sizeof(asked)) > 0 || now() >= began + kLook;
        }
    }
}

void Sentinels::record(Watched& sentinel, SteadyTime asked_at, SentinelAnswer answer) {
    std::optional<Endpoint> primary;
    std::optional<Endpoint> replaced;  // If the event was missed, this look reports it.
    if (answer.replaces_it) replaced = answer.primary;
    bool is_new = false;
    SteadyTime majority_asked{};
    {
        const std::lock_guard lock(mutex_);
        sentinel.answer = std::move(answer);
        sentinel.asked_at = asked_at;
        if (sentinel.answer.kind != SentinelAnswer::Kind::failed) sentinel.away = false;
        if (replaced) sentinel.sees_replaced(*replaced);
        const bool knows = sentinel.answer.kind == SentinelAnswer::Kind::primary &&
                           sentinel.answer.epoch >= known_epoch_;
        if (knows) known_since_ = std::max(known_since_, asked_at);
        const auto chosen = primary_since(now() - Belief::kRecent);
        if (chosen) primary = chosen->endpoint;
        is_new = primary && found_ != primary;
        found_ = primary;
        majority_asked = when_majority_was_asked();
    }
    answered_.notify_all();
    if (primary) {
        end_leases("the Sentinels replaced it by " + primary->str(),
                   [&](const Endpoint& each) { return each != *primary; });
    }
    if (replaced) {
        end_leases("the Sentinels are replacing it",
                   [&](const Endpoint& each) { return each == *replaced; });
    }
    if (majority_asked > belief_.last_look()) {
        belief_.looked(majority_asked);
        blind_ = false;
    }
    if (is_new) changed_();
}

// Under the mutex. The latest time since which a majority of the Sentinels was asked and answered.
SteadyTime Sentinels::when_majority_was_asked() const {
    std::vector<SteadyTime> asked;
    for (const auto& each : watched_) {
        const bool said = each->answer.kind == SentinelAnswer::Kind::primary;
        asked.push_back(said ? each->asked_at : SteadyTime{});
    }
    const auto last = asked.begin() + static_cast<std::ptrdiff_t>(asked.size() / 2);
    std::nth_element(asked.begin(), last, asked.end(), std::greater<>{});
    return *last;
}

// -- rounds -------------------------------------------------------------------------------------

// Whether a reply counts that was read at `read_at` or before.
bool Sentinels::confirmed(SteadyTime read_at) const {
    return closed_ || blind_ || belief_.counts(read_at, now);
}

// A thread: beats, and asks all Sentinels when replies wait for that, or when their answers get old.
void Sentinels::keep_confirmed() {
    std::optional<Round> round;
    std::unique_lock lock(mutex_);
    while (!closed_) {
        const SteadyTime began = now();
        belief_.beat(began);
        if (!round && round_is_due(began)) {
            round = Round{began, belief_.wants_round(began), kConfirm};
            ask_all();
        }
        if (round && round_is_over(*round)) {
            lock.unlock();
            act_on(*round);
            lock.lock();
            round.reset();
            continue;
        }
        answered_.wait_for(lock, round ? std::min(Belief::kBeat, round->left) : Belief::kBeat);
        // The rest of a longer wait is a standstill.
        if (round) round->left -= std::min(now() - began, 2 * Belief::kBeat);
    }
}

// Under the mutex. If no majority answers, the connections stay in use, and their replies count.
bool Sentinels::round_is_due(SteadyTime time) const {
    const SteadyTime last = belief_.last_look();
    if (blind_ || last == SteadyTime{}) return false;
    return belief_.wants_round(time) || time >= last + kLate;
}

// Under the mutex. The elected Sentinel may be the last to answer, so a round waits for all but those
// that are away, and for these kGrace after a majority has answered.
bool Sentinels::round_is_over(Round& round) {
    std::size_t said = 0;
    bool waits = false;
    bool waits_for_away = false;
    for (const auto& each : watched_) {
        if (each->asked_at >= round.asked_at) {
            said += each->answer.kind == SentinelAnswer::Kind::primary;
            round.knows_last_failover |= each->answer.epoch >= known_epoch_;
        } else {
            (each->away ? waits_for_away : waits) = true;
        }
    }
    if (!waits && said > watched_.size() / 2) round.left = std::min(round.left, kGrace);
    if (round.left > Duration{0}) return !waits && !waits_for_away;
    for (const auto& each : watched_) each->away |= each->asked_at < round.asked_at;
    return true;
}

void Sentinels::act_on(const Round& round) {
    std::unique_lock lock(mutex_);
    const auto primary = primary_since(round.asked_at);
    const bool majority = when_majority_was_asked() >= round.asked_at;
    if (!majority) return blind_.store(true);  // Under the lock: an answer ends it.
    lock.unlock();
    if (primary) {
        end_leases("the Sentinels replaced it by " + primary->endpoint.str(),
                   [&](const Endpoint& each) { return each != primary->endpoint; });
    } else if (round.replies_wait && round.knows_last_failover) {
        end_leases(primary.error().message, [](const Endpoint&) { return true; });
    }
    belief_.looked(round.asked_at);
    if (primary || round.replies_wait) belief_.confirmed(round.asked_at);
}

void Sentinels::note(Watched& sentinel, const SentinelEvent& event) {
    if (!event.now) {
        const std::lock_guard lock(mutex_);
        sentinel.sees_replaced(event.old);
    }
    if (event.now) {
        end_leases("the Sentinels replaced it by " + event.now->str(),
                   [&](const Endpoint& each) { return each != *event.now; });
    } else {
        end_leases("the Sentinels are replacing it",
                   [&](const Endpoint& each) { return each == event.old; });
    }
    ask_all();
    changed_();
}

// -- callers of find() --------------------------------------------------------------------------

// Under the mutex. Answers to questions before `since` do not count.
Result<Primary> Sentinels::primary_since(SteadyTime since) {
    std::vector<SentinelAnswer> answers;
    for (const auto& each : watched_) {
        answers.push_back(each->asked_at >= since ? each->answer : SentinelAnswer{});
    }
    const bool forgotten = now() > known_since_ + kUnknownHolds;
    auto chosen = choose_primary(options_, answers, forgotten ? 0 : known_epoch_);
    if (!chosen) return chosen;
    for (const auto& each : watched_) {
        if (each->still_replaces(chosen->endpoint)) {
            return being_replaced(options_, chosen->endpoint);
        }
    }
    known_epoch_ = chosen->epoch;
    return chosen;
}

Result<Primary> Sentinels::find(Deadline deadline) {
    const SteadyTime began = now();
    std::unique_lock lock(mutex_);
    HOTCOUNT_TRY(start_threads());
    ask_all();
    SteadyTime until = deadline.time();
    while (!closed_) {
        std::size_t answered = 0;
        std::size_t said = 0;
        for (const auto& each : watched_) {
            if (each->asked_at < began) continue;
            ++answered;
            if (each->answer.kind == SentinelAnswer::Kind::primary) ++said;
        }
        if (answered == watched_.size()) break;
        if (said > watched_.size() / 2) until = std::min(until, now() + kGrace);
        if (answered_.wait_until(lock, until) == std::cv_status::timeout) break;
    }
    if (closed_) return make_error(ErrorCode::closed, options_.address() + " is closed");
    return primary_since(began);
}

std::shared_ptr<Lease> Sentinels::lease(const Endpoint& primary) {
    auto lease = std::make_shared<Lease>(primary, [weak = weak_from_this()](SteadyTime read_at) {
        const auto self = weak.lock();
        return self == nullptr || self->confirmed(read_at);
    });
    const std::lock_guard lock(mutex_);
    std::erase_if(leases_, [](const std::weak_ptr<Lease>& each) { return each.expired(); });
    leases_.push_back(lease);
    return lease;
}

template <class Which>
void Sentinels::end_leases(const std::string& why, const Which& which) {
    std::vector<std::shared_ptr<Lease>> ended;
    {
        const std::lock_guard lock(mutex_);
        for (const std::weak_ptr<Lease>& each : leases_) {
            auto lease = each.lock();
            if (lease != nullptr && which(lease->endpoint()) && !lease->ended()) {
                ended.push_back(std::move(lease));
            }
        }
    }
    if (ended.empty()) return;
    log_line(true,
             options_.address() + ": " + ended.front()->endpoint().str() + " is left: " + why);
    for (const auto& lease : ended) lease->end(why);
}

void Sentinels::close() {
    closed_ = true;
    const std::lock_guard lock(mutex_);
    ask_all();
    answered_.notify_all();
}

// -- leases -------------------------------------------------------------------------------------

void Lease::end(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (ended()) return;
    why_ = why;
    ended_.store(true, std::memory_order_release);
    if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);  // Wakes a thread in poll().
}

std::string Lease::why() {
    const std::lock_guard lock(mutex_);
    return why_;
}

void Lease::attach(int socket) {
    const std::lock_guard lock(mutex_);
    socket_ = socket;
    if (ended()) shutdown(socket_, SHUT_RDWR);
}

void Lease::detach() {
    const std::lock_guard lock(mutex_);
    socket_ = -1;
}

}  // namespace hotcount::redis

#include "socket_loop_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <hotcount/detail/base/fork.hpp>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "loop_dial.hpp"
#include "shared_connection.hpp"

namespace hotcount::redis {
namespace {

// A send goes early when kMostEarly calls are queued, or a third of the calls in flight at the end
// of the last turn: while the server works on one third, the loop resumes the tasks of another.
// With a single send for all calls the server and the loop work in turns, and both sleep in
// between. Sends of a third raised the rate of calls 1.3 times with 64 tasks, 1.8 with 32, 1.4 with
// 16 and 1.3 with 8.
constexpr std::size_t kThirds = 3;
constexpr std::size_t kMostEarly = 48;
constexpr std::size_t kFewestThirds = 4;  // Fewer calls under way are not divided.

// How often deadlines are checked while calls are under way.
constexpr Duration kLoopTick = std::chrono::milliseconds{20};

// The maximum number of reads in one turn of the loop, so that the loop's other work is not
// delayed.
constexpr int kMostReads = 16;

// The maximum number of calls that one callback of the loop completes, and of calls that it gives up
// because their deadlines have passed. The rest follows in the next turn: 100,000 calls that end at
// once do not delay the loop's other work. Only close() completes all calls.
constexpr std::size_t kMostEnded = 1024;

class SocketLoopConnection final : public LoopLane, private ConnectionParts {
  public:
    SocketLoopConnection(const Options& options, std::shared_ptr<Dialer> dialer, LoopHost& host,
                         std::shared_ptr<LoopConnections> loops, LaneOf lane = {})
        : ConnectionParts(options, std::move(dialer), std::move(lane)),
          host_(host),
          loops_(std::move(loops)) {}

    // Does not call the host: it may be destroyed already, with its watches.
    ~SocketLoopConnection() override {
        report();
        loops_->forget(this);
    }

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) override {
        if (request.goes_alone() && usable()) {
            return submit_alone(std::move(request), deadline, std::move(done), cancelled);
        }
        auto operation =
            std::make_shared<Operation>(std::move(request), deadline, std::move(done), cancelled);
        if (const auto refused = take(operation)) operation->refuse(*refused);
    }

    std::optional<Error> take(const OperationPtr& operation) override {
        if (!usable()) return closed_error();
        if (auto full = push(operation)) return full;
        ask_flush();
        ask_tick();
        if (connection_ == nullptr || multiplexer_.queued() < early_) return {};
        send();
        // A burst of more calls than before: send larger portions of it.
        if (++early_sends_ >= kThirds) early_ = std::min(2 * early_, kMostEarly);
        return {};
    }

    void flush() override {
        flush_asked_ = false;
        if (!usable()) return end();
        if (beside_ != nullptr) beside_->flush();
        // If the loop was busy for long, the deadlines of some calls have passed: do not send
        // these.
        multiplexer_.expire(std::chrono::steady_clock::now(), kMostEnded);
        send();
        if (!is_lane()) plan(multiplexer_.unwaited());
        complete_finished();
    }

    // A lane with at most half of the loop's calls sends once a turn: a third of its calls would be
    // only a few.
    void plan(std::size_t all) override {
        const std::size_t own = multiplexer_.unwaited();
        const std::size_t third = std::min((own + kThirds - 1) / kThirds, kMostEarly);
        early_ = own < all && 2 * own <= all ? std::numeric_limits<std::size_t>::max()
                 : own < kFewestThirds       ? kMostEarly
                                             : third;
        early_sends_ = 0;
    }

    void on_readable(int fd) override {
        if (!usable()) return end();
        if (dial_ != nullptr && fd == dial_->descriptor()) {
            dialed();
        } else if (connection_ != nullptr && fd == connection_->descriptor()) {
            receive();
        } else if (beside_ != nullptr) {
            beside_->on_readable(fd);
            beside_->flush();
        }
        complete_finished();
    }

    int spin(int also) override {
        const bool alone = connection_ != nullptr && !connection_->withholds() && usable() &&
                           multiplexer_.in_flight() == 1 && !multiplexer_.has_to_send();
        if (!alone || !spin_.pays()) return -1;
        pollfd waiting[] = {{connection_->descriptor(), POLLIN, 0}, {also, POLLIN, 0}};
        const bool found = spin_.run([&] {
            if (poll(waiting, 2, 0) <= 0) return AdaptiveSpin::Seen::nothing;
            // The loop watches the connection too.
            return waiting[0].revents != 0 ? AdaptiveSpin::Seen::reply : AdaptiveSpin::Seen::other;
        });
        return found ? connection_->descriptor() : -1;
    }

    void on_writable() override {
        if (!usable()) return end();
        if (beside_ != nullptr) beside_->on_writable();
        send();
        complete_finished();
    }

    void on_tick() override {
        tick_asked_ = false;
        turn_asked_ = false;
        if (!usable()) return end();
        if (beside_ != nullptr) beside_->on_tick();
        const SteadyTime now = std::chrono::steady_clock::now();
        multiplexer_.requeue_due(now);
        multiplexer_.expire(now, kMostEnded);
        if (connection_ != nullptr && connection_->withholds()) receive();
        // Replies that are unread because the loop was busy do not count as silence.
        if (connection_ != nullptr && now >= multiplexer_.silent_at() && !connection_->readable()) {
            lose(multiplexer_.silent_error());
        }
        send();
        report();
        complete_finished();
        if (multiplexer_.unwaited() > 0) ask_tick();
    }

    void close() override {
        closed_ = true;
        end();
    }

    // -- a lane

    void evict(const Error& why) override {
        if (connection_ != nullptr) return;  // The node redirects the queued calls, in order.
        multiplexer_.evict(why);
        if (multiplexer_.has_finished()) ask_flush();
    }
    void confirm(bool owns, SteadyTime asked_at) override {
        const auto delivered = multiplexer_.confirm(owns, asked_at);
        if (delivered == false && connection_ != nullptr) {
            lose(make_error(ErrorCode::unavailable,
                            options_.address() + ": this node was replaced"));
        }
        if (delivered) complete_finished();
    }
    std::optional<SteadyTime> doubted_since() const override {
        return multiplexer_.doubted_since();
    }
    void outstanding(SlotSet& slots) const override { multiplexer_.outstanding(slots); }
    bool is_connected() const override { return connection_ != nullptr; }
    bool wants_flush() const override { return flush_asked_; }
    std::size_t in_flight() const override { return multiplexer_.in_flight(); }
    std::size_t queued() const override { return multiplexer_.queued(); }
    std::size_t under_way() const override { return multiplexer_.unwaited(); }
    bool watches(int fd) const override {
        return (dial_ != nullptr && fd == dial_->descriptor()) ||
               (connection_ != nullptr && fd == connection_->descriptor());
    }

    bool usable() const override {
        return !closed_ && !loops_->closed.load(std::memory_order_acquire) &&
               generation_ == fork_generation();
    }

  private:
    // Over a second connection of the loop, one command at a time, each followed by an ECHO: a
    // command with no reply or two replies breaks only that connection.
    void submit_alone(Request request, Deadline deadline, Completion<Reply> done,
                      const Cancelled* cancelled) {
        if (beside_ == nullptr) {
            Options options = options_;
            options.max_in_flight = 1;
            beside_ = std::make_unique<SocketLoopConnection>(options, dialer_, host_, loops_);
        }
        const std::string context = options_.address() + ": " + request.name();
        beside_->submit(
            std::move(request).with_echo(), deadline,
            [context, done = std::move(done)](Result<Reply> replies) {
                if (!replies) return done(std::move(replies));
                auto& both = std::get<ReplyArray>(replies->value);
                // Without a reply to the ECHO the first reply may not be the command's.
                const auto* error = std::get_if<ReplyError>(&both.back().value);
                if (error == nullptr || !error->known) {
                    error = std::get_if<ReplyError>(&both.front().value);
                }
                if (error != nullptr) return done(to_error(*error, context));
                done(std::move(both.front()));
            },
            cancelled);
    }

    void ask_flush() {
        if (flush_asked_) return;
        flush_asked_ = true;
        host_.flush_soon();
    }

    void ask_tick() {
        if (tick_asked_) return;
        tick_asked_ = true;
        host_.tick_in(kLoopTick);
    }

    // The loop's next turn.
    void ask_turn() {
        if (turn_asked_) return;
        turn_asked_ = true;
        tick_asked_ = true;
        host_.tick_in(Duration{0});
    }

    void send() {
        if (connection_ != nullptr && multiplexer_.in_flight() == 0 && !multiplexer_.half_sent() &&
            multiplexer_.has_to_send() && connection_->stale()) {
            dialer_->lost(kEndedByServer);
            drop_connection();
        }
        while (multiplexer_.has_to_send()) {
            if (connection_ == nullptr) return dial();
            std::string sending = multiplexer_.take();
            if (sending.empty()) continue;  // All of it was withdrawn.
            auto taken = connection_->write_some(sending);
            if (!taken) {
                if (!options_.tls.enabled) multiplexer_.put_back_unsent(std::move(sending));
                lose(taken.error());
                continue;
            }
            sent(std::move(sending), *taken);
            if (*taken == 0) break;  // The kernel's buffer is full.
        }
        watch();
    }

    void watch() {
        if (connection_ == nullptr) return;
        const auto wanted = connection_->withholds()   ? LoopHost::Interest::none
                            : multiplexer_.half_sent() ? LoopHost::Interest::read_and_write
                                                       : LoopHost::Interest::read;
        if (wanted == watched_) return;
        watched_ = wanted;
        host_.watch(connection_->descriptor(), wanted);
    }

    void dial() {
        if (dialing_) return;
        if (dial_ == nullptr) {
            auto made = Dial::make();
            // The next call tries again.
            if (!made) return multiplexer_.fail_queued(cannot_dial(made.error()));
            dial_ = std::move(*made);
        }
        dialing_ = true;
        if (!dial_watched_) host_.watch(dial_->descriptor(), LoopHost::Interest::read);
        dial_watched_ = true;
        auto asked = dialer_->ask(Dialer::Scripts::all, [dial = dial_](auto opened) {
            dial->arrived(std::move(opened));
        });
        // The error arrives in a later turn, like the result of a dial: submit() completes no call.
        if (!asked) return dial_->arrived(asked.error());
        if (const auto why = dialer_->last_failure()) multiplexer_.unreachable(*why);
    }

    Error cannot_dial(const Error& why) const {
        return make_error(why.code,
                          options_.address() + ": " + why.message + "; nothing was applied");
    }

    void dialed() {
        auto opened = dial_->take();
        if (!opened) return;
        dialing_ = false;
        take_dialed(std::move(*opened));
        watched_ = LoopHost::Interest::none;
        watch();
        multiplexer_.expire(std::chrono::steady_clock::now(), kMostEnded);
        send();
    }

    void receive() {
        Result<bool> received = true;
        for (int reads = 0; reads < kMostReads; ++reads) {
            received = receive_once();
            if (!received || !*received || connection_->drained()) break;
        }
        report_doubts();
        if (!received) return lose(received.error());
        if (connection_->withholds()) {
            ask_tick();
            return watch();
        }
        if (const auto replica = leave_replica(std::chrono::steady_clock::now())) lose(*replica);
    }

    Result<bool> receive_once() {
        HOTCOUNT_TRY_ASSIGN(const bool some, connection_->read_some());
        if (!some) return false;
        const SteadyTime now = std::chrono::steady_clock::now();
        multiplexer_.heard(now);
        while (true) {
            HOTCOUNT_TRY_ASSIGN(auto reply, connection_->next_reply());
            if (!reply) return true;
            if (!multiplexer_.settle(std::move(*reply), now)) return multiplexer_.misfit();
        }
    }

    void drop_connection() {
        if (watched_ != LoopHost::Interest::none) {
            host_.watch(connection_->descriptor(), LoopHost::Interest::none);
        }
        watched_ = LoopHost::Interest::none;
        release_connection();
    }

    void lose(const Error& why, bool resend = true) {
        if (!closed_) dialer_->lost(why.message);
        drop_connection();
        multiplexer_.lost(why, resend);
        if (multiplexer_.queued() > 0 || multiplexer_.has_finished()) ask_flush();
    }

    // Ends all calls under way.
    void end() {
        closed_ = true;
        multiplexer_.end_late(multiplexer_.unwaited());
        if (beside_ != nullptr) beside_->close();
        multiplexer_.fail_queued(closed_error());
        if (connection_ != nullptr) lose(closed_error(), /*resend=*/false);
        if (dial_watched_) host_.watch(dial_->descriptor(), LoopHost::Interest::none);
        dial_watched_ = false;
        complete_finished(std::numeric_limits<std::size_t>::max());
    }

    // Completions may submit more calls, and end the connection.
    void complete_finished(std::size_t most = kMostEnded) {
        for (; most > 0; --most) {
            if (next_to_end_ == ending_.size()) {
                ending_ = multiplexer_.take_finished();
                next_to_end_ = 0;
                if (ending_.empty()) break;
                if (is_lane()) hand_back();
                continue;
            }
            const OperationPtr operation = std::move(ending_[next_to_end_++]);
            operation->complete();
        }
        const bool more = next_to_end_ < ending_.size() || multiplexer_.has_finished();
        if ((more || multiplexer_.has_late()) && !closed_) ask_turn();
    }

    // Runs before the completions, because the calls that these submit must not overtake the calls
    // that left.
    void hand_back() {
        const auto stays = [](const OperationPtr& operation) { return !operation->has_left(); };
        auto left = std::find_if_not(ending_.begin(), ending_.end(), stays);
        if (left != ending_.end()) left = std::stable_partition(left, ending_.end(), stays);
        const std::vector<OperationPtr> gone(left, ending_.end());
        ending_.erase(left, ending_.end());
        const auto owner = lane_.owner.lock();
        if (!owner) {
            ending_.insert(ending_.end(), gone.begin(), gone.end());
            return;
        }
        if (connection_ == nullptr) owner->lost(lane_.node);
        for (const OperationPtr& operation : gone) owner->left(lane_.node, operation);
        multiplexer_.handed_back(gone);
        owner->answered(lane_.node);
    }

    void report() { loops_->report(this, all_counts()); }

    LoopHost& host_;
    const std::shared_ptr<LoopConnections> loops_;
    std::shared_ptr<Dial> dial_;  // Null before the first.
    const std::uint64_t generation_{fork_generation()};
    LoopHost::Interest watched_{LoopHost::Interest::none};  // Of the connection.
    bool dial_watched_{false};
    bool dialing_{false};
    bool flush_asked_{false};
    bool tick_asked_{false};
    bool turn_asked_{false};            // A tick that comes at once.
    std::vector<OperationPtr> ending_;  // Completions that are still to be called,
    std::size_t next_to_end_{0};        // from this one on.
    std::size_t early_{kMostEarly};     // Queued calls that are sent before the turn ends.
    std::size_t early_sends_{0};        // In this turn.
    AdaptiveSpin spin_{options_.spin};
    std::unique_ptr<SocketLoopConnection> beside_;  // For commands that must not share.
};

}  // namespace

void LoopConnections::report(const void* connection, const SharedConnection::Counts& counts) {
    const std::lock_guard lock(mutex_);
    live_[connection] = counts;
}

void LoopConnections::forget(const void* connection) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(connection);
    if (found == live_.end()) return;
    ended_.add(found->second);
    live_.erase(found);
}

void LoopConnections::add_to(SharedConnection::Counts& counts) const {
    const std::lock_guard lock(mutex_);
    counts.add(ended_);
    for (const auto& [connection, own] : live_) counts.add(own);
}

std::unique_ptr<LoopLane> make_loop_lane(const Options& options, std::shared_ptr<Dialer> dialer,
                                         LoopHost& host, std::shared_ptr<LoopConnections> loops,
                                         LaneOf lane) {
    return std::make_unique<SocketLoopConnection>(options, std::move(dialer), host,
                                                  std::move(loops), std::move(lane));
}

std::unique_ptr<LoopConnection> make_loop_connection(const Options& options,
                                                     std::shared_ptr<Dialer> dialer, LoopHost& host,
                                                     std::shared_ptr<LoopConnections> loops) {
    return std::make_unique<SocketLoopConnection>(options, std::move(dialer), host,
                                                  std::move(loops));
}

}  // namespace hotcount::redis

#include "loop_connection.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <hotcount/detail/base/fork.hpp>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "adaptive_spin.hpp"

namespace hotcount::redis {
namespace {

// A send goes early with a third of the calls that were under way when the last turn ended, and with
// kMostEarly at most: while the server works on one third the loop resumes the tasks of another.
// With one send for all of them they take turns, and both sleep in between: sending a third made
// 1.3 times the calls with 64 tasks, 1.8 with 32, 1.4 with 16 and 1.3 with 8.
constexpr std::size_t kThirds = 3;
constexpr std::size_t kMostEarly = 48;
constexpr std::size_t kFewestThirds = 4;  // Calls under way.

// How often deadlines are looked at while calls are under way.
constexpr Duration kTick = std::chrono::milliseconds{20};

// Reads of one turn of the loop: others want theirs.
constexpr int kMostReads = 16;

// Calls that one callback of the loop ends, and that one tick gives up: the rest follows in the
// next turn, so that 100,000 calls that end at once do not hold the loop's other work up.
constexpr std::size_t kMostEnded = 1024;

// A connection that was asked for, and the descriptor that says when it has arrived.
class Dial {
  public:
    /// Fails where the process has no descriptor left.
    static Result<std::shared_ptr<Dial>> make() {
        const int ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (ready < 0) return make_error(ErrorCode::unavailable, std::strerror(errno));
        return std::make_shared<Dial>(ready);
    }
    explicit Dial(int ready) : ready_(ready) {}
    ~Dial() { close(ready_); }
    Dial(const Dial&) = delete;
    Dial& operator=(const Dial&) = delete;

    int descriptor() const { return ready_; }

    void arrived(Result<std::unique_ptr<Connection>> opened) {
        const std::lock_guard lock(mutex_);
        opened_.emplace(std::move(opened));
        const std::uint64_t one = 1;
        (void)!write(ready_, &one, sizeof(one));
    }

    std::optional<Result<std::unique_ptr<Connection>>> take() {
        const std::lock_guard lock(mutex_);
        std::uint64_t count = 0;
        (void)!read(ready_, &count, sizeof(count));
        auto taken = std::move(opened_);
        opened_.reset();
        return taken;
    }

  private:
    const int ready_;
    std::mutex mutex_;
    std::optional<Result<std::unique_ptr<Connection>>> opened_;
};

class SocketLoopLane final : public LoopLane {
  public:
    SocketLoopLane(const Options& options, std::shared_ptr<Dialer> dialer, LoopHost& host,
                   std::shared_ptr<LoopLanes> lanes)
        : options_(options),
          host_(host),
          lanes_(std::move(lanes)),
          dialer_(std::move(dialer)),
          pipeline_(options_) {}

    // The host may be gone: what was watched goes with it.
    ~SocketLoopLane() override {
        report();
        lanes_->forget(this);
    }

    void submit(Request request, Deadline deadline, Completion<Reply> done,
                const Cancelled* cancelled) override {
        if (request.goes_alone() && usable()) {
            return submit_alone(std::move(request), deadline, std::move(done), cancelled);
        }
        auto operation =
            std::make_shared<Operation>(std::move(request), deadline, std::move(done), cancelled);
        if (!usable()) return operation->refuse(closed_error());
        if (pipeline_.queued() >= options_.max_queue) {
            return operation->refuse(make_error(
                ErrorCode::capacity, options_.address() + ": " +
                                         std::to_string(options_.max_queue) +
                                         " calls are waiting (max_queue); nothing was applied"));
        }
        pipeline_.push(std::move(operation));
        pipeline_.count_unwaited();
        if (!flush_asked_) {
            flush_asked_ = true;
            host_.flush_soon();
        }
        ask_tick();
        if (connection_ != nullptr && pipeline_.queued() >= early_) {
            send();
            // A burst of more than there were before: not every few of it are worth a send.
            if (++early_sends_ >= kThirds) early_ = std::min(2 * early_, kMostEarly);
        }
    }

    void flush() override {
        flush_asked_ = false;
        if (!usable()) return end();
        if (beside_ != nullptr) beside_->flush();
        send();
        const std::size_t under_way = pipeline_.unwaited();
        early_ = under_way < kFewestThirds
                     ? kMostEarly
                     : std::min((under_way + kThirds - 1) / kThirds, kMostEarly);
        early_sends_ = 0;
        complete_finished();
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

    int look(int also) override {
        const bool alone = connection_ != nullptr && usable() && pipeline_.in_flight() == 1 &&
                           !pipeline_.has_to_send();
        if (!alone || !look_.pays()) return -1;
        pollfd waiting[] = {{connection_->descriptor(), POLLIN, 0}, {also, POLLIN, 0}};
        const bool found = look_.look([&] {
            if (poll(waiting, 2, 0) <= 0) return Look::Seen::nothing;
            // The loop watches the connection too.
            return waiting[0].revents != 0 ? Look::Seen::reply : Look::Seen::other;
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
        pipeline_.requeue_due(now);
        pipeline_.expire(now, kMostEnded);
        // Replies that lie unread because the loop was busy are no silence.
        if (connection_ != nullptr && now >= pipeline_.silent_at() && !connection_->readable()) {
            lose(pipeline_.silent_error());
        }
        send();
        report();
        complete_finished();
        if (pipeline_.unwaited() > 0) ask_tick();
    }

    void close() override {
        closed_ = true;
        end();
    }

    bool usable() const override {
        return !closed_ && !lanes_->closed.load(std::memory_order_acquire) &&
               generation_ == fork_generation();
    }

  private:
    Error closed_error() const {
        return make_error(ErrorCode::closed, options_.address() + " is closed");
    }

    // Over a second connection of the loop, one command at a time, each checked by an ECHO: what
    // answers never, or twice, breaks that connection and no other call.
    void submit_alone(Request request, Deadline deadline, Completion<Reply> done,
                      const Cancelled* cancelled) {
        if (beside_ == nullptr) {
            Options options = options_;
            options.max_in_flight = 1;
            beside_ = std::make_unique<SocketLoopLane>(options, dialer_, host_, lanes_);
        }
        const std::string context = options_.address() + ": " + request.name();
        beside_->submit(
            std::move(request).with_echo(), deadline,
            [context, done = std::move(done)](Result<Reply> replies) {
                if (!replies) return done(std::move(replies));
                auto& both = std::get<ReplyArray>(replies->value);
                // Where no ECHO answered, nobody knows whose the first one is.
                const auto* error = std::get_if<ReplyError>(&both.back().value);
                if (error == nullptr || !error->known) {
                    error = std::get_if<ReplyError>(&both.front().value);
                }
                if (error != nullptr) return done(to_error(*error, context));
                done(std::move(both.front()));
            },
            cancelled);
    }

    void ask_tick() {
        if (tick_asked_) return;
        tick_asked_ = true;
        host_.tick_in(kTick);
    }

    // The loop's next turn.
    void ask_turn() {
        if (turn_asked_) return;
        turn_asked_ = true;
        tick_asked_ = true;
        host_.tick_in(Duration{0});
    }

    void send() {
        if (connection_ != nullptr && pipeline_.in_flight() == 0 && !pipeline_.half_sent() &&
            pipeline_.has_to_send() && connection_->stale()) {
            drop_connection();
        }
        while (pipeline_.has_to_send()) {
            if (connection_ == nullptr) return dial();
            std::string sending = pipeline_.take();
            if (sending.empty()) continue;  // All of it was withdrawn.
            auto taken = connection_->write_some(sending);
            if (!taken) {
                if (!options_.tls.enabled) pipeline_.put_back_unsent(std::move(sending));
                lose(taken.error());
                continue;
            }
            counts_.bytes_sent += *taken;
            if (*taken > 0) ++counts_.sends;
            if (*taken == sending.size()) continue;
            sending.erase(0, *taken);
            pipeline_.put_back_unsent(std::move(sending));
            if (*taken == 0) break;
        }
        watch();
    }

    void watch() {
        if (connection_ == nullptr) return;
        const auto wanted =
            pipeline_.half_sent() ? LoopHost::Interest::read_and_write : LoopHost::Interest::read;
        if (wanted == watched_) return;
        watched_ = wanted;
        host_.watch(connection_->descriptor(), wanted);
    }

    void dial() {
        if (dialing_) return;
        if (dial_ == nullptr) {
            auto made = Dial::make();
            // The next call tries again.
            if (!made) return pipeline_.fail_queued(cannot_dial(made.error()));
            dial_ = std::move(*made);
        }
        dialing_ = true;
        if (!dial_watched_) host_.watch(dial_->descriptor(), LoopHost::Interest::read);
        dial_watched_ = true;
        auto asked = dialer_->ask(Dialer::Scripts::all, [dial = dial_](auto opened) {
            dial->arrived(std::move(opened));
        });
        // Told as a dial's end is, in a later turn: calls are completed from there.
        if (!asked) return dial_->arrived(asked.error());
        if (const auto why = dialer_->last_failure()) pipeline_.unreachable(*why);
    }

    Error cannot_dial(const Error& why) const {
        return make_error(why.code,
                          options_.address() + ": " + why.message + "; nothing was applied");
    }

    void dialed() {
        auto opened = dial_->take();
        if (!opened) return;
        dialing_ = false;
        if (opened->ok()) {
            connection_ = std::move(*opened).value();
            if (counts_.connects++ > 0) ++counts_.reconnects;
            pipeline_.connected();
            watched_ = LoopHost::Interest::none;
            watch();
        } else {
            pipeline_.unreachable(opened->error());
            if (!Dialer::worth_waiting(opened->error())) pipeline_.fail_queued(opened->error());
        }
        pipeline_.expire(std::chrono::steady_clock::now(), kMostEnded);
        send();
    }

    void receive() {
        Result<bool> received = true;
        for (int reads = 0; reads < kMostReads; ++reads) {
            received = receive_once();
            if (!received || !*received || connection_->drained()) break;
        }
        if (!received) return lose(received.error());
        if (pipeline_.take_demoted() && moves_.due(std::chrono::steady_clock::now())) {
            dialer_->put_last(connection_->peer());
            pipeline_.drain();
        }
        if (pipeline_.drained()) {
            lose(make_error(ErrorCode::unavailable, options_.address() + " is a replica"));
        }
    }

    Result<bool> receive_once() {
        HOTCOUNT_TRY_ASSIGN(const bool some, connection_->read_some());
        if (!some) return false;
        const SteadyTime now = std::chrono::steady_clock::now();
        pipeline_.heard(now);
        while (true) {
            HOTCOUNT_TRY_ASSIGN(auto reply, connection_->next_reply());
            if (!reply) return true;
            if (!pipeline_.settle(std::move(*reply), now)) return pipeline_.misfit();
        }
    }

    void drop_connection() {
        if (watched_ != LoopHost::Interest::none) {
            host_.watch(connection_->descriptor(), LoopHost::Interest::none);
        }
        watched_ = LoopHost::Interest::none;
        if (!connection_->answered()) dialer_->came_to_nothing();
        counts_.bytes_received += connection_->bytes_received();
        connection_.reset();
    }

    void lose(const Error& why, bool resend = true) {
        drop_connection();
        pipeline_.lost(why, resend);
        if (pipeline_.queued() > 0 && !flush_asked_) {
            flush_asked_ = true;
            host_.flush_soon();
        }
    }

    // Whatever is under way is over.
    void end() {
        closed_ = true;
        pipeline_.end_late(pipeline_.unwaited());
        if (beside_ != nullptr) beside_->close();
        pipeline_.fail_queued(closed_error());
        if (connection_ != nullptr) lose(closed_error(), /*resend=*/false);
        if (dial_watched_) host_.watch(dial_->descriptor(), LoopHost::Interest::none);
        dial_watched_ = false;
        complete_finished(std::numeric_limits<std::size_t>::max());
    }

    // Completions may hand in more calls, and end the lane.
    void complete_finished(std::size_t most = kMostEnded) {
        for (; most > 0; --most) {
            if (next_to_end_ == ending_.size()) {
                ending_ = pipeline_.take_finished();
                next_to_end_ = 0;
                if (ending_.empty()) break;
            }
            const OperationPtr operation = std::move(ending_[next_to_end_++]);
            operation->complete();
        }
        const bool more = next_to_end_ < ending_.size() || pipeline_.has_finished();
        if ((more || pipeline_.has_late()) && !closed_) ask_turn();
    }

    void report() {
        Lane::Counts counts = counts_;
        static_cast<Pipeline::Counts&>(counts) = pipeline_.counts();
        if (connection_ != nullptr) counts.bytes_received += connection_->bytes_received();
        lanes_->report(this, counts);
    }

    const Options options_;
    LoopHost& host_;
    const std::shared_ptr<LoopLanes> lanes_;
    const std::shared_ptr<Dialer> dialer_;
    std::shared_ptr<Dial> dial_;  // Null before the first.
    const std::uint64_t generation_{fork_generation()};
    Pipeline pipeline_;
    Moves moves_;
    std::unique_ptr<Connection> connection_;
    LoopHost::Interest watched_{LoopHost::Interest::none};  // Of the connection.
    bool dial_watched_{false};
    bool dialing_{false};
    bool flush_asked_{false};
    bool tick_asked_{false};
    bool turn_asked_{false};            // A tick that comes at once.
    std::vector<OperationPtr> ending_;  // Completions that are still to be called,
    std::size_t next_to_end_{0};        // from this one on.
    bool closed_{false};
    std::size_t early_{kMostEarly};  // Queued calls that are sent before the turn ends.
    std::size_t early_sends_{0};     // In this turn.
    Look look_{options_.spin};
    Lane::Counts counts_;
    std::unique_ptr<SocketLoopLane> beside_;  // For commands that must not share a connection.
};

}  // namespace

void LoopLanes::report(const void* lane, const Lane::Counts& counts) {
    const std::lock_guard lock(mutex_);
    live_[lane] = counts;
}

void LoopLanes::forget(const void* lane) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(lane);
    if (found == live_.end()) return;
    ended_.add(found->second);
    live_.erase(found);
}

void LoopLanes::add_to(Lane::Counts& counts) const {
    const std::lock_guard lock(mutex_);
    counts.add(ended_);
    for (const auto& [lane, own] : live_) counts.add(own);
}

std::unique_ptr<LoopLane> make_loop_lane(const Options& options, std::shared_ptr<Dialer> dialer,
                                         LoopHost& host, std::shared_ptr<LoopLanes> lanes) {
    return std::make_unique<SocketLoopLane>(options, std::move(dialer), host, std::move(lanes));
}

}  // namespace hotcount::redis

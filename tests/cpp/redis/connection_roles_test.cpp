// Random schedules against the rules by which callers share a connection: no wakeup may be lost.
//
// Each caller is a coroutine that does what SharedConnection does, with the connection's own rules
// (ConnectionRoles) and Multiplexer. It pauses where a thread of the connection holds no lock, and a
// random draw decides who runs next. Callers come, lose patience and are answered; the kernel's
// buffers fill; the server pauses, and stops reading while its replies are not read; limits are
// reached; connections break; callers of run_once() come and go.
#include "redis/connection_roles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <coroutine>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "redis/multiplexer.hpp"
#include "support/flow.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;
using testing::Flow;
using Next = ConnectionRoles::Next;

// present: the rules of SharedConnection. former: rules that it once had, which lost wakeups. With them
// only a caller whose own call was in flight read, a wakeup went to any caller of a wave, and a writer
// waited for the socket.
enum class Rules : std::uint8_t { present, former };

struct Caller {
    enum class Waits : std::uint8_t { not_at_all, for_socket, asleep, left };

    OperationPtr operation;  // Null: it drives calls without a waiting caller.
    Sleeper driver;
    unsigned wave{0};
    Waits waits{Waits::not_at_all};
    bool woken{false};
    bool late{false};  // Its deadline has passed.
    bool wants_room{false};
    bool wants_replies{false};
    unsigned connection{0};  // Whose socket it waits for.
    std::coroutine_handle<> at;
    std::unique_ptr<Flow> flow;

    Sleeper& sleeper() { return operation ? static_cast<Sleeper&>(*operation) : driver; }
    bool done() const { return operation ? operation->is_done() : false; }
    bool in_flight() const {
        return operation && operation->state() == Operation::State::in_flight;
    }
};

class Schedule {
  public:
    Schedule(Rules rules, unsigned seed) : rules_(rules), draw_(seed) {
        const std::size_t bytes = below(2) == 0 ? 8 : 4000;
        argument_ = std::string(bytes, 'x');
        command_bytes_ = request_bytes();
        options_.max_in_flight = std::vector<std::size_t>{1, 2, 4, 100}[below(4)];
        options_.max_send_bytes =
            std::vector<std::size_t>{1, 3 * command_bytes_, std::size_t{1} << 20}[below(3)];
        kernel_room_ = std::vector<std::size_t>{100, 3 * command_bytes_, 1'000'000}[below(3)];
        reply_room_ = 1 + below(4);
    }

    /// Whether every caller was answered, or left.
    bool run() {
        for (int step = 0; step < 300; ++step) {
            draw_event();
            for (std::size_t turns = below(6); turns > 0; --turns) take_turn();
            if (lost_) return false;
        }
        // From now on the server answers everything and nobody loses patience; drivers leave.
        paused_ = false;
        for (const auto& caller : callers_) caller->late = caller->late || !caller->operation;
        while (!all_left()) {
            serve();
            if (!take_turn() && !serve()) return false;
            if (lost_) return false;
        }
        return true;
    }

  private:
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(draw_() % n); }

    // -- the world

    Request request() const {
        const std::string_view words[] = {"ECHO", argument_};
        return Request::command(words);
    }
    std::size_t request_bytes() const {
        Options options;
        Multiplexer one{options};
        one.push(std::make_shared<Operation>(request(), Deadline::after(1h)));
        return one.take().size();
    }

    void draw_event() {
        switch (below(12)) {
            case 0:
            case 1:
            case 2:
            case 3:
                if (staying() < 8) arrive(false);
                break;
            case 4:
                if (below(4) == 0 && staying() < 8) arrive(true);
                break;
            case 5: {
                // Only who has begun can lose patience.
                if (callers_.empty() || below(3) > 0) break;
                callers_[below(callers_.size())]->late = true;
                break;
            }
            case 6:
                paused_ = !paused_;
                break;
            case 7:
                if (below(8) == 0 && connected_) break_connection();
                break;
            case 8:
                if (below(2) > 0) break;
                multiplexer_.push(std::make_shared<Operation>(request(), Deadline::after(1h),
                                                              [](const Result<Reply>&) {}));
                multiplexer_.count_unwaited();
                hand_on();
                break;
            default:
                if (!paused_) serve();
        }
    }

    // Whether anything moved.
    bool serve() {
        bool moved = false;
        while (sent_ > 0 || arrived_ >= command_bytes_) {
            if (replies_ >= reply_room_) break;  // It reads no more before its replies are read.
            const std::size_t some = std::min(sent_, command_bytes_);
            sent_ -= some;
            arrived_ += some;
            if (arrived_ >= command_bytes_) {
                arrived_ -= command_bytes_;
                ++replies_;
            }
            moved = true;
            if (below(3) == 0) break;
        }
        return moved;
    }

    void break_connection() {
        ++connection_;
        connected_ = false;
        sent_ = arrived_ = replies_ = 0;
        roles_.set_blocked(false);
        multiplexer_.lost(make_error(ErrorCode::unavailable, "lost"), true);
        hand_on();
        for (const OperationPtr& operation : multiplexer_.take_finished())
            wake_finished(*operation);
    }

    // -- the schedule

    std::size_t staying() const {
        return static_cast<std::size_t>(
            std::count_if(callers_.begin(), callers_.end(),
                          [](const auto& caller) { return caller->waits != Caller::Waits::left; }));
    }
    bool all_left() const { return staying() == 0; }

    void arrive(bool drives) {
        callers_.push_back(std::make_unique<Caller>());
        Caller& caller = *callers_.back();
        if (!drives) {
            caller.operation = std::make_shared<Operation>(request(), Deadline::after(1h));
        }
        caller.flow = std::make_unique<Flow>(stay(caller));
        caller.at = caller.flow->handle;
    }

    bool may_run(const Caller& caller) const {
        switch (caller.waits) {
            case Caller::Waits::not_at_all:
                return true;
            case Caller::Waits::for_socket:
                return caller.late || caller.connection != connection_ ||
                       (caller.wants_replies && replies_ > 0) ||
                       (caller.wants_room && sent_ < kernel_room_);
            case Caller::Waits::asleep:
                return caller.late || caller.woken;
            default:
                return false;
        }
    }

    // Lets one of those go on that can.
    bool take_turn() {
        std::vector<Caller*> able;
        for (const auto& caller : callers_) {
            if (may_run(*caller)) able.push_back(caller.get());
        }
        if (able.empty()) return false;
        Caller& caller = *able[below(able.size())];
        caller.waits = Caller::Waits::not_at_all;
        caller.at.resume();
        if (caller.flow->handle.done()) caller.waits = Caller::Waits::left;
        if (rules_ == Rules::present) check_that_somebody_sees_to_it();
        return true;
    }

    // Work that a caller who sleeps could do is somebody's who is awake, or has been called.
    void check_that_somebody_sees_to_it() {
        if (roles_.next(work()) == Next::sleep) return;
        bool sleeps = false;
        bool seen_to = false;
        for (const auto& caller : callers_) {
            sleeps = sleeps || (caller->waits == Caller::Waits::asleep && !caller->woken);
            seen_to = seen_to || caller->waits == Caller::Waits::not_at_all ||
                      (caller->waits == Caller::Waits::asleep && caller->woken);
        }
        if (sleeps && !seen_to) lost_ = true;
    }

    // -- a caller, as in shared_connection.cpp. A pause is where the connection holds no lock.

    struct Pause {
        Caller& caller;
        Caller::Waits waits;
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> at) const {
            caller.at = at;
            caller.waits = waits;
        }
        void await_resume() const {}
    };
    static Pause pause(Caller& caller, Caller::Waits waits = Caller::Waits::not_at_all) {
        return {caller, waits};
    }
    Pause wait_for_socket(Caller& caller, bool replies, bool room) const {
        caller.wants_replies = replies;
        caller.wants_room = room;
        caller.connection = connection_;
        return {caller, Caller::Waits::for_socket};
    }

    ConnectionRoles::Work work() const {
        return {multiplexer_.has_to_send(), multiplexer_.half_sent(), multiplexer_.load()};
    }

    Next next(const Caller& caller) const {
        if (rules_ == Rules::present) return roles_.next(work());
        const bool may_write =
            !writing_ && multiplexer_.has_to_send() &&
            (multiplexer_.half_sent() || !reading_ || multiplexer_.in_flight() < 4);
        if (may_write) return Next::write;
        const bool may_read =
            !reading_ && multiplexer_.in_flight() > 0 && (!caller.operation || caller.in_flight());
        return may_read ? Next::read : Next::sleep;
    }

    void wake(const Sleeper& sleeper) {
        for (const auto& caller : callers_) {
            if (&caller->sleeper() == &sleeper) caller->woken = true;
        }
    }
    void wake_finished(const Operation& operation) {
        if (operation.waited_for()) wake(operation);
    }

    void hand_on() {
        if (rules_ == Rules::present) {
            if (const Sleeper* const called = roles_.successor(work())) wake(*called);
            return;
        }
        const bool write_role = !writing_ && multiplexer_.has_to_send();
        const bool read_role = !reading_ && multiplexer_.in_flight() > 0;
        if (write_role) wake_one_like(Operation::State::queued);
        if (read_role || multiplexer_.half_sent()) wake_one_like(Operation::State::in_flight);
    }
    // One of those that sleep in the wave of the first such call.
    void wake_one_like(Operation::State state) {
        const auto first = std::find_if(callers_.begin(), callers_.end(), [&](const auto& caller) {
            return caller->waits != Caller::Waits::left && caller->operation &&
                   caller->operation->state() == state;
        });
        if (first == callers_.end()) return;
        std::vector<Caller*> sleeping;
        for (const auto& caller : callers_) {
            const bool asleep = caller->waits == Caller::Waits::asleep && !caller->woken;
            if (asleep && caller->wave == (*first)->wave) sleeping.push_back(caller.get());
        }
        if (!sleeping.empty()) sleeping[below(sleeping.size())]->woken = true;
    }

    Flow stay(Caller& caller) {
        if (caller.operation) {
            caller.wave = wave_;
            multiplexer_.push(caller.operation);
        }
        while (!caller.done()) {
            if (caller.late) {
                if (caller.operation) (void)multiplexer_.give_up(caller.operation);
                break;
            }
            const Next todo = next(caller);
            if (todo == Next::write) {
                co_await write(caller);
            } else if (todo == Next::read) {
                co_await read(caller);
            } else if (multiplexer_.has_finished()) {
                co_await tell_finished(caller);
            } else {
                caller.woken = false;
                roles_.sleep(caller.sleeper());
                co_await pause(caller, Caller::Waits::asleep);
                if (caller.done()) co_return;
                co_await pause(caller);
                caller.sleeper().awake();
            }
        }
        hand_on();
        co_await tell_finished(caller);
    }

    Flow tell_finished(Caller& caller) {
        if (!multiplexer_.has_finished()) co_return;
        const std::vector<OperationPtr> finished = multiplexer_.take_finished();
        co_await pause(caller);
        for (const OperationPtr& operation : finished) wake_finished(*operation);
        co_await pause(caller);
    }

    Flow write(Caller& caller) {
        begin_writing();
        if (!connected_) {
            co_await tell_finished(caller);
            co_await pause(caller);
            connected_ = true;
            multiplexer_.connected();
        }
        const unsigned connection = connection_;
        while (connection == connection_ && multiplexer_.has_to_send()) {
            std::string sending = multiplexer_.take();
            if (multiplexer_.queued() == 0) ++wave_;
            if (sending.empty()) continue;
            co_await pause(caller);
            std::size_t taken = 0;
            if (connection == connection_) {
                taken = std::min(sending.size(), kernel_room_ - sent_);
                sent_ += taken;
            }
            co_await pause(caller);
            if (connection != connection_) break;
            const bool all = taken == sending.size();
            if (!all) multiplexer_.put_back_unsent(sending.substr(taken));
            if (rules_ == Rules::present) {
                if (taken == 0) {
                    roles_.set_blocked(true);
                    break;
                }
                if (caller.done() || caller.late) break;
                continue;
            }
            if (taken > 0) continue;
            const bool reads = !reading_;
            if (reads) reading_ = true;
            co_await wait_for_socket(caller, reads, true);
            if (reads) {
                bool some = false;
                if (connection == connection_) co_await receive(caller, connection, some);
                reading_ = false;
            }
            if (caller.late || caller.done()) break;
        }
        end_writing();
    }

    Flow read(Caller& caller) {
        begin_reading();
        const unsigned connection = connection_;
        const auto goes_on = [&] {
            const bool has =
                rules_ == Rules::present
                    ? roles_.has_to_read(work()) && !caller.done()
                    : multiplexer_.in_flight() > 0 && (!caller.operation || caller.in_flight());
            return connected_ && connection == connection_ && has;
        };
        while (goes_on()) {
            bool some = false;
            co_await receive(caller, connection, some);
            if (rules_ == Rules::present && below(2) == 0) {  // gather()
                co_await tell_finished(caller);
                co_await pause(caller);
                if (!goes_on()) break;
            }
            const bool may_send = rules_ == Rules::present
                                      ? roles_.may_send(work())
                                      : !writing_ && multiplexer_.has_to_send();
            if (may_send) co_await write(caller);
            if (!goes_on()) break;
            co_await tell_finished(caller);
            if (caller.late) break;
            if (some) continue;
            if (!goes_on()) break;
            if (rules_ == Rules::present && !roles_.may_wait_for_socket(work())) break;
            const bool blocked = rules_ == Rules::present && roles_.blocked();
            co_await wait_for_socket(caller, true, blocked);
            if (connection == connection_ && blocked) roles_.set_blocked(false);
            if (caller.late) break;
        }
        end_reading();
    }

    Flow receive(Caller& caller, unsigned connection, bool& some) {
        co_await pause(caller);
        std::size_t received = 0;
        if (connection == connection_) {
            received = replies_;
            replies_ = 0;
        }
        co_await pause(caller);
        if (connection != connection_) co_return;
        some = received > 0;
        for (; received > 0; --received) {
            const bool fits =
                multiplexer_.settle(Reply{std::string{"OK"}}, std::chrono::steady_clock::now());
            EXPECT_TRUE(fits) << multiplexer_.misfit().message;
        }
    }

    void begin_writing() {
        writing_ = true;
        roles_.begin_writing();
    }
    void end_writing() {
        writing_ = false;
        roles_.end_writing();
    }
    void begin_reading() {
        reading_ = true;
        roles_.begin_reading();
    }
    void end_reading() {
        reading_ = false;
        roles_.end_reading();
    }

    const Rules rules_;
    std::mt19937 draw_;
    std::string argument_;
    std::size_t command_bytes_{0};
    Options options_;
    Multiplexer multiplexer_{options_};
    ConnectionRoles roles_;
    bool writing_{false};
    bool reading_{false};
    unsigned wave_{0};
    std::vector<std::unique_ptr<Caller>> callers_;
    bool lost_{false};

    bool connected_{false};
    unsigned connection_{0};
    bool paused_{false};
    std::size_t kernel_room_{0};
    std::size_t sent_{0};     // Bytes in the kernel's buffers.
    std::size_t arrived_{0};  // Bytes of a command that the server does not have as a whole.
    std::size_t replies_{0};  // To be read by us.
    std::size_t reply_room_{0};
};

TEST(ConnectionRolesSchedules, NoCallerSleepsWhileThereIsWorkThatNobodyDoes) {
    for (unsigned seed = 0; seed < 3000; ++seed) {
        ASSERT_TRUE(Schedule(Rules::present, seed).run()) << "seed " << seed;
    }
}

TEST(ConnectionRolesSchedules, TheFormerRulesLoseWakeups) {
    unsigned stalled = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
        if (!Schedule(Rules::former, seed).run()) ++stalled;
    }
    EXPECT_GT(stalled, 0U) << "the schedules would not find the fault";
    RecordProperty("stalled_of_300", static_cast<int>(stalled));
}

}  // namespace
}  // namespace hotcount::redis

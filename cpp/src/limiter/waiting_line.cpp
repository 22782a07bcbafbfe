#include "limiter/waiting_line.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace hotcount {
namespace {

// After so many failed heads in a row, all waiters get the error.
constexpr int kMostFailures = 2;
constexpr Duration kRemembersFailures = std::chrono::seconds{1};

struct Waiter {
    std::condition_variable woken{};
    bool is_head{false};
    std::optional<Error> failure{};  // The error of the heads before it.
};

// The decision at the time when `left` of its retry_after remains.
Decision after(Decision decision, Duration left) {
    left = std::max(left, Duration{0});
    decision.reset_after -= decision.retry_after.value_or(Duration{0}) - left;
    decision.retry_after = left;
    return decision;
}

// The error of a waiter whose hit was not sent, because the store failed the heads before it.
Error not_sent(Error failure) {
    if (!nothing_applied(failure.code)) failure.code = ErrorCode::unavailable;
    failure.message =
        "not sent: hits before it in its queue failed, the last one with: " + failure.message;
    return failure;
}

struct Line {
    std::list<Waiter*> waiters{};
    std::optional<Decision> refusal{};
    std::optional<Decision> ahead{};  // A hit that was admitted ahead, to be used when it is due.
    SteadyTime due{};                 // The end of the retry_after that was told last.
    SteadyTime ahead_due{};           // That of `ahead`, which a later refusal does not move.
    int failures{0};                  // The number of heads that failed in a row.
    std::optional<Error> failure{};   // The error of all waiters, until a head is answered.
    SteadyTime failed_until{};
    bool is_kept{false};  // It is in Lines::kept_.

    Duration left() const { return due - std::chrono::steady_clock::now(); }
    void expect(std::optional<Decision>& what, const Decision& decision) {
        what = decision;
        due = std::chrono::steady_clock::now() + decision.retry_after.value_or(Duration{0});
    }
    /// Keeps the head's refusal. That of a cost above the limit is the head's alone: it says neither
    /// when there is room for others, nor that there never is.
    void note(const Decision& decision) {
        if (!decision.allowed && decision.retry_after) expect(refusal, decision);
    }
    /// The answer to a waiter that leaves the queue behind the head.
    Decision answer() const {
        Decision told = *refusal;
        if (left() > Duration{0}) told.retry_after = left();
        return told;
    }
};

class Lines {
  public:
    using Name = std::pair<const void*, std::string>;

    static Lines& of_process() {
        // Never destroyed: the destructors of static limiters come here.
        static auto* const lines = new ForkLocal<Lines>([] { return std::make_unique<Lines>(); });
        return lines->get();
    }

    Result<Decision> wait(const Name& name, const Waiting& waiting) {
        std::optional<Decision> decision;
        if (auto known = answer_at_once(name, waiting)) return *known;
        if (!is_joined(name, waiting.cost)) {
            HOTCOUNT_TRY_ASSIGN(decision, waiting.ask());
            if (!waiting.pause(*decision, false)) return std::move(*decision);
        }
        Place place(*this, name, waiting, decision);
        if (place.was_first()) return lead(place, waiting, std::move(decision));
        if (decision && decision->allowed) {
            sleep_or_interrupt(*decision->retry_after);
            return after(*decision, Duration{0});
        }
        if (place.sleep()) return lead(place, waiting, std::nullopt);
        if (auto failed = place.failure()) return std::move(*failed);
        if (auto told = place.refusal()) return *told;
        return waiting.ask();
    }

    void forget(const void* owner) {
        const std::lock_guard lock(mutex_);
        const auto first = lines_.lower_bound({owner, {}});
        const auto is_other = [owner](const auto& line) { return line.first.first != owner; };
        lines_.erase(first, std::find_if(first, lines_.end(), is_other));
    }

    std::size_t size(const Name& name) {
        const std::lock_guard lock(mutex_);
        const auto line = lines_.find(name);
        return line == lines_.end() ? 0 : line->second->waiters.size();
    }

  private:
    // A waiter while it is in a line.
    class Place {
      public:
        /// `decision`: the answer to its own hit.
        Place(Lines& lines, const Name& name, const Waiting& waiting,
              const std::optional<Decision>& decision)
            : lines_(lines), name_(name), waiting_(waiting) {
            const std::lock_guard lock(lines_.mutex_);
            line_ = lines_.find(name);
            if (line_ == nullptr || (decision && line_->waiters.empty())) {
                line_ = lines_.lines_[name] = std::make_shared<Line>();
            }
            first_ = line_->waiters.empty();
            if (first_ && decision) line_->note(*decision);
            at_ = line_->waiters.insert(line_->waiters.end(), &waiter_);
        }
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        ~Place() {
            const std::lock_guard lock(lines_.mutex_);
            if (waiter_.failure) return;
            const bool was_head = line_->waiters.front() == &waiter_;
            line_->waiters.erase(at_);
            if (line_->waiters.empty()) {
                lines_.leave(name_);
            } else if (was_head) {
                line_->waiters.front()->is_head = true;
                line_->waiters.front()->woken.notify_one();
            }
        }

        /// Whether it is the head now. Otherwise its time has passed, or the store has failed it.
        bool sleep() {
            std::unique_lock lock(lines_.mutex_);
            const auto woken = [this] { return waiter_.is_head || waiter_.failure; };
            // A deadline that is never reached would be no deadline, and not be interrupted.
            const auto until = [this] {
                return waiting_.ends ? Deadline::at(*waiting_.ends)
                                     : Deadline::after(std::chrono::hours{1});
            };
            while (!wait_or_interrupt(waiter_.woken, lock, until(), woken) && !waiting_.ends &&
                   !interrupted()) {
            }
            return waiter_.is_head;
        }
        /// It led the line from the start.
        bool was_first() const { return first_; }
        std::optional<Decision> refusal() const {
            const std::lock_guard lock(lines_.mutex_);
            return line_->refusal ? std::optional{line_->answer()} : std::nullopt;
        }
        /// Of the head: for how long it sleeps. None: it gives up, or was admitted.
        std::optional<Duration> pause(const Decision& decision) {
            const std::lock_guard lock(lines_.mutex_);
            line_->note(decision);
            const auto pause = waiting_.pause(decision, line_->waiters.size() > 1);
            if (decision.allowed && pause) {
                line_->expect(line_->ahead, decision);
                line_->ahead_due = line_->due;
            }
            return pause;
        }
        /// The hit that was admitted ahead, to this head or to one that was interrupted since.
        std::optional<Decision> taken() {
            const std::lock_guard lock(lines_.mutex_);
            if (!line_->ahead || waiting_.cost > line_->ahead->limit) return {};
            const SteadyTime due = line_->ahead_due;
            const Duration left = due - std::chrono::steady_clock::now();
            if (left > Duration{0} && waiting_.ends && due > *waiting_.ends) return {};
            return after(*std::exchange(line_->ahead, std::nullopt), left);
        }
        void answered() {
            const std::lock_guard lock(lines_.mutex_);
            line_->failures = 0;
            line_->failure.reset();
            line_->failed_until = {};
        }
        void fail(const Error& error) {
            // Of the head's own arguments, or of its interrupt.
            if (error.code == ErrorCode::config || interrupted()) return;
            const std::lock_guard lock(lines_.mutex_);
            if (++line_->failures < kMostFailures) return;
            line_->failure = not_sent(error);
            line_->refusal.reset();
            line_->failed_until = std::chrono::steady_clock::now() + kRemembersFailures;
            auto& waiters = line_->waiters;
            for (auto each = std::next(waiters.begin()); each != waiters.end();) {
                (*each)->failure = line_->failure;
                (*each)->woken.notify_one();
                each = waiters.erase(each);
            }
        }
        /// That of a waiter which is not the head.
        std::optional<Error> failure() const {
            const std::lock_guard lock(lines_.mutex_);
            return waiter_.failure ? waiter_.failure : line_->failure;
        }

      private:
        Lines& lines_;
        const Name& name_;
        const Waiting& waiting_;
        std::shared_ptr<Line> line_;
        Waiter waiter_;
        std::list<Waiter*>::iterator at_;
        bool first_{false};
    };

    static Result<Decision> lead(Place& place, const Waiting& waiting,
                                 std::optional<Decision> decision) {
        if (!decision) decision = place.taken();
        while (true) {
            if (!decision) {
                auto asked = waiting.ask();
                if (!asked) {
                    place.fail(asked.error());
                    return asked;
                }
                place.answered();
                decision = std::move(*asked);
            }
            const auto pause = place.pause(*decision);
            if (!pause) return std::move(*decision);
            sleep_or_interrupt(*pause);
            if (interrupted()) {
                // As one whose time has passed. A hit that was admitted ahead stays in the line.
                if (auto told = place.refusal()) return *told;
                decision->allowed = false;
                decision->reason = Reason::limited;
                return std::move(*decision);
            }
            decision = place.taken();
        }
    }

    // Require the mutex. A line without waiters is kept until the hit that it holds is due: used
    // later, it would be one too many. One that the store has failed is kept for a while.
    static bool is_over(const Line& line) {
        if (!line.waiters.empty()) return false;
        const SteadyTime now = std::chrono::steady_clock::now();
        return (!line.ahead || line.ahead_due <= now) && line.failed_until <= now;
    }
    std::shared_ptr<Line> find(const Name& name) const {
        const auto line = lines_.find(name);
        return line == lines_.end() || is_over(*line->second) ? nullptr : line->second;
    }
    // A line without waiters goes, now or when another one has lost its last waiter. Of those that
    // are kept two are looked at each time, so their number falls, and no waiter pays for all.
    void leave(const Name& name) {
        look_at(name);
        for (std::size_t left = std::min<std::size_t>(kept_.size(), 2); left > 0; --left) {
            const Kept kept = std::move(kept_.front());
            kept_.pop_front();
            kept.line->is_kept = false;
            const auto line = lines_.find(kept.name);
            if (line != lines_.end() && line->second == kept.line) look_at(kept.name);
        }
    }
    void look_at(const Name& name) {
        const auto line = lines_.find(name);
        if (line == lines_.end() || !line->second->waiters.empty()) return;
        if (is_over(*line->second)) {
            lines_.erase(line);
        } else if (!std::exchange(line->second->is_kept, true)) {
            kept_.push_back({name, line->second});
        }
    }

    // A waiter whose cost never fits asks the store itself, and gets that answer.
    bool is_joined(const Name& name, std::int64_t cost) {
        const std::lock_guard lock(mutex_);
        const auto line = find(name);
        if (line == nullptr) return false;
        return !line->refusal || (cost >= 1 && cost <= line->refusal->limit);
    }
    // The answer to a waiter whose time passes before even the head asks again.
    std::optional<Decision> answer_at_once(const Name& name, const Waiting& waiting) {
        if (!waiting.knows_when || !waiting.ends) return {};
        const std::lock_guard lock(mutex_);
        const auto line = find(name);
        if (line == nullptr || !line->refusal || line->due <= *waiting.ends) return {};
        if (line->ahead && line->ahead_due <= *waiting.ends) return {};
        return line->answer();
    }

    std::mutex mutex_;
    std::map<Name, std::shared_ptr<Line>> lines_;
    // `line` tells whether the name has got another line since.
    struct Kept {
        Name name;
        std::shared_ptr<Line> line;
    };
    std::deque<Kept> kept_;
};

}  // namespace

void forget_lines_of(const void* owner) { Lines::of_process().forget(owner); }

Result<Decision> wait_in_line(const void* owner, std::string_view key, const Waiting& waiting) {
    return Lines::of_process().wait({owner, std::string{key}}, waiting);
}

std::size_t waiters_in_line(const void* owner, std::string_view key) {
    return Lines::of_process().size({owner, std::string{key}});
}

}  // namespace hotcount

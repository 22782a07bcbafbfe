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
#include <vector>

namespace hotcount {
namespace {

// After so many failed heads in a row, all sleeping waiters get the error.
constexpr int kMostFailures = 2;
constexpr Duration kRemembersFailures = std::chrono::seconds{1};
// How long after its end a waiter waits for its first hit, or for a refusal of the others' hits.
constexpr Duration kGrace = std::chrono::seconds{1};

struct Waiter {
    std::condition_variable woken{};
    bool is_head{false};
    bool is_active{false};           // It hits, or sleeps between its hits.
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

// Each function requires the mutex of the lines.
struct Line {
    // In their order: the heads, then the queue. A head that was refused while others were active
    // is not active until its turn comes again.
    std::list<Waiter*> heads{};
    std::list<Waiter*> queue{};
    std::size_t active{0};
    std::size_t width{kMostAsking};  // How many may be active.
    std::optional<Decision> refusal{};
    std::vector<Waiter*> late{};  // Their time has passed before a refusal was known.
    std::deque<std::pair<Decision, SteadyTime>> ahead{};  // Admitted; each to be used when due.
    SteadyTime due{};                                     // The end of the last retry_after.
    int failures{0};                 // The number of heads that failed in a row.
    std::optional<Error> failure{};  // The error of all waiters, until a head is answered.
    SteadyTime failed_until{};

    std::size_t size() const { return heads.size() + queue.size(); }
    bool knows() const { return refusal || failure; }
    void expect(const Decision& decision) {
        width = 1;
        due = std::chrono::steady_clock::now() + decision.retry_after.value_or(Duration{0});
    }
    /// The answer to a waiter that leaves before its turn.
    Decision answer() const {
        Decision told = *refusal;
        const Duration left = due - std::chrono::steady_clock::now();
        if (left > Duration{0}) told.retry_after = left;
        return told;
    }
    /// Makes the first waiters active, as many as may be.
    void wake_heads() {
        while (active < width) {
            if (heads.size() == active) {
                if (queue.empty()) return;
                queue.front()->is_head = true;
                heads.splice(heads.end(), queue, queue.begin());
            }
            Waiter& next = **std::ranges::find(heads, false, &Waiter::is_active);
            next.is_active = true;
            ++active;
            next.woken.notify_one();
        }
    }
    void fail_sleepers() {
        const auto fail = [this](Waiter* waiter) {
            if (waiter->is_active) return false;
            waiter->failure = failure;
            waiter->woken.notify_one();
            return true;
        };
        std::erase_if(heads, fail);
        std::erase_if(queue, fail);
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
        if (auto known = answer_at_once(name, waiting)) return *known;
        if (!takes(name, waiting.cost)) return waiting.ask();
        Place place(*this, name, waiting);
        while (true) {
            if (auto told = place.turn()) return std::move(*told);
            std::optional<Decision> decision = place.taken();
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
            // A head that was admitted ahead keeps its turn.
            if (!decision->allowed && !place.yields()) continue;
            sleep_or_interrupt(*pause);
            if (interrupted()) {
                // As one whose time has passed. A hit that was admitted ahead stays in the line.
                if (auto told = place.refusal()) return *told;
                decision->allowed = false;
                decision->reason = Reason::limited;
                return std::move(*decision);
            }
        }
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
        return line == lines_.end() ? 0 : line->second->size();
    }

  private:
    // A waiter while it is in a line.
    class Place {
      public:
        Place(Lines& lines, const Name& name, const Waiting& waiting)
            : lines_(lines), waiting_(waiting) {
            const std::lock_guard lock(lines_.mutex_);
            line_ = lines_.find(name);
            if (line_ == nullptr) line_ = lines_.lines_[name] = std::make_shared<Line>();
            at_ = line_->queue.insert(line_->queue.end(), &waiter_);
            line_->wake_heads();
        }
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        ~Place() {
            const std::lock_guard lock(lines_.mutex_);
            if (waiter_.failure) return;
            if (waiter_.is_active) --line_->active;
            (waiter_.is_head ? line_->heads : line_->queue).erase(at_);
            line_->wake_heads();
            if (line_->size() == 0) lines_.forget_empty();
        }

        /// Sleeps until the waiter may hit: null. Else its time has passed, or the store has failed
        /// the heads before it: its answer.
        std::optional<Result<Decision>> turn() {
            std::unique_lock lock(lines_.mutex_);
            const auto woken = [this] { return waiter_.is_active || waiter_.failure; };
            // A deadline that is never reached would be no deadline, and not be interrupted.
            const auto until = [this] {
                return waiting_.ends ? Deadline::at(*waiting_.ends)
                                     : Deadline::after(std::chrono::hours{1});
            };
            while (!wait_or_interrupt(waiter_.woken, lock, until(), woken) && !waiting_.ends &&
                   !interrupted()) {
            }
            if (!woken() && !line_->knows() && waiting_.ends) {
                // Each of the late waiters is woken by the first answer that refuses.
                line_->late.push_back(&waiter_);
                wait_or_interrupt(waiter_.woken, lock, Deadline::at(*waiting_.ends + kGrace),
                                  [&] { return woken() || line_->knows(); });
                std::erase(line_->late, &waiter_);
            }
            if (waiter_.is_active) return {};
            if (waiter_.failure) return *waiter_.failure;
            if (line_->failure) return *line_->failure;
            if (line_->refusal) return line_->answer();
            return make_error(ErrorCode::deadline,
                              "not sent: the wait ended before the hits of earlier waiters were "
                              "answered");
        }
        std::optional<Decision> refusal() const {
            const std::lock_guard lock(lines_.mutex_);
            return line_->refusal ? std::optional{line_->answer()} : std::nullopt;
        }
        /// For how long a head sleeps after this answer. Null: the answer is final.
        std::optional<Duration> pause(const Decision& decision) {
            const std::lock_guard lock(lines_.mutex_);
            const auto pause = waiting_.pause(decision, line_->size() > 1);
            if (decision.allowed && pause) {
                line_->expect(decision);
                line_->ahead.emplace_back(decision, line_->due);
            } else if (!decision.allowed && decision.retry_after) {
                line_->expect(decision);
                line_->refusal = decision;
                for (Waiter* late : line_->late) late->woken.notify_one();
            }
            return pause;
        }
        /// Gives the turn to the first waiter. Returns whether that is this one.
        bool yields() {
            const std::lock_guard lock(lines_.mutex_);
            waiter_.is_active = false;
            --line_->active;
            line_->wake_heads();
            return waiter_.is_active;
        }
        /// The hit that was admitted ahead, to this head or to one that was interrupted since.
        std::optional<Decision> taken() {
            const std::lock_guard lock(lines_.mutex_);
            if (line_->ahead.empty()) return {};
            const auto [decision, due] = line_->ahead.front();
            const Duration left = due - std::chrono::steady_clock::now();
            if (waiting_.cost > decision.limit) return {};
            if (left > Duration{0} && waiting_.ends && due > *waiting_.ends) return {};
            line_->ahead.pop_front();
            return after(decision, left);
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
            line_->width = 1;
            if (++line_->failures < kMostFailures) return;
            line_->failure = not_sent(error);
            line_->refusal.reset();
            line_->failed_until = std::chrono::steady_clock::now() + kRemembersFailures;
            line_->fail_sleepers();
        }

      private:
        Lines& lines_;
        const Waiting& waiting_;
        std::shared_ptr<Line> line_;
        Waiter waiter_;
        std::list<Waiter*>::iterator at_;
    };

    // Require the mutex. A line without waiters is kept until the hits that it holds are due: used
    // later, they would be too many. One that the store has failed is kept for a while.
    static bool is_over(const Line& line) {
        const SteadyTime now = std::chrono::steady_clock::now();
        return line.size() == 0 && (line.ahead.empty() || line.ahead.back().second <= now) &&
               line.failed_until <= now;
    }
    std::shared_ptr<Line> find(const Name& name) const {
        const auto line = lines_.find(name);
        return line == lines_.end() || is_over(*line->second) ? nullptr : line->second;
    }
    void forget_empty() {
        std::erase_if(lines_, [](const auto& line) { return is_over(*line.second); });
    }

    // One of a cost that never fits asks by itself, and is told so.
    bool takes(const Name& name, std::int64_t cost) {
        const std::lock_guard lock(mutex_);
        const auto line = find(name);
        if (line == nullptr || !line->refusal) return true;
        return cost >= 1 && cost <= line->refusal->limit;
    }
    // One whose time passes before even the head asks again.
    std::optional<Decision> answer_at_once(const Name& name, const Waiting& waiting) {
        if (!waiting.knows_when || !waiting.ends) return {};
        const std::lock_guard lock(mutex_);
        const auto line = find(name);
        if (line == nullptr || !line->refusal || line->due <= *waiting.ends) return {};
        return line->answer();
    }

    std::mutex mutex_;
    std::map<Name, std::shared_ptr<Line>> lines_;
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

#include "limiter/waiting_line.hpp"

#include <condition_variable>
#include <hotcount/detail/base/fork.hpp>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace hotcount {
namespace {

struct Waiter {
    enum class Why : std::uint8_t { asleep, head, alone };
    std::condition_variable woken{};
    Why why{Why::asleep};

    void wake(Why reason) {
        why = reason;
        woken.notify_one();
    }
};

struct Line {
    std::list<Waiter*> waiters{};
    std::optional<Decision> refusal{};
    SteadyTime due{};
    bool dissolved{false};

    void note(const Decision& decision) {
        refusal = decision;
        due = std::chrono::steady_clock::now() + decision.retry_after.value_or(Duration{0});
    }
    /// The answer to one that gives up behind the head.
    Decision answer() const {
        Decision told = *refusal;
        const Duration left = due - std::chrono::steady_clock::now();
        if (left > Duration{0}) told.retry_after = left;
        return told;
    }
};

class Lines {
  public:
    using Name = std::pair<const void*, std::string>;

    static Lines& of_process() {
        static ForkLocal<Lines> lines([] { return std::make_unique<Lines>(); });
        return lines.get();
    }

    Result<Decision> wait(const Name& name, const Waiting& waiting) {
        while (true) {
            std::optional<Decision> refused;
            if (auto known = answer_at_once(name, waiting)) return *known;
            if (!is_joined(name, waiting.cost)) {
                HOTCOUNT_TRY_ASSIGN(refused, waiting.ask());
                if (!refused || refused->allowed || !waiting.pause(*refused, false)) {
                    return std::move(*refused);
                }
            }
            Place place(*this, name, refused);
            switch (place.sleep(waiting.ends)) {
                case Waiter::Why::alone:
                    continue;
                case Waiter::Why::asleep:  // Its time has passed.
                    if (auto told = place.refusal()) return *told;
                    return waiting.ask();
                case Waiter::Why::head:
                    return lead(place, waiting, place.was_first() ? refused : std::nullopt);
            }
        }
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
        Place(Lines& lines, const Name& name, const std::optional<Decision>& refused)
            : lines_(lines), name_(name) {
            const std::lock_guard lock(lines_.mutex_);
            std::shared_ptr<Line>& line = lines_.lines_[name];
            if (line == nullptr) line = std::make_shared<Line>();
            line_ = line;
            first_ = line_->waiters.empty();
            if (first_ && refused) line_->note(*refused);
            at_ = line_->waiters.insert(line_->waiters.end(), &waiter_);
            if (first_) waiter_.why = Waiter::Why::head;
        }
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        ~Place() {
            const std::lock_guard lock(lines_.mutex_);
            if (line_->dissolved) return;
            const bool was_head = line_->waiters.front() == &waiter_;
            line_->waiters.erase(at_);
            if (line_->waiters.empty()) {
                lines_.lines_.erase(name_);
            } else if (was_head) {
                line_->waiters.front()->wake(Waiter::Why::head);
            }
        }

        Waiter::Why sleep(const std::optional<SteadyTime>& ends) {
            std::unique_lock lock(lines_.mutex_);
            const auto woken = [this] { return waiter_.why != Waiter::Why::asleep; };
            if (ends) {
                waiter_.woken.wait_until(lock, *ends, woken);
            } else {
                waiter_.woken.wait(lock, woken);
            }
            return waiter_.why;
        }
        /// It led the line from the start.
        bool was_first() const { return first_; }
        std::optional<Decision> refusal() const {
            const std::lock_guard lock(lines_.mutex_);
            return line_->refusal ? std::optional{line_->answer()} : std::nullopt;
        }
        /// Of the head: whether others wait behind it.
        bool note(const Decision& refusal) {
            const std::lock_guard lock(lines_.mutex_);
            line_->note(refusal);
            return line_->waiters.size() > 1;
        }
        void dissolve() {
            const std::lock_guard lock(lines_.mutex_);
            line_->dissolved = true;
            lines_.lines_.erase(name_);
            for (Waiter* const each : line_->waiters) {
                if (each != &waiter_) each->wake(Waiter::Why::alone);
            }
        }

      private:
        Lines& lines_;
        const Name& name_;
        std::shared_ptr<Line> line_;
        Waiter waiter_;
        std::list<Waiter*>::iterator at_;
        bool first_{false};
    };

    static Result<Decision> lead(Place& place, const Waiting& waiting,
                                 std::optional<Decision> decision) {
        while (true) {
            if (!decision) {
                auto asked = waiting.ask();
                if (!asked) {
                    place.dissolve();
                    return asked;
                }
                decision = std::move(*asked);
            }
            if (decision->allowed) return std::move(*decision);
            const auto pause = waiting.pause(*decision, place.note(*decision));
            if (!pause) return std::move(*decision);
            std::this_thread::sleep_for(*pause);
            decision.reset();
        }
    }

    // One of a cost that never fits asks by itself, and is told so.
    bool is_joined(const Name& name, std::int64_t cost) {
        const std::lock_guard lock(mutex_);
        const auto line = lines_.find(name);
        if (line == lines_.end()) return false;
        return !line->second->refusal || (cost >= 1 && cost <= line->second->refusal->limit);
    }
    // One whose time passes before even the head asks again.
    std::optional<Decision> answer_at_once(const Name& name, const Waiting& waiting) {
        if (!waiting.knows_when || !waiting.ends) return {};
        const std::lock_guard lock(mutex_);
        const auto line = lines_.find(name);
        if (line == lines_.end() || !line->second->refusal || line->second->due <= *waiting.ends) {
            return {};
        }
        return line->second->answer();
    }

    std::mutex mutex_;
    std::map<Name, std::shared_ptr<Line>> lines_;
};

}  // namespace

Result<Decision> wait_in_line(const void* owner, std::string_view key, const Waiting& waiting) {
    return Lines::of_process().wait({owner, std::string{key}}, waiting);
}

std::size_t waiters_in_line(const void* owner, std::string_view key) {
    return Lines::of_process().size({owner, std::string{key}});
}

}  // namespace hotcount

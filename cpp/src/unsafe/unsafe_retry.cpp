// The retry queue that only catches exceptions: an add that ended with an error, whatever is known of it,
// waits in memory, and a thread makes it again, from its first step, until it succeeds.
//
// HOLE: an add that was counted before its expiry failed, or whose answer was lost, is counted again.
// HOLE: it is counted in whatever life of its key stands when its turn comes.
// HOLE: later adds to a key overtake those that wait, and what waits is lost with the process.
// tests/races/test_retry_holes.py forces them.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <mutex>

#include "counter/add_queue.hpp"
#include "counter/backend.hpp"
#include "redis/commands.hpp"

namespace hotcount {
namespace {

class CatchingQueue final : public AddQueue, public std::enable_shared_from_this<CatchingQueue> {
  public:
    explicit CatchingQueue(std::shared_ptr<const RetrySettings> settings)
        : settings_(std::move(settings)),
          backend_(make_unsafe_backend(settings_->client, settings_->options)) {}

    void add_waiting(std::string key, std::int64_t n, Deadline deadline,
                     Completion<Added> done) override {
        {
            const std::lock_guard lock(mutex_);
            if (closed_) {
                return done(
                    make_error(ErrorCode::closed, "the counter is closed; nothing was applied"));
            }
        }
        auto value = try_once(key, n, deadline.remaining());
        if (value) return done(Added{*value});
        done(keep(std::move(key), n, std::move(value).error()));
    }

    void push(std::string, std::int64_t, Deadline, Completion<Added> done,
              const redis::Cancelled*) override {
        done(make_error(ErrorCode::config, "method '" +
                                               std::string{to_string(settings_->options.method)} +
                                               "' waits for several round trips: it has no add "
                                               "without waiting"));
    }

    RetryStats stats() const override {
        const std::lock_guard lock(mutex_);
        RetryStats stats = stats_;
        stats.waiting = static_cast<std::int64_t>(waiting());
        if (!items_.empty()) {
            stats.oldest_age =
                std::chrono::duration<double>(now() - items_.front().accepted).count();
        }
        return stats;
    }

    std::size_t drain(Deadline deadline) override {
        {
            std::unique_lock lock(mutex_);
            closed_ = true;
            (void)wait_or_interrupt(changed_, lock, deadline,
                                    [&] { return !running_ || waiting() == 0; });
        }
        return stop();
    }

    std::size_t stop() override {
        constexpr Duration kStopWait = std::chrono::seconds{2};
        std::unique_lock lock(mutex_);
        closed_ = stop_ = true;
        changed_.notify_all();
        changed_.wait_for(lock, kStopWait, [&] { return !running_; });
        return waiting();
    }

  private:
    struct Item {
        std::string key;
        std::int64_t n;
        SteadyTime accepted;
    };

    static SteadyTime now() { return std::chrono::steady_clock::now(); }
    // With the lock. One that is being tried waits as well.
    std::size_t waiting() const { return items_.size() + (trying_ ? 1 : 0); }

    Result<std::int64_t> try_once(const std::string& key, std::int64_t n, Timeout timeout) {
        return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
            backend_->add(key, n, backend_->waiting(timeout), std::move(done));
        });
    }

    Result<Added> keep(std::string key, std::int64_t n, Error why) {
        std::unique_lock lock(mutex_);
        stats_.is_away = true;
        const bool full = waiting() >= settings_->queue.max_items;
        if (full && (settings_->queue.when_full == WhenFull::raise || items_.empty())) return why;
        if (full) {
            items_.pop_front();
            ++stats_.dropped;
        }
        if (!running_) {
            if (auto started = spawn_thread([self = shared_from_this()] { self->work(); });
                !started) {
                return started.error();
            }
            running_ = true;
        }
        items_.push_back({std::move(key), n, now()});
        ++stats_.queued;
        changed_.notify_all();
        return Added{Queued{static_cast<std::int64_t>(waiting()), false}};
    }

    void work() {
        Duration pause{0};
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return stop_ || !items_.empty(); });
            if (stop_) break;
            Item item = std::move(items_.front());
            items_.pop_front();
            if (now() - item.accepted > settings_->queue.max_age) {
                ++stats_.expired;
                continue;
            }
            trying_ = true;
            lock.unlock();
            const bool counted = try_once(item.key, item.n, {}).ok();
            lock.lock();
            trying_ = false;
            stats_.is_away = !counted;
            if (counted) {
                ++stats_.replayed;
                pause = {};
                changed_.notify_all();
                continue;
            }
            items_.push_back(std::move(item));
            pause = redis::next_pause(pause);
            changed_.wait_for(lock, pause, [&] { return stop_; });
        }
        running_ = false;
        changed_.notify_all();
    }

    const std::shared_ptr<const RetrySettings> settings_;
    const std::unique_ptr<CounterBackend> backend_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Item> items_;
    RetryStats stats_;
    bool trying_{false};
    bool running_{false};
    bool stop_{false};
    bool closed_{false};
};

}  // namespace

std::shared_ptr<AddQueue> make_unsafe_queue(std::shared_ptr<const RetrySettings> settings) {
    return std::make_shared<CatchingQueue>(std::move(settings));
}

}  // namespace hotcount

#include <algorithm>
#include <array>
#include <atomic>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <mutex>
#include <utility>

#include "retry_engine.hpp"

namespace hotcount {
namespace {

// A sequence number must be remembered for as long as its add may be sent again.
constexpr Duration kMostAge = std::chrono::hours{24 * 30};
// The engine answers by the deadline, but for the time that the disk takes.
constexpr Duration kDisk = std::chrono::seconds{60};
// Adds of a batch that the queue has at once: some ten script calls, or one write to the journal.
constexpr std::size_t kSlice = 1024;

Error left_too_early() {
    return make_error(ErrorCode::outcome_unknown,
                      "the add was not answered before its caller left; it is counted once or not "
                      "at all");
}

}  // namespace

// A batch of adds. The queue gets it in slices, the next one when all adds of the one before are
// answered: so the adds of others get their turn, and a batch of any length fits below max_queue.
class RetryingCounter::Many : public std::enable_shared_from_this<Many> {
  public:
    struct Element {
        std::size_t index;  // In the caller's batch.
        std::string name;
        std::int64_t n;
    };

    Many(std::shared_ptr<RetryEngine> queue, std::vector<Element> elements,
         BatchResult<Added> result, std::size_t slice, Deadline deadline,
         const redis::Cancelled* cancelled, Completion<BatchResult<Added>> done)
        : queue_(std::move(queue)),
          deadline_(deadline),
          cancelled_(cancelled),
          slice_(slice),
          elements_(std::move(elements)),
          answered_(elements_.size(), false),
          result_(std::move(result)),
          done_(std::move(done)) {}

    // One more than a slice has is counted until all of it is handed in: adds that are answered at
    // once do not begin the next slice inside of this one.
    void go_on() {
        do {
            const auto [begin, stop] = next_slice();
            if (begin == stop) return end();
            under_way_ = stop - begin + 1;
            for (std::size_t i = begin; i < stop; ++i) {
                queue_->push(
                    std::move(elements_[i].name), elements_[i].n, deadline_,
                    [self = shared_from_this(), i](Result<Added> outcome) {
                        self->settle(i, std::move(outcome));
                        if (self->is_last()) self->go_on();
                    },
                    cancelled_);
            }
        } while (is_last());
    }

    // What is known so far, for a caller that leaves: no other slice begins. None if all is known.
    std::optional<BatchResult<Added>> leave() {
        const std::lock_guard lock(mutex_);
        if (!done_) return {};
        left_ = true;
        for (std::size_t i = 0; i < answered_.size(); ++i) {
            if (answered_[i]) continue;
            result_.errors.emplace(
                elements_[i].index,
                i < next_ ? left_too_early()
                          : make_error(ErrorCode::deadline,
                                       "its caller left before the add was sent; nothing was "
                                       "applied"));
        }
        return std::move(result_);
    }

  private:
    bool is_last() { return under_way_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

    std::pair<std::size_t, std::size_t> next_slice() {
        const std::lock_guard lock(mutex_);
        const std::size_t begin = next_;
        if (!left_) next_ = std::min(answered_.size(), begin + slice_);
        return {begin, next_};
    }

    void settle(std::size_t i, Result<Added> outcome) {
        const std::lock_guard lock(mutex_);
        if (left_) return;
        answered_[i] = true;
        const std::size_t index = elements_[i].index;
        if (outcome) {
            result_.values[index] = *outcome;
        } else {
            result_.errors.emplace(index, std::move(outcome).error());
        }
    }

    void end() {
        std::unique_lock lock(mutex_);
        const auto done = std::exchange(done_, {});
        BatchResult<Added> result = std::move(result_);
        lock.unlock();
        done(std::move(result));
    }

    const std::shared_ptr<RetryEngine> queue_;
    const Deadline deadline_;
    const redis::Cancelled* const cancelled_;
    const std::size_t slice_;
    std::vector<Element> elements_;
    std::atomic<std::size_t> under_way_{0};
    std::mutex mutex_;
    // Guarded by the mutex.
    std::size_t next_{0};
    bool left_{false};
    std::vector<bool> answered_;
    BatchResult<Added> result_;
    Completion<BatchResult<Added>> done_;
};

std::string_view to_string(WhenFull when_full) {
    constexpr std::array<std::string_view, 2> kNames{"raise", "drop_oldest"};
    return kNames[static_cast<std::size_t>(when_full)];
}

std::string_view to_string(Fsync fsync) {
    constexpr std::array<std::string_view, 3> kNames{"always", "interval", "off"};
    return kNames[static_cast<std::size_t>(fsync)];
}

Result<void> check_retry_queue(const RetryQueue& queue) {
    if (queue.max_items == 0) return bad_value("max_items", 0, "at least 1");
    if (queue.max_age < std::chrono::milliseconds{1} || queue.max_age > kMostAge) {
        return bad_option("max_age", "takes 0.001 seconds to 30 days");
    }
    if (queue.path.find('\0') != std::string::npos) {
        return bad_option("path", "has a NUL in it");
    }
    return {};
}

Result<Added> wait_for_added(std::string_view key, Deadline deadline,
                             const std::function<void(Completion<Added>)>& begin) {
    struct Call {
        Event settled;
        std::optional<Result<Added>> outcome;
    };
    const auto call = std::make_shared<Call>();
    begin([call](Result<Added> outcome) {
        call->outcome.emplace(std::move(outcome));
        call->settled.set();
    });
    if (call->settled.wait(Deadline::at(deadline.time() + kDisk))) {
        return std::move(*call->outcome);
    }
    return left_too_early().about(&ErrorFacts::key, std::string{key});
}

// One engine for each process.
struct RetryingCounter::Held {
    std::shared_ptr<const RetrySettings> settings;
    ForkLocal<std::shared_ptr<RetryEngine>> engine;
};

RetryingCounter::RetryingCounter(std::unique_ptr<Held> held) : held_(std::move(held)) {}

RetryingCounter::~RetryingCounter() { (void)held_->engine.get()->stop(); }

Result<std::shared_ptr<RetryingCounter>> RetryingCounter::make(
    std::shared_ptr<redis::Client> client, CounterOptions options, RetryQueue queue) {
    // It checks the options.
    HOTCOUNT_TRY(Counter::make(client, options));
    HOTCOUNT_TRY(check_retry_queue(queue));
    auto settings = std::make_shared<const RetrySettings>(
        RetrySettings{std::move(client), std::move(options), std::move(queue)});
    HOTCOUNT_TRY_ASSIGN(auto first, RetryEngine::open(settings));
    // The first is this process's; a forked child makes its own, without the journal.
    const auto make_engine = [settings, first = std::move(first)]() mutable {
        std::shared_ptr<RetryEngine> engine = std::exchange(first, nullptr);
        if (!engine) {
            engine = std::make_shared<RetryEngine>(settings, nullptr, std::vector<JournaledAdd>{});
        }
        return std::make_unique<std::shared_ptr<RetryEngine>>(std::move(engine));
    };
    auto held = std::unique_ptr<Held>(new Held{
        .settings = settings, .engine = ForkLocal<std::shared_ptr<RetryEngine>>(make_engine)});
    return std::shared_ptr<RetryingCounter>(new RetryingCounter(std::move(held)));
}

const RetryQueue& RetryingCounter::queue() const { return held_->settings->queue; }
RetryStats RetryingCounter::stats() const { return held_->engine.get()->stats(); }

std::size_t RetryingCounter::close(Timeout timeout) {
    return held_->engine.get()->drain(held_->settings->client->deadline(timeout));
}

// The key in full, or why it is refused.
Result<std::string> RetryingCounter::name_of(std::string_view key) const {
    HOTCOUNT_TRY(check_key(key));
    const RetrySettings& settings = *held_->settings;
    std::string name = full_key(settings.client->options().prefix, settings.options.prefix, key);
    HOTCOUNT_TRY(key_beside(name, "window"));
    return name;
}

void RetryingCounter::add_async(std::string_view key, std::int64_t n, Completion<Added> done,
                                AsyncCall call) {
    auto name = name_of(key);
    if (!name) return done(std::move(name).error());
    held_->engine.get()->push(std::move(*name), n, held_->settings->client->deadline(call.timeout),
                              std::move(done), call.cancelled);
}

Result<Added> RetryingCounter::add(std::string_view key, std::int64_t n, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(std::string name, name_of(key));
    const Deadline deadline = held_->settings->client->deadline(timeout);
    return wait_for_added(key, deadline, [&](Completion<Added> done) {
        held_->engine.get()->add_waiting(std::move(name), n, deadline, std::move(done));
    });
}

// What is begun with go_on().
std::shared_ptr<RetryingCounter::Many> RetryingCounter::make_batch(
    std::span<const std::string_view> keys, std::span<const std::int64_t> amounts,
    Deadline deadline, const redis::Cancelled* cancelled,
    Completion<BatchResult<Added>> done) const {
    BatchResult<Added> result;
    result.values.resize(keys.size());
    std::vector<Many::Element> elements;
    elements.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (auto name = name_of(keys[i])) {
            elements.push_back({i, std::move(*name), amounts[i]});
        } else {
            result.errors.emplace(i, std::move(name).error());
        }
    }
    const std::size_t most =
        std::max<std::size_t>(held_->settings->client->options().max_queue / 2, 1);
    return std::make_shared<Many>(held_->engine.get(), std::move(elements), std::move(result),
                                  std::min(kSlice, most), deadline, cancelled, std::move(done));
}

void RetryingCounter::add_many_async(std::span<const std::string_view> keys,
                                     std::span<const std::int64_t> amounts,
                                     Completion<BatchResult<Added>> done, AsyncCall call) {
    make_batch(keys, amounts, held_->settings->client->deadline(call.timeout), call.cancelled,
               std::move(done))
        ->go_on();
}

BatchResult<Added> RetryingCounter::add_many(std::span<const std::string_view> keys,
                                             std::span<const std::int64_t> amounts,
                                             Timeout timeout) {
    const Deadline deadline = held_->settings->client->deadline(timeout);
    struct Call {
        Event settled;
        BatchResult<Added> result;
    };
    const auto call = std::make_shared<Call>();
    const auto batch =
        make_batch(keys, amounts, deadline, nullptr, [call](Result<BatchResult<Added>> result) {
            call->result = std::move(*result);
            call->settled.set();
        });
    batch->go_on();
    if (call->settled.wait(Deadline::at(deadline.time() + kDisk))) return std::move(call->result);
    if (auto known = batch->leave()) return std::move(*known);
    (void)call->settled.wait(Deadline::after(kDisk));  // It is being set.
    return std::move(call->result);
}

}  // namespace hotcount

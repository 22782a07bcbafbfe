#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <utility>

#include "backend.hpp"
#include "retry_batch.hpp"

namespace hotcount {

// The state that unanswered calls keep alive.
class RetryingPeriodCounter::State : public std::enable_shared_from_this<State> {
  public:
    State(std::shared_ptr<const RetrySettings> settings, std::shared_ptr<PeriodCounter> periods,
          std::shared_ptr<RetryEngine> engine)
        : settings_(std::move(settings)),
          periods_(std::move(periods)),
          engine_([settings = settings_, first = std::move(engine)]() mutable {
              // The first engine is this process's; a forked child makes one without the journal.
              auto made = std::exchange(first, nullptr);
              if (!made) {
                  made =
                      std::make_shared<RetryEngine>(settings, nullptr, std::vector<JournaledAdd>{});
              }
              return std::make_unique<std::shared_ptr<RetryEngine>>(std::move(made));
          }) {}

    RetryEngine& engine() { return *engine_.get(); }
    const RetrySettings& settings() const { return *settings_; }
    Deadline deadline(Timeout timeout) const { return settings_->client->deadline(timeout); }

    struct Call {
        std::string key;
        std::int64_t n;
        std::optional<Instant> at;
        Deadline deadline;
        const redis::Cancelled* cancelled;
        Completion<Added> done;
    };

    // A blocking caller may send the add itself.
    void start(Call call, bool waits) {
        const Instant at = call.at ? *call.at : engine().store_time();
        go_to(at, std::move(call), waits);
    }

    std::shared_ptr<RetryBatch> make_batch(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> amounts,
                                           std::optional<Instant> at, Deadline deadline,
                                           const redis::Cancelled* cancelled,
                                           Completion<BatchResult<Added>> done) {
        BatchResult<Added> result;
        result.values.resize(keys.size());
        std::vector<RetryBatch::Element> elements;
        elements.reserve(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            elements.push_back({i, std::string{keys[i]}, amounts[i]});
        }
        return std::make_shared<RetryBatch>(
            settings(), std::move(elements), std::move(result),
            [self = shared_from_this(), at, deadline, cancelled](RetryBatch::Element& element,
                                                                 Completion<Added> settle) {
                self->start({.key = std::move(element.key),
                             .n = element.n,
                             .at = at,
                             .deadline = deadline,
                             .cancelled = cancelled,
                             .done = std::move(settle)},
                            false);
            },
            std::move(done));
    }

  private:
    // The period of `at`. The key is fixed when the add is queued, so a queued add is counted
    // in that period.
    void go_to(Instant at, Call call, bool waits) {
        auto place = periods_->place(call.key, at, call.at ? "at" : "the store's time");
        if (!place) return call.done(std::move(place).error());
        if (auto fits = key_beside(place->name, "retry"); !fits) return call.done(fits.error());
        place->window.present = !call.at;
        NewAdd add{.key = std::move(place->name),
                   .n = call.n,
                   .period = std::make_shared<const PeriodWindow>(place->window),
                   .deadline = call.deadline,
                   .done = {},
                   .cancelled = call.cancelled};
        add.done = [self = shared_from_this(), label = std::move(place->label),
                    call = std::move(call)](Result<AddAnswer> outcome) mutable {
            self->settle(std::move(call), label, std::move(outcome));
        };
        if (waits) {
            engine().add_waiting(std::move(add));
        } else {
            engine().push(std::move(add));
        }
    }

    void settle(Call call, const std::string& label, Result<AddAnswer> outcome) {
        using Kind = PeriodAnswer::Kind;
        if (!outcome) return call.done(std::move(outcome).error());
        if (const auto* const value = std::get_if<std::int64_t>(&*outcome)) {
            return call.done(Added{*value});
        }
        if (const auto* const queued = std::get_if<Queued>(&*outcome)) {
            return call.done(Added{*queued});
        }
        const PeriodAnswer refused = std::get<PeriodAnswer>(*outcome);
        // The queue's thread may run this, so it must not block.
        if (refused.kind == Kind::elsewhere) {
            return go_to(refused.store_time, std::move(call), false);
        }
        call.done(periods_->not_added(refused.kind == Kind::gone, label));
    }

    const std::shared_ptr<const RetrySettings> settings_;
    const std::shared_ptr<PeriodCounter> periods_;
    ForkLocal<std::shared_ptr<RetryEngine>> engine_;
};

RetryingPeriodCounter::RetryingPeriodCounter(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

RetryingPeriodCounter::~RetryingPeriodCounter() { (void)state_->engine().stop(); }

Result<std::shared_ptr<RetryingPeriodCounter>> RetryingPeriodCounter::make(
    std::shared_ptr<redis::Client> client, PeriodCounterOptions options, RetryQueue queue) {
    HOTCOUNT_TRY_ASSIGN(auto periods, PeriodCounter::make(client, std::move(options)));
    HOTCOUNT_TRY(check_retry_queue(queue));
    auto settings = std::make_shared<const RetrySettings>(
        RetrySettings{std::move(client), {}, std::move(queue)});
    HOTCOUNT_TRY_ASSIGN(auto engine, RetryEngine::open(settings));
    return std::shared_ptr<RetryingPeriodCounter>(new RetryingPeriodCounter(
        std::make_shared<State>(std::move(settings), std::move(periods), std::move(engine))));
}

const RetryQueue& RetryingPeriodCounter::queue() const { return state_->settings().queue; }
RetryStats RetryingPeriodCounter::stats() const { return state_->engine().stats(); }

std::vector<std::string> RetryingPeriodCounter::take_silent() {
    return state_->engine().take_silent();
}

std::size_t RetryingPeriodCounter::close(Timeout timeout) {
    return state_->engine().drain(state_->deadline(timeout));
}

void RetryingPeriodCounter::add_async(std::string_view key, std::int64_t n,
                                      std::optional<Instant> at, Completion<Added> done,
                                      AsyncCall call) {
    state_->start({.key = std::string{key},
                   .n = n,
                   .at = at,
                   .deadline = state_->deadline(call.timeout),
                   .cancelled = call.cancelled,
                   .done = std::move(done)},
                  false);
}

Result<Added> RetryingPeriodCounter::add(std::string_view key, std::int64_t n,
                                         std::optional<Instant> at, Timeout timeout) {
    const Deadline deadline = state_->deadline(timeout);
    return wait_for_added(key, deadline, [&](Completion<Added> done) {
        state_->start({.key = std::string{key},
                       .n = n,
                       .at = at,
                       .deadline = deadline,
                       .cancelled = nullptr,
                       .done = std::move(done)},
                      true);
    });
}

void RetryingPeriodCounter::add_many_async(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> amounts,
                                           std::optional<Instant> at,
                                           Completion<BatchResult<Added>> done, AsyncCall call) {
    if (at && !Calendar::takes(*at)) return done(bad_time("at"));
    state_
        ->make_batch(keys, amounts, at, state_->deadline(call.timeout), call.cancelled,
                     std::move(done))
        ->go_on();
}

Result<BatchResult<Added>> RetryingPeriodCounter::add_many(std::span<const std::string_view> keys,
                                                           std::span<const std::int64_t> amounts,
                                                           std::optional<Instant> at,
                                                           Timeout timeout) {
    if (at && !Calendar::takes(*at)) return bad_time("at");
    const Deadline deadline = state_->deadline(timeout);
    return wait_for_batch(deadline, [&](Completion<BatchResult<Added>> done) {
        return state_->make_batch(keys, amounts, at, deadline, nullptr, std::move(done));
    });
}

}  // namespace hotcount

#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <utility>

#include "retry_batch.hpp"

namespace hotcount {
namespace {

// A sequence number must be remembered for as long as its add may be sent again.
constexpr Duration kMostAge = std::chrono::hours{24 * 30};

}  // namespace

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

// One engine for each process.
struct RetryingCounter::State {
    std::shared_ptr<const RetrySettings> settings;
    ForkLocal<std::shared_ptr<RetryEngine>> engine;
};

RetryingCounter::RetryingCounter(std::unique_ptr<State> state) : state_(std::move(state)) {}

RetryingCounter::~RetryingCounter() { (void)state_->engine.get()->stop(); }

Result<std::shared_ptr<RetryingCounter>> RetryingCounter::make(
    std::shared_ptr<redis::Client> client, CounterOptions options, RetryQueue queue) {
    // Counter::make() checks the options.
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
    auto state = std::unique_ptr<State>(new State{
        .settings = settings, .engine = ForkLocal<std::shared_ptr<RetryEngine>>(make_engine)});
    return std::shared_ptr<RetryingCounter>(new RetryingCounter(std::move(state)));
}

const RetryQueue& RetryingCounter::queue() const { return state_->settings->queue; }
RetryStats RetryingCounter::stats() const { return state_->engine.get()->stats(); }

std::vector<std::string> RetryingCounter::take_silent() {
    return state_->engine.get()->take_silent();
}

std::size_t RetryingCounter::close(Timeout timeout) {
    return state_->engine.get()->drain(state_->settings->client->deadline(timeout));
}

// The key in full, or the error that refuses it.
Result<std::string> RetryingCounter::name_of(std::string_view key) const {
    HOTCOUNT_TRY(check_key(key));
    const RetrySettings& settings = *state_->settings;
    std::string name = full_key(settings.client->options().prefix, settings.options.prefix, key);
    HOTCOUNT_TRY(key_beside(name, "window"));
    return name;
}

void RetryingCounter::add_async(std::string_view key, std::int64_t n, Completion<Added> done,
                                AsyncCall call) {
    auto name = name_of(key);
    if (!name) return done(std::move(name).error());
    state_->engine.get()->push(std::move(*name), n,
                               state_->settings->client->deadline(call.timeout), std::move(done),
                               call.cancelled);
}

Result<Added> RetryingCounter::add(std::string_view key, std::int64_t n, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(std::string name, name_of(key));
    const Deadline deadline = state_->settings->client->deadline(timeout);
    return wait_for_added(key, deadline, [&](Completion<Added> done) {
        state_->engine.get()->add_waiting(std::move(name), n, deadline, std::move(done));
    });
}

std::shared_ptr<RetryBatch> RetryingCounter::make_batch(std::span<const std::string_view> keys,
                                                        std::span<const std::int64_t> amounts,
                                                        Deadline deadline,
                                                        const redis::Cancelled* cancelled,
                                                        Completion<BatchResult<Added>> done) const {
    BatchResult<Added> result;
    result.values.resize(keys.size());
    std::vector<RetryBatch::Element> elements;
    elements.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (auto name = name_of(keys[i])) {
            elements.push_back({i, std::move(*name), amounts[i]});
        } else {
            result.errors.emplace(i, std::move(name).error());
        }
    }
    return std::make_shared<RetryBatch>(
        *state_->settings, std::move(elements), std::move(result),
        [queue = state_->engine.get(), deadline, cancelled](RetryBatch::Element& element,
                                                            Completion<Added> settle) {
            queue->push(std::move(element.key), element.n, deadline, std::move(settle), cancelled);
        },
        std::move(done));
}

void RetryingCounter::add_many_async(std::span<const std::string_view> keys,
                                     std::span<const std::int64_t> amounts,
                                     Completion<BatchResult<Added>> done, AsyncCall call) {
    make_batch(keys, amounts, state_->settings->client->deadline(call.timeout), call.cancelled,
               std::move(done))
        ->go_on();
}

BatchResult<Added> RetryingCounter::add_many(std::span<const std::string_view> keys,
                                             std::span<const std::int64_t> amounts,
                                             Timeout timeout) {
    const Deadline deadline = state_->settings->client->deadline(timeout);
    return wait_for_batch(deadline, [&](Completion<BatchResult<Added>> done) {
        return make_batch(keys, amounts, deadline, nullptr, std::move(done));
    });
}

}  // namespace hotcount

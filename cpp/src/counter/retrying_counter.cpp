#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <utility>

#include "retry_engine.hpp"

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
struct RetryingCounter::Held {
    std::shared_ptr<const RetrySettings> settings;
    ForkLocal<std::shared_ptr<AddQueue>> engine;
};

RetryingCounter::RetryingCounter(std::unique_ptr<Held> held) : held_(std::move(held)) {}

RetryingCounter::~RetryingCounter() { (void)held_->engine.get()->stop(); }

Result<std::shared_ptr<RetryingCounter>> RetryingCounter::make(
    std::shared_ptr<redis::Client> client, CounterOptions options, RetryQueue queue) {
    // It checks the options.
    HOTCOUNT_TRY(Counter::make(client, options));
    HOTCOUNT_TRY(check_retry_queue(queue));
    const bool is_safe = options.method == CounterMethod::script;
    if (!is_safe && !queue.path.empty()) {
        return bad_option("path", "is for method 'script': the queues of the others are in memory");
    }
    std::vector<JournaledAdd> found;
    std::unique_ptr<RetryJournal> journal;
    if (!queue.path.empty()) {
        HOTCOUNT_TRY_ASSIGN(journal, RetryJournal::open(queue.path, queue.fsync, found));
    }
    const bool some_wait = !found.empty();
    auto settings = std::make_shared<const RetrySettings>(
        RetrySettings{std::move(client), std::move(options), std::move(queue)});
    std::shared_ptr<RetryEngine> first;
    if (is_safe) {
        first = std::make_shared<RetryEngine>(settings, std::move(journal), std::move(found));
        if (some_wait) HOTCOUNT_TRY(first->start());
    }
    // The first is this process's; a forked child makes its own, without the journal.
    const auto make_engine = [settings, is_safe, first = std::move(first)]() mutable {
        std::shared_ptr<AddQueue> engine = std::exchange(first, nullptr);
        if (!engine && is_safe) {
            engine = std::make_shared<RetryEngine>(settings, nullptr, std::vector<JournaledAdd>{});
        }
        if (!engine) engine = make_unsafe_queue(settings);
        return std::make_unique<std::shared_ptr<AddQueue>>(std::move(engine));
    };
    auto held = std::unique_ptr<Held>(new Held{
        .settings = settings, .engine = ForkLocal<std::shared_ptr<AddQueue>>(make_engine)});
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
    struct Call {
        Event settled;
        std::optional<Result<Added>> outcome;
    };
    const auto call = std::make_shared<Call>();
    const Deadline deadline = held_->settings->client->deadline(timeout);
    held_->engine.get()->add_waiting(std::move(name), n, deadline, [call](Result<Added> outcome) {
        call->outcome.emplace(std::move(outcome));
        call->settled.set();
    });
    // The engine answers by the deadline, but for the time that the disk takes.
    constexpr Duration kDisk = std::chrono::seconds{60};
    if (call->settled.wait(Deadline::at(deadline.time() + kDisk))) {
        return std::move(*call->outcome);
    }
    return make_error(ErrorCode::outcome_unknown,
                      "the add was not answered before its caller left; it is counted once or not "
                      "at all")
        .about(&ErrorFacts::key, std::string{key});
}

}  // namespace hotcount

#include "limiter/outage.hpp"

#include <algorithm>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <utility>

namespace hotcount {

Result<std::shared_ptr<Outage>> Outage::of(const std::shared_ptr<redis::Client>& client) {
    static SharedObjects<const redis::Client*, Outage> outages;
    return outages.find_or_make(client.get(), [&]() -> Result<std::shared_ptr<Outage>> {
        memory::StoreOptions options;
        options.max_keys = kLocalKeys;
        options.shards = 8;
        HOTCOUNT_TRY_ASSIGN(auto local, memory::Store::make(options));
        return std::make_shared<Outage>(client, std::move(local));
    });
}

Outage::Outage(const std::shared_ptr<redis::Client>& client, std::shared_ptr<memory::Store> local)
    : client_(client), address_(client->options().address()), local_(std::move(local)) {
    start_watching_forks();
}

void Outage::begin(std::uint64_t phase, const Error& why) {
    const std::lock_guard lock(mutex_);
    if (is_away(phase) || phase_.load(std::memory_order_relaxed) != phase) return;
    why_ = without_key(why.message);
    since_ = std::chrono::steady_clock::now();
    // The failure was no probe, so the next call may send one at once. But if the outage before has
    // just ended, a second must have passed since its last probe.
    next_probe_.store(std::max(since_, next_probe_.load(std::memory_order_relaxed)),
                      std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
}

bool Outage::doubted_for(Duration patience) {
    const SteadyTime now = std::chrono::steady_clock::now();
    SteadyTime since = kNever;
    if (doubted_since_.compare_exchange_strong(since, now, std::memory_order_relaxed)) return false;
    return now - since >= patience;
}

bool Outage::takes_probe() {
    const SteadyTime now = std::chrono::steady_clock::now();
    SteadyTime due = next_probe_.load(std::memory_order_relaxed);
    return now >= due &&
           next_probe_.compare_exchange_strong(due, now + kProbeEvery, std::memory_order_relaxed);
}

Duration Outage::next_probe() const {
    return std::max<Duration>(
        next_probe_.load(std::memory_order_relaxed) - std::chrono::steady_clock::now(),
        std::chrono::microseconds{1});
}

void Outage::end(std::uint64_t phase) {
    const std::lock_guard lock(mutex_);
    if (!is_away(phase) || phase_.load(std::memory_order_relaxed) != phase) return;
    answered();
    phase_.store(phase + 1, std::memory_order_release);
}

std::optional<OutageEvent> Outage::next_event() {
    if (told_.load(std::memory_order_relaxed) == phase()) [[likely]]
        return std::nullopt;
    const std::lock_guard lock(mutex_);
    const std::uint64_t now = phase();
    if (told_.exchange(now, std::memory_order_relaxed) == now) return std::nullopt;
    if (is_away(now)) return OutageEvent{true, address_, why_, Duration{0}};
    return OutageEvent{false, address_, why_, std::chrono::steady_clock::now() - since_};
}

}  // namespace hotcount

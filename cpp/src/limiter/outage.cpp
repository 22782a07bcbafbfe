#include "limiter/outage.hpp"

#include <algorithm>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <utility>

#include "redis/cluster_client.hpp"

namespace hotcount {

Outage::Outage(std::string address) : address_(std::move(address)) { start_watching_forks(); }

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

// -- of a store -----------------------------------------------------------------------------------

Result<std::shared_ptr<Outages>> Outages::of(const std::shared_ptr<redis::Client>& client) {
    static SharedObjects<const redis::Client*, Outages> outages;
    return outages.find_or_make(client.get(), [&]() -> Result<std::shared_ptr<Outages>> {
        memory::StoreOptions options;
        options.max_keys = kLocalKeys;
        options.shards = 8;
        HOTCOUNT_TRY_ASSIGN(auto local, memory::Store::make(options));
        return std::make_shared<Outages>(client, std::move(local));
    });
}

Outages::Outages(const std::shared_ptr<redis::Client>& client, std::shared_ptr<memory::Store> local)
    : client_(client),
      nodes_(redis::nodes_of(*client)),
      address_(client->options().address()),
      local_(std::move(local)) {}

Outages::~Outages() {
    for (OfNode* each = first_.load(std::memory_order_acquire); each != nullptr;) {
        OfNode* const next = each->next;
        delete each;
        each = next;
    }
}

std::uint16_t Outages::slot_of(std::string_view key) const {
    return nodes_ == nullptr ? 0 : redis::slot_of(key);
}

Outages::OfNode& Outages::find(std::uint16_t slot) {
    const std::uint16_t node = nodes_ == nullptr ? 0 : nodes_->owner(slot);
    const std::uint64_t generation = nodes_ == nullptr ? 0 : fork_generation();
    OfNode* const first = first_.load(std::memory_order_acquire);
    OfNode* known_until = nullptr;
    std::unique_ptr<OfNode> made;
    for (OfNode* head = first;;) {
        for (OfNode* each = head; each != known_until; each = each->next) {
            if (each->node == node && each->generation == generation) return *each;
        }
        if (!made) {
            made = std::make_unique<OfNode>(nodes_ == nullptr ? address_ : nodes_->address(node),
                                            node, generation);
        }
        known_until = head;
        made->next = head;
        if (first_.compare_exchange_strong(head, made.get(), std::memory_order_acq_rel)) {
            return *made.release();
        }
    }
}

void Outages::begin(Outage& outage, std::uint64_t phase, const Error& why, std::string_view key) {
    for (OfNode* each = first_.load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
        if (&each->outage == &outage) each->slot.store(slot_of(key), std::memory_order_relaxed);
    }
    outage.begin(phase, why);
}

std::optional<OutageEvent> Outages::next_event() {
    for (OfNode* each = first_.load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
        const std::uint64_t phase = each->outage.phase();
        // No key belongs to a primary that was replaced: no probe would end its outage.
        if (nodes_ != nullptr && Outage::is_away(phase) && each->generation == fork_generation() &&
            nodes_->owner(each->slot.load(std::memory_order_relaxed)) != each->node) {
            each->outage.end(phase);
        }
        if (auto event = each->outage.next_event()) return event;
    }
    return std::nullopt;
}

}  // namespace hotcount

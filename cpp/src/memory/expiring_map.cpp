#include <bit>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <hotcount/detail/memory/expiring_map.hpp>
#include <hotcount/memory.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hotcount::detail {
namespace {

#if defined(__x86_64__)
bool counts_steadily() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}
#else
bool counts_steadily() { return false; }
#endif

}  // namespace

// The value before the first look is far from every processor's tick count.
constinit thread_local SeenTime seen_time{std::uint64_t{1} << 63, {}};

SteadyTime look_at_clock(std::uint64_t ticks) {
    static const bool kSteadily = counts_steadily();
    const SteadyTime time = std::chrono::steady_clock::now();
    if (kSteadily) seen_time = {ticks, time};
    return time;
}

}  // namespace hotcount::detail

namespace hotcount::memory {
namespace {

// The bounds of the sweeps that new keys begin (expiring_map.hpp).
constexpr std::size_t kUnswept = 32;
constexpr std::size_t kInsertsPerSweep = 16;
constexpr std::size_t kSweptAtInsert = 32;
constexpr std::size_t kSweptAtBound = 1024;

}  // namespace

ExpiringMap::ExpiringMap(std::size_t max_keys, std::size_t shards,
                         std::shared_ptr<const Clock> clock)
    : clock_(std::move(clock)),
      reads_system_(clock_ == system_clock()),
      max_keys_(max_keys),
      shard_mask_(shards - 1),
      shards_(shards) {
    start_watching_forks();
}

ExpiringMap::~ExpiringMap() { stop_watching_forks(); }

// A shard's lock may be held by a thread that does not exist in the child.
void ExpiringMap::before_fork() {
    for (Shard& shard : shards_) shard.mutex.lock();
}

void ExpiringMap::after_fork(bool) {
    for (Shard& shard : shards_) shard.mutex.unlock();
}

Entry* ExpiringMap::find_live(Shard& shard, const Hashed& key) {
    Node* const found = shard.entries.find(key);
    if (found == nullptr) return nullptr;
    // The clock is read only for keys that can expire: it costs more than the look-up.
    if (found->entry.expires_at && found->entry.expired(now())) {
        erase(shard, found);
        count_swept(shard, 1);
        return nullptr;
    }
    return &found->entry;
}

void ExpiringMap::renew(Shard& shard, Entry& entry) {
    entry.renew();
    count_swept(shard, 1);
}

Result<ExpiringMap::Place> ExpiringMap::find_or_insert(Shard& shard,
                                                       std::unique_lock<ShortLock>& lock,
                                                       const Hashed& key) {
    const Place place = find_or_renew(shard, key, std::nullopt);
    if (place.entry != nullptr) return place;
    return insert(shard, lock, key);
}

Result<ExpiringMap::Place> ExpiringMap::insert(Shard& shard, std::unique_lock<ShortLock>& lock,
                                               const Hashed& key) {
    // Keys that come again are made new where they stand: it is no growth to drop and make them.
    if (shard.entries.size() >= kUnswept && ++shard.inserts % kInsertsPerSweep == 0) {
        sweep(shard, now(), kSweptAtInsert);
    }
    // Counted before it is made, so that racing inserts cannot pass the bound together.
    if (size_.fetch_add(1, std::memory_order_relaxed) >= max_keys_) {
        lock.unlock();  // make_room takes the locks of shards in turn.
        make_room();
        lock.lock();
        Entry* made_meanwhile = find_live(shard, key);
        const bool full = size_.load(std::memory_order_relaxed) > max_keys_;
        if (made_meanwhile != nullptr || full) size_.fetch_sub(1, std::memory_order_relaxed);
        if (made_meanwhile != nullptr) return Place{made_meanwhile, false};
        if (full) {
            return this->full(key);
        }
    }
    return Place{&shard.entries.insert(key)->entry, true};
}

Result<Entry*> ExpiringMap::insert_without_room(const Hashed& key) {
    if (size_.fetch_add(1, std::memory_order_relaxed) >= max_keys_) {
        size_.fetch_sub(1, std::memory_order_relaxed);
        return full(key);
    }
    return &shard_of(key).entries.insert(key)->entry;
}

std::uint64_t ExpiringMap::swept() const {
    std::uint64_t all = 0;
    for (const Shard& shard : shards_) all += shard.swept.load(std::memory_order_relaxed);
    return all;
}

Error ExpiringMap::full(const Hashed& key) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return make_error(ErrorCode::capacity,
                      "memory store is full: max_keys=" + std::to_string(max_keys_) +
                          " keys are held; refused " + printable(key.text()));
}

void ExpiringMap::erase(Shard& shard, const Hashed& key) {
    if (Node* const found = shard.entries.find(key)) erase(shard, found);
}

void ExpiringMap::erase(Shard& shard, Node* node) {
    shard.entries.erase(node);
    size_.fetch_sub(1, std::memory_order_relaxed);
}

ExpiringMap::Swept ExpiringMap::sweep(Shard& shard, SteadyTime now, std::size_t most) {
    Swept result;
    if (shard.next_expiry > now) return result;
    if (shard.entries.at_start()) shard.round_expiry = SteadyTime::max();
    result.met = shard.entries.walk(most, [&](const Entry& entry) {
        if (entry.expired(now)) {
            ++result.dropped;
            return true;
        }
        note_expiry(shard, entry);
        return false;
    });
    // All remaining entries were visited, and changes in between were noted.
    if (shard.entries.at_start()) shard.next_expiry = shard.round_expiry;
    size_.fetch_sub(result.dropped, std::memory_order_relaxed);
    count_swept(shard, result.dropped);
    return result;
}

void ExpiringMap::make_room() {
    const SteadyTime at = now();
    std::size_t left = kSweptAtBound;
    const std::size_t first = next_shard_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < shards_.size() && left > 0; ++i) {
        Shard& shard = shards_[(first + i) & shard_mask_];
        std::lock_guard lock(shard.mutex);
        const bool whole = shard.entries.at_start();
        left -= sweep(shard, at, left).met;
        // A round that had begun before has met but its end in this call.
        if (!whole && left > 0) left -= sweep(shard, at, left).met;
        // The next search goes on where this one ended.
        if (left == 0) next_shard_.store(first + i, std::memory_order_relaxed);
    }
}

std::string_view to_string(WhenFull when_full) {
    return when_full == WhenFull::admit ? "admit" : "refuse";
}

Result<WhenFull> parse_when_full(std::string_view name) {
    for (const WhenFull known : {WhenFull::admit, WhenFull::refuse}) {
        if (name == to_string(known)) return known;
    }
    return bad_option("when_full", "is '" + printable(name) + "'; it takes 'admit', 'refuse'",
                      printable(name));
}

Result<std::shared_ptr<Store>> Store::make(StoreOptions options) {
    if (options.max_keys == 0) return bad_value("max_keys", 0, "at least 1");
    if (options.shards == 0 || options.shards > 65536) {
        return bad_value("shards", options.shards, "it takes 1 to 65536");
    }
    options.shards = std::bit_ceil(options.shards);
    return std::make_shared<Store>(std::move(options));
}

Store::Store(StoreOptions options)
    : ExpiringMap(options.max_keys, options.shards, options.clock),
      options_(std::move(options)),
      epoch_(options_.clock->wall_now().time_since_epoch() -
             options_.clock->steady_now().time_since_epoch()) {}

Store::Stats Store::stats() const {
    return Stats{size(), options_.max_keys, swept(), refused(),
                 untracked_.load(std::memory_order_relaxed)};
}

bool Store::admits_untracked(const Error& error) {
    if (error.code != ErrorCode::capacity || options_.when_full != WhenFull::admit) return false;
    uncount_refusal();
    untracked_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Result<std::shared_ptr<Store>> named_store(std::string_view name, StoreOptions options) {
    // Never destroyed: a static would end before objects that still unregister at exit.
    static auto* const stores = new SharedObjects<std::string, Store>;
    return stores->find_or_make(std::string{name}, [&] { return Store::make(std::move(options)); });
}

}  // namespace hotcount::memory

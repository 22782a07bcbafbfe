#include <algorithm>
#include <bit>
#include <hotcount/base/codec.hpp>
#include <hotcount/base/shared_objects.hpp>
#include <hotcount/memory/store.hpp>

namespace hotcount::memory {

std::optional<std::int64_t> OpLedger::find(std::string_view op_id, SteadyTime now) const {
    const auto found = ops_.find(std::string{op_id});
    if (found == ops_.end() || found->second.forget_at <= now) return std::nullopt;
    return found->second.result;
}

void OpLedger::remember(std::string_view op_id, std::int64_t result, SteadyTime now,
                        SteadyTime forget_at) {
    if (ops_.size() >= purge_at_) {
        std::erase_if(ops_, [now](const auto& op) { return op.second.forget_at <= now; });
        purge_at_ = std::max<std::size_t>(64, 2 * ops_.size());
    }
    ops_.insert_or_assign(std::string{op_id}, Op{result, forget_at});
    empty_from_ = std::max(empty_from_, forget_at);
}

std::string_view to_string(WhenFull when_full) {
    return when_full == WhenFull::admit ? "admit" : "refuse";
}

Result<WhenFull> parse_when_full(std::string_view name) {
    for (const WhenFull known : {WhenFull::admit, WhenFull::refuse}) {
        if (name == to_string(known)) return known;
    }
    return make_error(ErrorCode::config,
                      "when_full is '" + printable(name) + "'; it takes 'admit', 'refuse'");
}

Result<std::shared_ptr<Store>> Store::make(StoreOptions options) {
    if (options.max_keys == 0) return make_error(ErrorCode::config, "max_keys is 0; at least 1");
    if (options.shards == 0 || options.shards > 65536) {
        return make_error(ErrorCode::config,
                          "shards is " + std::to_string(options.shards) + "; it takes 1 to 65536");
    }
    options.shards = std::bit_ceil(options.shards);
    return std::make_shared<Store>(std::move(options));
}

Store::Store(StoreOptions options)
    : options_(std::move(options)), shard_mask_(options_.shards - 1), shards_(options_.shards) {
    start_watching_forks();
}

Store::~Store() { stop_watching_forks(); }

// A shard's lock may be held by a thread that does not exist in the child.
void Store::before_fork() {
    for (Shard& shard : shards_) shard.mutex.lock();
}

void Store::after_fork(bool) {
    for (Shard& shard : shards_) shard.mutex.unlock();
}

Store::Shard& Store::shard_of(std::string_view key) {
    const std::uint64_t hash = StringHash{}(key);
    // The map inside uses the low bits; the shard is chosen by high ones, so that the keys of a
    // shard still spread over its buckets.
    return shards_[(hash >> 40) & shard_mask_];
}

Entry* Store::find_live(Shard& shard, std::string_view key) {
    const auto found = shard.entries.find(key);
    if (found == shard.entries.end()) return nullptr;
    // The clock is read only for keys that can expire: it costs more than the look-up.
    if (found->second.expires_at && found->second.expired(now())) {
        shard.entries.erase(found);
        size_.fetch_sub(1, std::memory_order_relaxed);
        swept_.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
    }
    return &found->second;
}

Result<Store::Place> Store::find_or_insert(Shard& shard, std::unique_lock<std::mutex>& lock,
                                           std::string_view key) {
    if (Entry* entry = find_live(shard, key)) return Place{entry, false};
    if (shard.entries.size() >= shard.sweep_at) {
        sweep(shard, now());
        // Doubling makes the sweeps cost a constant per insert, however many keys never expire.
        shard.sweep_at = std::max<std::size_t>(64, 2 * shard.entries.size());
    }
    // Counted before it is made, so that racing inserts cannot pass the bound together.
    if (size_.fetch_add(1, std::memory_order_relaxed) >= options_.max_keys) {
        lock.unlock();  // sweep_all takes every shard's lock in turn.
        sweep_all();
        lock.lock();
        Entry* made_meanwhile = find_live(shard, key);
        const bool full = size_.load(std::memory_order_relaxed) > options_.max_keys;
        if (made_meanwhile != nullptr || full) size_.fetch_sub(1, std::memory_order_relaxed);
        if (made_meanwhile != nullptr) return Place{made_meanwhile, false};
        if (full) {
            refused_.fetch_add(1, std::memory_order_relaxed);
            return make_error(
                ErrorCode::capacity,
                "memory store is full: max_keys=" + std::to_string(options_.max_keys) +
                    " live keys are held; refused " + printable(key));
        }
    }
    return Place{&shard.entries.emplace(std::string{key}, Entry{}).first->second, true};
}

void Store::erase(Shard& shard, std::string_view key) {
    if (const auto found = shard.entries.find(key); found != shard.entries.end()) {
        shard.entries.erase(found);
        size_.fetch_sub(1, std::memory_order_relaxed);
    }
}

void Store::sweep(Shard& shard, SteadyTime now) {
    if (shard.next_expiry > now) return;
    std::size_t dropped = 0;
    shard.next_expiry = SteadyTime::max();
    for (auto item = shard.entries.begin(); item != shard.entries.end();) {
        if (item->second.expired(now)) {
            item = shard.entries.erase(item);
            ++dropped;
            continue;
        }
        if (item->second.expires_at) {
            shard.next_expiry = std::min(shard.next_expiry, *item->second.expires_at);
        }
        ++item;
    }
    size_.fetch_sub(dropped, std::memory_order_relaxed);
    swept_.fetch_add(dropped, std::memory_order_relaxed);
}

void Store::sweep_all() {
    const SteadyTime at = now();
    for (Shard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        sweep(shard, at);
    }
}

Store::Stats Store::stats() const {
    const std::uint64_t untracked = untracked_.load(std::memory_order_relaxed);
    return Stats{size(), options_.max_keys, swept_.load(std::memory_order_relaxed),
                 refused_.load(std::memory_order_relaxed), untracked};
}

bool Store::admits_untracked(const Error& error) {
    if (error.code != ErrorCode::capacity || options_.when_full != WhenFull::admit) return false;
    // It was counted as refused, and is not.
    refused_.fetch_sub(1, std::memory_order_relaxed);
    untracked_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Result<std::shared_ptr<Store>> named_store(std::string_view name, StoreOptions options) {
    // Never destroyed: a static would end before objects that still unregister at exit.
    static auto* const stores = new SharedObjects<std::string, Store>;
    return stores->find_or_make(std::string{name}, [&] { return Store::make(std::move(options)); });
}

}  // namespace hotcount::memory

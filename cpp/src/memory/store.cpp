#include <algorithm>
#include <bit>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <hotcount/memory.hpp>

namespace hotcount::memory {

std::optional<std::int64_t> OpLedger::find(std::string_view op_id, SteadyTime now) const {
    const auto found = ops_.find(op_id);
    if (found == ops_.end() || found->second.forget_at <= now) return std::nullopt;
    return found->second.result;
}

void OpLedger::remember(std::string_view op_id, std::int64_t result, SteadyTime now,
                        SteadyTime forget_at) {
    patrol_.walk(ops_, 2, [now](const auto& op) { return op.second.forget_at <= now; });
    ops_.insert_or_assign(std::string{op_id}, Op{result, forget_at});
    empty_from_ = std::max(empty_from_, forget_at);
}

namespace {

// What stands in the header: how far a new key looks for expired entries.
constexpr std::size_t kInsertsPerSweep = 16;
constexpr std::size_t kSweptAtInsert = 32;
constexpr std::size_t kSweptAtBound = 1024;

}  // namespace

std::string_view to_string(WhenFull when_full) {
    return when_full == WhenFull::admit ? "admit" : "refuse";
}

Result<WhenFull> parse_when_full(std::string_view name) {
    for (const WhenFull known : {WhenFull::admit, WhenFull::refuse}) {
        if (name == to_string(known)) return known;
    }
    return bad_option("when_full", "is '" + printable(name) + "'; it takes 'admit', 'refuse'",
                      std::string{name});
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

Entry* Store::find_live(Shard& shard, const Hashed& key) {
    const auto found = shard.entries.find(key);
    if (found == shard.entries.end()) return nullptr;
    // The clock is read only for keys that can expire: it costs more than the look-up.
    if (found->second.expires_at && found->second.expired(now())) {
        erase(shard, found);
        swept_.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
    }
    return &found->second;
}

Result<Store::Place> Store::find_or_insert(Shard& shard, std::unique_lock<std::mutex>& lock,
                                           const Hashed& key) {
    if (Entry* entry = find_live(shard, key)) return Place{entry, false};
    if (++shard.inserts % kInsertsPerSweep == 0) sweep(shard, now(), kSweptAtInsert);
    // Counted before it is made, so that racing inserts cannot pass the bound together.
    if (size_.fetch_add(1, std::memory_order_relaxed) >= options_.max_keys) {
        lock.unlock();  // make_room takes the locks of shards in turn.
        make_room();
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
                    " keys are held; refused " + printable(key.text));
        }
    }
    return Place{&shard.entries.emplace(std::string{key.text}, Entry{}).first->second, true};
}

void Store::erase(Shard& shard, const Hashed& key) {
    if (const auto found = shard.entries.find(key); found != shard.entries.end()) {
        erase(shard, found);
    }
}

void Store::erase(Shard& shard, Entries::iterator entry) {
    shard.patrol.leave(entry);
    shard.entries.erase(entry);
    size_.fetch_sub(1, std::memory_order_relaxed);
}

Store::Sweep Store::sweep(Shard& shard, SteadyTime now, std::size_t most) {
    Sweep result;
    if (shard.next_expiry > now) return result;
    if (shard.patrol.at_start(shard.entries)) shard.round_expiry = SteadyTime::max();
    result.met = shard.patrol.walk(shard.entries, most, [&](const auto& item) {
        if (item.second.expired(now)) {
            ++result.dropped;
            return true;
        }
        note_expiry(shard, item.second);
        return false;
    });
    // All that stayed was met, and what has changed meanwhile was noted.
    if (shard.patrol.at_start(shard.entries)) shard.next_expiry = shard.round_expiry;
    size_.fetch_sub(result.dropped, std::memory_order_relaxed);
    swept_.fetch_add(result.dropped, std::memory_order_relaxed);
    return result;
}

void Store::make_room() {
    const SteadyTime at = now();
    std::size_t left = kSweptAtBound;
    const std::size_t first = next_shard_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < shards_.size() && left > 0; ++i) {
        Shard& shard = shards_[(first + i) & shard_mask_];
        std::lock_guard lock(shard.mutex);
        const bool whole = shard.patrol.at_start(shard.entries);
        left -= sweep(shard, at, left).met;
        // A round that had begun before has met but its end in this call.
        if (!whole && left > 0) left -= sweep(shard, at, left).met;
        // The next search goes on where this one ended.
        if (left == 0) next_shard_.store(first + i, std::memory_order_relaxed);
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

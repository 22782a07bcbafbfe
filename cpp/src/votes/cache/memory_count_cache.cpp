#include <unistd.h>

#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "count_cache.hpp"

namespace hotcount {
namespace {

using memory::Entry;

// An item's count while it is ahead of the database: the same fields as in Redis.
struct CachedCount {
    std::int64_t value{0};
    std::int64_t gen{0};
    std::int64_t version{0};
    std::int64_t saved_version{0};
    std::int64_t epoch{0};
    std::string token{};
    SteadyTime expires_at{};
};

class MemoryCountCache final : public CountCache {
  public:
    MemoryCountCache(std::shared_ptr<memory::Store> store, Duration retention)
        : store_(std::move(store)), retention_(retention) {}

    Incremented increment(std::string_view space, std::span<const Increment> increments,
                          std::string_view token, Timeout) override {
        Incremented result;
        std::vector<Result<Counted>>& results = result.states;
        results.reserve(increments.size());
        bool born = false;
        for (const Increment& each : increments) {
            const std::string key = key_of(space, each.item);
            results.push_back(store_->upsert(key, [&](Entry& entry, bool fresh) -> Result<Counted> {
                auto* const count = entry.as<CachedCount>(fresh);
                if (count == nullptr) return wrong_type(key);
                HOTCOUNT_TRY_ASSIGN(const Counted counted, add(*count, fresh, each, token));
                born |= counted == Counted::born;
                if (each.asks && counted == Counted::counted && count->gen > 0) {
                    result.counts.resize(increments.size());
                    result.counts[results.size()] = count->value;
                }
                return counted;
            }));
        }
        if (born) {
            if (const auto name = identity(space)) {
                result.identities.assign(increments.size(), *name);
            }
        }
        return result;
    }

    std::vector<Result<bool>> land(std::string_view space, std::span<const Fill> fills,
                                   Timeout) override {
        std::vector<Result<bool>> results;
        results.reserve(fills.size());
        for (const Fill& fill : fills) results.push_back(land_one(space, fill));
        return results;
    }

    Entries read(std::string_view space, std::span<const std::string> items, Timeout) override {
        Entries entries;
        entries.reserve(items.size());
        for (const std::string& item : items) {
            const std::string key = key_of(space, item);
            entries.push_back(
                store_->read(key, [&](const Entry* entry) -> Result<std::optional<CacheEntry>> {
                    if (entry == nullptr) return std::optional<CacheEntry>{};
                    const auto* const count = entry->as<CachedCount>();
                    if (count == nullptr) return wrong_type(key);
                    return std::optional{
                        CacheEntry{count->value, count->gen, count->version, count->saved_version,
                                   count->epoch, count->token, count->expires_at - store_->now()}};
                }));
        }
        return entries;
    }

    Result<Page> scan(std::string_view space, const std::string& cursor, std::size_t page,
                      Timeout) override {
        const std::string prefix = prefix_of(space);
        Page found;
        std::size_t shard = std::stoul(cursor);
        while (shard < store_->options().shards && found.items.size() < page) {
            store_->visit_shard(shard++, [&](std::string_view key, const Entry& entry) {
                if (key.starts_with(prefix) && entry.as<CachedCount>() != nullptr) {
                    found.items.emplace_back(key.substr(prefix.size()));
                }
            });
        }
        found.next = shard < store_->options().shards ? std::to_string(shard) : "0";
        return found;
    }

    Result<void> mark(std::string_view space, std::span<const Mark> marks, Timeout) override {
        for (const Mark& each : marks) {
            HOTCOUNT_TRY(
                store_->modify(key_of(space, each.item), [&](Entry* entry) -> Result<void> {
                    auto* const count = entry != nullptr ? entry->as<CachedCount>(false) : nullptr;
                    if (count != nullptr && count->gen == each.gen &&
                        count->saved_version < each.version) {
                        count->saved_version = each.version;
                    }
                    return {};
                }));
        }
        return {};
    }

    Result<std::int64_t> remove(std::string_view space, std::span<const Mark> marks,
                                Timeout) override {
        std::int64_t removed = 0;
        for (const Mark& each : marks) {
            removed += take_out(key_of(space, each.item), [&](const CachedCount& count) {
                return count.gen == each.gen && count.version == each.version &&
                       count.saved_version == each.version && count.expires_at <= store_->now();
            });
        }
        return removed;
    }

    Result<void> drop(std::string_view space, std::span<const Outdated> items, Timeout) override {
        for (const Outdated& each : items) {
            take_out(key_of(space, each.item),
                     [&](const CachedCount& count) { return count.epoch < each.epoch; });
        }
        return {};
    }

    std::vector<Result<std::string>> identities(std::string_view space,
                                                std::span<const std::string> items,
                                                Timeout) override {
        return {items.size(), identity(space)};
    }

    Duration default_timeout() const override { return std::chrono::seconds{1}; }

  private:
    Result<std::string> identity(std::string_view space) {
        const std::string key =
            identity_key(store_->options().prefix, space) + "." + std::to_string(getpid());
        return store_->upsert(key, [&](Entry& entry, bool fresh) -> Result<std::string> {
            auto* const count = entry.as<CachedCount>(fresh);
            if (count == nullptr) return wrong_type(key);
            if (fresh) count->token = random_name();
            return count->token;
        });
    }
    // A forked child has a copy of all counts and must not go on with them: its parent does.
    std::string prefix_of(std::string_view space) const {
        return counts_prefix(store_->options().prefix,
                             std::string{space} + "." + std::to_string(getpid()));
    }
    std::string key_of(std::string_view space, std::string_view item) const {
        return prefix_of(space).append(item);
    }

    static Error wrong_type(const std::string& key) {
        return make_error(ErrorCode::wrong_type,
                          "the key " + printable(key) + " holds something that is no cached count");
    }
    static Error overflow(const std::string& key) {
        return make_error(ErrorCode::overflow,
                          "the count under " + printable(key) + " would leave signed 64 bits");
    }

    Result<Counted> add(CachedCount& count, bool fresh, const Increment& increment,
                        std::string_view token) const {
        if (!fresh && increment.epoch < count.epoch) return Counted::outdated;
        const bool born = fresh || count.epoch < increment.epoch;
        if (born) {
            count = CachedCount{};
            count.epoch = increment.epoch;
            count.token = token;
        }
        const auto sum = checked_add(count.value, increment.difference);
        if (!sum) return overflow(increment.item);
        count.value = *sum;
        count.version += increment.votes;
        count.expires_at = store_->now() + retention_;
        return born ? Counted::born : Counted::counted;
    }

    Result<bool> land_one(std::string_view space, const Fill& fill) const {
        const std::string key = key_of(space, fill.item);
        return store_->modify(key, [&](Entry* entry) -> Result<bool> {
            auto* const count = entry != nullptr ? entry->as<CachedCount>(false) : nullptr;
            if (count == nullptr || count->token != fill.token) return false;
            if (count->epoch > fill.epoch) return false;
            if (count->gen > 0) {
                if (count->gen >= fill.gen || count->epoch != fill.epoch) return false;
            } else if (count->epoch < fill.epoch) {
                // The recount that began this epoch has counted all votes of this hash.
                count->value = fill.base;
                count->epoch = fill.epoch;
            } else {
                const auto sum = checked_add(count->value, fill.base);
                if (!sum) return overflow(key);
                count->value = *sum;
            }
            count->gen = fill.gen;
            count->saved_version = 0;
            return true;
        });
    }

    template <class Predicate>
    std::int64_t take_out(const std::string& key, Predicate&& predicate) {
        const auto removed = store_->remove(key, [&](const Entry* entry) -> Result<void> {
            const auto* const count = entry != nullptr ? entry->as<CachedCount>() : nullptr;
            if (count != nullptr && predicate(*count)) return {};
            return make_error(ErrorCode::config, "stays");  // remove() keeps refused ones.
        });
        return removed.ok() ? 1 : 0;
    }

    std::shared_ptr<memory::Store> store_;
    Duration retention_;
};

}  // namespace

std::unique_ptr<CountCache> make_memory_count_cache(std::shared_ptr<memory::Store> store,
                                                    Duration retention) {
    return std::make_unique<MemoryCountCache>(std::move(store), retention);
}

}  // namespace hotcount

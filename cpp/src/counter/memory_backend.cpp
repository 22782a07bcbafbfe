#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/op_id.hpp>

#include "backend.hpp"
#include "op_ledger.hpp"

namespace hotcount {
namespace {

class MemoryBackend final : public CounterBackend {
  public:
    MemoryBackend(std::shared_ptr<memory::Store> store, CounterOptions counter_options)
        : CounterBackend(std::move(counter_options)),
          store_(std::move(store)),
          hash_(full_key(store_->options().prefix, options().prefix, {})) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }

    // Nothing here waits.
    Route route(const AsyncCall&) override { return waiting({}); }
    Route waiting(Timeout) override { return {nullptr, Deadline::at({}), nullptr}; }

    Result<std::int64_t> add_now(std::string_view key, std::int64_t n, Timeout) override {
        return add_to(memory::Store::hashed(hash_, key), n);
    }
    BatchResult<std::int64_t> add_many_now(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> amounts,
                                           Timeout) override {
        return each(keys.size(), [&](std::size_t i) {
            return add_to(memory::Store::hashed(hash_, keys[i]), amounts[i]);
        });
    }
    void add(std::string key, std::int64_t n, const Route&,
             Completion<std::int64_t> done) override {
        done(add_to(memory::Store::hashed(key), n));
    }
    void add_once(const std::string& key, std::int64_t n, std::string_view op_id, const Route&,
                  Completion<std::int64_t> done) override {
        done(add_once_now(key, n, op_id));
    }
    void try_add(const std::string& key, std::int64_t n, Bounds bounds, const Route&,
                 Completion<TryAdd> done) override {
        done(try_add_now(key, n, bounds));
    }
    void add_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts, const Route&,
                  Completion<BatchResult<std::int64_t>> done) override {
        done(each(keys.size(), [&](std::size_t i) {
            return add_to(memory::Store::hashed(keys[i]), amounts[i]);
        }));
    }
    void get(const std::string& key, const Route&, Completion<std::int64_t> done) override {
        done(get_now(key));
    }
    void get_many(std::vector<std::string> keys, const Route&,
                  Completion<BatchResult<std::int64_t>> done) override {
        done(each(keys.size(), [&](std::size_t i) { return get_now(keys[i]); }));
    }
    void reset(const std::string& key, const Route&, Completion<std::int64_t> done) override {
        done(store_->remove(key, [&](const memory::Entry* entry) { return read(entry, key); }));
    }
    void ttl(const std::string& key, const Route&,
             Completion<std::optional<Duration>> done) override {
        done(store_->read(key, [&](const memory::Entry* entry) -> Result<std::optional<Duration>> {
            if (entry == nullptr || !entry->expires_at) return std::optional<Duration>{};
            return std::optional<Duration>{*entry->expires_at - store_->now()};
        }));
    }

    Result<std::int64_t> add_to(const memory::Store::Hashed& key, std::int64_t n) {
        return store_->upsert(key, std::nullopt,
                              [&](memory::Entry& entry, bool fresh) -> Result<std::int64_t> {
                                  return add_to(entry, fresh, key, n);
                              });
    }

    Result<std::int64_t> add_once_now(const std::string& key, std::int64_t n,
                                      std::string_view op_id) {
        const std::string beside = "{" + key + "}:ops";
        const auto known = [&](const memory::Entry* ops) -> std::optional<std::int64_t> {
            const auto* const ledger = ops == nullptr ? nullptr : ops->as<OpLedger>();
            return ledger == nullptr ? std::nullopt : ledger->find(op_id, store_->now());
        };
        const auto result = store_->modify_both(
            key, beside, [&](memory::Entry*, memory::Entry* ops) { return known(ops); });
        if (result) return *result;
        HOTCOUNT_TRY_ASSIGN(const Duration keep, time_to_keep(op_id));
        return store_->upsert_with<OpLedger>(
            key, beside,
            [&](memory::Entry& entry, bool fresh, memory::Entry& ops) -> Result<std::int64_t> {
                const SteadyTime now = store_->now();
                if (const auto meanwhile = known(&ops)) {
                    if (fresh) entry.expires_at = now;
                    return *meanwhile;
                }
                auto* const ledger = ops.as<OpLedger>(false);
                if (ledger == nullptr) return wrong_type(beside);
                HOTCOUNT_TRY_ASSIGN(const std::int64_t value, add_to(entry, fresh, key, n));
                ledger->remember(op_id, value, now, now + keep);
                ops.expires_at = ledger->empty_from();
                return value;
            });
    }

    Result<TryAdd> try_add_now(const std::string& key, std::int64_t n, Bounds bounds) {
        const auto allowed = [&](std::int64_t from) {
            const auto sum = checked_add(from, n);
            return sum && (!bounds.min || *sum >= *bounds.min) &&
                   (!bounds.max || *sum <= *bounds.max);
        };
        // A refusal must not leave an absent key behind.
        const bool refused_absent = store_->read(
            key, [&](const memory::Entry* entry) { return entry == nullptr && !allowed(0); });
        if (refused_absent) return TryAdd{false, 0};
        return store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<TryAdd> {
            const auto* const before = entry.as<std::int64_t>(fresh);
            if (before == nullptr) return wrong_type(key);
            if (!allowed(*before)) {
                if (fresh) entry.expires_at = store_->now();  // It has expired since it was read.
                return TryAdd{false, *before};
            }
            HOTCOUNT_TRY_ASSIGN(const std::int64_t value, add_to(entry, fresh, key, n));
            return TryAdd{true, value};
        });
    }

    Result<std::int64_t> get_now(const std::string& key) {
        return store_->read(key, [&](const memory::Entry* entry) { return read(entry, key); });
    }

    void in_period(const std::string& key, std::optional<std::int64_t> n,
                   const PeriodWindow& window, const Route&,
                   Completion<PeriodAnswer> done) override {
        done(in_period_now(key, n, window));
    }
    Result<PeriodAnswer> in_period_now(const std::string& key, std::optional<std::int64_t> n,
                                       const PeriodWindow& window) {
        using Kind = PeriodAnswer::Kind;
        const WallTime wall = store_->options().clock->wall_now();
        const Instant time = std::chrono::floor<std::chrono::seconds>(wall);
        if (window.present && (time < window.begins || time >= window.ends)) {
            return PeriodAnswer{Kind::elsewhere, 0, time};
        }
        if (!n) {
            HOTCOUNT_TRY_ASSIGN(const std::int64_t value, get_now(key));
            return PeriodAnswer{Kind::done, value, time};
        }
        if (time >= window.gone) return PeriodAnswer{Kind::gone, 0, time};
        if (window.begins - time > kMostAhead) return PeriodAnswer{Kind::ahead, 0, time};
        const SteadyTime gone = store_->now() + (window.gone - wall);
        return store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<PeriodAnswer> {
            HOTCOUNT_TRY_ASSIGN(const std::int64_t value, add_to(entry, fresh, key, *n));
            if (!entry.expires_at || *entry.expires_at < gone) entry.expires_at = gone;
            return PeriodAnswer{Kind::done, value, time};
        });
    }

    void in_period_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                        const PeriodWindow& window, const Route&,
                        Completion<BatchResult<PeriodAnswer>> done) override {
        done(each<PeriodAnswer>(keys.size(), [&](std::size_t i) {
            const auto n = amounts.empty() ? std::nullopt : std::optional{amounts[i]};
            return in_period_now(keys[i], n, window);
        }));
    }

    Instant guess_time() const override {
        return std::chrono::floor<std::chrono::seconds>(store_->options().clock->wall_now());
    }

    // Nothing here waits.
    Duration limit(Timeout timeout) const override {
        return timeout.value_or(std::chrono::seconds{1});
    }

  private:
    template <class T = std::int64_t>
    static BatchResult<T> each(std::size_t size, auto&& call) {
        BatchResult<T> batch{std::vector<T>(size), {}};
        for (std::size_t i = 0; i < size; ++i) {
            if (auto value = call(i)) {
                batch.values[i] = *value;
            } else {
                batch.errors.emplace(i, std::move(value).error());
            }
        }
        return batch;
    }

    static Error wrong_type(const std::string& key) {
        return make_error(ErrorCode::wrong_type,
                          "the key " + printable(key) + " holds something that is no counter")
            .about(&ErrorFacts::key, key);
    }

    static Result<std::int64_t> read(const memory::Entry* entry, const std::string& key) {
        if (entry == nullptr) return std::int64_t{0};
        const auto* const value = entry->as<std::int64_t>();
        if (value == nullptr) return wrong_type(key);
        return *value;
    }

    static Result<std::int64_t> sum_into(memory::Entry& entry, bool fresh,
                                         const memory::Store::Hashed& key, std::int64_t n) {
        auto* const value = entry.as<std::int64_t>(fresh);
        if (value == nullptr) return wrong_type(key.text());
        const auto sum = checked_add(*value, n);
        if (!sum) return counter_overflow(key.text());
        *value = *sum;
        return *sum;
    }

    // For how long a result is remembered: until its id is too old to be taken, if it says when
    // it was made.
    Result<Duration> time_to_keep(std::string_view op_id) const {
        using std::chrono::milliseconds;
        const auto made = made_at(op_id);
        if (!made) return options().op_keep;
        const auto keep = std::chrono::ceil<milliseconds>(options().op_keep);
        const WallTime wall = store_->options().clock->wall_now();
        const auto now = std::chrono::floor<milliseconds>(wall.time_since_epoch());
        if (*made + keep <= now) return op_id_too_old(op_id);
        if (*made - now > keep) return op_id_ahead(op_id);
        return Duration{keep + std::max(*made - now, milliseconds{0})};
    }

    Result<std::int64_t> add_to(memory::Entry& entry, bool fresh, const std::string& key,
                                std::int64_t n) {
        return add_to(entry, fresh, memory::Store::Hashed{{}, key, 0}, n);
    }
    Result<std::int64_t> add_to(memory::Entry& entry, bool fresh, const memory::Store::Hashed& key,
                                std::int64_t n) {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t sum, sum_into(entry, fresh, key, n));
        // Also heals a key that another counter, without a ttl, made.
        if (options().ttl && !entry.expires_at) entry.expires_at = store_->now() + *options().ttl;
        return sum;
    }

    std::shared_ptr<memory::Store> store_;
    const KeyedHashAfter hash_;
};

}  // namespace

std::unique_ptr<CounterBackend> make_memory_backend(std::shared_ptr<memory::Store> store,
                                                    CounterOptions options) {
    return std::make_unique<MemoryBackend>(std::move(store), std::move(options));
}

}  // namespace hotcount

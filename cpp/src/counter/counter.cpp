#include <hotcount/counter.hpp>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "backend.hpp"

namespace hotcount {
namespace {

Result<void> check_options(const CounterOptions& options) {
    if (options.prefix.size() > kMaxKeyBytes) {
        return bad_option("prefix", "is longer than 1000 bytes");
    }
    // Redis keeps times in milliseconds: a shorter ttl would be 0.
    if (options.ttl && *options.ttl < std::chrono::milliseconds{1}) {
        return bad_option("ttl", "must be 0.001 seconds or more");
    }
    if (options.op_keep < std::chrono::seconds{1}) {
        return bad_option("op_keep", "must be 1 second or more");
    }
    return {};
}

}  // namespace

Error counter_overflow(std::string_view key) {
    return make_error(ErrorCode::overflow, "the counter " + printable(key) +
                                               " would leave signed 64 bits; nothing changed")
        .about(&ErrorFacts::key, key);
}

Error op_id_too_old(std::string_view op_id) {
    return bad_option("op_id",
                      printable(op_id) +
                          " was made longer than op_keep ago: this call added nothing, and the "
                          "result of an earlier call with it is no longer stored",
                      std::string{op_id});
}

Error op_id_ahead(std::string_view op_id) {
    return bad_option("op_id",
                      printable(op_id) +
                          " was made further ahead of the store's clock than op_keep; this call "
                          "added nothing",
                      std::string{op_id});
}

Result<std::shared_ptr<Counter>> Counter::make(std::shared_ptr<memory::Store> store,
                                               CounterOptions options) {
    HOTCOUNT_TRY(check_options(options));
    return std::make_shared<Counter>(make_memory_backend(std::move(store), std::move(options)));
}

Result<std::shared_ptr<Counter>> Counter::make(std::shared_ptr<redis::Client> client,
                                               CounterOptions options) {
    HOTCOUNT_TRY(check_options(options));
    return std::make_shared<Counter>(make_redis_backend(std::move(client), std::move(options)));
}

Counter::Counter(std::unique_ptr<CounterBackend> backend) : backend_(std::move(backend)) {}
Counter::~Counter() = default;

const CounterOptions& Counter::options() const { return backend_->options(); }

Result<std::string> Counter::full(std::string_view key) const {
    HOTCOUNT_TRY(check_key(key));
    return full_key(backend_->store_prefix(), backend_->options().prefix, key);
}

// A batch's valid elements, and the errors of the others.
struct Counter::Checked {
    std::span<const std::string_view> keys;
    std::span<const std::int64_t> amounts;
    BatchResult<std::int64_t> batch{};
    // Used if some keys are invalid.
    std::vector<std::string_view> valid_keys{};
    std::vector<std::int64_t> valid_amounts{};
    std::vector<std::size_t> places{};  // The elements' indexes in the whole batch.

    BatchResult<std::int64_t> merge(BatchResult<std::int64_t> found) {
        if (batch.errors.empty()) return found;
        for (std::size_t i = 0; i < places.size(); ++i) batch.values[places[i]] = found.values[i];
        for (auto& [index, error] : found.errors) {
            batch.errors.emplace(places[index], std::move(error));
        }
        return std::move(batch);
    }
};

Counter::Checked Counter::check(std::span<const std::string_view> keys,
                                std::span<const std::int64_t> amounts) const {
    Checked checked{keys, amounts};
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (auto fits = check_key(keys[i]); !fits) checked.batch.errors.emplace(i, fits.error());
    }
    if (checked.batch.errors.empty()) return checked;
    checked.batch.values.resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (checked.batch.errors.contains(i)) continue;
        checked.places.push_back(i);
        checked.valid_keys.push_back(keys[i]);
        if (!amounts.empty()) checked.valid_amounts.push_back(amounts[i]);
    }
    checked.keys = checked.valid_keys;
    checked.amounts = checked.valid_amounts;
    return checked;
}

std::vector<std::string> CounterBackend::full_keys(std::span<const std::string_view> keys) const {
    std::vector<std::string> names;
    names.reserve(keys.size());
    const std::string begin = full_key(store_prefix(), options_.prefix, "");
    for (const std::string_view key : keys) {
        std::string& name = names.emplace_back();
        name.reserve(begin.size() + key.size());
        name.append(begin).append(key);
    }
    return names;
}

Result<void> Counter::check_once(std::string_view op_id) const {
    if (op_id.empty() || op_id.size() > kMaxKeyBytes) {
        return bad_option("op_id", "takes 1 to 1000 bytes");
    }
    return {};
}

Result<void> Counter::check_try(Bounds bounds) const {
    if (!bounds.min || !bounds.max || *bounds.min <= *bounds.max) return {};
    return make_error(ErrorCode::config, "min " + std::to_string(*bounds.min) +
                                             " is more than max " + std::to_string(*bounds.max));
}

// -- blocking calls -----------------------------------------------------------------------------

Result<std::int64_t> Counter::add(std::string_view key, std::int64_t n, Timeout timeout) {
    HOTCOUNT_TRY(check_key(key));
    return backend_->add_now(key, n, timeout);
}

Result<std::int64_t> Counter::add_once(std::string_view key, std::int64_t n, std::string_view op_id,
                                       Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY(check_once(op_id));
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        backend_->add_once(name, n, op_id, backend_->waiting(timeout), std::move(done));
    });
}

Result<TryAdd> Counter::try_add(std::string_view key, std::int64_t n, Bounds bounds,
                                Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY(check_try(bounds));
    return wait_for<TryAdd>([&](Completion<TryAdd> done) {
        backend_->try_add(name, n, bounds, backend_->waiting(timeout), std::move(done));
    });
}

BatchResult<std::int64_t> Counter::add_many(std::span<const std::string_view> keys,
                                            std::span<const std::int64_t> amounts,
                                            Timeout timeout) {
    Checked checked = check(keys, amounts);
    return checked.merge(backend_->add_many_now(checked.keys, checked.amounts, timeout));
}

Result<std::int64_t> Counter::get(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        backend_->get(name, backend_->waiting(timeout), std::move(done));
    });
}

BatchResult<std::int64_t> Counter::get_many(std::span<const std::string_view> keys,
                                            Timeout timeout) {
    Checked checked = check(keys, {});
    auto found =
        wait_for<BatchResult<std::int64_t>>([&](Completion<BatchResult<std::int64_t>> done) {
            backend_->get_many(backend_->full_keys(checked.keys), backend_->waiting(timeout),
                               std::move(done));
        });
    return checked.merge(std::move(*found));
}

Result<std::int64_t> Counter::reset(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        backend_->reset(name, backend_->waiting(timeout), std::move(done));
    });
}

Result<std::optional<Duration>> Counter::ttl(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    using TimeToLive = std::optional<Duration>;
    return wait_for<TimeToLive>([&](Completion<TimeToLive> done) {
        backend_->ttl(name, backend_->waiting(timeout), std::move(done));
    });
}

// -- asynchronous calls -------------------------------------------------------------------------

// Continues with the complete key, or ends the call with the key's error.
template <class T, class Go>
void Counter::begin(std::string_view key, const Result<void>& fits, Completion<T>& done, Go&& go) {
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    if (!fits) return done(fits.error());
    go(*name);
}

void Counter::add_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                        AsyncCall call) {
    begin(key, {}, done, [&](std::string& name) {
        backend_->add(std::move(name), n, backend_->route(call), std::move(done));
    });
}

void Counter::add_once_async(std::string_view key, std::int64_t n, std::string_view op_id,
                             Completion<std::int64_t> done, AsyncCall call) {
    begin(key, check_once(op_id), done, [&](const std::string& name) {
        backend_->add_once(name, n, op_id, backend_->route(call), std::move(done));
    });
}

void Counter::try_add_async(std::string_view key, std::int64_t n, Bounds bounds,
                            Completion<TryAdd> done, AsyncCall call) {
    begin(key, check_try(bounds), done, [&](const std::string& name) {
        backend_->try_add(name, n, bounds, backend_->route(call), std::move(done));
    });
}

void Counter::add_many_async(std::span<const std::string_view> keys,
                             std::span<const std::int64_t> amounts,
                             Completion<BatchResult<std::int64_t>> done, AsyncCall call) {
    auto checked = std::make_shared<Checked>(check(keys, amounts));
    backend_->add_many(backend_->full_keys(checked->keys),
                       {checked->amounts.begin(), checked->amounts.end()}, backend_->route(call),
                       [checked, done = std::move(done)](Result<BatchResult<std::int64_t>> found) {
                           done(checked->merge(std::move(*found)));
                       });
}

void Counter::get_async(std::string_view key, Completion<std::int64_t> done, AsyncCall call) {
    begin(key, {}, done, [&](const std::string& name) {
        backend_->get(name, backend_->route(call), std::move(done));
    });
}

void Counter::get_many_async(std::span<const std::string_view> keys,
                             Completion<BatchResult<std::int64_t>> done, AsyncCall call) {
    auto checked = std::make_shared<Checked>(check(keys, {}));
    backend_->get_many(backend_->full_keys(checked->keys), backend_->route(call),
                       [checked, done = std::move(done)](Result<BatchResult<std::int64_t>> found) {
                           done(checked->merge(std::move(*found)));
                       });
}

void Counter::reset_async(std::string_view key, Completion<std::int64_t> done, AsyncCall call) {
    begin(key, {}, done, [&](const std::string& name) {
        backend_->reset(name, backend_->route(call), std::move(done));
    });
}

void Counter::ttl_async(std::string_view key, Completion<std::optional<Duration>> done,
                        AsyncCall call) {
    begin(key, {}, done, [&](const std::string& name) {
        backend_->ttl(name, backend_->route(call), std::move(done));
    });
}

}  // namespace hotcount

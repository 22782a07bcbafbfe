#include <array>
#include <hotcount/base/check.hpp>
#include <hotcount/base/codec.hpp>
#include <hotcount/counter/counter.hpp>

#include "backend.hpp"
#include "seed_ways.hpp"

namespace hotcount {
namespace {

Result<void> check_options(const CounterOptions& options) {
    if (options.prefix.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "prefix is longer than 1000 bytes");
    }
    // Redis keeps times in milliseconds: a shorter life would be none at all.
    if (options.ttl && *options.ttl < std::chrono::milliseconds{1}) {
        return make_error(ErrorCode::config, "ttl must be 0.001 seconds or more");
    }
    if (options.op_keep < std::chrono::seconds{1}) {
        return make_error(ErrorCode::config, "op_keep must be 1 second or more");
    }
    if (options.method == CounterMethod::set_nx_incr && !options.ttl) {
        return make_error(ErrorCode::config, "method 'set_nx_incr' needs a ttl");
    }
    if (options.method != CounterMethod::set_nx_incr &&
        options.compensation != CounterOptions{}.compensation) {
        return make_error(ErrorCode::config, "compensation is for method 'set_nx_incr' only");
    }
    return {};
}

}  // namespace

std::string_view to_string(CounterMethod method) {
    constexpr std::array<std::string_view, 3> kNames{"script", "incr", "set_nx_incr"};
    return kNames[static_cast<std::size_t>(method)];
}

std::string_view to_string(Compensation compensation) {
    constexpr std::array<std::string_view, 4> kNames{"none", "first", "ttl", "both"};
    return kNames[static_cast<std::size_t>(compensation)];
}

Error counter_overflow(std::string_view key) {
    return make_error(ErrorCode::overflow, "the counter " + printable(key) +
                                               " would leave signed 64 bits; nothing changed");
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

Result<std::string> Counter::full(std::string_view key) const {
    HOTCOUNT_TRY(check_key(key));
    return full_key(backend_->store_prefix(), backend_->options().prefix, key);
}

Result<void> Counter::check_method(std::string_view call) const {
    const CounterMethod method = backend_->options().method;
    if (method == CounterMethod::script) return {};
    return make_error(ErrorCode::config, std::string{call} + " is for method 'script', not '" +
                                             std::string{to_string(method)} + "'");
}

// A batch's good keys in full, and a result for each key that holds the refusals already.
struct Counter::Checked {
    std::vector<std::string> names;
    std::vector<std::size_t> places;  // Which element each name stands for.
    std::vector<Result<std::int64_t>> results;

    std::vector<Result<std::int64_t>> merge(std::vector<Result<std::int64_t>> values) {
        for (std::size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(values[i]);
        return std::move(results);
    }
};

Counter::Checked Counter::check(std::span<const std::string_view> keys) const {
    Checked checked;
    checked.results.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        auto name = full(keys[i]);
        if (name) {
            checked.results.emplace_back(std::int64_t{0});
            checked.names.push_back(std::move(*name));
            checked.places.push_back(i);
        } else {
            checked.results.emplace_back(std::move(name).error());
        }
    }
    return checked;
}

std::vector<Result<std::int64_t>> CounterBackend::add_many(std::span<const std::string> keys,
                                                           std::span<const std::int64_t> amounts,
                                                           Timeout timeout) {
    std::vector<Result<std::int64_t>> values;
    values.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        values.push_back(add(keys[i], amounts[i], timeout));
    }
    return values;
}

std::vector<Result<std::int64_t>> CounterBackend::get_many(std::span<const std::string> keys,
                                                           Timeout timeout) {
    std::vector<Result<std::int64_t>> values;
    values.reserve(keys.size());
    for (const std::string& key : keys) values.push_back(get(key, timeout));
    return values;
}

Result<std::int64_t> Counter::add(std::string_view key, std::int64_t n, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    if (backend_->options().method != CounterMethod::script) {
        return add_by_seed(*backend_, name, n, timeout);
    }
    return backend_->add(name, n, timeout);
}

Result<std::int64_t> Counter::add_once(std::string_view key, std::int64_t n, std::string_view op_id,
                                       Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    if (op_id.empty() || op_id.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "op_id takes 1 to 1000 bytes");
    }
    HOTCOUNT_TRY(check_method("op_id"));
    return backend_->add_once(name, n, op_id, timeout);
}

Result<TryAdd> Counter::try_add(std::string_view key, std::int64_t n, Bounds bounds,
                                Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY(check_method("try_add"));
    if (bounds.min && bounds.max && *bounds.min > *bounds.max) {
        return make_error(ErrorCode::config, "min " + std::to_string(*bounds.min) +
                                                 " is more than max " +
                                                 std::to_string(*bounds.max));
    }
    return backend_->try_add(name, n, bounds, timeout);
}

std::vector<Result<std::int64_t>> Counter::add_many(std::span<const std::string_view> keys,
                                                    std::span<const std::int64_t> amounts,
                                                    Timeout timeout) {
    Checked checked = check(keys);
    std::vector<std::int64_t> good_amounts;
    good_amounts.reserve(checked.places.size());
    for (const std::size_t place : checked.places) good_amounts.push_back(amounts[place]);
    if (backend_->options().method != CounterMethod::script) {
        const Deadline deadline = Deadline::after(backend_->limit(timeout));
        std::vector<Result<std::int64_t>> values;
        values.reserve(good_amounts.size());
        for (std::size_t i = 0; i < good_amounts.size(); ++i) {
            values.push_back(
                add_by_seed(*backend_, checked.names[i], good_amounts[i], deadline.remaining()));
        }
        return checked.merge(std::move(values));
    }
    return checked.merge(backend_->add_many(checked.names, good_amounts, timeout));
}

Result<std::int64_t> Counter::get(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->get(name, timeout);
}

std::vector<Result<std::int64_t>> Counter::get_many(std::span<const std::string_view> keys,
                                                    Timeout timeout) {
    Checked checked = check(keys);
    return checked.merge(backend_->get_many(checked.names, timeout));
}

Result<std::int64_t> Counter::reset(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->reset(name, timeout);
}

Result<std::optional<Duration>> Counter::ttl(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->ttl(name, timeout);
}

}  // namespace hotcount

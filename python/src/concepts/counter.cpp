// hotcount.Counter and hotcount.aio.Counter: declared in hotcount/counter.py and
// hotcount/aio/counter.py.
#include <array>
#include <hotcount/counter.hpp>

#include "native/bind.hpp"
#include "native/key_batches.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"

namespace hotcount::python {
namespace {

ResultClass try_add_class{"TryAdd", std::array{"applied", "value"}};

}  // namespace

// -- the table, for what counters alone have ------------------------------------------------------

template <>
struct From<CounterMethod> {
    static CounterMethod read(const Argument& argument) {
        return static_cast<CounterMethod>(
            to_choice(argument.value, argument.name, {"script", "incr", "set_nx_incr"}));
    }
};
template <>
struct To<CounterMethod> {
    static py::object make(CounterMethod method) {
        return To<std::string_view>::make(to_string(method));
    }
};

template <>
struct From<Compensation> {
    static Compensation read(const Argument& argument) {
        return static_cast<Compensation>(
            to_choice(argument.value, argument.name, {"none", "first", "ttl", "both"}));
    }
};
template <>
struct To<Compensation> {
    static py::object make(Compensation compensation) {
        return To<std::string_view>::make(to_string(compensation));
    }
};

template <>
struct To<TryAdd> {
    static py::object make(const TryAdd& value) {
        return try_add_class.make(value.applied, value.value);
    }
};

namespace {

constexpr std::array kOptions{
    option<&CounterOptions::prefix, KeyText>("prefix"),
    option<&CounterOptions::ttl>("ttl"),
    option<&CounterOptions::op_keep>("op_keep"),
    option<&CounterOptions::method>("method"),
    option<&CounterOptions::compensation>("compensation"),
};

class BoundCounter : public Bound<Counter> {
  public:
    BoundCounter(std::shared_ptr<Counter> counter, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundCounter>) {}

    std::string shown_options() const override {
        return python::shown_options<CounterOptions, kOptions>(core->options());
    }

    py::object to_batch(BatchResult<std::int64_t> result, const Refusals& refusals,
                        OnErrors on_errors) {
        py::dict errors;
        auto values = gather(std::move(result), refusals, errors);
        return finish(make_int64_batch(std::move(values), std::move(errors)), on_errors);
    }
};

std::shared_ptr<BoundBase> make_counter(const std::string& title, py::handle where,
                                        const CounterOptions& options) {
    StoreReference store(where, "store", title.c_str(), {StoreKind::memory, StoreKind::redis});
    auto counter = store.kind() == StoreKind::memory
                       ? unwrap(Counter::make(store.backend<memory::Store>(), options))
                       : unwrap(Counter::make(store.backend<redis::Client>(), options));
    return std::make_shared<BoundCounter>(std::move(counter), std::move(store));
}

// With an op_id it is another call of the core.
Result<std::int64_t> add(Counter& counter, std::string_view key, std::int64_t n,
                         const std::optional<std::string_view>& op_id, Timeout timeout) {
    return op_id ? counter.add_once(key, n, *op_id, timeout) : counter.add(key, n, timeout);
}
void add_async(Counter& counter, std::string_view key, std::int64_t n,
               const std::optional<std::string_view>& op_id, Completion<std::int64_t> done,
               AsyncCall call) {
    if (op_id) return counter.add_once_async(key, n, *op_id, std::move(done), call);
    counter.add_async(key, n, std::move(done), call);
}

using MaybeAmount = std::optional<Amount>;
Bounds bounds_of(const MaybeAmount& min, const MaybeAmount& max) {
    Bounds bounds;
    if (min) bounds.min = min->number;
    if (max) bounds.max = max->number;
    return bounds;
}
Result<TryAdd> try_add(Counter& counter, std::string_view key, std::int64_t n,
                       const MaybeAmount& min, const MaybeAmount& max, Timeout timeout) {
    return counter.try_add(key, n, bounds_of(min, max), timeout);
}
void try_add_async(Counter& counter, std::string_view key, std::int64_t n, const MaybeAmount& min,
                   const MaybeAmount& max, Completion<TryAdd> done, AsyncCall call) {
    counter.try_add_async(key, n, bounds_of(min, max), std::move(done), call);
}

}  // namespace

template <>
struct BoundOf<Counter> {
    using type = BoundCounter;
};

void bind_counter() {
    constructor<&make_counter, StoreArgument, Options<CounterOptions, kOptions>>(
        "CounterBase.__init__", "store " + names_of<kOptions>());
    attributes<BoundCounter, kOptions>("CounterBase", "ttl");

    using Key = std::string_view;
    method<&add, &add_async, Key, Amount, std::optional<Key>, Timeout>("Counter.add",
                                                                       "key n op_id timeout");
    method<&try_add, &try_add_async, Key, Amount, MaybeAmount, MaybeAmount, Timeout>(
        "Counter.try_add", "key n min max timeout");
    method<&Counter::add_many, &Counter::add_many_async, KeysAndAmounts, OnErrors, Timeout>(
        "Counter.add_many", "keys n errors timeout");
    method<&Counter::get, &Counter::get_async, Key, Timeout>("Counter.get", "key timeout");
    method<&Counter::get_many, &Counter::get_many_async, Keys, OnErrors, Timeout>(
        "Counter.get_many", "keys errors timeout");
    method<&Counter::reset, &Counter::reset_async, Key, Timeout>("Counter.reset", "key timeout");
    method<&Counter::ttl, &Counter::ttl_async, Key, Timeout>("Counter.ttl", "key timeout");
}

}  // namespace hotcount::python

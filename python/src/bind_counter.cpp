#include <array>
#include <hotcount/base/op_id.hpp>
#include <hotcount/counter/counter.hpp>

#include "batch.hpp"
#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "signature_text.hpp"
#include "store.hpp"
#include "value.hpp"

namespace hotcount::python {
namespace {

class BoundCounter {
  public:
    BoundCounter(std::shared_ptr<Counter> counter, StoreReference store)
        : counter_(std::move(counter)),
          store_(std::move(store)),
          in_memory_(store_.kind() == StoreKind::memory) {}

    /// Runs f on the counter, for one key. In memory it keeps the GIL: the call takes a fraction
    /// of a microsecond and waits for nobody, and handing the GIL on costs more than it does
    /// (32 threads on 2 cores: 9.7 million adds a second, 2.0 million with the GIL released).
    template <class F>
    auto one(F&& f) {
        store_.check_open();
        if (in_memory_) return f(*counter_);
        return without_gil([&] { return f(*counter_); });
    }
    template <class F>
    auto many(F&& f) {
        store_.check_open();
        return without_gil([&] { return f(*counter_); });
    }

    void close() { store_.close(); }
    bool closed() const { return store_.closed(); }
    std::string repr() const { return store_.repr(); }

  private:
    std::shared_ptr<Counter> counter_;
    StoreReference store_;
    bool in_memory_;
};

CounterMethod to_method(py::handle value) {
    using enum CounterMethod;
    constexpr std::array kMethods{script, incr, set_nx_incr};
    return kMethods[to_choice(value, "method", {"script", "incr", "set_nx_incr"})];
}

Compensation to_compensation(py::handle value) {
    using enum Compensation;
    constexpr std::array kCompensations{none, first, ttl, both};
    return kCompensations[to_choice(value, "compensation", {"none", "first", "ttl", "both"})];
}

BoundCounter make_counter(const Arguments& arguments) {
    StoreReference store(arguments[0], "store", "Counter", {StoreKind::memory, StoreKind::redis});
    CounterOptions options;
    if (arguments[1]) options.prefix = to_bytes(arguments[1], "prefix");
    if (arguments.given(2)) options.ttl = to_duration(arguments[2], "ttl");
    if (arguments[3]) options.op_keep = to_duration(arguments[3], "op_keep");
    if (arguments[4]) options.method = to_method(arguments[4]);
    if (arguments[5]) options.compensation = to_compensation(arguments[5]);
    auto counter = store.kind() == StoreKind::memory
                       ? unwrap(Counter::make(store.backend<memory::Store>(), std::move(options)))
                       : unwrap(Counter::make(store.backend<redis::Client>(), std::move(options)));
    return {std::move(counter), std::move(store)};
}

py::object counter_add(BoundCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::int64_t n = arguments[1] ? to_amount(arguments[1], "n") : 1;
    const auto op_id = to_optional_bytes(arguments[2], "op_id");
    const Timeout timeout = to_timeout(arguments[3]);
    return py::int_(unwrap(self.one([&](Counter& counter) {
        return op_id ? counter.add_once(key, n, *op_id, timeout) : counter.add(key, n, timeout);
    })));
}

py::object counter_try_add(BoundCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::int64_t n = arguments[1] ? to_amount(arguments[1], "n") : 1;
    Bounds bounds;
    if (arguments.given(2)) bounds.min = to_amount(arguments[2], "min");
    if (arguments.given(3)) bounds.max = to_amount(arguments[3], "max");
    const Timeout timeout = to_timeout(arguments[4]);
    return py::cast(unwrap(
        self.one([&](Counter& counter) { return counter.try_add(key, n, bounds, timeout); })));
}

py::object counter_add_many(BoundCounter& self, const Arguments& arguments) {
    Refusals refusals;
    KeyHolder held;
    auto keys = to_keys(arguments[0], "keys", held, refusals);
    auto amounts = to_amounts(arguments[1], "n", keys.size(), 1, refusals);
    const OnErrors on_errors = to_on_errors(arguments[2]);
    const Timeout timeout = to_timeout(arguments[3]);
    keys = refusals.strip(std::move(keys));
    amounts = refusals.strip(std::move(amounts));
    auto results =
        self.many([&](Counter& counter) { return counter.add_many(keys, amounts, timeout); });
    py::dict errors;
    auto values = gather(std::move(results), refusals, errors);
    return finish(Int64Batch{std::move(values), std::move(errors)}, on_errors);
}

py::object counter_get(BoundCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Timeout timeout = to_timeout(arguments[1]);
    return py::int_(unwrap(self.one([&](Counter& counter) { return counter.get(key, timeout); })));
}

py::object counter_get_many(BoundCounter& self, const Arguments& arguments) {
    Refusals refusals;
    KeyHolder held;
    auto keys = to_keys(arguments[0], "keys", held, refusals);
    const OnErrors on_errors = to_on_errors(arguments[1]);
    const Timeout timeout = to_timeout(arguments[2]);
    keys = refusals.strip(std::move(keys));
    auto results = self.many([&](Counter& counter) { return counter.get_many(keys, timeout); });
    py::dict errors;
    auto values = gather(std::move(results), refusals, errors);
    return finish(Int64Batch{std::move(values), std::move(errors)}, on_errors);
}

py::object counter_reset(BoundCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Timeout timeout = to_timeout(arguments[1]);
    return py::int_(
        unwrap(self.one([&](Counter& counter) { return counter.reset(key, timeout); })));
}

py::object counter_ttl(BoundCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Timeout timeout = to_timeout(arguments[1]);
    const auto left = unwrap(self.one([&](Counter& counter) { return counter.ttl(key, timeout); }));
    return left ? py::object(py::float_(to_seconds(*left))) : py::object(py::none());
}

py::object make_op_id(const Arguments&) { return py::str(new_op_id()); }

}  // namespace

void bind_counter(py::module_& module) {
    bind_value(module, "TryAdd", "What try_add came to. True where it was applied.",
               Field{"applied", &TryAdd::applied, "Whether n was added."},
               Field{"value", &TryAdd::value, "After the add, or as it stands where refused."})
        .def("__bool__", [](const TryAdd& self) { return self.applied; });

    const CounterOptions defaults;
    py::class_<BoundCounter> cls(
        module, "Counter",
        "A number under a key: add to it and learn the value after this very add.\n\n"
        "Works on Memory and Redis. Keys are str or bytes, 1 to 1,000 bytes; a str and its UTF-8\n"
        "bytes are one key. Numbers are signed 64-bit; an add that would leave them is a\n"
        "CounterOverflowError and changes nothing. Without an op_id nothing is replayed: an add\n"
        "whose answer is lost is an OutcomeUnknownError. Safe from many threads and across fork.\n"
        "The value stands in the store under {store prefix}{prefix}:{key}, a plain integer.");
    define_init<&make_counter>(
        cls,
        "(self, store: hotcount._core.Memory | hotcount._core.Redis | str, prefix: str | bytes = " +
            literal(defaults.prefix) + ", ttl: " + kTime + " | None = None, *, op_keep: " + kTime +
            " = " + literal(defaults.op_keep) +
            ", method: typing.Literal['script', 'incr', 'set_nx_incr'] = " +
            literal(std::string{to_string(defaults.method)}) +
            ", compensation: typing.Literal['none', 'first', 'ttl', 'both'] = " +
            literal(std::string{to_string(defaults.compensation)}) + ") -> None",
        "store: an object or its URL. ttl: a key's life in seconds from its first add, which "
        "later\n"
        "adds do not extend; None: for ever. op_keep: seconds an op_id is remembered, 1 or more.\n"
        "method: 'script' adds and sets the expiry in one step. The others are there to compare\n"
        "with, RACY with a ttl, and for add and add_many alone: 'incr' (INCRBY, then PEXPIRE "
        "after\n"
        "the first) and 'set_nx_incr' (SET NX PX, then INCRBY), each of whose callers may be cut\n"
        "off, or see the key expire, between two steps and leave a key that never expires.\n"
        "compensation, for 'set_nx_incr': 'first' expires the key again after the first add,\n"
        "'ttl' where it finds no expiry, 'both', 'none'; each leaves holes.\n"
        "Bad values: ConfigError that names them.");
    define<&counter_add>(
        cls, "add",
        "(self, key: str | bytes, n: int = 1, *, op_id: str | bytes | None = None, " + kTimeout +
            ") -> int",
        "Adds n (any int64, negative too) and returns the value after this add.\n\n"
        "Every concurrent caller gets its own value. With an op_id it is counted once: a repeat\n"
        "within op_keep returns the first result and adds nothing, also after reset() or expiry;\n"
        "later it counts again, or is a ConfigError where the op_id is one of new_op_id(), or\n"
        "another UUIDv7. After an OutcomeUnknownError call again with the same op_id.\n"
        "CounterOverflowError, WrongTypeError: nothing changed. OutcomeUnknownError: it may have\n"
        "been added; with a method other than 'script' also that it was, and its expiry failed.\n"
        "timeout in seconds; None: the store's.");
    define<&counter_try_add>(
        cls, "try_add",
        "(self, key: str | bytes, n: int = 1, *, min: int | None = None, max: int | None = "
        "None, " +
            kTimeout + ") -> hotcount._core.TryAdd",
        "Adds n only where the result stays within min and max, both inclusive.\n\n"
        "Checked and added in one step, so that an inventory is never oversold. A refusal is "
        "a\n"
        "value: .applied is False and .value what stands; so it is where the result would "
        "leave\n"
        "signed 64 bits. Other errors as in add.");
    define<&counter_add_many>(
        cls, "add_many",
        "(self, keys: collections.abc.Iterable[str | bytes], n: int | "
        "collections.abc.Iterable[int] = 1, *, " +
            kOnErrors + ", " + kTimeout + ") -> hotcount._core.Int64Batch",
        "Adds to many keys, in order, and returns the value after each add.\n\n"
        "keys: a sequence, or a NumPy array of str or bytes; they may repeat. n: one int for all, "
        "or "
        "one\n"
        "for each as a sequence, or as an array of any integers. Arrays are read in place.\n"
        "A failed element does not stop the others. errors='raise': BatchError with .result "
        "and\n"
        ".errors once all are settled; 'return': they are in the batch's .errors. An element "
        "of a\n"
        "wrong type is a TypeError that names its index, before anything is added.");
    define<&counter_get>(cls, "get", "(self, key: str | bytes, *, " + kTimeout + ") -> int",
                         "The value now; 0 where the key is absent or has expired.");
    define<&counter_get_many>(
        cls, "get_many",
        "(self, keys: collections.abc.Iterable[str | bytes], *, " + kOnErrors + ", " + kTimeout +
            ") -> hotcount._core.Int64Batch",
        "The values of many keys, in order; 0 where absent. Errors as in add_many.");
    define<&counter_reset>(cls, "reset", "(self, key: str | bytes, *, " + kTimeout + ") -> int",
                           "Removes the key and returns its last value, 0 where it was absent.\n\n"
                           "In one step: no add falls between the reading and the removing.");
    define<&counter_ttl>(
        cls, "ttl", "(self, key: str | bytes, *, " + kTimeout + ") -> float | None",
        "Seconds until the key expires; None where it is absent or never expires.");
    define_lifetime(cls, "Ends this counter; a store made from a URL for it ends too.");

    define<&make_op_id>(
        module, "new_op_id", "() -> str",
        "A new op_id for Counter.add: a UUIDv7, 36 characters that carry the time of their "
        "making.\n\n"
        "Make one for each add that may have to be retried, and retry with the same. A store\n"
        "refuses one that has become too old to be remembered, instead of counting it again.");
}

}  // namespace hotcount::python

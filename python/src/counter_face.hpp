// The calls of a Counter, written once for its two faces: hotcount.Counter waits for the outcome,
// hotcount.aio.Counter returns what is awaited for it.
//
// A Face says how a call is made and what it returns:
//   Self                     the bound object
//   returns(type)            what the signature says of a call that comes to `type`
//   one(self, timeout, now, start, convert), many(...)
//     now(counter)           makes the call and waits: Result<T> or Column<T>
//     start(counter, done, call)   makes it without waiting
//     convert(T)             the Python object that it comes to
#pragma once

#include <array>
#include <hotcount/counter/counter.hpp>
#include <memory>
#include <string>
#include <utility>

#include "batch.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "paired_columns.hpp"
#include "signature_text.hpp"
#include "store.hpp"

namespace hotcount::python {

/// The core's counter from the arguments of a constructor (kCounterSignature).
std::shared_ptr<Counter> make_core_counter(const Arguments& arguments, const StoreReference& store);
StoreReference counter_store(const Arguments& arguments, const char* title);
/// "(self, store: ..., prefix ...) -> None", and what it says.
std::string counter_signature();
extern const char* const kCounterInitText;

/// What T a call comes to that returns Result<T>, or else itself.
template <class R>
struct OutcomeOf {
    using Value = R;
};
template <class T>
struct OutcomeOf<Result<T>> {
    using Value = T;
};
template <class Now>
using Outcome = typename OutcomeOf<std::invoke_result_t<Now&, Counter&>>::Value;

template <class Face>
struct CounterCalls {
    using Self = typename Face::Self;

    static py::object to_int(std::int64_t value) { return py::int_(value); }

    static py::object add(Self& self, const Arguments& arguments) {
        const std::string_view key = to_bytes(arguments[0], "key");
        const std::int64_t n = arguments[1] ? to_amount(arguments[1], "n") : 1;
        const auto op_id = to_optional_bytes(arguments[2], "op_id");
        const Timeout timeout = to_timeout(arguments[3]);
        return Face::one(
            self, timeout,
            [&](Counter& counter) {
                return op_id ? counter.add_once(key, n, *op_id, timeout)
                             : counter.add(key, n, timeout);
            },
            [&](Counter& counter, auto done, AsyncCall call) {
                if (op_id) {
                    counter.add_once_async(key, n, *op_id, std::move(done), call);
                } else {
                    counter.add_async(key, n, std::move(done), call);
                }
            },
            to_int);
    }

    static py::object try_add(Self& self, const Arguments& arguments) {
        const std::string_view key = to_bytes(arguments[0], "key");
        const std::int64_t n = arguments[1] ? to_amount(arguments[1], "n") : 1;
        Bounds bounds;
        if (arguments.given(2)) bounds.min = to_amount(arguments[2], "min");
        if (arguments.given(3)) bounds.max = to_amount(arguments[3], "max");
        const Timeout timeout = to_timeout(arguments[4]);
        return Face::one(
            self, timeout,
            [&](Counter& counter) { return counter.try_add(key, n, bounds, timeout); },
            [&](Counter& counter, auto done, AsyncCall call) {
                counter.try_add_async(key, n, bounds, std::move(done), call);
            },
            [](const TryAdd& value) -> py::object { return py::cast(value); });
    }

    static py::object add_many(Self& self, const Arguments& arguments) {
        Refusals refusals;
        KeyHolder held;
        const auto columns = to_keys_and_numbers(arguments[0], "keys", arguments[1], "n");
        auto keys = to_keys(columns.keys, "keys", held, refusals);
        auto amounts = to_amounts(columns.numbers, "n", keys.size(), 1, refusals);
        const OnErrors on_errors = to_on_errors(arguments[2]);
        const Timeout timeout = to_timeout(arguments[3]);
        keys = refusals.strip(std::move(keys));
        amounts = refusals.strip(std::move(amounts));
        return Face::many(
            self, timeout,
            [&](Counter& counter) { return counter.add_many(keys, amounts, timeout); },
            [&](Counter& counter, auto done, AsyncCall call) {
                counter.add_many_async(keys, amounts, std::move(done), call);
            },
            to_batch(std::move(refusals), on_errors));
    }

    static py::object get(Self& self, const Arguments& arguments) {
        const std::string_view key = to_bytes(arguments[0], "key");
        const Timeout timeout = to_timeout(arguments[1]);
        return Face::one(
            self, timeout, [&](Counter& counter) { return counter.get(key, timeout); },
            [&](Counter& counter, auto done, AsyncCall call) {
                counter.get_async(key, std::move(done), call);
            },
            to_int);
    }

    static py::object get_many(Self& self, const Arguments& arguments) {
        Refusals refusals;
        KeyHolder held;
        auto keys = to_keys(arguments[0], "keys", held, refusals);
        const OnErrors on_errors = to_on_errors(arguments[1]);
        const Timeout timeout = to_timeout(arguments[2]);
        keys = refusals.strip(std::move(keys));
        return Face::many(
            self, timeout, [&](Counter& counter) { return counter.get_many(keys, timeout); },
            [&](Counter& counter, auto done, AsyncCall call) {
                counter.get_many_async(keys, std::move(done), call);
            },
            to_batch(std::move(refusals), on_errors));
    }

    static py::object reset(Self& self, const Arguments& arguments) {
        const std::string_view key = to_bytes(arguments[0], "key");
        const Timeout timeout = to_timeout(arguments[1]);
        return Face::one(
            self, timeout, [&](Counter& counter) { return counter.reset(key, timeout); },
            [&](Counter& counter, auto done, AsyncCall call) {
                counter.reset_async(key, std::move(done), call);
            },
            to_int);
    }

    static py::object ttl(Self& self, const Arguments& arguments) {
        const std::string_view key = to_bytes(arguments[0], "key");
        const Timeout timeout = to_timeout(arguments[1]);
        return Face::one(
            self, timeout, [&](Counter& counter) { return counter.ttl(key, timeout); },
            [&](Counter& counter, auto done, AsyncCall call) {
                counter.ttl_async(key, std::move(done), call);
            },
            [](std::optional<Duration> left) -> py::object {
                if (!left) return py::none();
                return py::float_(to_seconds(*left));
            });
    }

  private:
    // A completion may be copied in another thread: nothing of Python in here.
    static auto to_batch(Refusals refusals, OnErrors on_errors) {
        return [refusals = std::move(refusals),
                on_errors](hotcount::Column<std::int64_t> column) -> py::object {
            py::dict errors;
            auto values = gather(std::move(column), refusals, errors);
            return finish(Int64Batch{std::move(values), std::move(errors)}, on_errors);
        };
    }
};

template <class Face, class... Extra>
void define_counter_calls(py::class_<Extra...>& cls) {
    using Calls = CounterCalls<Face>;
    define<&Calls::add>(
        cls, "add",
        "(self, key: str | bytes, n: int = 1, *, op_id: str | bytes | None = None, " + kTimeout +
            ") -> " + Face::returns("int"),
        "Adds n (any int64, negative too) and returns the value after this add.\n\n"
        "Every concurrent caller gets its own value. With an op_id it is counted once: a repeat\n"
        "within op_keep returns the first result and adds nothing, also after reset() or expiry;\n"
        "later it counts again, or is a ConfigError where the op_id is one of new_op_id(), or\n"
        "another UUIDv7. After an OutcomeUnknownError call again with the same op_id.\n"
        "CounterOverflowError, WrongTypeError: nothing changed. OutcomeUnknownError: it may have\n"
        "been added; with a method other than 'script' also that it was, and its expiry failed.\n"
        "timeout in seconds; None: the store's.");
    define<&Calls::try_add>(
        cls, "try_add",
        "(self, key: str | bytes, n: int = 1, *, min: int | None = None, max: int | None = "
        "None, " +
            kTimeout + ") -> " + Face::returns("hotcount._core.TryAdd"),
        "Adds n only where the result stays within min and max, both inclusive.\n\n"
        "Checked and added in one step, so that an inventory is never oversold. A refusal is "
        "a\n"
        "value: .applied is False and .value what stands; so it is where the result would "
        "leave\n"
        "signed 64 bits. Other errors as in add.");
    define<&Calls::add_many>(
        cls, "add_many",
        "(self, keys: collections.abc.Iterable[str | bytes] | "
        "collections.abc.Mapping[str, int] | collections.abc.Mapping[bytes, int], n: int | "
        "collections.abc.Iterable[int] = 1, *, " +
            kOnErrors + ", " + kTimeout + ") -> " + Face::returns("hotcount._core.Int64Batch"),
        "Adds to many keys, in order, and returns the value after each add.\n\n"
        "keys: a sequence, or a NumPy array of str or bytes; they may repeat. n: one int for all,\n"
        "or one for each as a sequence, or as an array of any integers. Arrays are read in place.\n"
        "A mapping is key -> amount, and takes no n.\n"
        "A failed element does not stop the others. errors='raise': BatchError with .result "
        "and\n"
        ".errors once all are settled; 'return': they are in the batch's .errors. An element "
        "of a\n"
        "wrong type is a TypeError that names its index, before anything is added.");
    define<&Calls::get>(cls, "get",
                        "(self, key: str | bytes, *, " + kTimeout + ") -> " + Face::returns("int"),
                        "The value now; 0 where the key is absent or has expired.");
    define<&Calls::get_many>(
        cls, "get_many",
        "(self, keys: collections.abc.Iterable[str | bytes], *, " + kOnErrors + ", " + kTimeout +
            ") -> " + Face::returns("hotcount._core.Int64Batch"),
        "The values of many keys, in order; 0 where absent. Errors as in add_many.");
    define<&Calls::reset>(
        cls, "reset", "(self, key: str | bytes, *, " + kTimeout + ") -> " + Face::returns("int"),
        "Removes the key and returns its last value, 0 where it was absent.\n\n"
        "In one step: no add falls between the reading and the removing.");
    define<&Calls::ttl>(
        cls, "ttl",
        "(self, key: str | bytes, *, " + kTimeout + ") -> " + Face::returns("float | None"),
        "Seconds until the key expires; None where it is absent or never expires.");
}

}  // namespace hotcount::python

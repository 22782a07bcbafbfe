#include <array>
#include <hotcount/base/op_id.hpp>
#include <hotcount/counter/counter.hpp>

#include "bind.hpp"
#include "convert.hpp"
#include "counter_face.hpp"
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

struct WaitingFace {
    using Self = BoundCounter;

    static std::string returns(const std::string& type) { return type; }

    template <class Now, class Start, class Convert>
    static py::object one(Self& self, Timeout, Now&& now, Start&&, const Convert& convert) {
        return convert(unwrap(self.one(now)));
    }
    template <class Now, class Start, class Convert>
    static py::object many(Self& self, Timeout, Now&& now, Start&&, const Convert& convert) {
        return convert(self.many(now));
    }
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
    auto store = counter_store(arguments, "Counter");
    auto counter = make_core_counter(arguments, store);
    return {std::move(counter), std::move(store)};
}

py::object make_op_id(const Arguments&) { return py::str(new_op_id()); }

}  // namespace

StoreReference counter_store(const Arguments& arguments, const char* title) {
    return {arguments[0], "store", title, {StoreKind::memory, StoreKind::redis}};
}

std::shared_ptr<Counter> make_core_counter(const Arguments& arguments,
                                           const StoreReference& store) {
    CounterOptions options;
    if (arguments[1]) options.prefix = to_bytes(arguments[1], "prefix");
    if (arguments.given(2)) options.ttl = to_duration(arguments[2], "ttl");
    if (arguments[3]) options.op_keep = to_duration(arguments[3], "op_keep");
    if (arguments[4]) options.method = to_method(arguments[4]);
    if (arguments[5]) options.compensation = to_compensation(arguments[5]);
    return store.kind() == StoreKind::memory
               ? unwrap(Counter::make(store.backend<memory::Store>(), std::move(options)))
               : unwrap(Counter::make(store.backend<redis::Client>(), std::move(options)));
}

std::string counter_signature() {
    const CounterOptions defaults;
    return "(self, store: " + kKeyValueStore +
           ", prefix: str | bytes = " + literal(defaults.prefix) + ", ttl: " + kTime +
           " | None = None, *, op_keep: " + kTime + " = " + literal(defaults.op_keep) +
           ", method: typing.Literal['script', 'incr', 'set_nx_incr'] = " +
           literal(std::string{to_string(defaults.method)}) +
           ", compensation: typing.Literal['none', 'first', 'ttl', 'both'] = " +
           literal(std::string{to_string(defaults.compensation)}) + ") -> None";
}

const char* const kCounterInitText =
    "store: an object or its URL. ttl: a key's life in seconds from its first add, which later\n"
    "adds do not extend; None: for ever. op_keep: seconds an op_id is remembered, 1 or more;\n"
    "until then each costs 40 to 200 bytes of the server, or 130 in memory.\n"
    "method: 'script' adds and sets the expiry in one step. The others are there to compare\n"
    "with, RACY with a ttl, and for add and add_many alone: 'incr' (INCRBY, then PEXPIRE after\n"
    "the first) and 'set_nx_incr' (SET NX PX, then INCRBY), each of whose callers may be cut\n"
    "off, or see the key expire, between two steps and leave a key that never expires.\n"
    "compensation, for 'set_nx_incr': 'first' expires the key again after the first add,\n"
    "'ttl' where it finds no expiry, 'both', 'none'; each leaves holes.\n"
    "Bad values: ConfigError that names them.";

void bind_counter(py::module_& module) {
    bind_value(module, "TryAdd", "What try_add came to. True where it was applied.",
               Field{"applied", &TryAdd::applied, "Whether n was added."},
               Field{"value", &TryAdd::value, "After the add, or as it stands where refused."})
        .def("__bool__", [](const TryAdd& self) { return self.applied; });

    py::class_<BoundCounter> cls(
        module, "Counter",
        "A number under a key: add to it and learn the value after this very add.\n\n"
        "Works on Memory and Redis. Keys are str or bytes, 1 to 1,000 bytes; a str and its UTF-8\n"
        "bytes are one key. Numbers are signed 64-bit; an add that would leave them is a\n"
        "CounterOverflowError and changes nothing. Without an op_id nothing is replayed: an add\n"
        "whose answer is lost is an OutcomeUnknownError. Safe from many threads and across fork.\n"
        "The value stands in the store under {store prefix}{prefix}:{key}, a plain integer.");
    define_init<&make_counter>(cls, counter_signature(), kCounterInitText);
    define_counter_calls<WaitingFace>(cls);
    define_lifetime(cls, "Ends this counter; a store made from a URL for it ends too.");

    define<&make_op_id>(
        module, "new_op_id", "() -> str",
        "A new op_id for Counter.add: a UUIDv7, 36 characters that carry the time of their "
        "making.\n\n"
        "Make one for each add that may have to be retried, and retry with the same. A store\n"
        "refuses one that has become too old to be remembered, instead of counting it again.");
}

}  // namespace hotcount::python

#include <pybind11/stl.h>

#include <cmath>
#include <hotcount/base/codec.hpp>
#include <hotcount/limiter/limiter.hpp>
#include <limits>

#include "batch.hpp"
#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "paired_columns.hpp"
#include "rows.hpp"
#include "signature_text.hpp"
#include "store.hpp"
#include "value.hpp"

namespace hotcount::python {
namespace {

/// Rate as Python sees it: its period in seconds.
struct RateRow {
    std::int64_t limit;
    double period;
    std::int64_t burst;
};

/// Decision as Python sees it, with what its headers need and the columns of a batch.
struct DecisionRow {
    bool allowed{false};
    std::int64_t limit{0};
    std::int64_t remaining{0};
    std::optional<double> retry_after{};
    double reset_after{0};
    std::string reason{};
    std::string policy{};
    double period{0};
    double retry_column{retry_after.value_or(std::numeric_limits<double>::quiet_NaN())};
};
using Decisions = RowBatch<DecisionRow>;

RateRow to_row(const Rate& rate) { return {rate.limit, to_seconds(rate.period), rate.burst}; }

std::string rate_text(const RateRow& row) {
    return Rate{row.limit, std::chrono::microseconds{std::llround(row.period * 1e6)}, row.burst}
        .str();
}

Rate to_rate(py::handle value) {
    if (py::isinstance<RateRow>(value)) {
        const auto& row = value.cast<const RateRow&>();
        const double most = to_seconds(Rate::kMaxPeriod);
        // Checked as a double: what does not fit has no integer to be checked.
        if (!(row.period > 0 && row.period <= most)) {
            raise_config("the rate's period is " + std::to_string(row.period) +
                         " seconds; it takes 0.001 to " + std::to_string(most));
        }
        return {row.limit, std::chrono::microseconds{std::llround(row.period * 1e6)}, row.burst};
    }
    if (!PyUnicode_Check(value.ptr())) raise_wrong_type("rate", "str or Rate", value);
    return unwrap(Rate::parse(to_text(value, "rate")));
}

DecisionRow to_row(const Decision& decision, const LimiterOptions& options) {
    DecisionRow row{.allowed = decision.allowed,
                    .limit = decision.limit,
                    .remaining = decision.remaining,
                    .reset_after = to_seconds(decision.reset_after),
                    .reason = std::string{to_string(decision.reason)},
                    .policy = options.name,
                    .period = to_seconds(options.rate.period)};
    if (decision.retry_after) {
        row.retry_after = to_seconds(*decision.retry_after);
        row.retry_column = *row.retry_after;
    }
    return row;
}

py::object decision_headers(DecisionRow& self, const Arguments& arguments) {
    const std::size_t style =
        arguments[0] ? to_choice(arguments[0], "style", {"ietf", "legacy"}) : 0;
    const auto duration = [](double seconds) { return Duration{std::llround(seconds * 1e9)}; };
    Decision decision{};
    decision.allowed = self.allowed;
    decision.limit = self.limit;
    decision.remaining = self.remaining;
    if (self.retry_after) decision.retry_after = duration(*self.retry_after);
    decision.reset_after = duration(self.reset_after);
    py::dict fields;
    for (const auto& [name, value] :
         headers(decision, style == 0 ? HeaderStyle::ietf : HeaderStyle::legacy, self.policy,
                 duration(self.period))) {
        fields[py::str(name)] = value;
    }
    return fields;
}

class BoundLimiter {
  public:
    BoundLimiter(std::shared_ptr<Limiter> limiter, StoreReference store)
        : limiter_(std::move(limiter)),
          store_(std::move(store)),
          in_memory_(store_.kind() == StoreKind::memory) {}

    /// Runs f on the limiter, for one key. In memory it keeps the GIL, as Counter does.
    template <class F>
    auto one(F&& f) {
        store_.check_open();
        if (in_memory_) return f(*limiter_);
        return without_gil([&] { return f(*limiter_); });
    }
    template <class F>
    auto many(F&& f) {
        store_.check_open();
        return without_gil([&] { return f(*limiter_); });
    }

    /// Warns with the first hit that was admitted without being counted.
    void warn_if_untracked(const Decision& decision) {
        if (decision.reason != Reason::untracked || warned_) return;
        warned_ = true;
        const std::string text = store_.name() +
                                 " is full: new keys are admitted and not limited. Raise max_keys, "
                                 "or refuse them with when_full='refuse'";
        if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
    }

    const LimiterOptions& options() const { return limiter_->options(); }
    void close() { store_.close(); }
    bool closed() const { return store_.closed(); }
    std::string repr() const { return store_.repr(); }

  private:
    std::shared_ptr<Limiter> limiter_;
    StoreReference store_;
    bool in_memory_;
    bool warned_{false};
};

/// A key, or a tuple of parts that are encoded as one; encoded so that the two never meet.
class KeyArgument {
  public:
    KeyArgument(py::handle value, const Where& where) : bytes_(read(value, where)) {}

    const Result<std::string_view>& bytes() const { return bytes_; }

  private:
    Result<std::string_view> read(py::handle value, const Where& where) {
        if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr())) {
            HOTCOUNT_TRY_ASSIGN(const std::string_view plain, read_bytes(value, where));
            if (!plain.starts_with('%')) return plain;
            encoded_ = encode_plain(plain);
            return std::string_view{encoded_};
        }
        if (!PyTuple_Check(value.ptr())) {
            raise_wrong_type(where, "str, bytes or a tuple of them", value);
        }
        std::vector<std::string_view> parts;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value.ptr()); ++i) {
            HOTCOUNT_TRY_ASSIGN(const std::string_view part,
                                read_bytes(PyTuple_GET_ITEM(value.ptr(), i), where));
            parts.push_back(part);
        }
        HOTCOUNT_TRY_ASSIGN(encoded_, encode_parts(parts));
        return std::string_view{encoded_};
    }

    std::string encoded_{};
    Result<std::string_view> bytes_;  // Into encoded_, or into the Python object.
};

BoundLimiter make_limiter(const Arguments& arguments) {
    StoreReference store(arguments[0], "store", "Limiter", {StoreKind::memory, StoreKind::redis});
    LimiterOptions options;
    options.rate = to_rate(arguments[1]);
    if (arguments[2]) {
        options.algorithm = unwrap(parse_algorithm(to_text(arguments[2], "algorithm")));
    }
    if (arguments.given(3)) options.name = to_text(arguments[3], "name");
    if (arguments[4]) {
        options.align =
            to_choice(arguments[4], "align", {"clock", "first"}) == 0 ? Align::clock : Align::first;
    }
    if (arguments[5]) options.charge_denied = to_bool(arguments[5], "charge_denied");
    auto limiter = store.kind() == StoreKind::memory
                       ? unwrap(Limiter::make(store.backend<memory::Store>(), std::move(options)))
                       : unwrap(Limiter::make(store.backend<redis::Client>(), std::move(options)));
    return {std::move(limiter), std::move(store)};
}

std::int64_t to_cost(py::handle value) { return value ? to_option(value, "cost") : 1; }

py::object limiter_hit(BoundLimiter& self, const Arguments& arguments) {
    const KeyArgument key(arguments[0], "key");
    const std::string_view name = unwrap(key.bytes());
    const std::int64_t cost = to_cost(arguments[1]);
    const std::string_view who = to_optional_bytes(arguments[2], "who").value_or("");
    if (arguments.given(2) && who.empty()) raise_config("who is empty; it takes 1 to 1000 bytes");
    const Timeout timeout = to_timeout(arguments[3]);
    const Decision decision =
        unwrap(self.one([&](Limiter& limiter) { return limiter.hit(name, cost, who, timeout); }));
    self.warn_if_untracked(decision);
    return py::cast(to_row(decision, self.options()));
}

py::object limiter_test(BoundLimiter& self, const Arguments& arguments) {
    const KeyArgument key(arguments[0], "key");
    const std::string_view name = unwrap(key.bytes());
    const std::int64_t cost = to_cost(arguments[1]);
    const Timeout timeout = to_timeout(arguments[2]);
    const Decision decision =
        unwrap(self.one([&](Limiter& limiter) { return limiter.test(name, cost, timeout); }));
    return py::cast(to_row(decision, self.options()));
}

py::object limiter_peek(BoundLimiter& self, const Arguments& arguments) {
    const KeyArgument key(arguments[0], "key");
    const std::string_view name = unwrap(key.bytes());
    const Timeout timeout = to_timeout(arguments[1]);
    const Decision decision =
        unwrap(self.one([&](Limiter& limiter) { return limiter.peek(name, timeout); }));
    return py::cast(to_row(decision, self.options()));
}

py::object limiter_hit_many(BoundLimiter& self, const Arguments& arguments) {
    Refusals refusals;
    const auto columns = to_keys_and_numbers(arguments[0], "keys", arguments[1], "cost");
    const py::tuple elements =
        to_elements(columns.keys, "keys", "a sequence of str, bytes or tuples of them");
    std::vector<std::unique_ptr<KeyArgument>> held;  // Keys point into them: they must not move.
    std::vector<std::string_view> keys(elements.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        held.push_back(std::make_unique<KeyArgument>(elements[i], Where{"keys", i}));
        if (held.back()->bytes()) {
            keys[i] = *held.back()->bytes();
        } else {
            refusals.add(i, held.back()->bytes().error());
        }
    }
    auto costs = to_amounts(columns.numbers, "cost", keys.size(), 1, refusals);
    const OnErrors on_errors = to_on_errors(arguments[2]);
    const Timeout timeout = to_timeout(arguments[3]);
    keys = refusals.strip(std::move(keys));
    costs = refusals.strip(std::move(costs));
    const auto decisions =
        self.many([&](Limiter& limiter) { return limiter.hit_many(keys, costs, timeout); });
    std::vector<Result<DecisionRow>> results;
    results.reserve(decisions.size());
    for (const auto& decision : decisions) {
        if (decision) self.warn_if_untracked(*decision);
        results.push_back(decision ? Result<DecisionRow>{to_row(*decision, self.options())}
                                   : decision.error());
    }
    py::dict errors;
    auto rows = gather(std::move(results), refusals, errors);
    return finish(Decisions{std::move(rows), std::move(errors)}, on_errors);
}

py::object limiter_reset(BoundLimiter& self, const Arguments& arguments) {
    const KeyArgument key(arguments[0], "key");
    const std::string_view name = unwrap(key.bytes());
    const Timeout timeout = to_timeout(arguments[1]);
    unwrap(self.one([&](Limiter& limiter) { return limiter.reset(name, timeout); }));
    return py::none();
}

py::object limiter_entries(BoundLimiter& self, const Arguments& arguments) {
    const KeyArgument key(arguments[0], "key");
    const std::string_view name = unwrap(key.bytes());
    const Timeout timeout = to_timeout(arguments[1]);
    py::list entries;
    for (const std::string& who :
         unwrap(self.one([&](Limiter& limiter) { return limiter.entries(name, timeout); }))) {
        // As file names are: bytes that are no UTF-8 come back as they went in.
        auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
            who.data(), static_cast<Py_ssize_t>(who.size()), "surrogateescape"));
        if (!text) throw py::error_already_set();
        entries.append(text);
    }
    return entries;
}

void bind_rate(py::module_& module) {
    bind_value(module, "Rate", "So many in so long. Rate.parse reads one from text.",
               Field{"limit", &RateRow::limit, "How many, 1 to 10**12."},
               Field{"period", &RateRow::period, "In how many seconds, 0.001 to 366 days."},
               Field{"burst", &RateRow::burst,
                     "How many an idle key admits at once with gcra; as limit unless said."})
        .def("__str__", &rate_text)
        .def_static(
            "parse", [](const std::string& text) { return to_row(unwrap(Rate::parse(text))); },
            py::arg("text"),
            "'100/minute', '5/s', '10/2 hours', '100/min burst 20'; other text: ConfigError.")
        .def_static(
            "parse_many",
            [](const std::string& text) {
                py::list rates;
                for (const Rate& rate : unwrap(Rate::parse_many(text))) {
                    rates.append(to_row(rate));
                }
                return py::typing::Tuple<RateRow, py::ellipsis>(py::tuple(rates));
            },
            py::arg("text"), "Several rates, separated by ';'.");
}

void bind_decision(py::module_& module) {
    auto decision = bind_value(
        module, "Decision", "What a limiter answered. True where the hit was admitted.",
        Field{"allowed", &DecisionRow::allowed, "Whether it was admitted."},
        Field{"limit", &DecisionRow::limit, "What an idle key admits at once."},
        Field{"remaining", &DecisionRow::remaining, "What is left after this call."},
        Field{"retry_after", &DecisionRow::retry_after,
              "Seconds until the same hit would be admitted if nobody else came: 0 where it was,\n"
              "None where it costs more than the limit and so never will."},
        Field{"reset_after", &DecisionRow::reset_after,
              "Seconds until the key is as if it had never been hit."},
        Field{"reason", &DecisionRow::reason,
              "'allowed', 'limited', 'cost_above_limit', or 'untracked': admitted without being "
              "counted,\n"
              "because a Memory store is full (its when_full)."},
        Field{"policy", &DecisionRow::policy, "The limiter's name."},
        Field{"period", &DecisionRow::period, "Seconds of the limiter's rate."});
    decision.def("__bool__", [](const DecisionRow& self) { return self.allowed; });
    define<&decision_headers>(
        decision, "headers",
        "(self, style: typing.Literal['ietf', 'legacy'] = 'ietf') -> dict[str, str]",
        "HTTP headers that tell a client.\n\n"
        "'ietf': RateLimit-Policy and RateLimit. 'legacy': X-RateLimit-Limit, -Remaining and\n"
        "-Reset (seconds from now). A denial that may pass adds Retry-After. Seconds are whole,\n"
        "rounded up.");
    auto decisions = bind_rows<DecisionRow>(
        module, "Decisions", "Decision",
        "What hit_many answered: one Decision per element, in the order given.\n\n"
        "A failed element is not allowed and has its exception in .errors, by index.");
    define_column(decisions, "allowed", &DecisionRow::allowed, "bool: whether it was admitted.");
    define_column(decisions, "remaining", &DecisionRow::remaining,
                  "int64: what is left after this element.");
    define_column(decisions, "retry_after", &DecisionRow::retry_column,
                  "float64: seconds; NaN where it never will be admitted.");
}

}  // namespace

void bind_limiter(py::module_& module) {
    bind_rate(module);
    bind_decision(module);

    py::class_<BoundLimiter> cls(
        module, "Limiter",
        "At most so many hits in so long, per key, for all processes together.\n\n"
        "Works on Memory and Redis, on the store's clock, one round trip a hit. A denial is an\n"
        "answer and costs nothing. Keys are str or bytes, 1 to 1,000 bytes, or tuples of them,\n"
        "encoded so that no two tuples, and no tuple and str, are one key. State is per name, "
        "algorithm and rate, and\n"
        "always expires. Safe from many threads and across fork.\n\n"
        "algorithm: 'gcra' (at most burst + rate x t in every interval), 'fixed_window' (at most\n"
        "limit in each window; twice that across an edge), 'list' (a window from the first hit\n"
        "that remembers who was admitted). The ways of the Redis documentation, to compare with,\n"
        "each with its holes: 'per_second_key', 'racy_incr', 'incr_expire' all admit more than\n"
        "the limit; 'racy_incr' may deny for ever.");
    const LimiterOptions defaults;
    const std::string key_type = "str | bytes | tuple[str | bytes, ...]";
    const std::string key = "(self, key: " + key_type;
    const std::string answer = ") -> hotcount._core.Decision";
    define_init<&make_limiter>(
        cls,
        "(self, store: " + kKeyValueStore +
            ", rate: str | "
            "hotcount._core.Rate, *, algorithm: typing.Literal['gcra', 'fixed_window', 'list', "
            "'per_second_key', 'racy_incr', 'incr_expire'] = " +
            literal(std::string{to_string(defaults.algorithm)}) +
            ", name: str | None = None, align: typing.Literal['clock', 'first'] = 'clock', "
            "charge_denied: bool = False) -> None",
        "store: an object or its URL. rate: '100/minute' or a Rate. name: part of the keys, "
        "'default'\nif None. align, for fixed_window: windows begin at multiples of the period "
        "since the epoch,\nor with a key's first hit. charge_denied, for gcra and fixed_window: "
        "denied hits cost too,\nup to twice the limit. Bad values: ConfigError that names them.");
    define<&limiter_hit>(
        cls, "hit",
        key + ", cost: int = 1, *, who: str | bytes | None = None, " + kTimeout + answer,
        "Takes cost, 1 or more, if the limit allows it.\n\n"
        "In one step: concurrent callers never take the same last one. A cost above the limit is\n"
        "denied with retry_after None. who, for 'list': the caller to remember; the key if None.\n"
        "WrongTypeError: the key holds something else. OutcomeUnknownError: it may have been\n"
        "taken. timeout in seconds; None: the store's.");
    define<&limiter_hit_many>(
        cls, "hit_many",
        "(self, keys: collections.abc.Iterable[" + key_type +
            "] | collections.abc.Mapping[typing.Any, int], cost: int | "
            "collections.abc.Iterable[int] = 1, *, " +
            kOnErrors + ", " + kTimeout + ") -> hotcount._core.Decisions",
        "Hits many keys, in order, each by itself.\n\n"
        "Equal keys are decided one after another. cost: one int for all, or one for each; a\n"
        "mapping is key -> cost, and takes none. A\n"
        "failed element does not stop the others. errors='raise': BatchError with .result and\n"
        ".errors once all are settled; 'return': they are in the batch's .errors. Over Redis a\n"
        "round trip takes 256 keys with gcra and fixed_window, one with the rest. A wrong type is\n"
        "a TypeError naming the index, before anything is hit.");
    define<&limiter_test>(cls, "test", key + ", cost: int = 1, *, " + kTimeout + answer,
                          "What hit would answer, with what remains as it stands; takes nothing.");
    define<&limiter_peek>(cls, "peek", key + ", *, " + kTimeout + answer,
                          "test() with a cost of 1.");
    define<&limiter_reset>(cls, "reset", key + ", *, " + kTimeout + ") -> None",
                           "Forgets the key: it is as if it had never been hit.");
    define<&limiter_entries>(
        cls, "entries", key + ", *, " + kTimeout + ") -> list[str]",
        "For 'list': who was admitted in the key's window, in order. Bytes that are no UTF-8 come\n"
        "back as surrogates, as os.fsdecode does.");
    define_lifetime(cls, "Ends this limiter; a store made from a URL for it ends too.");
}

}  // namespace hotcount::python

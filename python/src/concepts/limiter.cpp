// hotcount.Limiter and hotcount.aio.Limiter: declared in hotcount/limiter.py and
// hotcount/aio/limiter.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/limiter.hpp>
#include <limits>

#include "concepts/limiter_key.hpp"
#include "concepts/limiter_rates.hpp"
#include "native/bind.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "values/paired_columns.hpp"

namespace hotcount::python {
namespace {

ResultClass decision_class{
    "Decision", std::array{"allowed", "limit", "remaining", "retry_after", "reset_after", "reason",
                           "policy", "period", "violated", "quota"}};

/// A decision as a batch holds it: with the columns, and with what its headers need.
struct DecisionRow {
    bool allowed{false};
    std::int64_t limit{0};
    std::int64_t remaining{0};
    std::optional<double> retry_after{};
    double reset_after{0};
    std::string reason{};
    std::string policy{};
    double period{0};
    std::vector<std::string> violated{};
    std::int64_t quota{0};
    double retry_column{retry_after.value_or(std::numeric_limits<double>::quiet_NaN())};
};
using Decisions = RowBatch<DecisionRow>;

std::optional<double> seconds_of(const std::optional<Duration>& duration) {
    if (!duration) return std::nullopt;
    return to_seconds(*duration);
}

/// A cost, 1 or more; the core says so.
using Cost = std::int64_t;

/// who=: None, or 1 byte and more. The core takes an empty one for none.
struct Who {
    std::string_view name;
    operator std::string_view() const { return name; }
};

/// The keys of a batch with their costs; of two Python parameters.
struct KeysAndCosts {
    py::object elements;  // Keys point into them while the GIL is released.
    std::vector<LimiterKey> held;
    std::vector<std::int64_t> costs;
    Refusals refusals;
    std::vector<std::string_view> keys;  // Into `held`, without those that are refused.
};

/// The hits of one step of hit_all.
using LimitedHits = std::vector<LimitedHit>;

}  // namespace

// -- the table, for what limiters alone have ------------------------------------------------------

template <>
struct From<Who> {
    static Who read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        const std::string_view name = to_bytes(argument.value, argument.name);
        if (name.empty()) raise_config("who is empty; it takes 1 to 1000 bytes");
        return {name};
    }
};

template <>
struct From<KeysAndCosts> {
    static constexpr std::size_t kTakes = 2;
    static constexpr bool kIsBatch = true;

    static KeysAndCosts read(const Argument* first) {
        const Argument& keys = first[0];
        const Argument& costs = first[1];
        KeysAndCosts batch;
        const auto columns =
            to_keys_and_numbers(keys.value, keys.name,
                                costs.given ? py::handle(costs.value) : py::handle(), costs.name);
        const py::tuple elements =
            to_elements(columns.keys, keys.name, "a sequence of str, bytes or tuples of them");
        batch.elements = elements;
        batch.held.reserve(elements.size());  // Keys point into them: they must not move.
        for (std::size_t i = 0; i < elements.size(); ++i) {
            batch.held.emplace_back(elements[i], Where{keys.name, i});
            const Result<void>& fits = batch.held.back().error();
            if (!fits) batch.refusals.add(i, fits.error());
        }
        batch.costs = to_amounts(columns.numbers, costs.name, elements.size(), 1, batch.refusals,
                                 ErrorCode::config);
        batch.costs = batch.refusals.strip(std::move(batch.costs));
        // An element that is refused for its cost, too.
        for (std::size_t i = 0; i < batch.held.size(); ++i) {
            if (!batch.refusals.by_index.contains(i)) batch.keys.push_back(batch.held[i]);
        }
        return batch;
    }
    static auto pass(const KeysAndCosts& batch) {
        return std::tuple<const std::vector<std::string_view>&, const std::vector<std::int64_t>&>(
            batch.keys, batch.costs);
    }
};

template <>
struct To<DecisionRow> {
    static py::object make(const DecisionRow& row) {
        return decision_class.make(row.allowed, row.limit, row.remaining, row.retry_after,
                                   row.reset_after, row.reason, row.policy, row.period,
                                   row.violated, row.quota);
    }
};
template <>
struct From<DecisionRow> {
    static DecisionRow read(const Argument& argument) {
        if (!decision_class.is(argument.value)) {
            raise_wrong_type(argument.name, "Decision", argument.value);
        }
        const py::handle object = argument.value;
        const auto number = [&](std::size_t index) {
            const py::handle value = decision_class.get<py::handle>(object, index);
            const double read = PyFloat_AsDouble(value.ptr());
            if (read == -1 && PyErr_Occurred() != nullptr) {
                if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
                PyErr_Clear();
                raise_wrong_type(decision_class.field_name(index), "float seconds", value);
            }
            return read;
        };
        DecisionRow row{.allowed = decision_class.get<bool>(object, 0),
                        .limit = decision_class.get<std::int64_t>(object, 1),
                        .remaining = decision_class.get<std::int64_t>(object, 2),
                        .retry_after = std::nullopt,
                        .reset_after = number(4),
                        .reason = decision_class.get<std::string>(object, 5),
                        .policy = decision_class.get<std::string>(object, 6),
                        .period = number(7)};
        const auto violated = decision_class.get<py::handle>(object, 8);
        if (PyTuple_Check(violated.ptr()) == 0) {
            raise_wrong_type(decision_class.field_name(8), "tuple of str", violated);
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(violated.ptr()); ++i) {
            const std::string name =
                Where{decision_class.field_name(8), static_cast<std::size_t>(i)}.str();
            row.violated.push_back(to_text(PyTuple_GET_ITEM(violated.ptr(), i), name.c_str()));
        }
        const auto quota = decision_class.get<py::handle>(object, 9);
        row.quota = quota.is_none() ? row.limit : decision_class.get<std::int64_t>(object, 9);
        if (!decision_class.get<py::handle>(object, 3).is_none()) {
            row.retry_after = row.retry_column = number(3);
        }
        return row;
    }
};

/// HTTP fields, in a dict.
using HeaderFields = std::vector<std::pair<std::string, std::string>>;
template <>
struct To<HeaderFields> {
    static py::object make(const HeaderFields& headers) {
        py::dict fields;
        for (const auto& [name, value] : headers) fields[py::str(name)] = value;
        return fields;
    }
};

namespace {

constexpr std::array kOptions{
    OptionRow<LimiterOptions>{"rate", RateOption::read, RateOption::get, Shown::as_text},
    option<&LimiterOptions::algorithm>("algorithm", Shown::always),
    option_or_none<&LimiterOptions::name>("name"),
    option<&LimiterOptions::align>("align"),
    option<&LimiterOptions::charge_denied>("charge_denied"),
    option<&LimiterOptions::shadow>("shadow"),
    option<&LimiterOptions::table>("table"),
    option<&LimiterOptions::on_error>("on_error"),
    option<&LimiterOptions::deny_cache>("deny_cache"),
};

class BoundLimiter : public Bound<Limiter> {
  public:
    BoundLimiter(std::shared_ptr<Limiter> limiter, StoreReference reference)
        : Bound(std::move(limiter), std::move(reference), &kTag<BoundLimiter>),
          policy_(To<std::string>::make(core->options().name)) {
        for (const Rate& rate : core->options().rates) {
            rates_.push_back({To<std::int64_t>::make(rate.burst), To<Duration>::make(rate.period),
                              To<std::string>::make(rate.str()),
                              To<std::int64_t>::make(rate.limit)});
        }
    }

    std::string shown_options() const override {
        return python::shown_options<LimiterOptions, kOptions>(core->options());
    }

    py::object to_python(const Decision& decision) {
        tell_outage();
        warn_if_untracked(decision);
        const KnownRate& rate = rates_[decision.rate];
        return decision_class.make(decision.allowed, rate.limit, decision.remaining,
                                   decision.retry_after, decision.reset_after,
                                   name_of(decision.reason), policy_, rate.period,
                                   violated_by(decision), rate.quota);
    }

    // What at_most took.
    py::object to_python(std::int64_t taken) {
        tell_outage();
        return To<std::int64_t>::make(taken);
    }

    py::object to_python(const JointDecision& joint) {
        tell_outage();
        const LimiterOptions& options = joint.limiter->options();
        const Decision& decision = joint.decision;
        const Rate& rate = options.rates[decision.rate];
        return decision_class.make(decision.allowed, decision.limit, decision.remaining,
                                   decision.retry_after, decision.reset_after,
                                   name_of(decision.reason), options.name, Duration{rate.period},
                                   joint.violated, rate.limit);
    }

    // A list: that of a `list` limiter, and as it was before results were tuples.
    py::object to_python(const std::vector<std::string>& callers) {
        py::list entries;
        for (const std::string& who : callers) {
            // As file names are: bytes that are no UTF-8 come back as they went in.
            auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
                who.data(), static_cast<Py_ssize_t>(who.size()), "surrogateescape"));
            if (!text) throw py::error_already_set();
            entries.append(text);
        }
        return entries;
    }

    py::object to_batch(const std::vector<Result<Decision>>& decisions, const Refusals& refusals,
                        OnErrors on_errors) {
        tell_outage();
        std::vector<Result<DecisionRow>> results;
        results.reserve(decisions.size());
        for (const auto& decision : decisions) {
            if (decision) warn_if_untracked(*decision);
            results.push_back(decision ? Result<DecisionRow>{to_row(*decision)} : decision.error());
        }
        py::dict errors;
        auto rows = gather(std::move(results), refusals, errors);
        return finish(std::make_shared<Decisions>(std::move(rows), std::move(errors)), on_errors);
    }

  private:
    DecisionRow to_row(const Decision& decision) const {
        DecisionRow row{.allowed = decision.allowed,
                        .limit = decision.limit,
                        .remaining = decision.remaining,
                        .retry_after = seconds_of(decision.retry_after),
                        .reset_after = to_seconds(decision.reset_after),
                        .reason = std::string{to_string(decision.reason)},
                        .policy = core->options().name,
                        .period = to_seconds(core->options().rates[decision.rate].period),
                        .quota = core->options().rates[decision.rate].limit};
        for (std::size_t i = 0; i < rates_.size(); ++i) {
            if ((decision.violated >> i & 1U) == 0) continue;
            row.violated.push_back(core->options().rates[i].str());
        }
        if (row.retry_after) row.retry_column = *row.retry_after;
        return row;
    }

    /// The rates that refused, as text.
    py::object violated_by(const Decision& decision) const {
        static PyObject* const kNone = PyTuple_New(0);
        if (decision.violated == 0) return py::reinterpret_borrow<py::object>(kNone);
        py::list texts;
        for (std::size_t i = 0; i < rates_.size(); ++i) {
            if ((decision.violated >> i & 1U) != 0) texts.append(rates_[i].text);
        }
        return py::tuple(texts);
    }

    // The reasons' names, made once.
    static py::handle name_of(Reason reason) {
        static std::array<PyObject*, static_cast<std::size_t>(Reason::local) + 1> names{};
        PyObject*& name = names[static_cast<std::size_t>(reason)];
        if (name == nullptr) name = To<std::string_view>::make(to_string(reason)).release().ptr();
        return name;
    }

    /// Logs an outage, and its end, once in this process.
    void tell_outage() {
        if (core->options().on_error == OutagePolicy::raise) return;
        const auto event = core->next_outage_event();
        if (!event) return;
        if (event->is_away) {
            log("warning", event->server + " is away: on_error='" +
                               std::string{to_string(core->options().on_error)} +
                               "' answers for limiters. " + event->why);
        } else {
            const auto ms = std::chrono::ceil<std::chrono::milliseconds>(event->duration);
            log("info", event->server + " answers limiters again, after " +
                            std::to_string(ms.count()) + " ms");
        }
    }

    /// Warns with the first hit that was admitted without being counted.
    void warn_if_untracked(const Decision& decision) {
        if (decision.reason != Reason::untracked || warned_) return;
        warned_ = true;
        const std::string text = store.name() +
                                 " is full: new keys are admitted and not limited. Raise max_keys, "
                                 "or refuse them with when_full='refuse'";
        if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
    }

    // What is the same in many decisions.
    struct KnownRate {
        py::object limit;
        py::object period;
        py::object text;
        py::object quota;
    };
    py::object policy_;
    std::vector<KnownRate> rates_{};
    bool warned_{false};
};

Result<JointDecision> hit_all_now(Limiter&, const LimitedHits& hits, Timeout timeout) {
    return hit_all(hits, timeout);
}
void hit_all_later(Limiter&, const LimitedHits& hits, Completion<JointDecision> done,
                   AsyncCall call) {
    hit_all_async(hits, std::move(done), call);
}

std::shared_ptr<BoundBase> make_limiter(const std::string& title, py::handle where,
                                        const LimiterOptions& options) {
    StoreReference store(where, "store", title.c_str(),
                         {StoreKind::memory, StoreKind::redis, StoreKind::database});
    const auto make = [&](auto opened) {
        return std::make_shared<BoundLimiter>(unwrap(Limiter::make(std::move(opened), options)),
                                              std::move(store));
    };
    switch (store.kind()) {
        case StoreKind::memory:
            return make(store.backend<memory::Store>());
        case StoreKind::redis:
            return make(store.backend<redis::Client>());
        case StoreKind::database:
            break;
    }
    return make(store.backend<sql::Database>());
}

std::string rate_text(const Rate& rate) { return rate.str(); }

// A Decision may be one that somebody made: what is no header is refused.
Result<void> check_headers(const DecisionRow& row) {
    const auto fits = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    if (!std::ranges::all_of(row.policy, fits)) {
        return make_error(ErrorCode::config, "policy is '" + printable(row.policy) +
                                                 "'; it takes printable ASCII characters without "
                                                 "quotes and backslashes");
    }
    for (const auto& [name, number] :
         {std::pair{"limit", row.limit}, {"remaining", row.remaining}, {"quota", row.quota}}) {
        if (number >= 0) continue;
        return make_error(ErrorCode::config, std::string{name} + " is " + std::to_string(number) +
                                                 "; it takes 0 or more");
    }
    for (const auto& [name, seconds] : {std::pair{"reset_after", row.reset_after},
                                        {"retry_after", row.retry_after.value_or(0)},
                                        {"period", row.period}}) {
        if (seconds >= 0 && seconds < to_seconds(Duration::max())) continue;
        return make_error(ErrorCode::config, std::string{name} + " is " + std::to_string(seconds) +
                                                 " seconds; it takes 0 to 292 years");
    }
    return {};
}

Result<HeaderFields> decision_headers(const DecisionRow& row, HeaderStyle style) {
    HOTCOUNT_TRY(check_headers(row));
    const auto duration = [](double seconds) { return Duration{std::llround(seconds * 1e9)}; };
    Decision decision{};
    decision.allowed = row.allowed;
    decision.limit = row.limit;
    decision.remaining = row.remaining;
    if (row.retry_after) decision.retry_after = duration(*row.retry_after);
    decision.reset_after = duration(row.reset_after);
    Rate rate;
    rate.limit = row.quota;
    rate.period = std::chrono::duration_cast<std::chrono::microseconds>(duration(row.period));
    return headers(decision, style, row.policy, rate);
}

}  // namespace

template <>
struct BoundOf<Limiter> {
    using type = BoundLimiter;
};

// Tuples of a limiter, a key and a cost, as Python has checked them.
template <>
struct From<LimitedHits> {
    static LimitedHits read(const Argument& argument) {
        LimitedHits hits;
        const py::tuple elements = to_elements(argument.value, argument.name, "a sequence of hits");
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const py::handle hit = elements[i];
            if (PyTuple_Check(hit.ptr()) == 0 || PyTuple_GET_SIZE(hit.ptr()) != 3) {
                raise_wrong_type(Where{argument.name, i}, "tuple of a limiter, a key and a cost",
                                 hit);
            }
            PyObject* const object = PyTuple_GET_ITEM(hit.ptr(), 0);
            const auto* const bound =
                BoundObject::check(object) ? BoundObject::of(object)->bound.get() : nullptr;
            if (bound == nullptr || bound->tag() != &kTag<BoundLimiter>) {
                raise_wrong_type(Where{argument.name, i}, "finished Limiter", object);
            }
            const auto& limiter = static_cast<const BoundLimiter&>(*bound);
            limiter.check_open();
            const LimiterKey key(PyTuple_GET_ITEM(hit.ptr(), 1), Where{argument.name, i});
            unwrap(key.error());
            hits.push_back({limiter.core, std::string{key},
                            From<Cost>::read({PyTuple_GET_ITEM(hit.ptr(), 2), "cost", true})});
        }
        return hits;
    }
};

void bind_limiter() {
    declare_rows<DecisionRow>("Decisions", column<&DecisionRow::allowed>("allowed"),
                              column<&DecisionRow::remaining>("remaining"),
                              column<&DecisionRow::retry_column>("retry_after"));

    function<&Rate::parse, std::string>("Rate.parse", "text");
    function<&Rate::parse_many, std::string>("Rate.parse_many", "text");
    function<&rate_text, Rate>("Rate.__str__", "self");
    function<&decision_headers, DecisionRow, HeaderStyle>("Decision.headers", "self style");

    constructor<&make_limiter, StoreArgument, Options<LimiterOptions, kOptions>>(
        "LimiterBase.__init__", "store " + names_of<kOptions>());
    attributes<BoundLimiter, kOptions>("LimiterBase", "rate");
    const auto rates_of = [](BoundBase& bound) -> const std::vector<Rate>& {
        return static_cast<BoundLimiter&>(bound).core->options().rates;
    };
    add_getter({"LimiterBase", "rate",
                [=](BoundBase& bound) { return To<Rate>::make(rates_of(bound).front()); },
                &kTag<BoundLimiter>});
    add_getter({"LimiterBase", "rates",
                [=](BoundBase& bound) { return To<std::vector<Rate>>::make(rates_of(bound)); },
                &kTag<BoundLimiter>});

    method<&Limiter::create_table, &Limiter::create_table_async, Timeout>("Limiter.create_table",
                                                                          "timeout");
    add_getter({"LimiterBase", "_joins",
                [](BoundBase& bound) {
                    const auto& core = static_cast<BoundLimiter&>(bound).core;
                    const void* const store = core->joins();
                    if (store == core.get()) return py::object(py::none());
                    return To<std::int64_t>::make(reinterpret_cast<std::intptr_t>(store));
                },
                &kTag<BoundLimiter>});
    method<&hit_all_now, &hit_all_later, LimitedHits, Timeout>("Limiter._hit_all", "hits timeout");
    method<&Limiter::hit, &Limiter::hit_async, LimiterKey, Cost, Who, Timeout>(
        "Limiter.hit", "key cost who timeout");
    method<&Limiter::hit_many, &Limiter::hit_many_async, KeysAndCosts, OnErrors, Timeout>(
        "Limiter.hit_many", "keys cost errors timeout");
    method<&Limiter::at_most, &Limiter::at_most_async, LimiterKey, Cost, Timeout>("Limiter.at_most",
                                                                                  "key n timeout");
    method<&Limiter::refund, &Limiter::refund_async, LimiterKey, Cost, Timeout>("Limiter.refund",
                                                                                "key n timeout");
    method<&Limiter::block, &Limiter::block_async, LimiterKey, Duration, Timeout>(
        "Limiter.block", "key seconds timeout");
    method<&Limiter::test, &Limiter::test_async, LimiterKey, Cost, Timeout>("Limiter.test",
                                                                            "key cost timeout");
    method<&Limiter::peek, &Limiter::peek_async, LimiterKey, Timeout>("Limiter.peek",
                                                                      "key timeout");
    method<&Limiter::reset, &Limiter::reset_async, LimiterKey, Timeout>("Limiter.reset",
                                                                        "key timeout");
    method<&Limiter::entries, &Limiter::entries_async, LimiterKey, Timeout>("Limiter.entries",
                                                                            "key timeout");
}

}  // namespace hotcount::python

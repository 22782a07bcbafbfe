// hotcount.Limiter and hotcount.aio.Limiter: declared in hotcount/limiter.py and
// hotcount/aio/limiter.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/limiter.hpp>
#include <limits>

#include "concepts/bound_limiter.hpp"
#include "limiter_arguments.hpp"
#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "values/convert.hpp"

namespace hotcount::python {
namespace {

/// A cost, 1 or more; the core says so.
using Cost = std::int64_t;

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

/// op_id=: the core refuses an empty one.
using OpId = std::optional<std::string_view>;

Result<Decision> hit_now(Limiter& limiter, std::string_view key, std::int64_t cost, OpId op_id,
                         Timeout timeout) {
    if (!op_id) return limiter.hit(key, cost, timeout);
    return limiter.hit_once(key, cost, *op_id, timeout);
}
void hit_later(Limiter& limiter, std::string_view key, std::int64_t cost, OpId op_id,
               Completion<Decision> done, AsyncCall call) {
    if (!op_id) return limiter.hit_async(key, cost, std::move(done), call);
    limiter.hit_once_async(key, cost, *op_id, std::move(done), call);
}

Result<Decision> commit_now(Limiter& limiter, std::string_view key, std::string_view id,
                            std::int64_t used, OpId op_id, Timeout timeout) {
    if (!op_id) return limiter.commit(key, id, used, timeout);
    return limiter.commit_once(key, id, used, *op_id, timeout);
}
void commit_later(Limiter& limiter, std::string_view key, std::string_view id, std::int64_t used,
                  OpId op_id, Completion<Decision> done, AsyncCall call) {
    if (!op_id) return limiter.commit_async(key, id, used, std::move(done), call);
    limiter.commit_once_async(key, id, used, *op_id, std::move(done), call);
}

Result<JointDecision> hit_all_now(Limiter&, const LimitedHits& hits, Timeout timeout) {
    return hit_all(hits, timeout);
}
void hit_all_later(Limiter&, const LimitedHits& hits, Completion<JointDecision> done,
                   AsyncCall call) {
    hit_all_async(hits, std::move(done), call);
}

Result<void> refund_local_now(Limiter& limiter, std::string_view key, std::int64_t n) {
    return limiter.refund_local(key, n);
}
// In microseconds. No call that statistics count: it asks no store.
py::object most_ahead(py::handle, BoundLimiter& self, std::int64_t cost, py::handle rate) {
    self.check_open();
    const AtRates at = From<AtRates>::read({rate.ptr(), "rate", true}, self);
    BoundLimiter& limiter = at.limiter ? *at.limiter : self;
    const Duration most = hotcount::detail::HitAhead::most(*limiter.held(), cost);
    return To<std::int64_t>::make(
        std::chrono::duration_cast<std::chrono::microseconds>(most).count());
}
// Nobody waits for it: who has waited for a reserve without an answer has waited long enough.
Result<void> cancel_later(Limiter& limiter, std::string_view key, std::string_view id,
                          Timeout timeout) {
    limiter.cancel_async(key, id, [](const Result<Decision>&) {}, {nullptr, timeout, nullptr});
    return {};
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
    for (const auto& [name, number] : {std::pair{"limit", row.limit},
                                       {"remaining", row.remaining},
                                       {"quota", row.quota.value_or(0)}}) {
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
    rate.limit = row.quota.value_or(row.limit);
    rate.period = std::chrono::duration_cast<std::chrono::microseconds>(duration(row.period));
    return headers(decision, style, row.policy, rate);
}

}  // namespace

// Tuples of a limiter, a key, a cost and a rate or None, as Python has checked them.
template <>
struct From<LimitedHits> {
    static LimitedHits read(const Argument& argument) {
        LimitedHits hits;
        const py::tuple elements = to_elements(argument.value, argument.name, "a sequence of hits");
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const py::handle hit = elements[i];
            if (PyTuple_Check(hit.ptr()) == 0 || PyTuple_GET_SIZE(hit.ptr()) != 4) {
                raise_wrong_type(Where{argument.name, i},
                                 "tuple of a limiter, a key, a cost and a rate", hit);
            }
            PyObject* const object = PyTuple_GET_ITEM(hit.ptr(), 0);
            auto* const bound =
                BoundObject::check(object) ? BoundObject::of(object)->bound.get() : nullptr;
            if (bound == nullptr || bound->tag() != &kTag<BoundLimiter>) {
                raise_wrong_type(Where{argument.name, i}, "finished Limiter", object);
            }
            auto& limiter = static_cast<BoundLimiter&>(*bound);
            limiter.check_open();
            const AtRates at =
                From<AtRates>::read({PyTuple_GET_ITEM(hit.ptr(), 3), "rate", true}, limiter);
            const LimiterKey key(PyTuple_GET_ITEM(hit.ptr(), 1), Where{argument.name, i});
            unwrap(key.error());
            hits.push_back({at.limiter ? at.limiter->core : limiter.core, std::string{key},
                            From<Cost>::read({PyTuple_GET_ITEM(hit.ptr(), 2), "cost", true})});
        }
        return hits;
    }
};

namespace {

py::object limiter_stats(py::handle, BoundLimiter& self) { return self.stats(); }

}  // namespace

void bind_limiter() {
    declare_rows<DecisionRow>("Decisions", column<&DecisionRow::allowed>(),
                              column<&DecisionRow::remaining>(),
                              column<&DecisionRow::retry_column>("retry_after"));

    function<&Rate::parse, std::string>("Rate.parse", "text");
    function<&Rate::parse_many, std::string>("Rate.parse_many", "text");
    function<&rate_text, Rate>("Rate.__str__", "self");
    function<&decision_headers, DecisionRow, HeaderStyle>("Decision.headers", "self style");

    constructor<&make_limiter, StoreArgument, Options<LimiterOptions, kLimiterOptions>>(
        "LimiterBase.__init__", "store " + names_of<kLimiterOptions>());
    refuse_keywords("LimiterBase.__init__", "increx",
                    "algorithm='fixed_window' with align='first' counts such windows by a script");
    attributes<BoundLimiter, kLimiterOptions>("LimiterBase", "rate");
    attribute<BoundLimiter>("LimiterBase", "rate", [](const BoundLimiter& self) {
        return To<Rate>::make(self.options().rates.front());
    });
    attribute<BoundLimiter>("LimiterBase", "rates", [](const BoundLimiter& self) {
        return To<std::vector<Rate>>::make(self.options().rates);
    });

    object_method<&limiter_stats, BoundLimiter>("LimiterBase.stats", "");
    method<&Limiter::create_table, &Limiter::create_table_async, Timeout>("Limiter.create_table",
                                                                          "timeout");
    attribute<BoundLimiter>("LimiterBase", "_joins", [](const BoundLimiter& self) {
        const void* const store = self.core->joins();
        if (store == self.core.get()) return py::object(py::none());
        return To<std::int64_t>::make(reinterpret_cast<std::intptr_t>(store));
    });
    method<&hit_all_now, &hit_all_later, LimitedHits, Timeout>("Limiter._hit_all", "hits timeout");
    method<&hit_now, &hit_later, LimiterKey, Cost, AtRates, OpId, Counted, Timeout>(
        "Limiter.hit", "key cost rate op_id timeout");
    method<&hotcount::detail::HitAhead::now, &hotcount::detail::HitAhead::later, LimiterKey, Cost,
           AtRates, Counted, Timeout>("Limiter._hit_ahead", "key cost rate timeout");
    object_method<&most_ahead, BoundLimiter, Cost, py::handle>("LimiterBase._ahead", "cost rate");
    refuse_keywords("Limiter.hit", "who",
                    "the lists that remember callers are strategies of hotcount-load, and "
                    "notebooks/ways.py has their code");
    method<&Limiter::hit_many, &Limiter::hit_many_async, KeysAndCosts, AtRates, OnErrors, Timeout>(
        "Limiter.hit_many", "keys cost rate errors timeout");
    method<&Limiter::at_most, &Limiter::at_most_async, LimiterKey, Cost, AtRates, Timeout>(
        "Limiter.at_most", "key n rate timeout");
    method<&Limiter::refund, &Limiter::refund_async, LimiterKey, Cost, AtRates, Timeout>(
        "Limiter.refund", "key n rate timeout");
    method<&refund_local_now, nullptr, LimiterKey, Cost, AtRates>("LimiterBase._refund_local",
                                                                  "key n rate");
    method<&Limiter::block, &Limiter::block_async, LimiterKey, Duration, AtRates, Timeout>(
        "Limiter.block", "key seconds rate timeout");
    method<&Limiter::reserve, &Limiter::reserve_async, LimiterKey, Cost, std::string_view, Duration,
           AtRates, Counted, Timeout>("Reserving._reserve", "key n id lease rate timeout");
    method<&commit_now, &commit_later, LimiterKey, std::string_view, Cost, AtRates, OpId, Timeout>(
        "Reserving._commit", "key id actual rate op_id timeout");
    method<&Limiter::cancel, &Limiter::cancel_async, LimiterKey, std::string_view, AtRates,
           Timeout>("Reserving._cancel", "key id rate timeout");
    method<&cancel_later, nullptr, LimiterKey, std::string_view, AtRates, Timeout>(
        "Reserving._cancel_later", "key id rate timeout");
    method<&Limiter::test, &Limiter::test_async, LimiterKey, Cost, AtRates, Timeout>(
        "Limiter.test", "key cost rate timeout");
    method<&Limiter::peek, &Limiter::peek_async, LimiterKey, AtRates, Timeout>("Limiter.peek",
                                                                               "key rate timeout");
    method<&Limiter::reset, &Limiter::reset_async, LimiterKey, AtRates, Timeout>(
        "Limiter.reset", "key rate timeout");
}

}  // namespace hotcount::python

// hotcount.SlottedCounter and hotcount.aio.SlottedCounter: declared in hotcount/slotted_counter.py
// and hotcount/aio/slotted_counter.py.
#include <array>
#include <hotcount/detail/counter/session_statements.hpp>
#include <hotcount/slotted_counter.hpp>

#include "native/bind.hpp"
#include "native/key_batches.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"

namespace hotcount::python {
namespace {

/// {key: n, ...}
struct MappedAmounts {
    std::unique_ptr<KeyHolder> held;
    Refusals refusals;
    std::vector<std::pair<std::string_view, std::int64_t>> pairs;  // Without those refused.
};

}  // namespace

// -- the table, for what slotted counters alone have ----------------------------------------------

template <>
struct From<MappedAmounts> {
    static constexpr bool kIsBatch = true;

    static MappedAmounts read(const Argument& argument) {
        if (!is_mapping(argument.value)) {
            raise_wrong_type(argument.name, "a mapping of keys to int", argument.value);
        }
        MappedAmounts batch{std::make_unique<KeyHolder>(), {}, {}};
        const auto columns = to_keys_and_numbers(argument.value, argument.name, {}, "");
        const auto keys = to_keys(columns.keys, "mapping.keys()", *batch.held, batch.refusals);
        const auto amounts =
            to_amounts(columns.numbers, "mapping.values()", keys.size(), 1, batch.refusals);
        for (std::size_t i = 0; i < keys.size(); ++i) batch.pairs.emplace_back(keys[i], amounts[i]);
        batch.pairs = batch.refusals.strip(std::move(batch.pairs));
        return batch;
    }
    static auto pass(const MappedAmounts& batch) { return std::tie(batch.pairs); }
};

template <>
struct From<SlotChoice> {
    static SlotChoice read(const Argument& argument) {
        return to_choice(argument.value, argument.name, {"sticky", "random"}) == 0
                   ? SlotChoice::sticky
                   : SlotChoice::random;
    }
};
template <>
struct To<SlotChoice> {
    static py::object make(SlotChoice choice) {
        return py::str(choice == SlotChoice::sticky ? "sticky" : "random");
    }
};

namespace {

using O = SlottedCounterOptions;

/// A number, or 'adaptive'.
constexpr OptionRow<O> kSlots{
    "slots",
    [](O& options, const Argument& argument) {
        options.adaptive = PyUnicode_Check(argument.value) != 0;
        if (!options.adaptive) {
            options.slots = to_option(argument.value, argument.name);
        } else if (PyUnicode_CompareWithASCIIString(argument.value, "adaptive") != 0) {
            raise_config("slots is " + std::string(py::repr(argument.value)) +
                         "; it takes a number from 1 to 10000, or 'adaptive'");
        }
    },
    [](const O& options) -> py::object {
        if (options.adaptive) return py::str("adaptive");
        return py::int_(options.slots);
    },
    Shown::changed};

constexpr std::array kOptions{
    option<&O::table>("table"),
    kSlots,
    option<&O::slot_choice>("slot_choice"),
    option<&O::key_column>("key_column"),
    option<&O::slot_column>("slot_column"),
    option<&O::count_column>("count_column"),
    option<&O::op_keep>("op_keep"),
    option_in<&O::commit, &sql::GroupCommitOptions::max_batch>("max_batch"),
    option_in<&O::commit, &sql::GroupCommitOptions::max_delay, Delay>("max_delay"),
    option_in<&O::commit, &sql::GroupCommitOptions::max_queue>("max_queue"),
};

class BoundSlottedCounter : public Bound<SlottedCounter> {
  public:
    BoundSlottedCounter(std::shared_ptr<SlottedCounter> counter, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundSlottedCounter>),
          dialect(sql::to_string(store.backend<sql::Database>()->dialect())) {}

    std::string shown_options() const override {
        return python::shown_options<O, kOptions>(core->options());
    }
    py::object to_batch(std::vector<Result<std::int64_t>> results, const Refusals& refusals,
                        OnErrors on_errors) {
        py::dict errors;
        auto values = gather(std::move(results), refusals, errors);
        return finish(make_int64_batch(std::move(values), std::move(errors)), on_errors);
    }

    const std::string_view dialect;
};

std::shared_ptr<BoundBase> make_slotted_counter(const std::string& title, py::handle where,
                                                const O& options) {
    StoreReference store(where, "db", title.c_str(), {StoreKind::database});
    auto counter = unwrap(SlottedCounter::make(store.backend<sql::Database>(), options));
    return std::make_shared<BoundSlottedCounter>(std::move(counter), std::move(store));
}

Result<void> add(SlottedCounter& counter, std::string_view key, std::int64_t n,
                 std::optional<std::int64_t> slot, std::optional<std::string_view> op_id,
                 Timeout timeout) {
    return counter.add(key, n, op_id, timeout, slot);
}
void add_async(SlottedCounter& counter, std::string_view key, std::int64_t n,
               std::optional<std::int64_t> slot, std::optional<std::string_view> op_id,
               Completion<void> done, AsyncCall call) {
    counter.add_async(key, n, op_id, std::move(done), std::move(call), slot);
}

// What a batch of adds answers: the amounts of those that were added.
using Pairs = std::vector<std::pair<std::string_view, std::int64_t>>;
using Amounts = std::vector<Result<std::int64_t>>;

Amounts added(const std::vector<std::int64_t>& amounts, std::vector<Result<void>> settled) {
    Amounts results;
    results.reserve(settled.size());
    for (std::size_t i = 0; i < settled.size(); ++i) {
        results.push_back(settled[i] ? Result{amounts[i]}
                                     : Result<std::int64_t>{std::move(settled[i]).error()});
    }
    return results;
}
std::vector<std::int64_t> amounts_of(const Pairs& pairs) {
    std::vector<std::int64_t> amounts;
    for (const auto& [key, n] : pairs) amounts.push_back(n);
    return amounts;
}
Amounts add_many(SlottedCounter& counter, const Pairs& pairs, Timeout timeout) {
    return added(amounts_of(pairs), counter.add_many(pairs, timeout));
}
void add_many_async(SlottedCounter& counter, const Pairs& pairs, Completion<Amounts> done,
                    AsyncCall call) {
    counter.add_many_async(
        pairs,
        [amounts = amounts_of(pairs),
         done = std::move(done)](Result<std::vector<Result<void>>>&& settled) {
            if (!settled) return done(std::move(settled).error());
            done(added(amounts, std::move(*settled)));
        },
        call);
}

py::object session_statements(py::handle, BoundSlottedCounter& self, std::string_view dialect) {
    const auto named = unwrap(sql::dialect_of(dialect));
    py::dict made;
    for (const auto& [name, text] : counter_session_statements(named, self.core->options())) {
        made[py::str(name)] = py::str(text);
    }
    return made;
}

py::object statement(py::handle self, BoundSlottedCounter&, py::handle key, py::handle n) {
    const auto module = import_module("hotcount.integrations.sqlalchemy");
    return module.attr("statement")(self, key, n);
}

}  // namespace

template <>
struct BoundOf<SlottedCounter> {
    using type = BoundSlottedCounter;
};

void bind_slotted_counter() {
    constructor<&make_slotted_counter, StoreArgument, Options<O, kOptions>>(
        "SlottedCounterBase.__init__", "db " + names_of<kOptions>());
    attributes<BoundSlottedCounter, kOptions>("SlottedCounterBase", "slots");
    add_getter({"SlottedCounterBase", "slots",
                [](BoundBase& bound) -> py::object {
                    return py::int_(static_cast<BoundSlottedCounter&>(bound).core->slots());
                },
                &kTag<BoundSlottedCounter>});
    add_getter({"SlottedCounterBase", "dialect",
                [](BoundBase& bound) {
                    return To<std::string_view>::make(
                        static_cast<BoundSlottedCounter&>(bound).dialect);
                },
                &kTag<BoundSlottedCounter>});

    using S = SlottedCounter;
    using Key = std::string_view;
    method<&S::resize, nullptr, std::int64_t>("SlottedCounterBase.resize", "slots");
    object_method<&statement, BoundSlottedCounter, py::handle, py::handle>(
        "SlottedCounterBase.statement", "key n");
    object_method<&session_statements, BoundSlottedCounter, std::string_view>(
        "SlottedCounterBase._session_statements", "dialect");
    method<&S::create_table, &S::create_table_async, Timeout>("SlottedCounter.create_table",
                                                              "timeout");
    method<&add, &add_async, Key, Amount, std::optional<std::int64_t>, std::optional<Key>, Timeout>(
        "SlottedCounter.add", "key n slot op_id timeout");
    method<&add_many, &add_many_async, MappedAmounts, OnErrors, Timeout>("SlottedCounter.add_many",
                                                                         "mapping errors timeout");
    method<&S::get, &S::get_async, Key, Timeout>("SlottedCounter.get", "key timeout");
    method<&S::get_many, &S::get_many_async, Keys, OnErrors, Timeout>("SlottedCounter.get_many",
                                                                      "keys errors timeout");
    method<&S::reset, &S::reset_async, Key, Timeout>("SlottedCounter.reset", "key timeout");
    method<&S::compact, &S::compact_async, Key, Timeout>("SlottedCounter.compact", "key timeout");
}

}  // namespace hotcount::python

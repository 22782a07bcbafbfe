// hotcount.SlottedCounter and hotcount.aio.SlottedCounter: declared in hotcount/slotted_counter.py
// and hotcount/aio/slotted_counter.py.
#include <array>
#include <hotcount/detail/counter/session_statements.hpp>
#include <hotcount/slotted_counter.hpp>

#include "native/key_batches.hpp"
#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"

namespace hotcount::python {
template <>
inline constexpr std::array<std::string_view, 2> kWords<SlotChoice>{"sticky", "random"};

namespace {

/// A number, or 'adaptive'.
constexpr OptionRow<SlottedCounterOptions> kSlots{
    "slots",
    [](SlottedCounterOptions& options, const Argument& argument) {
        options.adaptive = PyUnicode_Check(argument.value) != 0;
        if (!options.adaptive) {
            options.slots = to_option(argument.value, argument.name);
        } else if (PyUnicode_CompareWithASCIIString(argument.value, "adaptive") != 0) {
            raise_config("slots is " + std::string(py::repr(argument.value)) +
                         "; it takes a number from 1 to 10000, or 'adaptive'");
        }
    },
    [](const SlottedCounterOptions& options) -> py::object {
        if (options.adaptive) return py::str("adaptive");
        return py::int_(options.slots);
    },
    Shown::changed};

constexpr std::array kSlottedOptions{
    option<&SlottedCounterOptions::table>(),       kSlots,
    option<&SlottedCounterOptions::slot_choice>(), option<&SlottedCounterOptions::key_column>(),
    option<&SlottedCounterOptions::slot_column>(), option<&SlottedCounterOptions::count_column>(),
    option<&SlottedCounterOptions::op_keep>()};

class BoundSlottedCounter : public Bound<SlottedCounter> {
  public:
    BoundSlottedCounter(std::shared_ptr<SlottedCounter> counter, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundSlottedCounter>),
          dialect(sql::to_string(store.backend<sql::Database>()->dialect())) {}

    std::string shown_options() const override {
        return python::shown_options<SlottedCounterOptions, kSlottedOptions>(core->options());
    }

    const std::string_view dialect;
};

std::shared_ptr<BoundBase> make_slotted_counter(const std::string& title, py::handle where,
                                                const SlottedCounterOptions& options) {
    StoreReference store(where, "db", title.c_str(), {StoreKind::database});
    auto counter = unwrap(SlottedCounter::make(store.backend<sql::Database>(), options));
    return std::make_shared<BoundSlottedCounter>(std::move(counter), std::move(store));
}

py::object slotted_statements(py::handle, BoundSlottedCounter& self, std::string_view dialect) {
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
    constructor<&make_slotted_counter, StoreArgument,
                Options<SlottedCounterOptions, kSlottedOptions>>(
        "SlottedCounterBase.__init__", "db " + names_of<kSlottedOptions>());
    refuse_keywords("SlottedCounterBase.__init__", "max_batch max_delay max_queue",
                    "the adds that wait while a transaction commits are the next one, and at most "
                    "100,000 wait");
    attributes<BoundSlottedCounter, kSlottedOptions>("SlottedCounterBase", "slots");
    attribute<BoundSlottedCounter>(
        "SlottedCounterBase", "slots",
        [](const BoundSlottedCounter& self) { return py::int_(self.core->slots()); });
    attribute<BoundSlottedCounter>(
        "SlottedCounterBase", "_dialect",
        [](const BoundSlottedCounter& self) { return To<std::string_view>::make(self.dialect); });

    using S = SlottedCounter;
    using Key = std::string_view;
    method<&S::resize, nullptr, std::int64_t>("SlottedCounterBase.resize", "slots");
    object_method<&statement, BoundSlottedCounter, py::handle, py::handle>(
        "SlottedCounterBase.statement", "key n");
    object_method<&slotted_statements, BoundSlottedCounter, std::string_view>(
        "SlottedCounterBase._session_statements", "dialect");
    method<&S::create_table, &S::create_table_async, Timeout>("SlottedCounter.create_table",
                                                              "timeout");
    method<&S::add, &S::add_async, Key, Amount, std::optional<Key>, std::optional<std::int64_t>,
           Timeout>("SlottedCounter.add", "key n op_id slot timeout");
    method<&S::add_many, &S::add_many_async, MappedPairs, OnErrors, Timeout>(
        "SlottedCounter.add_many", "mapping errors timeout");
    method<&S::get, &S::get_async, Key, Timeout>("SlottedCounter.get", "key timeout");
    method<&S::get_many, &S::get_many_async, Keys, OnErrors, Timeout>("SlottedCounter.get_many",
                                                                      "keys errors timeout");
    method<&S::reset, &S::reset_async, Key, Timeout>("SlottedCounter.reset", "key timeout");
    method<&S::compact, &S::compact_async, Key, Timeout>("SlottedCounter.compact", "key timeout");
}

}  // namespace hotcount::python

#include <hotcount/counter/slotted_counter.hpp>

#include "batch.hpp"
#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "paired_columns.hpp"
#include "signature_text.hpp"
#include "store.hpp"

namespace hotcount::python {
namespace {

class BoundSlottedCounter {
  public:
    BoundSlottedCounter(std::shared_ptr<SlottedCounter> counter, StoreReference store)
        : counter_(std::move(counter)), store_(std::move(store)) {}

    template <class F>
    auto call(F&& f) {
        store_.check_open();
        return without_gil([&] { return f(*counter_); });
    }
    std::int64_t slots() const { return counter_->slots(); }
    const SlottedCounterOptions& options() const { return counter_->options(); }
    std::string_view dialect() const {
        return sql::to_string(store_.backend<sql::Database>()->dialect());
    }

    void close() { store_.close(); }
    bool closed() const { return store_.closed(); }
    std::string repr() const { return store_.repr(); }

  private:
    std::shared_ptr<SlottedCounter> counter_;
    StoreReference store_;
};

bool is_adaptive(py::handle slots) {
    if (!PyUnicode_Check(slots.ptr())) return false;
    if (PyUnicode_CompareWithASCIIString(slots.ptr(), "adaptive") != 0) {
        raise_config("slots is " + std::string(py::repr(slots)) +
                     "; it takes a number from 1 to 10000, or 'adaptive'");
    }
    return true;
}

BoundSlottedCounter make_slotted_counter(const Arguments& arguments) {
    SlottedCounterOptions options;
    if (arguments[1]) options.table = to_text(arguments[1], "table");
    if (arguments[2]) {
        options.adaptive = is_adaptive(arguments[2]);
        if (!options.adaptive) options.slots = to_option(arguments[2], "slots");
    }
    if (arguments[3]) {
        options.slot_choice = to_choice(arguments[3], "slot_choice", {"sticky", "random"}) == 0
                                  ? SlotChoice::sticky
                                  : SlotChoice::random;
    }
    if (arguments[4]) options.key_column = to_text(arguments[4], "key_column");
    if (arguments[5]) options.slot_column = to_text(arguments[5], "slot_column");
    if (arguments[6]) options.count_column = to_text(arguments[6], "count_column");
    if (arguments[7]) options.op_keep = to_duration(arguments[7], "op_keep");
    if (arguments[8]) options.commit.max_batch = to_size(arguments[8], "max_batch");
    if (arguments[9]) options.commit.max_delay = to_delay(arguments[9], "max_delay");
    StoreReference store(arguments[0], "db", "SlottedCounter", {StoreKind::database});
    auto counter = unwrap(SlottedCounter::make(store.backend<sql::Database>(), std::move(options)));
    return {std::move(counter), std::move(store)};
}

py::object slotted_create_table(BoundSlottedCounter& self, const Arguments& arguments) {
    const Timeout timeout = to_timeout(arguments[0]);
    unwrap(self.call([&](SlottedCounter& counter) { return counter.create_table(timeout); }));
    return py::none();
}

py::object slotted_add(BoundSlottedCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const std::int64_t n = arguments[1] ? to_amount(arguments[1], "n") : 1;
    const auto op_id = to_optional_bytes(arguments[2], "op_id");
    const Timeout timeout = to_timeout(arguments[3]);
    unwrap(self.call([&](SlottedCounter& counter) { return counter.add(key, n, op_id, timeout); }));
    return py::none();
}

py::object slotted_add_many(BoundSlottedCounter& self, const Arguments& arguments) {
    if (!is_mapping(arguments[0])) {
        raise_wrong_type("mapping", "a mapping of keys to int", arguments[0]);
    }
    const auto columns = to_keys_and_numbers(arguments[0], "mapping", {}, "");
    const OnErrors on_errors = to_on_errors(arguments[1]);
    const Timeout timeout = to_timeout(arguments[2]);

    Refusals refusals;
    KeyHolder held;
    const auto views = to_keys(columns.keys, "mapping.keys()", held, refusals);
    const auto amounts = to_amounts(columns.numbers, "mapping.values()", views.size(), 1, refusals);
    std::vector<std::pair<std::string_view, std::int64_t>> pairs;
    for (std::size_t i = 0; i < views.size(); ++i) pairs.emplace_back(views[i], amounts[i]);
    pairs = refusals.strip(std::move(pairs));

    auto settled =
        self.call([&](SlottedCounter& counter) { return counter.add_many(pairs, timeout); });
    std::vector<Result<std::int64_t>> results;
    for (std::size_t i = 0; i < settled.size(); ++i) {
        if (settled[i].ok()) {
            results.emplace_back(pairs[i].second);
        } else {
            results.emplace_back(std::move(settled[i]).error());
        }
    }
    py::dict errors;
    auto added = gather(std::move(results), refusals, errors);
    return finish(make_int64_batch(std::move(added), std::move(errors)), on_errors);
}

py::object slotted_get(BoundSlottedCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Timeout timeout = to_timeout(arguments[1]);
    return py::int_(
        unwrap(self.call([&](SlottedCounter& counter) { return counter.get(key, timeout); })));
}

py::object slotted_get_many(BoundSlottedCounter& self, const Arguments& arguments) {
    Refusals refusals;
    KeyHolder held;
    auto keys = to_keys(arguments[0], "keys", held, refusals);
    const OnErrors on_errors = to_on_errors(arguments[1]);
    const Timeout timeout = to_timeout(arguments[2]);
    keys = refusals.strip(std::move(keys));
    auto results =
        self.call([&](SlottedCounter& counter) { return counter.get_many(keys, timeout); });
    py::dict errors;
    auto values = gather(std::move(results), refusals, errors);
    return finish(make_int64_batch(std::move(values), std::move(errors)), on_errors);
}

py::object slotted_reset(BoundSlottedCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Timeout timeout = to_timeout(arguments[1]);
    return py::int_(
        unwrap(self.call([&](SlottedCounter& counter) { return counter.reset(key, timeout); })));
}

py::object slotted_resize(BoundSlottedCounter& self, const Arguments& arguments) {
    const std::int64_t slots = to_option(arguments[0], "slots");
    unwrap(self.call([&](SlottedCounter& counter) { return counter.resize(slots); }));
    return py::none();
}

py::object slotted_compact(BoundSlottedCounter& self, const Arguments& arguments) {
    const std::string_view key = to_bytes(arguments[0], "key");
    const Timeout timeout = to_timeout(arguments[1]);
    return py::int_(
        unwrap(self.call([&](SlottedCounter& counter) { return counter.compact(key, timeout); })));
}

py::object slotted_statement(BoundSlottedCounter& self, const Arguments& arguments) {
    const auto module = py::module_::import("hotcount.integrations.sqlalchemy");
    const py::object n =
        arguments[1] ? py::reinterpret_borrow<py::object>(arguments[1]) : py::int_(1);
    return module.attr("statement")(py::cast(self, py::return_value_policy::reference),
                                    py::reinterpret_borrow<py::object>(arguments[0]), n);
}

std::string to_string(SlotChoice choice) {
    return choice == SlotChoice::sticky ? "sticky" : "random";
}

// What the integrations write statements from.
void define_names(py::class_<BoundSlottedCounter>& cls) {
    cls.def_property_readonly(
        "dialect", [](const BoundSlottedCounter& self) { return self.dialect(); },
        "'sqlite', 'postgresql' or 'mysql', which is MariaDB too.");
    cls.def_property_readonly(
        "table", [](const BoundSlottedCounter& self) { return self.options().table; },
        "The table's name.");
    cls.def_property_readonly(
        "key_column", [](const BoundSlottedCounter& self) { return self.options().key_column; },
        "The column of keys.");
    cls.def_property_readonly(
        "slot_column", [](const BoundSlottedCounter& self) { return self.options().slot_column; },
        "The column of slots.");
    cls.def_property_readonly(
        "count_column", [](const BoundSlottedCounter& self) { return self.options().count_column; },
        "The column of counts.");
    cls.def_property_readonly(
        "slot_choice",
        [](const BoundSlottedCounter& self) { return to_string(self.options().slot_choice); },
        "'sticky' or 'random'.");
}

}  // namespace

void bind_slotted_counter(py::module_& module) {
    const SlottedCounterOptions defaults;
    py::class_<BoundSlottedCounter> cls(
        module, "SlottedCounter",
        "A count in a SQL database, spread over several rows of one table.\n\n"
        "The count of a key is the sum over its slots, so that writers seldom meet on one row and\n"
        "the number of slots may change at any time. Every add is committed when the call\n"
        "returns; adds of concurrent callers share a transaction. Keys are str or bytes, 1 to\n"
        "1,000 bytes without NUL; numbers are signed 64-bit. Safe from many threads and across\n"
        "fork.");
    define_init<&make_slotted_counter>(
        cls,
        "(self, db: hotcount._core.Database | str, table: str = " + literal(defaults.table) +
            ", slots: int | typing.Literal['adaptive'] = " + literal(defaults.slots) +
            ", slot_choice: typing.Literal['sticky', 'random'] = 'sticky', key_column: str = " +
            literal(defaults.key_column) + ", slot_column: str = " + literal(defaults.slot_column) +
            ", count_column: str = " + literal(defaults.count_column) + ", *, op_keep: " + kTime +
            " = " + literal(defaults.op_keep) +
            ", max_batch: int = " + literal(static_cast<std::int64_t>(defaults.commit.max_batch)) +
            ", max_delay: " + kTime + " = " + literal(defaults.commit.max_delay) + ") -> None",
        "db: an object or its URL. slots: rows a key may spread over, 1 to 10,000; 'adaptive' "
        "starts\n"
        "with 1 and doubles them, up to 100, whenever a writer finds its row locked. slot_choice:\n"
        "'sticky' keeps each connection on its slot, 'random' takes one per add. op_keep: seconds "
        "an\n"
        "op_id is remembered. max_batch: most adds in one transaction. max_delay: seconds a\n"
        "transaction waits for company. Bad values: ConfigError that names them.");
    define<&slotted_create_table>(cls, "create_table", "(self, *, " + kTimeout + ") -> None",
                                  "Creates the table where it is missing. Idempotent.");
    define<&slotted_add>(
        cls, "add",
        "(self, key: str | bytes, n: int = 1, *, op_id: str | bytes | None = None, " + kTimeout +
            ") -> None",
        "Adds n (any int64, negative too); committed when it returns.\n\n"
        "With an op_id it is counted once, however often it is retried within op_keep.\n"
        "CounterOverflowError: the slot would leave 64 bits; nothing changed. DeadlineError: the\n"
        "database was locked until then; nothing was applied. timeout in seconds.");
    define<&slotted_add_many>(
        cls, "add_many",
        "(self, mapping: collections.abc.Mapping[str, int] | collections.abc.Mapping[bytes, int],"
        " *, " +
            kOnErrors + ", " + kTimeout + ") -> hotcount._core.Int64Batch",
        "Adds {key: n, ...} in as few transactions as max_batch allows.\n\n"
        "Returns the amounts added, in the mapping's order; 0 with an error in .errors where one\n"
        "was refused. errors='raise': BatchError once all are settled. A wrong type is a\n"
        "TypeError that names its index, before anything is added.");
    define<&slotted_get>(cls, "get", "(self, key: str | bytes, *, " + kTimeout + ") -> int",
                         "The sum over the key's slots; 0 where there are none.");
    define<&slotted_get_many>(cls, "get_many",
                              "(self, keys: collections.abc.Iterable[str | bytes], *, " +
                                  kOnErrors + ", " + kTimeout + ") -> hotcount._core.Int64Batch",
                              "The sums of many keys, in order, all from one snapshot.");
    define<&slotted_reset>(cls, "reset", "(self, key: str | bytes, *, " + kTimeout + ") -> int",
                           "Removes the key's rows and returns what they summed up to.");
    define<&slotted_resize>(
        cls, "resize", "(self, slots: int) -> None",
        "Changes the number of slots for this object's later adds, 1 to 10,000.\n\n"
        "Counts stay as they are: a read sums all slots there are.");
    define<&slotted_compact>(cls, "compact", "(self, key: str | bytes, *, " + kTimeout + ") -> int",
                             "Gathers the key's rows into slot 0; returns the unchanged sum.");
    define<&slotted_statement>(
        cls, "statement", "(self, key: str | bytes, n: int = 1) -> typing.Any",
        "A SQLAlchemy statement that adds n, to join a transaction of the caller's own.\n\n"
        "Its slot is drawn. Needs the extra hotcount[sqlalchemy], whose module\n"
        "hotcount.integrations.sqlalchemy has more; an ImportError that says so without it.");
    define_names(cls);
    cls.def_property_readonly("slots", &BoundSlottedCounter::slots, "The number of slots now.");
    define_lifetime(cls, "Ends this counter; a database opened from a URL for it ends too.");
}

}  // namespace hotcount::python

// hotcount.WriteBehindCounter and hotcount.aio.WriteBehindCounter: declared in
// hotcount/write_behind_counter.py and hotcount/aio/write_behind_counter.py.
#include <array>
#include <hotcount/write_behind_counter.hpp>

#include "native/key_batches.hpp"
#include "votes.hpp"

namespace hotcount::python {

template <>
inline constexpr std::array<std::string_view, 3> kWords<Ack>{"cache", "local", "sql"};

namespace {

constexpr std::array kViewOptions{
    always_shown(option<&WriteBehindOptions::table>()),
    option<&WriteBehindOptions::prefix, KeyText>(), option<&WriteBehindOptions::flush_interval>(),
    option<&WriteBehindOptions::max_cells>(), option<&WriteBehindOptions::interval>()};

}  // namespace

std::string BoundViews::shown_options() const {
    return ", cache=" + cache_.shown_store() +
           python::shown_options<WriteBehindOptions, kViewOptions>(core->options());
}

// Without the GIL: the last flush waits for Redis, and completions on the way may need it. Returns the
// adds that are lost, for example because a store was closed before; the caller warns of them.
std::int64_t BoundViews::close_core() {
    return without_gil([&] { return core->close(); });
}

BoundViews::~BoundViews() {
    if (PyGILState_Check() == 0) return;
    const std::int64_t lost = close_core();
    // An object may go while an exception is on its way.
    const py::error_scope kept;
    if (lost > 0 && !warn_of(lost)) PyErr_WriteUnraisable(nullptr);
}

bool BoundViews::warn_of(std::int64_t lost) {
    const std::string text =
        std::to_string(lost) + " adds were not sent before the counter was closed: they are lost";
    return PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) == 0;
}

void BoundViews::close() {
    const std::int64_t lost = close_core();
    store.close();
    cache_.close();
    if (lost > 0 && !warn_of(lost)) throw py::error_already_set();
}

py::object BoundViews::to_batch(std::vector<Result<Count>> counts, const Refusals& refusals,
                                OnErrors on_errors) const {
    return python::to_batch(to_rows(std::move(counts), to_row), refusals, on_errors);
}

namespace {

std::shared_ptr<BoundBase> make_views(const std::string& title, py::handle db, py::handle cache,
                                      const WriteBehindOptions& options) {
    StoreReference store(db, "db", title.c_str(), {StoreKind::database});
    StoreReference cells(cache, "cache", title.c_str(), {StoreKind::redis});
    auto counter = unwrap(without_gil([&] {
        return WriteBehindCounter::make(store.backend<sql::Database>(),
                                        cells.backend<redis::Client>(), options);
    }));
    return std::make_shared<BoundViews>(std::move(counter), std::move(store), std::move(cells));
}

py::object view_stats(py::handle, BoundViews& self) {
    using S = WriteBehindStats;
    const S stats = self.core->stats();
    py::dict dict =
        to_dict<&S::adds, &S::losses, &S::writers, &S::cells, &S::at_risk, &S::flush_error>(stats);
    dict["failed_adds"] = stats.failed;
    dict["flushed_cells"] = stats.flushed;
    dict["unapplied_cells"] = stats.unapplied;
    dict["pending_cells"] = stats.pending;
    return dict;
}

py::object view_contract(py::handle, BoundViews& self) {
    return To<Contract>::make(self.core->contract());
}

py::object view_schema(py::handle, BoundViews& self) {
    const auto database = self.store.backend<sql::Database>();
    return py::str(unwrap(write_behind_schema(database->dialect(), self.core->options())));
}

}  // namespace

void bind_write_behind_counter() {
    constructor<&make_views, StoreArgument, StoreArgument,
                Options<WriteBehindOptions, kViewOptions>>("WriteBehindCounterBase.__init__",
                                                           "db cache " + names_of<kViewOptions>());
    refuse_keywords("WriteBehindCounterBase.__init__", "max_batch max_delay max_queue page",
                    "a transaction takes what waits, 1000 at most, and at most 100,000 adds wait");
    refuse_keywords("WriteBehindCounterBase.__init__", "horizon",
                    "the rows of a writer stay in SQL for 7 days");
    attributes<BoundViews, kViewOptions>("WriteBehindCounterBase");
    object_method<&view_stats, BoundViews>("WriteBehindCounterBase.stats", "");
    object_method<&view_contract, BoundViews>("WriteBehindCounterBase.contract", "");
    object_method<&view_schema, BoundViews>("WriteBehindCounterBase.schema", "");

    using W = WriteBehindCounter;
    using Key = std::string_view;
    method<&W::create_tables, InThread{}, Timeout>("WriteBehindCounter.create_tables", "timeout");
    method<&W::add, &W::add_async, Key, Amount, Ack, Timeout>("WriteBehindCounter.add",
                                                              "key n ack timeout");
    method<&W::add_many, &W::add_many_async, Pairs, Ack, OnErrors, Timeout>(
        "WriteBehindCounter.add_many", "keys n ack errors timeout");
    // Made by threads of the library: the key is copied.
    method<&W::get, InThread{}, KeyText, Timeout>("WriteBehindCounter.get", "key timeout");
    method<&W::get_many, &W::get_many_async, Keys, OnErrors, Timeout>("WriteBehindCounter.get_many",
                                                                      "keys errors timeout");
    method<&W::reset, InThread{}, KeyText, Timeout>("WriteBehindCounter.reset", "key timeout");
    method<&W::flush, InThread{}, Timeout>("WriteBehindCounter.flush", "timeout");
}

}  // namespace hotcount::python

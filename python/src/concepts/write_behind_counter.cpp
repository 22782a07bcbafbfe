// hotcount.WriteBehindCounter and hotcount.aio.WriteBehindCounter: declared in
// hotcount/write_behind_counter.py and hotcount/aio/write_behind_counter.py.
#include <array>
#include <hotcount/write_behind_counter.hpp>

#include "native/key_batches.hpp"
#include "votes.hpp"
#include "write_behind.hpp"

namespace hotcount::python {

template <>
struct From<Ack> {
    static Ack read(const Argument& argument) {
        return static_cast<Ack>(
            to_choice(argument.value, argument.name, {"cache", "local", "sql"}));
    }
};

namespace {

using O = WriteBehindOptions;
using Commit = sql::GroupCommitOptions;
constexpr std::array kViewOptions{
    option<&O::table>("table", Shown::always),
    option<&O::prefix, KeyText>("prefix"),
    option<&O::flush_interval>("flush_interval"),
    option<&O::max_cells>("max_cells"),
    option<&O::page>("page"),
    option<&O::interval>("interval"),
    option<&O::horizon>("horizon"),
    option_in<&O::commit, &Commit::max_batch>("max_batch"),
    option_in<&O::commit, &Commit::max_delay, Delay>("max_delay"),
    option_in<&O::commit, &Commit::max_queue>("max_queue"),
};

}  // namespace

std::string BoundViews::shown_options() const {
    return ", cache=" + cache_.shown_store() +
           python::shown_options<O, kViewOptions>(core->options());
}

// The last flush waits for Redis, and what it waits for may need the GIL. Also where a store was closed
// before: what was local is lost then, and its owner is told.
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

py::object BoundViews::to_batch(std::vector<Result<std::int64_t>> amounts, const Refusals& refusals,
                                OnErrors on_errors) const {
    py::dict errors;
    auto values = gather(std::move(amounts), refusals, errors);
    return finish(make_int64_batch(std::move(values), std::move(errors)), on_errors);
}

py::object BoundViews::to_batch(std::vector<Result<Count>> counts, const Refusals& refusals,
                                OnErrors on_errors) const {
    std::vector<Result<CountRow>> rows;
    rows.reserve(counts.size());
    for (auto& count : counts) {
        rows.push_back(count ? Result{to_row(std::move(*count))}
                             : Result<CountRow>{std::move(count).error()});
    }
    py::dict errors;
    auto columns = gather(std::move(rows), refusals, errors);
    return finish(std::make_shared<RowBatch<CountRow>>(std::move(columns), std::move(errors)),
                  on_errors);
}

namespace {

std::shared_ptr<BoundBase> make_views(const std::string& title, py::handle db, py::handle cache,
                                      const O& options) {
    StoreReference store(db, "db", title.c_str(), {StoreKind::database});
    StoreReference cells(cache, "cache", title.c_str(), {StoreKind::redis});
    auto counter = unwrap(without_gil([&] {
        return WriteBehindCounter::make(store.backend<sql::Database>(),
                                        cells.backend<redis::Client>(), options);
    }));
    return std::make_shared<BoundViews>(std::move(counter), std::move(store), std::move(cells));
}

Result<CountRow> get_view(WriteBehindCounter& counter, std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(Count count, counter.get(key, timeout));
    return to_row(std::move(count));
}

// In a thread of the library: the key is copied.
Result<CountRow> get_named(WriteBehindCounter& counter, const std::string& key, Timeout timeout) {
    return get_view(counter, key, timeout);
}

void get_view_async(BoundViews& self, std::string_view key, Completion<CountRow> done,
                    AsyncCall call) {
    const Deadline deadline = self.deadline(call.timeout);
    self.core->run_async(
        deadline,
        [key = std::string{key}, deadline, done](WriteBehindCounter& counter) {
            done(get_named(counter, key, deadline.remaining()));
        },
        [done](Error error) { done(std::move(error)); });
}

// As get_named().
Result<std::int64_t> reset_named(WriteBehindCounter& counter, const std::string& key,
                                 Timeout timeout) {
    return counter.reset(key, timeout);
}

// What a batch of adds answers: the amounts of those that were added.
using Amounts = std::vector<Result<std::int64_t>>;

using Pairs = std::vector<std::pair<std::string_view, std::int64_t>>;

Pairs pairs_of(const std::vector<std::string_view>& keys,
               const std::vector<std::int64_t>& amounts) {
    Pairs pairs;
    pairs.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) pairs.emplace_back(keys[i], amounts[i]);
    return pairs;
}

Amounts amounts_of(const std::vector<std::int64_t>& amounts, std::vector<Result<void>> settled) {
    Amounts added;
    added.reserve(settled.size());
    for (std::size_t i = 0; i < settled.size(); ++i) {
        added.push_back(settled[i] ? Result{amounts[i]}
                                   : Result<std::int64_t>{std::move(settled[i]).error()});
    }
    return added;
}

Amounts add_views(WriteBehindCounter& counter, const std::vector<std::string_view>& keys,
                  const std::vector<std::int64_t>& amounts, Ack ack, Timeout timeout) {
    return amounts_of(amounts, counter.add_many(pairs_of(keys, amounts), ack, timeout));
}
void add_views_async(WriteBehindCounter& counter, const std::vector<std::string_view>& keys,
                     const std::vector<std::int64_t>& amounts, Ack ack, Completion<Amounts> done,
                     AsyncCall call) {
    counter.add_many_async(
        pairs_of(keys, amounts), ack,
        [amounts, done = std::move(done)](Result<std::vector<Result<void>>>&& settled) {
            if (!settled) return done(std::move(settled).error());
            done(amounts_of(amounts, std::move(*settled)));
        },
        call);
}

py::object view_stats(py::handle, BoundViews& self) {
    const WriteBehindStats stats = self.core->stats();
    py::dict dict;
    dict["adds"] = stats.adds;
    dict["failed_adds"] = stats.failed;
    dict["flushed_cells"] = stats.flushed;
    dict["losses"] = stats.losses;
    dict["writers"] = stats.writers;
    dict["cells"] = stats.cells;
    dict["unapplied_cells"] = stats.unapplied;
    dict["pending_cells"] = stats.pending;
    dict["at_risk"] = stats.at_risk;
    dict["flush_error"] = stats.flush_error;
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
    constructor<&make_views, StoreArgument, StoreArgument, Options<O, kViewOptions>>(
        "WriteBehindCounterBase.__init__", "db cache " + names_of<kViewOptions>());
    attributes<BoundViews, kViewOptions>("WriteBehindCounterBase");
    object_method<&view_stats, BoundViews>("WriteBehindCounterBase.stats", "");
    object_method<&view_contract, BoundViews>("WriteBehindCounterBase.contract", "");
    object_method<&view_schema, BoundViews>("WriteBehindCounterBase.schema", "");

    using W = WriteBehindCounter;
    using Key = std::string_view;
    method<&W::create_tables, InThread{}, Timeout>("WriteBehindCounter.create_tables", "timeout");
    method<&W::add, &W::add_async, Key, Amount, Ack, Timeout>("WriteBehindCounter.add",
                                                              "key n ack timeout");
    method<&add_views, &add_views_async, KeysAndAmounts, Ack, OnErrors, Timeout>(
        "WriteBehindCounter.add_many", "keys n ack errors timeout");
    method<&get_view, &get_view_async, Key, Timeout>("WriteBehindCounter.get", "key timeout");
    method<&W::get_many, &W::get_many_async, Keys, OnErrors, Timeout>("WriteBehindCounter.get_many",
                                                                      "keys errors timeout");
    method<&reset_named, InThread{}, KeyText, Timeout>("WriteBehindCounter.reset", "key timeout");
    method<&W::flush, InThread{}, Timeout>("WriteBehindCounter.flush", "timeout");
}

}  // namespace hotcount::python

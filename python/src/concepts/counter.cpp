// hotcount.Counter and hotcount.aio.Counter: declared in hotcount/counter.py and
// hotcount/aio/counter.py.
#include <array>
#include <hotcount/counter.hpp>
#include <hotcount/retry_queue.hpp>
#include <utility>
#include <variant>

#include "native/bind.hpp"
#include "native/key_batches.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"

namespace hotcount::python {
namespace {

ResultClass try_add_class{"TryAdd", std::array{"applied", "value"}};

/// A str, bytes or os.PathLike; None is an empty one.
struct FilePath {
    std::string text;
};

/// RetryQueue as Python has it.
struct QueueRow {
    FilePath path;
    std::size_t max_items;
    Duration max_age;
    WhenFull when_full;
    Fsync fsync;
};

/// One element of an AddedBatch: an int, or a Queued.
struct AddedRow {
    std::int64_t value;    // 0 where it waits.
    std::int64_t waiting;  // 0 where it is counted.
    bool durable;
};
using AddedBatch = RowBatch<AddedRow>;

/// What add_many comes to: rows for a counter with a queue.
struct ManyAdded {
    std::variant<BatchResult<std::int64_t>, BatchResult<AddedRow>> answers;
};
template <class Tell>
void tell_each(ManyAdded& many, const Tell& tell) {
    std::visit([&](auto& result) { detail::tell_each(result, tell); }, many.answers);
}

}  // namespace

// -- the table, for what counters alone have ------------------------------------------------------

template <>
struct From<CounterMethod> {
    static CounterMethod read(const Argument& argument) {
        return static_cast<CounterMethod>(
            to_choice(argument.value, argument.name, {"script", "incr", "set_nx_incr"}));
    }
};
template <>
struct To<CounterMethod> {
    static py::object make(CounterMethod method) {
        return To<std::string_view>::make(to_string(method));
    }
};

template <>
struct From<Compensation> {
    static Compensation read(const Argument& argument) {
        return static_cast<Compensation>(
            to_choice(argument.value, argument.name, {"none", "first", "ttl", "both"}));
    }
};
template <>
struct To<Compensation> {
    static py::object make(Compensation compensation) {
        return To<std::string_view>::make(to_string(compensation));
    }
};

template <>
struct From<FilePath> {
    static FilePath read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        const auto path = py::reinterpret_steal<py::object>(PyOS_FSPath(argument.value));
        if (!path) {
            PyErr_Clear();
            raise_wrong_type(argument.name, "str or os.PathLike", argument.value);
        }
        FilePath read{std::string{to_bytes(path.ptr(), argument.name)}};
        if (read.text.empty()) raise(bad_option(argument.name, "is empty; None for no file"));
        return read;
    }
};
template <>
struct From<WhenFull> {
    static WhenFull read(const Argument& argument) {
        return static_cast<WhenFull>(
            to_choice(argument.value, argument.name, {"raise", "drop_oldest"}));
    }
};
template <>
struct From<Fsync> {
    static Fsync read(const Argument& argument) {
        return static_cast<Fsync>(
            to_choice(argument.value, argument.name, {"always", "interval", "off"}));
    }
};
template <>
struct To<FilePath> {
    static py::object make(const FilePath& path) {
        return path.text.empty() ? py::object(py::none()) : To<std::string_view>::make(path.text);
    }
};
template <>
struct To<WhenFull> {
    static py::object make(WhenFull when_full) {
        return To<std::string_view>::make(to_string(when_full));
    }
};
template <>
struct To<Fsync> {
    static py::object make(Fsync fsync) { return To<std::string_view>::make(to_string(fsync)); }
};

template <>
inline ResultRow<&QueueRow::path, &QueueRow::max_items, &QueueRow::max_age, &QueueRow::when_full,
                 &QueueRow::fsync>
    kResultRow<QueueRow>{"RetryQueue", {"path", "max_items", "max_age", "when_full", "fsync"}};

template <>
inline ResultRow<&Queued::waiting, &Queued::durable> kResultRow<Queued>{"Queued",
                                                                        {"waiting", "durable"}};

template <>
inline ResultRow<&RetryStats::waiting, &RetryStats::queued, &RetryStats::replayed,
                 &RetryStats::expired, &RetryStats::refused, &RetryStats::dropped,
                 &RetryStats::outages, &RetryStats::oldest_age, &RetryStats::journal_bytes,
                 &RetryStats::is_away>
    kResultRow<RetryStats>{"RetryStats",
                           {"waiting", "queued", "replayed", "expired", "refused", "dropped",
                            "outages", "oldest_age", "journal_bytes", "is_away"}};

template <>
struct To<TryAdd> {
    static py::object make(const TryAdd& value) {
        return try_add_class.make(value.applied, value.value);
    }
};

template <>
struct From<AddedRow> {
    static AddedRow read(const Argument& argument) {
        if (!kResultRow<Queued>.is(argument.value)) {
            return {From<Amount>::read(argument).number, 0, false};
        }
        const Queued queued = From<Queued>::read(argument);
        if (queued.waiting < 1) {
            raise_config(std::string{argument.name} +
                         " is a Queued of no adds: waiting counts itself");
        }
        return {0, queued.waiting, queued.durable};
    }
};
template <>
struct To<AddedRow> {
    static py::object make(const AddedRow& row) {
        if (row.waiting > 0) return To<Queued>::make({row.waiting, row.durable});
        return To<std::int64_t>::make(row.value);
    }
};

namespace {

constexpr std::array kOptions{
    option<&CounterOptions::prefix, KeyText>("prefix"),
    option<&CounterOptions::ttl>("ttl"),
    option<&CounterOptions::op_keep>("op_keep"),
    option<&CounterOptions::method>("method"),
    option<&CounterOptions::compensation>("compensation"),
};

class BoundCounter : public Bound<Counter> {
  public:
    BoundCounter(std::shared_ptr<Counter> counter, std::shared_ptr<RetryingCounter> with_queue,
                 std::optional<QueueRow> queue_row, StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundCounter>),
          retrying(std::move(with_queue)),
          queue(std::move(queue_row)) {}

    std::string shown_options() const override {
        std::string shown = python::shown_options<CounterOptions, kOptions>(core->options());
        if (queue) shown += ", retry=" + std::string(py::repr(To<QueueRow>::make(*queue)));
        return shown;
    }

    py::object to_batch(BatchResult<std::int64_t> result, const Refusals& refusals,
                        OnErrors on_errors) {
        py::dict errors;
        auto values = gather(std::move(result), refusals, errors);
        return finish(make_int64_batch(std::move(values), std::move(errors)), on_errors);
    }

    py::object to_batch(ManyAdded many, const Refusals& refusals, OnErrors on_errors) {
        if (auto* const plain = std::get_if<0>(&many.answers)) {
            return to_batch(std::move(*plain), refusals, on_errors);
        }
        py::dict errors;
        auto rows = gather(std::get<1>(std::move(many.answers)), refusals, errors);
        if (retrying) {
            for (const AddedRow& row : rows) {
                if (row.waiting == 0) continue;
                log_outage();
                break;
            }
            if (!rows.empty() && rows.back().waiting == 0) log_return();
        }
        return finish(std::make_shared<AddedBatch>(std::move(rows), std::move(errors)), on_errors);
    }

    py::object to_python(Added added) {
        if (const auto* const queued = std::get_if<Queued>(&added)) {
            log_outage();
            return To<Queued>::make(*queued);
        }
        log_return();
        return To<std::int64_t>::make(std::get<std::int64_t>(added));
    }

    /// What has a queue ends in the queue's thread.
    bool ends_elsewhere() const { return retrying != nullptr; }

    void close() override {
        std::size_t left = 0;
        if (retrying && !std::exchange(queue_closed_, true)) {
            // While Redis is away, or the store is closed, nothing comes of waiting.
            const bool in_vain = store.closed() || retrying->stats().is_away;
            const Timeout timeout = in_vain ? Timeout{std::chrono::milliseconds{1}} : std::nullopt;
            left = without_gil([&] { return retrying->close(timeout); });
        }
        store.close();
        if (left == 0) return;
        const std::string text = std::to_string(left) + " adds still wait: " +
                                 (queue->path.text.empty() ? "they are lost"
                                                           : "they stay in " + queue->path.text +
                                                                 " for the next process");
        if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
    }

    const std::shared_ptr<RetryingCounter> retrying;
    const std::optional<QueueRow> queue;

  private:
    /// An outage is logged when it is first noticed, and once more when nothing waits any more.
    void log_outage() {
        if (std::exchange(away_logged_, true)) return;
        log("warning", server() + " does not answer: adds wait in the retry queue");
    }
    void log_return() {
        if (!away_logged_ || retrying->stats().waiting > 0) return;
        away_logged_ = false;
        const RetryStats stats = retrying->stats();
        log("info", server() + " answers: no add waits any more. Since the counter was made " +
                        std::to_string(stats.replayed) + " of the queue were counted, " +
                        std::to_string(stats.expired) + " expired, " +
                        std::to_string(stats.refused) + " were refused, " +
                        std::to_string(stats.dropped) + " dropped");
    }
    std::string server() const { return store.backend<redis::Client>()->options().address(); }

    bool away_logged_{false};  // Guarded by the GIL, as the next.
    bool queue_closed_{false};
};

/// The queue of the counter of a call, or nothing: no parameter of Python.
struct QueueOfCounter {
    RetryingCounter* retrying;
    bool given;  ///< retry= was given; over Memory there is no queue.
};

}  // namespace

template <>
struct From<QueueOfCounter> {
    static constexpr std::size_t kTakes = 0;
    template <class Self>
    static QueueOfCounter read(const Argument*, Self& self) {
        return {self.retrying.get(), self.queue.has_value()};
    }
};

namespace {

std::shared_ptr<BoundBase> make_counter(const std::string& title, py::handle where,
                                        const CounterOptions& options,
                                        const std::optional<QueueRow>& queue) {
    RetryQueue given;
    if (queue) {
        given = {.path = queue->path.text,
                 .max_items = queue->max_items,
                 .max_age = queue->max_age,
                 .when_full = queue->when_full,
                 .fsync = queue->fsync};
        if (auto fits = check_retry_queue(given); !fits) raise(fits.error());
    }
    StoreReference store(where, "store", title.c_str(), {StoreKind::memory, StoreKind::redis});
    if (store.kind() == StoreKind::memory) {
        auto counter = unwrap(Counter::make(store.backend<memory::Store>(), options));
        return std::make_shared<BoundCounter>(std::move(counter), nullptr, queue, std::move(store));
    }
    const auto client = store.backend<redis::Client>();
    auto counter = unwrap(Counter::make(client, options));
    std::shared_ptr<RetryingCounter> retrying;
    if (queue) {
        retrying =
            unwrap(without_gil([&] { return RetryingCounter::make(client, options, given); }));
    }
    return std::make_shared<BoundCounter>(std::move(counter), std::move(retrying), queue,
                                          std::move(store));
}

// With an op_id it is another call of the core, which is not queued: its caller can make it again.
Result<Added> add(Counter& counter, const QueueOfCounter& queue, std::string_view key,
                  std::int64_t n, const std::optional<std::string_view>& op_id, Timeout timeout) {
    if (queue.retrying != nullptr && !op_id) return queue.retrying->add(key, n, timeout);
    auto value = op_id ? counter.add_once(key, n, *op_id, timeout) : counter.add(key, n, timeout);
    if (!value) return std::move(value).error();
    return Added{*value};
}
void add_async(Counter& counter, const QueueOfCounter& queue, std::string_view key, std::int64_t n,
               const std::optional<std::string_view>& op_id, Completion<Added> done,
               AsyncCall call) {
    if (queue.retrying != nullptr && !op_id) {
        return queue.retrying->add_async(key, n, std::move(done), call);
    }
    auto go_on = [done = std::move(done)](Result<std::int64_t> value) {
        if (!value) return done(std::move(value).error());
        done(Added{*value});
    };
    if (op_id) return counter.add_once_async(key, n, *op_id, std::move(go_on), call);
    counter.add_async(key, n, std::move(go_on), call);
}

BatchResult<AddedRow> to_rows(BatchResult<Added> added) {
    BatchResult<AddedRow> rows{{}, std::move(added.errors)};
    rows.values.reserve(added.values.size());
    for (const Added& one : added.values) {
        if (const auto* const queued = std::get_if<Queued>(&one)) {
            rows.values.push_back({0, queued->waiting, queued->durable});
        } else {
            rows.values.push_back({std::get<std::int64_t>(one), 0, false});
        }
    }
    return rows;
}
ManyAdded to_many(BatchResult<std::int64_t> plain, bool as_rows) {
    if (!as_rows) return {std::move(plain)};
    BatchResult<AddedRow> rows{{}, std::move(plain.errors)};
    for (const std::int64_t value : plain.values) rows.values.push_back({value, 0, false});
    return {std::move(rows)};
}
Result<ManyAdded> add_many(Counter& counter, const QueueOfCounter& queue,
                           const std::vector<std::string_view>& keys,
                           const std::vector<std::int64_t>& amounts, Timeout timeout) {
    if (queue.retrying != nullptr) {
        return ManyAdded{to_rows(queue.retrying->add_many(keys, amounts, timeout))};
    }
    return to_many(counter.add_many(keys, amounts, timeout), queue.given);
}
void add_many_async(Counter& counter, const QueueOfCounter& queue,
                    const std::vector<std::string_view>& keys,
                    const std::vector<std::int64_t>& amounts, Completion<ManyAdded> done,
                    AsyncCall call) {
    if (queue.retrying != nullptr) {
        return queue.retrying->add_many_async(
            keys, amounts,
            [done = std::move(done)](Result<BatchResult<Added>> added) {
                if (!added) return done(std::move(added).error());
                done(ManyAdded{to_rows(std::move(*added))});
            },
            call);
    }
    counter.add_many_async(
        keys, amounts,
        [done = std::move(done), as_rows = queue.given](Result<BatchResult<std::int64_t>> plain) {
            if (!plain) return done(std::move(plain).error());
            done(to_many(std::move(*plain), as_rows));
        },
        call);
}

using MaybeAmount = std::optional<Amount>;
Bounds bounds_of(const MaybeAmount& min, const MaybeAmount& max) {
    Bounds bounds;
    if (min) bounds.min = min->number;
    if (max) bounds.max = max->number;
    return bounds;
}
Result<TryAdd> try_add(Counter& counter, std::string_view key, std::int64_t n,
                       const MaybeAmount& min, const MaybeAmount& max, Timeout timeout) {
    return counter.try_add(key, n, bounds_of(min, max), timeout);
}
void try_add_async(Counter& counter, std::string_view key, std::int64_t n, const MaybeAmount& min,
                   const MaybeAmount& max, Completion<TryAdd> done, AsyncCall call) {
    counter.try_add_async(key, n, bounds_of(min, max), std::move(done), call);
}

}  // namespace

template <>
struct BoundOf<Counter> {
    using type = BoundCounter;
};

namespace {

RetryStats retry_stats_of(BoundCounter& self) {
    if (self.retrying) return self.retrying->stats();
    if (!self.queue) raise(make_error(ErrorCode::config, "the counter has no retry queue"));
    return {};  // Nothing ever waits for Memory.
}
py::object retry_stats(py::handle, BoundCounter& self) {
    return To<RetryStats>::make(retry_stats_of(self));
}

}  // namespace

void bind_counter() {
    constructor<&make_counter, StoreArgument, Options<CounterOptions, kOptions>,
                std::optional<QueueRow>>("CounterBase.__init__",
                                         "store " + names_of<kOptions>() + "retry");
    attributes<BoundCounter, kOptions>("CounterBase", "ttl");
    add_getter({"CounterBase", "retry",
                [](BoundBase& bound) -> py::object {
                    const auto& queue = static_cast<BoundCounter&>(bound).queue;
                    return queue ? To<QueueRow>::make(*queue) : py::object(py::none());
                },
                &kTag<BoundCounter>});
    object_method<&retry_stats, BoundCounter>("CounterBase.retry_stats", "");

    declare_rows<AddedRow>("AddedBatch", column<&AddedRow::value>("value"),
                           column<&AddedRow::waiting>("waiting"),
                           column<&AddedRow::durable>("durable"));

    using Key = std::string_view;
    method<&add, &add_async, QueueOfCounter, Key, Amount, std::optional<Key>, Timeout>(
        "Counter.add", "key n op_id timeout");
    method<&try_add, &try_add_async, Key, Amount, MaybeAmount, MaybeAmount, Timeout>(
        "Counter.try_add", "key n min max timeout");
    method<&add_many, &add_many_async, QueueOfCounter, KeysAndAmounts, OnErrors, Timeout>(
        "Counter.add_many", "keys n errors timeout");
    method<&Counter::get, &Counter::get_async, Key, Timeout>("Counter.get", "key timeout");
    method<&Counter::get_many, &Counter::get_many_async, Keys, OnErrors, Timeout>(
        "Counter.get_many", "keys errors timeout");
    method<&Counter::reset, &Counter::reset_async, Key, Timeout>("Counter.reset", "key timeout");
    method<&Counter::ttl, &Counter::ttl_async, Key, Timeout>("Counter.ttl", "key timeout");
}

}  // namespace hotcount::python

// The retry queue of a Counter or a PeriodCounter.
#pragma once

#include <algorithm>
#include <hotcount/retry_queue.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"

namespace hotcount::python {

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
inline constexpr std::array<std::string_view, 2> kWords<WhenFull>{"raise", "drop_oldest"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Fsync>{"always", "interval", "off"};
template <>
struct To<FilePath> {
    static py::object make(const FilePath& path) {
        return path.text.empty() ? py::object(py::none()) : To<std::string_view>::make(path.text);
    }
};

template <>
inline ResultRow<&QueueRow::path, &QueueRow::max_items, &QueueRow::max_age, &QueueRow::when_full,
                 &QueueRow::fsync>
    kResultRow<QueueRow>{"RetryQueue"};
template <>
inline ResultRow<&Queued::waiting, &Queued::durable> kResultRow<Queued>{"Queued"};
template <>
inline ResultRow<&RetryStats::waiting, &RetryStats::queued, &RetryStats::replayed,
                 &RetryStats::expired, &RetryStats::refused, &RetryStats::dropped,
                 &RetryStats::outages, &RetryStats::oldest_age, &RetryStats::journal_bytes,
                 &RetryStats::is_away>
    kResultRow<RetryStats>{"RetryStats"};

/// One element of an AddedBatch: an int, or a Queued.
struct AddedRow {
    std::int64_t value;    // 0 where it waits.
    std::int64_t waiting;  // 0 where it is counted.
    bool durable;
};
using AddedBatch = RowBatch<AddedRow>;

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

/// The result of add_many: numbers, or rows for a counter with a queue.
struct ManyAdded {
    std::variant<BatchResult<std::int64_t>, BatchResult<AddedRow>> answers;
};
template <class AddFacts>
void add_facts_to_each(ManyAdded& many, const AddFacts& add_facts) {
    std::visit([&](auto& result) { detail::add_facts_to_each(result, add_facts); }, many.answers);
}

/// The queue as the core takes it; raises for a bad option.
inline std::optional<RetryQueue> to_core(const std::optional<QueueRow>& row) {
    if (!row) return {};
    RetryQueue queue{.path = row->path.text,
                     .max_items = row->max_items,
                     .max_age = row->max_age,
                     .when_full = row->when_full,
                     .fsync = row->fsync};
    if (auto fits = check_retry_queue(queue); !fits) raise(fits.error());
    return queue;
}

/// The queue of one counter. Retrying: RetryingCounter or RetryingPeriodCounter.
template <class Retrying>
class BoundQueue {
  public:
    BoundQueue(std::shared_ptr<Retrying> retrying, std::optional<QueueRow> given)
        : core(std::move(retrying)), row(std::move(given)) {}

    std::string shown() const {
        return row ? ", retry=" + std::string(py::repr(To<QueueRow>::make(*row))) : "";
    }

    py::object to_python(const Added& added, const StoreReference& store) {
        if (const auto* const queued = std::get_if<Queued>(&added)) {
            log_outage(store);
            return To<Queued>::make(*queued);
        }
        log_return(store);
        return To<std::int64_t>::make(std::get<std::int64_t>(added));
    }

    py::object to_batch(ManyAdded many, const Refusals& refusals, OnErrors on_errors,
                        const StoreReference& store) {
        if (auto* const plain = std::get_if<0>(&many.answers)) {
            return python::to_batch(std::move(*plain), refusals, on_errors);
        }
        py::dict errors;
        auto rows = gather(std::get<1>(std::move(many.answers)), refusals, errors);
        if (core && !rows.empty()) {
            const bool some_wait = std::any_of(
                rows.begin(), rows.end(), [](const AddedRow& each) { return each.waiting > 0; });
            if (some_wait) log_outage(store);
            if (rows.back().waiting == 0) log_return(store);
        }
        return finish(std::make_shared<AddedBatch>(std::move(rows), std::move(errors)), on_errors);
    }

    /// A server's outage is logged when it is first noticed, and the end of all of them when nothing
    /// waits any more.
    void log_outage(const StoreReference& store) {
        for (const std::string& name : core->take_silent()) log_silent(name);
        // An add behind others that an earlier process left. The name of a cluster has the first
        // host of its URL, which need not be the one.
        if (away_logged_.empty())
            log_silent((is_cluster(store) ? "a primary of " : "") + server(store));
    }
    void log_return(const StoreReference& store) {
        if (away_logged_.empty() || core->stats().waiting > 0) return;
        away_logged_.clear();
        const RetryStats stats = core->stats();
        log("info", server(store) + " answers: no add waits any more. Since the counter was made " +
                        std::to_string(stats.replayed) + " of the queue were counted, " +
                        std::to_string(stats.expired) + " expired, " +
                        std::to_string(stats.refused) + " were refused, " +
                        std::to_string(stats.dropped) + " dropped");
    }

    RetryStats stats() const {
        if (core) return core->stats();
        if (!row) raise(make_error(ErrorCode::config, "the counter has no retry queue"));
        return {};  // Nothing ever waits for Memory.
    }

    void close(StoreReference& store) {
        std::size_t left = 0;
        if (core && !std::exchange(closed_, true)) {
            // While Redis is away, or the store is closed, nothing comes of waiting. On a cluster
            // other primaries may answer, and take what waits for them.
            const bool in_vain = store.closed() || (core->stats().is_away && !is_cluster(store));
            const Timeout timeout = in_vain ? Timeout{std::chrono::milliseconds{1}} : std::nullopt;
            left = without_gil([&] { return core->close(timeout); });
        }
        store.close();
        if (left == 0) return;
        const std::string text =
            std::to_string(left) + " adds still wait: " +
            (row->path.text.empty() ? "they are lost"
                                    : "they stay in " + row->path.text + " for the next process");
        if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
    }

    /// Null without retry=, and over Memory.
    const std::shared_ptr<Retrying> core;
    const std::optional<QueueRow> row;

  private:
    void log_silent(const std::string& name) {
        if (!away_logged_.insert(name).second) return;
        log("warning", name + " does not answer: adds wait in the retry queue");
    }
    static bool is_cluster(const StoreReference& store) {
        return store.backend<redis::Client>()->options().cluster;
    }
    static std::string server(const StoreReference& store) {
        return store.backend<redis::Client>()->options().address();
    }

    std::set<std::string> away_logged_{};  // Guarded by the GIL, as the next.
    bool closed_{false};
};

/// The queue of the counter of a call: no parameter of Python.
template <class Retrying>
struct QueueOf {
    Retrying* retrying;  ///< Null without retry=, and over Memory.
    bool given;
};
template <class Retrying>
struct From<QueueOf<Retrying>> {
    static constexpr std::size_t kTakes = 0;
    template <class Self>
    static QueueOf<Retrying> read(const Argument*, Self& self) {
        return {self.queue.core.get(), self.queue.row.has_value()};
    }
};

/// A counter over a Memory, or over a Redis with a queue if one is asked for.
template <class Self, class Concept, class Retrying, class O>
std::shared_ptr<BoundBase> make_with_queue(const std::string& title, py::handle where,
                                           const O& options, const std::optional<QueueRow>& queue) {
    const std::optional<RetryQueue> given = to_core(queue);
    StoreReference store(where, "store", title.c_str(), {StoreKind::memory, StoreKind::redis});
    std::shared_ptr<Retrying> retrying;
    std::shared_ptr<Concept> counter;
    if (store.kind() == StoreKind::memory) {
        counter = unwrap(Concept::make(store.backend<memory::Store>(), options));
    } else {
        const auto client = store.backend<redis::Client>();
        counter = unwrap(Concept::make(client, options));
        if (given) {
            retrying = unwrap(without_gil([&] { return Retrying::make(client, options, *given); }));
        }
    }
    return std::make_shared<Self>(
        std::move(counter), BoundQueue<Retrying>{std::move(retrying), queue}, std::move(store));
}

/// The add of a counter that has no queue, as the answer of one that has.
inline Result<Added> to_added(Result<std::int64_t> value) {
    if (!value) return std::move(value).error();
    return Added{*value};
}
inline Completion<std::int64_t> to_added(Completion<Added> done) {
    return
        [done = std::move(done)](Result<std::int64_t> value) { done(to_added(std::move(value))); };
}

/// The adds of a counter with a queue, and of one without; `as_rows`: it was given one, which Memory
/// does not need.
inline Result<ManyAdded> to_many(Result<BatchResult<Added>> added) {
    if (!added) return std::move(added).error();
    BatchResult<AddedRow> rows{{}, std::move(added->errors)};
    rows.values.reserve(added->values.size());
    for (const Added& one : added->values) {
        if (const auto* const queued = std::get_if<Queued>(&one)) {
            rows.values.push_back({0, queued->waiting, queued->durable});
        } else {
            rows.values.push_back({std::get<std::int64_t>(one), 0, false});
        }
    }
    return ManyAdded{std::move(rows)};
}
inline Result<ManyAdded> to_many(Result<BatchResult<std::int64_t>> plain, bool as_rows) {
    if (!plain) return std::move(plain).error();
    if (!as_rows) return ManyAdded{std::move(*plain)};
    BatchResult<AddedRow> rows{{}, std::move(plain->errors)};
    for (const std::int64_t value : plain->values) rows.values.push_back({value, 0, false});
    return ManyAdded{std::move(rows)};
}
inline Completion<BatchResult<Added>> to_many(Completion<ManyAdded> done) {
    return [done = std::move(done)](Result<BatchResult<Added>> added) {
        done(to_many(std::move(added)));
    };
}
inline Completion<BatchResult<std::int64_t>> to_many(Completion<ManyAdded> done, bool as_rows) {
    return [done = std::move(done), as_rows](Result<BatchResult<std::int64_t>> plain) {
        done(to_many(std::move(plain), as_rows));
    };
}

template <class Self>
py::object retry_stats(py::handle, Self& self) {
    return To<RetryStats>::make(self.queue.stats());
}
/// The attribute `retry` and the method `retry_stats` of a class whose bound object has a `queue`.
template <class Self>
void declare_queue(const char* base, const char* retry_stats_name) {
    attribute<Self>(base, "retry", [](const Self& self) {
        return To<std::optional<QueueRow>>::make(self.queue.row);
    });
    object_method<&retry_stats<Self>, Self>(retry_stats_name, "");
}

}  // namespace hotcount::python

// The retry queue of a Counter or a PeriodCounter.
#pragma once

#include <hotcount/retry_queue.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "native/bind.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"

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

    /// An outage is logged when it is first noticed, and once more when nothing waits any more.
    void log_outage(const StoreReference& store) {
        if (std::exchange(away_logged_, true)) return;
        log("warning", server(store) + " does not answer: adds wait in the retry queue");
    }
    void log_return(const StoreReference& store) {
        if (!away_logged_ || core->stats().waiting > 0) return;
        away_logged_ = false;
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
            // While Redis is away, or the store is closed, nothing comes of waiting.
            const bool in_vain = store.closed() || core->stats().is_away;
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
    static std::string server(const StoreReference& store) {
        return store.backend<redis::Client>()->options().address();
    }

    bool away_logged_{false};  // Guarded by the GIL, as the next.
    bool closed_{false};
};

template <class Self>
py::object retry_stats(py::handle, Self& self) {
    return To<RetryStats>::make(self.queue.stats());
}
/// The attribute `retry` and the method `retry_stats` of a class whose bound object has a `queue`.
template <class Self>
void declare_queue(const char* base, const char* retry_stats_name) {
    add_getter({base, "retry",
                [](BoundBase& bound) -> py::object {
                    const auto& row = static_cast<Self&>(bound).queue.row;
                    return row ? To<QueueRow>::make(*row) : py::object(py::none());
                },
                &kTag<Self>});
    object_method<&retry_stats<Self>, Self>(retry_stats_name, "");
}

}  // namespace hotcount::python

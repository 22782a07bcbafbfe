// hotcount.Counter and hotcount.aio.Counter: declared in hotcount/counter.py and
// hotcount/aio/counter.py.
#include <algorithm>
#include <array>
#include <hotcount/counter.hpp>
#include <utility>
#include <variant>

#include "native/bind.hpp"
#include "native/key_batches.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "retry_queue.hpp"

namespace hotcount::python {
namespace {

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
inline ResultRow<&TryAdd::applied, &TryAdd::value> kResultRow<TryAdd>{"TryAdd"};

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

constexpr std::array kOptions{option<&CounterOptions::prefix, KeyText>(),
                              option<&CounterOptions::ttl>(), option<&CounterOptions::op_keep>()};

class BoundCounter : public Bound<Counter> {
  public:
    BoundCounter(std::shared_ptr<Counter> counter, BoundQueue<RetryingCounter> with_queue,
                 StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundCounter>),
          queue(std::move(with_queue)) {}

    std::string shown_options() const override {
        return python::shown_options<CounterOptions, kOptions>(core->options()) + queue.shown();
    }

    py::object to_batch(ManyAdded many, const Refusals& refusals, OnErrors on_errors) {
        if (auto* const plain = std::get_if<0>(&many.answers)) {
            return python::to_batch(std::move(*plain), refusals, on_errors);
        }
        py::dict errors;
        auto rows = gather(std::get<1>(std::move(many.answers)), refusals, errors);
        if (queue.core && !rows.empty()) {
            const bool some_wait = std::any_of(rows.begin(), rows.end(),
                                               [](const AddedRow& row) { return row.waiting > 0; });
            if (some_wait) queue.log_outage(store);
            if (rows.back().waiting == 0) queue.log_return(store);
        }
        return finish(std::make_shared<AddedBatch>(std::move(rows), std::move(errors)), on_errors);
    }

    py::object to_python(const Added& added) { return queue.to_python(added, store); }

    /// What has a queue ends in the queue's thread.
    bool ends_elsewhere() const { return queue.core != nullptr; }

    void close() override { queue.close(store); }

    BoundQueue<RetryingCounter> queue;
};

using Queue = QueueOf<RetryingCounter>;

// With an op_id it is another call of the core, which is not queued: its caller can make it again.
Result<Added> add(Counter& counter, const Queue& queue, std::string_view key, std::int64_t n,
                  const std::optional<std::string_view>& op_id, Timeout timeout) {
    if (queue.retrying != nullptr && !op_id) return queue.retrying->add(key, n, timeout);
    return to_added(op_id ? counter.add_once(key, n, *op_id, timeout)
                          : counter.add(key, n, timeout));
}
void add_async(Counter& counter, const Queue& queue, std::string_view key, std::int64_t n,
               const std::optional<std::string_view>& op_id, Completion<Added> done,
               AsyncCall call) {
    if (queue.retrying != nullptr && !op_id) {
        return queue.retrying->add_async(key, n, std::move(done), call);
    }
    if (op_id) return counter.add_once_async(key, n, *op_id, to_added(std::move(done)), call);
    counter.add_async(key, n, to_added(std::move(done)), call);
}

BatchResult<AddedRow> to_added_rows(BatchResult<Added> added) {
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
Result<ManyAdded> add_many(Counter& counter, const Queue& queue,
                           const std::vector<std::string_view>& keys,
                           const std::vector<std::int64_t>& amounts, Timeout timeout) {
    if (queue.retrying != nullptr) {
        return ManyAdded{to_added_rows(queue.retrying->add_many(keys, amounts, timeout))};
    }
    return to_many(counter.add_many(keys, amounts, timeout), queue.given);
}
void add_many_async(Counter& counter, const Queue& queue, const std::vector<std::string_view>& keys,
                    const std::vector<std::int64_t>& amounts, Completion<ManyAdded> done,
                    AsyncCall call) {
    if (queue.retrying != nullptr) {
        return queue.retrying->add_many_async(
            keys, amounts,
            [done = std::move(done)](Result<BatchResult<Added>> added) {
                if (!added) return done(std::move(added).error());
                done(ManyAdded{to_added_rows(std::move(*added))});
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

void bind_counter() {
    constructor<&make_with_queue<BoundCounter, Counter, RetryingCounter, CounterOptions>,
                StoreArgument, Options<CounterOptions, kOptions>, std::optional<QueueRow>>(
        "CounterBase.__init__", "store " + names_of<kOptions>() + "retry");
    refuse_keywords(
        "CounterBase.__init__", "method compensation",
        "an add is one step; hotcount-load compares with the ways in several steps, and "
        "notebooks/ways.py has their code");
    attributes<BoundCounter, kOptions>("CounterBase", "ttl");
    declare_queue<BoundCounter>("CounterBase", "CounterBase.retry_stats");

    declare_rows<AddedRow>("AddedBatch", column<&AddedRow::value>(), column<&AddedRow::waiting>(),
                           column<&AddedRow::durable>());

    using Key = std::string_view;
    method<&add, &add_async, Queue, Key, Amount, std::optional<Key>, Timeout>(
        "Counter.add", "key n op_id timeout");
    method<&try_add, &try_add_async, Key, Amount, MaybeAmount, MaybeAmount, Timeout>(
        "Counter.try_add", "key n min max timeout");
    method<&add_many, &add_many_async, Queue, KeysAndAmounts, OnErrors, Timeout>(
        "Counter.add_many", "keys n errors timeout");
    method<&Counter::get, &Counter::get_async, Key, Timeout>("Counter.get", "key timeout");
    method<&Counter::get_many, &Counter::get_many_async, Keys, OnErrors, Timeout>(
        "Counter.get_many", "keys errors timeout");
    method<&Counter::reset, &Counter::reset_async, Key, Timeout>("Counter.reset", "key timeout");
    method<&Counter::ttl, &Counter::ttl_async, Key, Timeout>("Counter.ttl", "key timeout");
}

}  // namespace hotcount::python

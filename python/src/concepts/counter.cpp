// hotcount.Counter and hotcount.aio.Counter: declared in hotcount/counter.py and
// hotcount/aio/counter.py.
#include <array>
#include <hotcount/counter.hpp>
#include <utility>
#include <variant>

#include "native/key_batches.hpp"
#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"
#include "retry_queue.hpp"

namespace hotcount::python {

// -- the table, for what counters alone have ------------------------------------------------------

template <>
inline ResultRow<&TryAdd::applied, &TryAdd::value> kResultRow<TryAdd>{"TryAdd"};

namespace {

constexpr std::array kCounterOptions{option<&CounterOptions::prefix, KeyText>(),
                                     option<&CounterOptions::ttl>(),
                                     option<&CounterOptions::op_keep>()};

class BoundCounter : public Bound<Counter> {
  public:
    BoundCounter(std::shared_ptr<Counter> counter, BoundQueue<RetryingCounter> with_queue,
                 StoreReference reference)
        : Bound(std::move(counter), std::move(reference), &kTag<BoundCounter>),
          queue(std::move(with_queue)) {}

    std::string shown_options() const override {
        return python::shown_options<CounterOptions, kCounterOptions>(core->options()) +
               queue.shown();
    }

    py::object to_batch(ManyAdded many, const Refusals& refusals, OnErrors on_errors) {
        return queue.to_batch(std::move(many), refusals, on_errors, store);
    }

    py::object to_python(const Added& added) { return queue.to_python(added, store); }

    /// Calls of a counter with a queue end in the queue's thread.
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

Result<ManyAdded> add_many(Counter& counter, const Queue& queue,
                           const std::vector<std::string_view>& keys,
                           const std::vector<std::int64_t>& amounts, Timeout timeout) {
    if (queue.retrying != nullptr) return to_many(queue.retrying->add_many(keys, amounts, timeout));
    return to_many(counter.add_many(keys, amounts, timeout), queue.given);
}
void add_many_async(Counter& counter, const Queue& queue, const std::vector<std::string_view>& keys,
                    const std::vector<std::int64_t>& amounts, Completion<ManyAdded> done,
                    AsyncCall call) {
    if (queue.retrying != nullptr) {
        return queue.retrying->add_many_async(keys, amounts, to_many(std::move(done)), call);
    }
    counter.add_many_async(keys, amounts, to_many(std::move(done), queue.given), call);
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
                StoreArgument, Options<CounterOptions, kCounterOptions>, std::optional<QueueRow>>(
        "CounterBase.__init__", "store " + names_of<kCounterOptions>() + "retry");
    refuse_keywords(
        "CounterBase.__init__", "method compensation",
        "an add is one step; hotcount-load compares with the ways in several steps, and "
        "notebooks/ways.py has their code");
    attributes<BoundCounter, kCounterOptions>("CounterBase", "ttl");
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

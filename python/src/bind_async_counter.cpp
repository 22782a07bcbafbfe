#include <hotcount/counter/counter.hpp>
#include <memory>

#include "async_call.hpp"
#include "asyncio_names.hpp"
#include "bind.hpp"
#include "counter_face.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "lifetime.hpp"
#include "store.hpp"

namespace hotcount::python {
namespace {

class AsyncCounter {
  public:
    AsyncCounter(std::shared_ptr<Counter> counter, StoreReference store)
        : shared_(std::make_shared<Shared>(Shared{std::move(counter), std::move(store)})) {}

    Counter& counter() const { return *shared_->counter; }
    const StoreReference& store() const { return shared_->store; }
    bool in_memory() const { return store().kind() == StoreKind::memory; }
    /// What a call keeps until its end: the last reference to the object itself may be the call's.
    std::shared_ptr<const void> owner() const { return shared_; }

    void close() { shared_->store.close(); }
    bool closed() const { return store().closed(); }
    std::string repr() const { return store().repr(); }

  private:
    struct Shared {
        std::shared_ptr<Counter> counter;
        StoreReference store;
    };
    std::shared_ptr<Shared> shared_;
};

struct AwaitableFace {
    using Self = AsyncCounter;

    static std::string returns(const std::string& type) { return awaited(type); }

    template <class Now, class Start, class Convert>
    static py::object one(Self& self, Timeout timeout, Now&& now, Start&& start,
                          const Convert& convert) {
        self.store().check_open();
        // Memory answers at once, in less time than a turn of the loop takes.
        if (self.in_memory()) {
            const py::object loop = running_loop();
            return settled_call(loop, now(self.counter()), convert);
        }
        return begin<Outcome<Now>>(self, timeout, start, convert);
    }

    template <class Now, class Start, class Convert>
    static py::object many(Self& self, Timeout timeout, Now&& now, Start&& start,
                           const Convert& convert) {
        self.store().check_open();
        if (!self.in_memory()) return begin<Outcome<Now>>(self, timeout, start, convert);
        const py::object loop = running_loop();
        return settled_call(loop, Result(without_gil([&] { return now(self.counter()); })),
                            convert);
    }

  private:
    template <class T, class Start, class Convert>
    static py::object begin(Self& self, Timeout timeout, Start& start, const Convert& convert) {
        return start_call<T>(
            self.store().loop_side(), self.owner(), timeout,
            [&](Completion<T> completion, AsyncCall call) {
                start(self.counter(), std::move(completion), call);
            },
            convert);
    }
};

AsyncCounter make_counter(const Arguments& arguments) {
    auto store = counter_store(arguments, "aio.Counter");
    auto counter = make_core_counter(arguments, store);
    return {std::move(counter), std::move(store)};
}

}  // namespace

void bind_async_counter(py::module_& module) {
    py::class_<AsyncCounter> cls(
        module, "AsyncCounter",
        "hotcount.Counter for event loops: each method returns what is awaited for its outcome.\n\n"
        "A call starts when it is made, not when it is awaited: awaited later, or not at all, it\n"
        "is made just the same. Calls of one turn of the loop travel together. In Memory a call\n"
        "is done when it returns, and awaiting it does not yield to the loop. Cancelling\n"
        "withdraws a call that is not sent yet; of one that is sent nobody hears any more.\n"
        "Any number of loops may use it, in any threads, and so may forked children.");
    define_init<&make_counter>(cls, counter_signature(), kCounterInitText);
    define_counter_calls<AwaitableFace>(cls);
    define_async_lifetime(cls, "hotcount.aio.Counter",
                          "Ends this counter; a store made from a URL for it ends too.");
}

}  // namespace hotcount::python

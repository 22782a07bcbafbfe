#include <memory>

#include "async_call.hpp"
#include "bind.hpp"
#include "lifetime.hpp"
#include "votes_face.hpp"

namespace hotcount::python {
namespace {

class AsyncVotes {
  public:
    explicit AsyncVotes(VotesHolder holder)
        : holder_(std::make_shared<VotesHolder>(std::move(holder))) {}

    VotesHolder& holder() { return *holder_; }
    /// What a call keeps until its end: the last reference to the object itself may be the call's.
    Owner owner() const { return holder_; }
    void close() { holder_->close(); }
    bool closed() const { return holder_->closed(); }
    std::string repr() const { return holder_->repr(); }

  private:
    std::shared_ptr<VotesHolder> holder_;
};

struct AwaitableFace {
    using Self = AsyncVotes;

    static std::string returns(const std::string& type) { return awaited(type); }

    template <class T, class Now, class Start, class Convert>
    static py::object cast(Self& self, Timeout timeout, const Now&, const Start& start,
                           const Convert& convert) {
        return begin<T>(
            self, timeout,
            [&](Completion<T> done, AsyncCall) { start(self.holder().votes(), std::move(done)); },
            convert);
    }

    template <class Now, class Convert>
    static py::object slow(Self& self, Timeout timeout, const Now& now, const Convert& convert) {
        using T = typename std::invoke_result_t<const Now&, Votes&, Timeout>::value_type;
        self.holder().check_open();
        const Deadline deadline = self.holder().deadline(timeout);
        return begin<T>(
            self, timeout,
            [&](Completion<T> done, AsyncCall) {
                auto begun = self.holder().votes().run_async([now, deadline, done](Votes& votes) {
                    done(now(votes, deadline.remaining()));
                });
                if (!begun) done(std::move(begun).error());
            },
            convert);
    }

  private:
    template <class T, class Start, class Convert>
    static py::object begin(Self& self, Timeout timeout, const Start& start,
                            const Convert& convert) {
        self.holder().check_open();
        return start_call<T>(self.holder().store().loop_side(), self.owner(), timeout, start,
                             convert);
    }
};

AsyncVotes make_async_votes(const Arguments& arguments) {
    return AsyncVotes{make_votes(arguments, "aio.Votes")};
}

}  // namespace

void bind_async_votes(py::module_& module) {
    py::class_<AsyncVotes> cls(
        module, "AsyncVotes",
        "hotcount.Votes for event loops: the calls return what is awaited for their outcome.\n\n"
        "A call starts when it is made, not when it is awaited: awaited later, or not at all, it\n"
        "is made just the same, and cancelling what waits for it does not withdraw it. Votes made\n"
        "while others are written share the next transaction; of two votes of one user the one\n"
        "made later is applied later. At most commit_workers threads of this object write, and\n"
        "wake the loop once for all votes of a transaction. schema(), contract() and "
        "sync_worker()\n"
        "are not awaited; the worker is hotcount's, for a thread. Any number of loops may use it,\n"
        "in any threads, and so may forked children.");
    define_init<&make_async_votes>(cls, votes_signature(), kVotesInitText);
    define_votes_calls<AwaitableFace>(cls);
    define_async_lifetime(cls, "hotcount.aio.Votes",
                          "Ends this object; a database opened from a URL for it ends too.",
                          kVotesGoOn);
}

}  // namespace hotcount::python

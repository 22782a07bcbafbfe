// What a connection has to do: calls that wait, bytes to send, replies that are due. No I/O and no
// lock: the lane that owns it brings both.
//
//   push --> queue --(encode: combines)--> bytes to send, flights --(settle)--> finished
//
// Within what is encoded at once, adds to one key become one INCRBY and calls of one combinable
// script one EVALSHA, each caller with its own answer. Nothing is moved past another call that
// touches one of its keys. Where a combined command is refused nothing was applied. Its members go
// singly, in order, where the refusal may be for one of them only; else it answers them all.
//
// What a failure means: a call whose bytes had not all been handed to the kernel when the
// connection broke was never run. It, and whatever Repeat allows, goes once more over a new
// connection before its caller is told unavailable. Any other is unknown and is never sent again.
// A caller that gives up leaves its call behind: its late reply is read and dropped.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "connection_roles.hpp"
#include "latency_histogram.hpp"

namespace hotcount::redis {

/// A request on its way. Its lane's lock, or thread, guards it until it is done. Where somebody
/// waits for it, that caller sleeps in its name.
class Operation : public Sleeper {
  public:
    /// Without `done` somebody waits for it and takes the outcome.
    Operation(Request request, Deadline deadline, Completion<Reply> done = {},
              const Cancelled* cancelled = nullptr)
        : request_(std::move(request)),
          deadline_(deadline),
          done_(std::move(done)),
          cancelled_(cancelled) {}

    enum class State : std::uint8_t { queued, postponed, in_flight, done, abandoned };

    State state() const { return state_; }
    /// Also without the lock: then the outcome may be taken.
    bool is_done() const { return done_flag_.load(std::memory_order_acquire); }
    bool waited_for() const { return done_ == nullptr; }
    Deadline deadline() const { return deadline_; }
    SteadyTime retry_at() const { return retry_at_; }  ///< While postponed.
    const std::string& name() const { return request_.name(); }
    /// What became of it, once it is done.
    Result<Reply> take_outcome() { return std::move(*outcome_); }
    /// Ends it before it was handed in.
    void refuse(const Error& error) {
        outcome_.emplace(error);
        complete();
    }
    /// Hands the outcome to `done`.
    void complete() {
        Completion<Reply> done;
        done.swap(done_);
        done(std::move(*outcome_));
    }

  private:
    friend class Pipeline;

    bool is(Request::Kind kind) const { return request_.kind_ == kind; }
    Repeat repeat() const { return request_.repeat_; }

    Request request_;
    Deadline deadline_;
    Completion<Reply> done_;
    const Cancelled* cancelled_;
    State state_{State::queued};
    bool alone_{false};      // Refused as part of a combined command: now by itself.
    bool with_text_{false};  // The server does not know the script.
    bool resent_{false};     // Put back after a broken connection: a second one ends it.
    bool maybe_ran_{false};  // Sent once over a connection that broke.
    SteadyTime retry_at_{};
    Duration pause_{};                // Before the next try of a server that will serve it soon.
    ReplyArray replies_;              // batch: those that came.
    std::size_t answered_before_{0};  // batch: of commands that are no longer in its bytes.
    // What was answered, while the rest of the call is asked for again; and where that belongs.
    struct Parts {
        ReplyArray replies;
        std::vector<std::size_t> missing;
    };
    std::unique_ptr<Parts> parts_;
    std::optional<Result<Reply>> outcome_;  // Or, while postponed, the last refusal.
    std::atomic<bool> done_flag_{false};
};

using OperationPtr = std::shared_ptr<Operation>;

class Pipeline {
  public:
    explicit Pipeline(const Options& options) : options_(options) {}

    // -- calls that wait
    void push(OperationPtr operation) {
        if (!operation->waited_for()) {
            next_expiry_ = std::min(next_expiry_, operation->deadline_.time());
        }
        queue_.push_back(std::move(operation));
    }
    std::size_t queued() const { return queue_.size(); }
    bool has_postponed() const { return !postponed_.empty(); }
    /// Queues those that were postponed until now.
    void requeue_due(SteadyTime now);
    /// What its caller is told who does not wait longer.
    Result<Reply> give_up(const OperationPtr& operation);
    /// Gives up those that nobody waits for and whose deadline has passed, and ends `most` of them;
    /// the others when it is called again. Takes a look at each call only where one is late.
    void expire(SteadyTime now, std::size_t most);
    /// Ends as many of those that expire() has given up.
    void end_late(std::size_t most);
    bool has_late() const { return !late_.empty(); }
    /// Ends all that wait to be sent, or to be tried again.
    void fail_queued(const Error& error);
    /// Why there is no connection, until there is one: what those are told who cannot wait longer.
    void unreachable(const Error& why) { unreachable_ = why; }

    // -- to the server
    bool has_to_send() const { return !out_.empty() || can_encode(); }
    bool half_sent() const { return !out_.empty(); }
    /// Bytes to send, all of them taken for sent until the rest comes back.
    std::string take();
    void put_back_unsent(std::string rest);

    // -- from the server
    std::size_t in_flight() const { return flights_.size(); }
    /// Hands a reply to the call that it answers. False where it cannot be that call's: then what
    /// comes by this connection is others', and it must end with misfit().
    bool settle(Reply reply, SteadyTime now);
    Error misfit() const;

    // -- the connection
    void connected();
    /// Whether the server has refused a write because it is a replica, since this was asked last.
    bool take_demoted() { return std::exchange(demoted_, false); }
    /// Nothing more is sent by this connection: it is to be left once drained() says so.
    void drain() { draining_ = true; }
    bool drained() const { return draining_ && flights_.empty() && out_.empty(); }
    /// All that is on its way ends, or goes back to the queue where it may be sent again.
    void lost(const Error& why, bool resend);
    /// The server gave a sign of life.
    void heard(SteadyTime now) { heard_at_ = now; }
    /// When a server that gives none until then is taken for dead: it owes replies, and has been
    /// silent for Options::silence(). For how long callers wait does not matter.
    SteadyTime silent_at() const {
        return flights_.empty() ? SteadyTime::max() : heard_at_ + options_.silence();
    }
    /// What those are told who lose their connection by that.
    Error silent_error() const;

    /// Those that have ended since: to be woken or completed.
    std::vector<OperationPtr> take_finished();
    bool has_finished() const { return !finished_.empty(); }
    /// Calls handed in without waiting that have not ended.
    std::size_t unwaited() const { return unwaited_; }
    void count_unwaited() { ++unwaited_; }

    struct Counts {
        std::uint64_t commands{0};
        std::uint64_t combined{0};
        Latency latency{};
    };
    const Counts& counts() const { return counts_; }

  private:
    using Operations = std::vector<OperationPtr>;

    // One command on the wire (or one batch of them) and the calls it answers.
    struct Flight {
        OperationPtr first;
        Operations rest{};      // Combined with the first.
        std::int64_t total{0};  // What a combined INCRBY adds.
        std::size_t keys{0};    // Of a combined script.
        std::size_t memory{0};  // Of a batch's replies so far.
        bool with_text{false};
        std::uint64_t begin{0};  // Its place in all that this connection sends.
        std::uint64_t end{0};
        SteadyTime encoded_at{};

        std::size_t calls() const { return 1 + rest.size(); }
        template <class F>
        void for_each(F&& f) const {
            f(first);
            for (const OperationPtr& operation : rest) f(operation);
        }
    };
    class Combiner;

    // A call that nobody waits for and that was given up, with what is known of it then.
    struct Late {
        OperationPtr operation;
        bool was_sent;
        std::size_t commands_sent;  // batch
    };

    void find_late(SteadyTime now);
    Result<Reply> known_of(const Operation& operation, bool was_sent,
                           std::size_t commands_sent) const;
    static std::size_t request_replies(const Operation& operation);
    bool can_encode() const;
    void encode();
    void encode(Flight& flight);
    void encode_script(const Flight& flight);
    bool belongs(Flight& flight, const Reply& reply);
    bool belongs_to_batch(Flight& flight, const Reply& reply);
    bool belongs_to_script(const Flight& flight, const Reply& reply);
    bool does_not_fit(const std::string& why);
    void settle_add(Flight& flight, const Reply& reply);
    void settle_script(Flight& flight, Reply reply);
    void settle_batch(Flight& flight, Reply reply);
    void answer(const OperationPtr& operation, Reply reply);
    bool splits(const Flight& flight, const ReplyError& error) const;
    static bool passes_soon(const ReplyError& error);
    const ReplyError* refused_for_now(const Reply& reply);
    bool refused_inside(const Reply& reply);
    bool postpone(const OperationPtr& operation);
    bool ask_again(const OperationPtr& batch);
    bool ask_again(const OperationPtr& calls, ReplyArray& replies);
    static void keep_parts(Operation& operation, ReplyArray replies,
                           const std::vector<std::size_t>& missing);
    static Result<Reply> whole(const Operation& operation, Result<Reply> rest);
    bool refused_whole(Flight& flight, const Reply& reply);
    void put_back(const Operations& operations);
    void finish(const OperationPtr& operation, Result<Reply> outcome);
    void lose(const Flight& flight, const Error& why, bool resend, Operations& again);
    std::size_t commands_sent(const Flight& flight, std::size_t* bytes = nullptr) const;
    bool lose_part(const Flight& flight, const Error& why);
    static ReplyArray parts_of(const Operation& batch, std::size_t sent, const Error& not_answered,
                               const Error& not_sent);
    void finish_unsent(const OperationPtr& operation, const Error& why);
    static Error unknown(const Operation& operation, const Error& why);
    Error not_sent(const Operation& operation) const;
    Error error_of(const ReplyError& error, const std::string& name) const;

    const Options& options_;
    std::deque<OperationPtr> queue_;
    std::vector<OperationPtr> postponed_;
    std::deque<Flight> flights_;
    std::vector<OperationPtr> finished_;
    std::string out_;           // Encoded and not yet taken.
    std::uint64_t encoded_{0};  // Bytes, by this connection, so far.
    std::uint64_t sent_{0};
    std::uint64_t answered_{0};
    std::size_t replies_due_{0};
    std::size_t unwaited_{0};
    SteadyTime heard_at_{};                      // Or began to owe replies.
    SteadyTime next_expiry_{SteadyTime::max()};  // No call that nobody waits for ends earlier.
    std::deque<Late> late_;
    std::string misfit_;
    std::optional<Error> unreachable_;
    bool demoted_{false};
    bool draining_{false};
    Counts counts_;
};

}  // namespace hotcount::redis

// The state of a connection: queued calls, bytes to send, and calls that await a reply. No I/O and
// no lock: the connection that owns it has both.
//
//   push --> queue --(encode: combines)--> bytes to send, flights --(settle)--> finished
//
// A flight is one command, or one batch of commands, on its way to the server and back, with the
// calls that its reply answers. Calls that are encoded at once may share a command (combining.hpp);
// each caller gets its own answer. If a combined command is refused and the refusal may concern
// single calls, they are sent again one by one, in order; otherwise all of them get the refusal.
//
// When a connection breaks, a call may have run only if the kernel had taken all of its bytes. A
// call that cannot have run, or whose Repeat allows it, is sent once more over a new connection
// before its caller gets an unavailable error. The outcome of any other call is unknown, and it is
// never sent again. When a caller gives up, its late reply is read and dropped.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/detail/base/histogram.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/result.hpp>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "combining.hpp"
#include "node_heard.hpp"

namespace hotcount::redis {

/// The slots of a cluster.
using SlotSet = std::bitset<16384>;

class Multiplexer {
  public:
    /// `heard`: of a lane, which is the connection to a node of a cluster; it outlives this. Calls
    /// leave a lane where they would wait for the server or be sent over a new connection. A node that
    /// answers after a silence beyond Options::silence() may have been replaced meanwhile, without
    /// knowing it: its answers are held until confirm().
    explicit Multiplexer(const Options& options, NodeHeard* heard = nullptr)
        : options_(options), node_heard_(heard) {}

    // -- calls that wait
    void push(OperationPtr operation) {
        if (operation->state_ != Operation::State::queued) {
            operation->move(Operation::State::queued);
            operation->done_flag_.store(false, std::memory_order_relaxed);
        }
        if (!operation->waited_for()) {
            next_expiry_ = std::min(next_expiry_, operation->deadline_.time());
        }
        queue_.push_back(std::move(operation));
    }
    std::size_t queued() const { return queue_.size(); }
    /// Ends a call that cannot be queued, for this reason; returns the outcome for its caller. A call
    /// that another lane handed back has left no lane after this.
    static Error refuse(Operation& operation, const Error& why);
    /// Queues the postponed calls whose pause is over.
    void requeue_due(SteadyTime now);
    /// Abandons a call whose caller stops waiting; returns the outcome for the caller.
    Result<Reply> give_up(const OperationPtr& operation);
    /// Gives up asynchronous calls whose deadline has passed. Ends at most `most` of them, and the
    /// rest in later calls. Scans the calls only if one of them is late.
    void expire(SteadyTime now, std::size_t most);
    /// Ends at most `most` of the calls that expire() has given up.
    void end_late(std::size_t most);
    bool has_late() const { return !late_.empty(); }
    /// Ends all queued and all postponed calls.
    void fail_queued(const Error& error);
    /// There is no connection, for this reason. In a lane, a temporary error sends the queued calls
    /// to the router; any other error ends the queued calls.
    void refuse_queued(const Error& why);
    /// A lane's calls that were not sent leave it.
    void evict(const Error& why);
    /// The error of calls whose deadline passes while there is no connection.
    void unreachable(const Error& why) { unreachable_ = why; }

    // -- to the server
    bool has_to_send() const { return !out_.empty() || can_encode(); }
    bool half_sent() const { return !out_.empty(); }
    /// Bytes to send. All of them count as sent until put_back_unsent().
    std::string take();
    void put_back_unsent(std::string rest);

    // -- from the server
    std::size_t in_flight() const { return flights_.size(); }
    /// The load by which new callers decide to leave sending to the reader: the commands in flight
    /// or, with a server that answers within kSoon, the calls in them. Calls that wait for the next
    /// reply travel as fewer commands; with a distant server that wait would cost up to a round
    /// trip.
    std::size_t load() const { return answers_soon() ? calls_in_flight_ : flights_.size(); }
    /// Whether the last reply came soon.
    bool answers_soon() const { return round_trip_ < kSoon; }
    /// Calls that wait, are under way or have just ended.
    std::size_t company() const { return queue_.size() + calls_in_flight_ + finished_.size(); }
    /// Gives a reply to the call that it answers. False if it cannot be the reply of that call: then
    /// the replies of this connection belong to other calls, and it must end with misfit().
    bool settle(Reply reply, SteadyTime now);
    Error misfit() const;

    // -- the connection
    void connected();
    /// Whether the server has refused a write because it is a replica, since the last call of this.
    bool take_demoted() { return std::exchange(demoted_, false); }
    /// Sends nothing more over this connection. Once drained() returns true it is to be left.
    void drain() { draining_ = true; }
    bool drained() const { return draining_ && flights_.empty() && out_.empty(); }
    /// The connection broke. Each call under way ends, or is queued again if it may be sent again.
    void lost(const Error& why, bool resend);
    /// The server sent something, or took bytes.
    void heard(SteadyTime now) {
        heard_at_ = now;
        if (node_heard_ != nullptr) note_heard(now);
    }
    /// When the server counts as dead: it owes replies and has been silent for Options::silence(). The
    /// deadlines of callers do not matter.
    SteadyTime silent_at() const {
        return flights_.empty() ? SteadyTime::max() : heard_at_ + options_.silence();
    }
    /// The error of calls that lose their connection by that.
    Error silent_error() const;

    // -- a lane of a cluster
    /// The time since which answers are held, or nullopt.
    std::optional<SteadyTime> doubted_since() const {
        return doubted_ ? std::optional{doubted_at_} : std::nullopt;
    }
    /// Another node, asked at this time, has said whether this one still owns its slots. If so, and it
    /// has owned them since the calls were sent, held answers are delivered; otherwise reads leave the
    /// lane and the outcome of other calls is unknown. Returns whether they were delivered, or nullopt
    /// if the doubt goes on.
    std::optional<bool> confirm(bool owns, SteadyTime asked_at);
    /// Adds the slots of calls that are queued, not answered, or have left and are not handed back.
    void outstanding(SlotSet& slots) const;
    /// The router has received these asynchronous calls, which had left the lane.
    void handed_back(const std::vector<OperationPtr>& left);

    /// The calls that have ended since the last call of this, to be woken or completed.
    std::vector<OperationPtr> take_finished();
    bool has_finished() const { return !finished_.empty(); }
    /// The caller of this call need not be woken.
    void forget(const OperationPtr& operation) { std::erase(finished_, operation); }
    /// The number of asynchronous calls that have not ended.
    std::size_t unwaited() const { return unwaited_; }
    void count_unwaited() { ++unwaited_; }

    struct Counts {
        std::uint64_t commands{0};
        std::uint64_t combined{0};
        LatencyHistogram latency{};
    };
    const Counts& counts() const { return counts_; }

    /// A reply within this time is soon: a server that is near gives it in 0.1 ms.
    static constexpr Duration kSoon = std::chrono::microseconds{500};

  private:
    using Operations = std::vector<OperationPtr>;

    // An asynchronous call that was given up, with its progress at that time.
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
    bool belongs(Flight& flight, const Reply& reply);
    bool belongs_to_batch(Flight& flight, const Reply& reply);
    bool does_not_fit(const std::string& why);
    void settle_batch(Flight& flight, Reply reply);
    void answer(const OperationPtr& operation, Reply&& reply);
    const ReplyError* refused_for_now(const Reply& reply);
    bool refused_inside(const Reply& reply);
    bool postpone(const OperationPtr& operation);
    bool is_lane() const { return node_heard_ != nullptr; }
    void note_heard(SteadyTime now);
    bool outlived_its_node(const Flight& flight, SteadyTime now) const;
    bool leaves(const OperationPtr& operation, const Reply& reply);
    bool leaves_whole(const Flight& flight, const Reply& reply);
    void depart(const OperationPtr& operation, Operation::Departure departure);
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
    NodeHeard* const node_heard_;  // Null: one server.
    std::deque<OperationPtr> queue_;
    std::size_t returned_{0};  // At its head, by put_back() since the last encode().
    std::vector<OperationPtr> postponed_;
    std::deque<Flight> flights_;
    std::size_t calls_in_flight_{0};        // Of all flights.
    Duration round_trip_{Duration::max()};  // Of the last flight that was answered.
    std::vector<OperationPtr> finished_;
    std::string out_;           // Encoded, and not yet taken by take().
    std::uint64_t encoded_{0};  // Bytes, over this connection, so far.
    std::uint64_t sent_{0};
    std::uint64_t answered_{0};
    std::size_t replies_due_{0};
    std::size_t unwaited_{0};
    SteadyTime heard_at_{};                      // Or when the server began to owe replies.
    SteadyTime next_expiry_{SteadyTime::max()};  // No unwaited call has an earlier deadline.
    std::deque<Late> late_;
    std::string misfit_;
    std::optional<Error> unreachable_;
    std::vector<OperationPtr> held_;
    SteadyTime held_since_{SteadyTime::max()};      // When the first call was sent that is held.
    std::map<std::uint16_t, std::size_t> leaving_;  // How many are not handed back, by slot.
    bool doubted_{false};
    SteadyTime doubted_at_{};
    bool demoted_{false};
    bool draining_{false};
    Counts counts_;
};

}  // namespace hotcount::redis

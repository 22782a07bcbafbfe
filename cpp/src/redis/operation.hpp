// A call on its way through connections: its request, its state and its outcome.
//
//   queued ----> in_flight ----> done            with a node of a cluster, also:
//      ^  ^        |    |                           in_flight --> held --> done or left
//      |  '--------'    v                           queued, in_flight --> left --> queued,
//      '----------- postponed                          in the lane of another node
//
// A call that waits becomes `abandoned` when its caller gives up.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <hotcount/result.hpp>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "connection_roles.hpp"

namespace hotcount::redis {

/// A submitted request. The lock or the thread of its connection guards it until it is done. It is
/// also the Sleeper of the caller that waits for it, if any.
class Operation : public Sleeper {
  public:
    /// Without `done` a caller waits for it and takes the outcome.
    Operation(Request&& request, Deadline deadline, Completion<Reply> done = {},
              const Cancelled* cancelled = nullptr)
        : request_(std::move(request)),
          deadline_(deadline),
          done_(std::move(done)),
          cancelled_(cancelled) {}

    enum class State : std::uint8_t {
        queued,     ///< To be sent, or not handed to a connection yet.
        postponed,  ///< Refused for now; queued again when its pause is over.
        in_flight,
        held,  ///< Answered by a node of a cluster that another node must confirm first.
        done,
        left,  ///< Out of the lane; its router decides where it goes on.
        abandoned,
    };

    /// What broken connections have left of it. A second one ends it.
    enum class Attempt : std::uint8_t {
        first,
        second,           ///< Queued again. It has not been run.
        after_maybe_run,  ///< The connection that broke may have run it.
    };

    /// A call's data for the router of a cluster; not used with a single server.
    struct Route {
        static constexpr std::uint16_t kNone = 0xffff;
        std::uint16_t slot{kNone};    ///< Of all of its keys.
        std::uint16_t target{kNone};  ///< Node, while `asking`.
        bool asking{false};           ///< The next send is a redirection by ASK.
        unsigned redirections{0};     ///< In a row.
        std::uint64_t number{0};      ///< In the order in which calls were handed in.
        SteadyTime begun{};           ///< When it began to wait for a map, at the latest.
    };
    Route route{};

    /// Why a call has left its lane.
    struct Departure {
        enum class Why : std::uint8_t {
            moved,    ///< MOVED.
            ask,      ///< ASK.
            refused,  ///< The node serves it later, or the owner of a newer map does.
            lost,     ///< The connection broke; the call may be sent again.
        };
        Why why;
        Error error;       ///< For its caller, if the deadline passes.
        std::string line;  ///< moved, ask: the server's words.
    };

    State state() const { return state_; }
    /// May be called without the lock. Once true, the outcome may be taken.
    bool is_done() const { return done_flag_.load(std::memory_order_acquire); }
    bool waited_for() const { return done_ == nullptr; }
    bool has_left() const { return state_ == State::left; }
    const Departure& departure() const { return *departure_; }
    bool is_cancelled() const { return cancelled_ != nullptr && *cancelled_; }
    Deadline deadline() const { return deadline_; }
    SteadyTime retry_at() const { return retry_at_; }  ///< While postponed.
    Duration pause() const { return pause_; }
    void set_pause(Duration pause) { pause_ = pause; }
    /// Whether it was sent over a connection that broke, and may have been run.
    bool maybe_ran() const { return attempt_ == Attempt::after_maybe_run; }
    const std::string& name() const { return request_.name(); }
    /// Once it is done.
    Result<Reply> take_outcome() {
        if (has_left()) return *outcome_;
        return std::move(*outcome_);
    }
    /// Ends it without having been queued.
    void refuse(const Error& error) {
        outcome_.emplace(error);
        complete();
    }
    /// Gives the outcome to `done`.
    void complete() {
        Completion<Reply> done;
        done.swap(done_);
        done(std::move(*outcome_));
    }
    /// Drops it, out of any lane: its caller wants it no longer.
    void drop() {
        move(State::abandoned);
        done_ = nullptr;
    }

  private:
    friend class Combining;
    friend class Multiplexer;

    static constexpr bool may_follow(State before, State after) {
        using enum State;
        switch (before) {
            case queued:
                return after == in_flight || after == done || after == left || after == abandoned;
            case postponed:
                return after == queued || after == done || after == abandoned;
            case in_flight:
                return after != in_flight;
            case held:
                return after == done || after == left || after == abandoned;
            case left:
                return after == queued || after == abandoned;
            case done:
            case abandoned:
                return false;
        }
        return false;
    }
    void move(State to) {
        assert(may_follow(state_, to));
        state_ = to;
    }
    // The caller may take the outcome from now on.
    void wake_caller() {
        awake();  // By its signal; it takes no role.
        done_flag_.store(true, std::memory_order_release);
    }
    // The request, for Combining.
    using Kind = Request::Kind;
    Kind kind() const { return request_.kind_; }
    const std::string& key() const { return request_.key_; }  // add
    std::int64_t amount() const { return request_.n_; }       // add
    const Script* script() const { return request_.script_; }
    const Request::Keys& keys() const { return request_.keys_; }  // script, as below
    const auto& shared() const { return request_.shared_; }
    std::size_t arguments() const { return request_.arguments_count_; }
    std::size_t calls() const { return request_.calls_; }
    const std::string& bytes() const { return request_.bytes_; }
    Shape shape() const { return request_.shape_; }  // command
    void replace_calls(std::size_t calls, std::span<const std::string_view> keys, std::string bytes,
                       std::size_t arguments) {
        request_.calls_ = calls;
        request_.keys_ = Request::Keys{keys};
        request_.bytes_ = std::move(bytes);
        request_.arguments_count_ = arguments;
    }

    bool has_ended() const { return state_ == State::abandoned || state_ == State::done; }
    Repeat repeat() const { return request_.repeat_; }

    // The form of its next command.
    struct Form {
        bool alone{false};      // It was refused as part of a combined command.
        bool with_text{false};  // The server does not know the script.
    };

    Request request_;
    Deadline deadline_;
    Completion<Reply> done_;
    const Cancelled* cancelled_;
    State state_{State::queued};
    Attempt attempt_{Attempt::first};
    Form form_{};
    SteadyTime retry_at_{};
    Duration pause_{};                // Before the next try, when the server will serve it soon.
    ReplyArray replies_;              // batch: the replies so far.
    std::size_t answered_before_{0};  // batch: replies to commands that are no longer in its bytes.
    // The answers so far, and the indexes of the answers that are requested again.
    struct Parts {
        ReplyArray replies;
        std::vector<std::size_t> missing;
    };
    std::unique_ptr<Parts> parts_;
    std::optional<Departure> departure_{};
    std::optional<Result<Reply>> outcome_;  // Or, while postponed or left, the last refusal.
    std::atomic<bool> done_flag_{false};
};

using OperationPtr = std::shared_ptr<Operation>;

}  // namespace hotcount::redis

// What the connections that threads share and those of event loops have in common: the queue's
// bound, the ends of a dial, the move away from a replica, and the counts.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "connection.hpp"
#include "dialer.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {

/// Takes the calls that lanes hand back; a lane is the connection to one node of a cluster. Called
/// without the lane's lock.
class LaneOwner {
  public:
    virtual ~LaneOwner() = default;
    /// An asynchronous call has left the lane.
    virtual void left(std::uint16_t node, const OperationPtr& operation) = 0;
    /// Calls of the lane have ended or left.
    virtual void answered(std::uint16_t node) = 0;
    /// The lane holds answers until a map confirms its node. May be called with the lane's lock.
    virtual void doubts(std::uint16_t node) = 0;
    /// The lane has no connection.
    virtual void lost(std::uint16_t node) = 0;
};

/// Makes a connection the lane of a node. A lane whose owner has gone hands nothing back.
struct LaneOf {
    std::weak_ptr<LaneOwner> owner{};
    std::uint16_t node{0};
    std::shared_ptr<NodeHeard> heard{};  ///< Null: it is no lane.
};

/// A base class without virtual functions: the derived class has the lock or the loop under which
/// they run.
class ConnectionParts {
  public:
    struct Counts : Multiplexer::Counts {
        std::uint64_t sends{0};
        std::uint64_t bytes_sent{0};
        std::uint64_t bytes_received{0};
        std::uint64_t connects{0};
        std::uint64_t reconnects{0};

        void add(const Counts& other) {
            commands += other.commands;
            combined += other.combined;
            latency.add(other.latency);
            sends += other.sends;
            bytes_sent += other.bytes_sent;
            bytes_received += other.bytes_received;
            connects += other.connects;
            reconnects += other.reconnects;
        }
    };

  protected:
    ConnectionParts(const Options& options, std::shared_ptr<Dialer> dialer, LaneOf lane)
        : options_(options),
          lane_(std::move(lane)),
          dialer_(std::move(dialer)),
          multiplexer_(options_, lane_.heard.get()) {}
    ~ConnectionParts() = default;

    bool is_lane() const { return lane_.heard != nullptr; }
    Error closed_error() const {
        return make_error(ErrorCode::closed, options_.address() + " is closed");
    }

    /// Queues an asynchronous call, or returns the error of a full queue.
    std::optional<Error> push(const OperationPtr& operation) {
        if (multiplexer_.queued() >= options_.max_queue) {
            Error full = make_error(ErrorCode::capacity,
                                    options_.address() + ": " + std::to_string(options_.max_queue) +
                                        " calls are waiting (max_queue)" +
                                        (operation->maybe_ran() ? "" : "; nothing was applied"));
            dialer_->full_queue().begin(full.message);
            return full;
        }
        note_room();
        multiplexer_.push(operation);
        multiplexer_.count_unwaited();
        return {};
    }
    /// A queue that was full has room again when half of it is free.
    void note_room() {
        if (multiplexer_.queued() <= options_.max_queue / 2) dialer_->full_queue().end();
    }

    /// Takes the connection of a dial. If the dial failed, and another would not help, refuses the
    /// queued calls, none of which was sent.
    void take_dialed(Result<std::unique_ptr<Connection>> opened) {
        if (opened) {
            connection_ = std::move(*opened);
            if (counts_.connects++ > 0) ++counts_.reconnects;
            return multiplexer_.connected();
        }
        const Error& why = opened.error();
        multiplexer_.unreachable(why);
        if (is_lane() || !Dialer::worth_waiting(why)) multiplexer_.refuse_queued(why);
    }

    /// Counts what the socket took of `sending`, and keeps the rest.
    void sent(std::string sending, std::size_t taken) {
        counts_.bytes_sent += taken;
        if (taken > 0) ++counts_.sends;
        if (taken == sending.size()) return;
        sending.erase(0, taken);
        multiplexer_.put_back_unsent(std::move(sending));
    }

    /// Tells the lane's owner of held answers.
    void report_doubts() const {
        if (!is_lane() || !multiplexer_.doubted_since()) return;
        if (const auto owner = lane_.owner.lock()) owner->doubts(lane_.node);
    }
    /// A server that refuses writes is a replica: its name may stand for another server by now.
    /// Returns the error with which the connection is to end.
    std::optional<Error> leave_replica(SteadyTime now) {
        if (multiplexer_.take_demoted() && moves_.due(now)) {
            dialer_->put_last(connection_->peer());
            multiplexer_.drain();
        }
        if (!multiplexer_.drained()) return {};
        return make_error(ErrorCode::unavailable, options_.address() + " is a replica");
    }

    void release_connection() {
        if (!closed_ && !connection_->answered()) dialer_->came_to_nothing();
        counts_.bytes_received += connection_->bytes_received();
        connection_.reset();
    }
    Counts all_counts() const {
        Counts counts = counts_;
        static_cast<Multiplexer::Counts&>(counts) = multiplexer_.counts();
        if (connection_ != nullptr) counts.bytes_received += connection_->bytes_received();
        return counts;
    }

    const Options options_;
    const LaneOf lane_;
    const std::shared_ptr<Dialer> dialer_;
    Multiplexer multiplexer_;
    std::shared_ptr<Connection> connection_;
    bool closed_{false};

  private:
    Moves moves_;
    Counts counts_;
};

}  // namespace hotcount::redis

// A connection that threads share: whoever calls does the work for all.
//
//   caller --> queue --(write role)--> send --> flights, in order --(read role)--> answers
//
// Two roles, each held by at most one of the callers. The writer encodes and sends everything that
// is queued, merging adds to one key into one INCRBY. The reader receives, hands every reply to
// the oldest flight and wakes its callers. A caller alone pays exactly one send and one recv on its
// own stack; there is no I/O thread.
//
// What a failure means: a flight whose bytes had not all been handed to the kernel when the
// connection broke was never run. It, and whatever only reads, goes once more over a new connection
// before its callers are told unavailable. One that was handed over is unknown and is never sent
// again. A caller whose deadline passes leaves its flight behind: its late reply is read and
// dropped.
//
// Thread-safe. State is per process: the client keeps it in a ForkLocal.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <hotcount/base/clock.hpp>
#include <hotcount/base/event.hpp>
#include <hotcount/base/result.hpp>
#include <hotcount/redis/client.hpp>
#include <hotcount/redis/options.hpp>
#include <hotcount/redis/reply.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "connection.hpp"
#include "tls.hpp"

namespace hotcount::redis {

/// One caller's command. Made by the caller, shared with whoever works on it.
class Operation {
  public:
    /// Any command, already encoded.
    Operation(std::string encoded, std::string name, bool read_only)
        : encoded_(std::move(encoded)), name_(std::move(name)), read_only_(read_only) {}
    /// INCRBY key n, which may be merged with others of its key.
    Operation(std::string key, std::int64_t n) : name_("INCRBY"), key_(std::move(key)), n_(n) {}

    const std::string& name() const { return name_; }

  private:
    friend class Lane;
    enum class State : std::uint8_t { queued, in_flight, done, abandoned };

    bool is_add() const { return encoded_.empty(); }

    const std::string encoded_;
    const std::string name_;
    const bool read_only_{false};
    const std::string key_;
    const std::int64_t n_{0};

    // Under the lane's mutex.
    State state_{State::queued};
    bool alone_{false};   // Refused as part of a merged command: now to be sent by itself.
    bool resent_{false};  // Put back after a broken connection: a second one ends it.
    std::optional<Result<Reply>> outcome_;
    Event woken_;
};

class Lane {
  public:
    explicit Lane(const Options& options) : options_(options) {}

    /// Returns the reply, or what is known, by the deadline.
    Result<Reply> execute(const std::shared_ptr<Operation>& operation, Deadline deadline);
    /// The same for several, results by index; they travel together.
    std::vector<Result<Reply>> execute_all(std::span<const std::shared_ptr<Operation>> operations,
                                           Deadline deadline);
    void close();

    struct Stats {
        std::uint64_t commands{0};  ///< Calls answered.
        std::uint64_t merged{0};    ///< Calls that travelled in another call's command.
        std::uint64_t sends{0};     ///< Times that bytes were handed to the kernel.
        std::uint64_t connects{0};  ///< Connections made.
    };
    Stats stats();

  private:
    using Lock = std::unique_lock<std::mutex>;
    using Operations = std::vector<std::shared_ptr<Operation>>;

    // One command on the wire and the calls it answers: several only for a merged INCRBY.
    struct Flight {
        Operations members;
        std::int64_t total{0};  // What a merged INCRBY adds.
        std::uint64_t end{0};   // Its last byte's place in all that this connection sends.
    };

    Result<void> enqueue(Lock& lock, const std::shared_ptr<Operation>& operation,
                         Deadline deadline);
    Result<Reply> await(Lock& lock, const std::shared_ptr<Operation>& operation, Deadline deadline);
    bool may_write() const;
    void write(Lock& lock, const std::shared_ptr<Operation>& own, Deadline deadline);
    Result<std::shared_ptr<Connection>> connect(Lock& lock, Deadline deadline);
    void encode_queue();
    std::vector<Flight> merge_queue();
    void read(Lock& lock, const std::shared_ptr<Operation>& own, Deadline deadline);
    Result<bool> receive(Lock& lock, const std::shared_ptr<Connection>& connection);
    void settle(Reply reply);
    void settle_adds(Flight& flight, Reply reply);
    void finish(const std::shared_ptr<Operation>& operation, Result<Reply> outcome);
    Error give_up(const std::shared_ptr<Operation>& own);
    void break_connection(const Error& why, bool resend = true);
    void put_back(const Operations& operations);
    void break_if_stuck();
    void hand_on();
    void leave(Lock& lock);
    void wake_finished(Lock& lock);

    const Options options_;

    std::mutex mutex_;
    std::condition_variable room_;
    std::deque<std::shared_ptr<Operation>> queue_;
    std::deque<Flight> flights_;
    std::shared_ptr<Connection> connection_;
    TlsContext tls_;
    std::string out_;                 // Encoded and not yet handed to the kernel.
    std::uint64_t encoded_bytes_{0};  // By this connection, so far.
    std::uint64_t sent_bytes_{0};
    Operations finished_;  // Answered, and still to be woken.
    bool writing_{false};
    bool reading_{false};
    bool closed_{false};
    std::optional<SteadyTime> unanswered_since_;  // A caller gave up on the oldest flight.
    Stats stats_;
};

}  // namespace hotcount::redis

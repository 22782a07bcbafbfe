// The engine of a RetryingCounter in one process: the adds under way, the queued adds, and the
// thread that sends both.
//
//   push() --> incoming --> direct --(one script call at a time)--> the caller gets a value
//                  |           '-- Redis does not answer --.
//                  '-- it is away, or the key has adds in waiting --> waiting
//   waiting: in the journal, the caller gets Queued --(when Redis answers)--> counted once
//
// - The thread has one script call under way at a time. A failed call is sent again before other
//   adds to its keys, so the adds of a key arrive in the order of their numbers in any case.
// - On a cluster each primary has a lane: its adds, script calls of one slot each, a clock, and
//   whether the primary is away. When a slot moves, its adds go to the lane of the new owner; adds
//   of a key with a call under way follow when that call has ended.
// - A blocking caller sends its add itself if the thread is idle and no other caller is sending to
//   the key, because a hop to the thread and back costs more than the call. If that call fails, the
//   thread takes the add over; until then it sends nothing to the key.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/retry_queue.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend.hpp"
#include "redis/cluster_client.hpp"
#include "retry_journal.hpp"

namespace hotcount {

struct RetrySettings {
    std::shared_ptr<redis::Client> client;
    CounterOptions options;
    RetryQueue queue;
};

/// The value, or Queued, or, for an add with a period that the server's clock is not in, a
/// PeriodAnswer; then nothing was done.
using AddAnswer = std::variant<std::int64_t, Queued, PeriodAnswer>;

/// An add as its caller hands it in.
struct NewAdd {
    std::string key;
    std::int64_t n{0};
    std::shared_ptr<const PeriodWindow> period{};  ///< Null: a key without a period.
    Deadline deadline;
    Completion<AddAnswer> done;
    const redis::Cancelled* cancelled{nullptr};
};

/// An add that is not settled.
struct UnsettledAdd {
    std::string key;
    std::int64_t n{0};
    std::shared_ptr<const PeriodWindow> period{};
    std::uint64_t writer{0};
    std::uint64_t sequence{0};
    std::int64_t ttl_ms{0};
    Duration max_age{0};
    SteadyTime accepted{};
    std::int64_t server_ms{0};  ///< The time of `accepted` by Redis' clock, or 0.
    /// The start of its max_age by Redis' clock: not before its first sending, and then fixed.
    std::int64_t since_ms{0};
    SteadyTime deadline{};
    Completion<AddAnswer> done{};  ///< Empty once the caller has an answer.
    const redis::Cancelled* cancelled{nullptr};
    bool waits{false};  ///< It is in the queue, and in the journal if there is one.
    bool sent{false};   ///< It may be counted already.
};

class RetryEngine final : public std::enable_shared_from_this<RetryEngine> {
  public:
    /// Opens the journal if the queue has a path. Starts the thread if the journal has adds.
    static Result<std::shared_ptr<RetryEngine>> open(std::shared_ptr<const RetrySettings> settings);
    /// `journal`: may be null. `found`: the unsettled adds of the journal.
    RetryEngine(std::shared_ptr<const RetrySettings> settings,
                std::unique_ptr<RetryJournal> journal, std::vector<JournaledAdd> found);

    /// Calls `done` by the deadline. It may send the add itself and wait for the answer.
    void add_waiting(std::string key, std::int64_t n, Deadline deadline, Completion<Added> done);
    void add_waiting(NewAdd add);
    /// Calls `done` by the deadline in the engine's thread, or before it returns if the add is
    /// refused at once.
    void push(std::string key, std::int64_t n, Deadline deadline, Completion<Added> done,
              const redis::Cancelled* cancelled);
    void push(NewAdd add);
    /// The server's time; this machine's, if the server's is not known yet.
    Instant store_time() const;
    /// Starts the thread unless it runs. A capacity error if the system refuses one.
    Result<void> start();
    RetryStats stats() const;
    /// The servers that stopped answering since the last call of this, as messages name them.
    std::vector<std::string> take_silent();
    /// Waits until the queue is empty, then does as stop().
    std::size_t drain(Deadline deadline);
    /// Ends the thread and closes the journal; waits at most 2 s for that. Returns the number of
    /// queued adds.
    std::size_t stop();

  private:
    static const redis::Script& script();
    struct Flight;
    struct Call;
    enum class Mode : std::uint8_t { plain, ttl, period };
    using Adds = std::deque<UnsettledAdd>;
    using Keys = std::unordered_set<std::string, KeyedHash, std::equal_to<>>;

    /// The last reading of Redis' clock.
    struct ServerClock {
        SteadyTime asked{};
        std::int64_t unix_ms{0};
        std::int64_t half_trip_ms{0};
        SteadyTime good_until{SteadyTime::min()};

        /// The earliest server time that a local time can be: an add between two lives of its key
        /// belongs to the earlier one.
        std::int64_t at(SteadyTime time) const;
        /// A max_age does not need as fresh a reading as a window.
        bool serves(Mode mode) const;
    };
    /// The thread's state of one server: the only one, or a primary of a cluster.
    struct Lane {
        std::uint16_t node;
        Adds direct{};   ///< To be sent for the first time.
        Adds waiting{};  ///< The queued adds that no flight has.
        Adds held{};     ///< Queued adds that Redis refuses for now.
        Keys held_keys{};
        /// The script calls sent together: one, or on a cluster one for each slot.
        std::vector<std::shared_ptr<Flight>> flights{};
        std::size_t singly{0};  ///< Adds to send alone: one was refused for its key.
        bool blocked{false};    ///< All adds that could be sent are for busy keys.
        bool away{false};
        bool direct_next{false};
        Duration backoff{0};
        SteadyTime retry_at{};
        SteadyTime held_until{};
    };
    using Late = std::map<Lane*, std::vector<UnsettledAdd>>;
    /// An add that its caller sent and that has no answer.
    struct Returned {
        UnsettledAdd add;
        bool away{false};  ///< Redis was not reached, or did not answer.
        bool late{false};  ///< The script did nothing, because of the clocks.
    };

    void work();
    UnsettledAdd number(NewAdd add);
    std::optional<UnsettledAdd> take_to_send(NewAdd& add, ServerClock& clock);
    void end_here(UnsettledAdd& add, Result<AddAnswer> outcome);
    void hand_over(Returned returned);
    void take_in();
    void take_over(std::vector<Returned> returned);
    std::uint16_t node_of(const std::string& key) const;
    Lane& lane_of(const std::string& key);
    void follow_slots();
    const ServerClock& clock_of(std::uint16_t node) const;
    bool is_away() const;
    void land(Lane& lane);
    void land(Lane& lane, Flight& flight);
    void settle_replies(Lane& lane, Flight& flight, const redis::ReplyArray& replies);
    void settle_refused(UnsettledAdd& add, const PeriodAnswer& refused,
                        std::vector<UnsettledAdd>& again);
    void take_back(Lane& lane, Flight& flight, const Error& why);
    void take_for_misplaced(Flight& flight, const Error& why);
    void look_at_deadlines();
    void look_at_deadlines(Lane& lane, SteadyTime now);
    void launch(Lane& lane);
    void send(Lane& lane, Adds& from, bool replay);
    void start(Lane& lane, std::shared_ptr<Flight> flight, redis::Request request,
               Deadline deadline);
    void ask_for_time(Lane& lane, const std::string& key);
    void fix_since(UnsettledAdd& add, const ServerClock& clock, SteadyTime time);
    void pause(std::unique_lock<std::mutex>& lock);
    void enqueue(Lane& lane, std::vector<UnsettledAdd> adds, bool in_front);
    void accept(Lane& lane, std::vector<UnsettledAdd>& adds);
    static void pull_direct(Lane& lane, std::vector<UnsettledAdd>& adds);
    Result<void> write(const Lane& lane, std::vector<UnsettledAdd>& adds);
    void make_room(std::vector<UnsettledAdd>& adds);
    void settled(UnsettledAdd& add, std::int64_t RetryStats::*count);
    void forget(const std::vector<AddId>& ids);
    static void release_held(Lane& lane);
    Error to_error(const UnsettledAdd& add, const redis::ReplyError& refusal) const;
    void went_away(Lane& lane);
    void note_silent(const Lane& lane);
    void publish();
    void answer(UnsettledAdd& add, Result<AddAnswer> outcome);
    std::size_t waiting_count() const;
    static std::size_t waiting_count(const Lane& lane);
    JournaledAdd to_journaled(const Lane& lane, const UnsettledAdd& add) const;
    void distrust_clock(const Lane& lane);
    /// The mode of the script for an add. A journal may have adds of a counter with another ttl or
    /// with periods; each add keeps the ttl or period with which it was accepted.
    Mode mode_of(const UnsettledAdd& add) const {
        if (add.period) return Mode::period;
        return ttl_ms_ > 0 || add.ttl_ms > 0 ? Mode::ttl : Mode::plain;
    }

    const std::shared_ptr<const RetrySettings> settings_;
    const std::uint64_t writer_;
    const std::int64_t ttl_ms_;
    redis::ClusterNodes* const nodes_;  // Null: one server, of the number 0.

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by the mutex.
    std::vector<UnsettledAdd> incoming_;
    std::uint64_t next_sequence_{1};
    std::int64_t last_since_ms_{0};  // Never falls, so numbers of a key expire in order.
    RetryStats stats_;
    std::optional<SteadyTime> oldest_;
    std::size_t under_way_{0};  // Adds pushed and not answered.
    bool running_{false};
    bool stop_{false};
    bool closed_{false};
    std::thread::id thread_;
    Keys here_;  // Keys to which a caller is sending an add itself.
    std::vector<Returned> returned_;
    std::set<std::uint16_t> answered_;  // Nodes that answered callers since the last look.
    std::set<std::uint16_t> silent_;    // Nodes that take_silent() is to name.
    std::map<std::uint16_t, ServerClock> clocks_;  // Only the thread writes them.

    // Used by the thread alone.
    std::unique_ptr<RetryJournal> journal_;
    std::map<std::uint16_t, Lane> lanes_;  // By the number of the node.
    std::vector<std::uint16_t> owners_;    // Owners of the slots when the thread last looked.
    std::uint64_t seen_{0};                // The version of the slot map then.
    bool follow_again_{true};
    std::unordered_map<std::string, std::uint16_t, KeyedHash, std::equal_to<>>
        staying_;  // Keys in flights whose slot has moved, with their node.
    std::unordered_map<std::string, std::size_t, KeyedHash, std::equal_to<>> waiting_keys_;
    Keys misplaced_;  // Queued keys that a node of a cluster refuses.
    std::optional<Error> misplaced_why_;
    Keys busy_;  // here_, when the thread last looked; nothing is sent to these.
    std::vector<AddId> forgotten_;
    bool store_closed_{false};
    SteadyTime next_deadline_{SteadyTime::max()};
    SteadyTime next_sync_{};
};

}  // namespace hotcount

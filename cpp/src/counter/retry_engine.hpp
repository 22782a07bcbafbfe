// What a RetryingCounter is in one process: the adds under way and those that wait, and the thread
// that sends them.
//
//   push() --> incoming --> direct --(one script call at a time)--> the caller gets a value
//                  |           '-- Redis does not answer --.
//                  '-- it is away, or the key waits --> waiting: journal, the caller gets Queued
//                                                          '--(when it answers)--> counted once
//
// One script call is under way at a time, and a call that failed is sent again before others of its
// keys, so the adds of a key arrive in the order of their numbers whatever is cut or comes late.
#pragma once

#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/retry_queue.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "retry_journal.hpp"

namespace hotcount {

struct RetrySettings {
    std::shared_ptr<redis::Client> client;
    CounterOptions options;
    RetryQueue queue;
};

/// An add that is not settled.
struct UnsettledAdd {
    std::string key;
    std::int64_t n{0};
    std::uint64_t writer{0};
    std::uint64_t sequence{0};
    std::int64_t ttl_ms{0};
    SteadyTime accepted{};
    SteadyTime deadline{};
    Completion<Added> done{};  ///< Empty once the caller has an answer.
    const redis::Cancelled* cancelled{nullptr};
    bool waits{false};  ///< It is in the queue, and in the journal if there is one.
    bool sent{false};   ///< It may be counted already.
};

class RetryEngine : public std::enable_shared_from_this<RetryEngine> {
  public:
    /// `journal`: null without one. `found`: what waits in it.
    RetryEngine(std::shared_ptr<const RetrySettings> settings,
                std::unique_ptr<RetryJournal> journal, std::vector<JournaledAdd> found);

    /// Calls `done` in the engine's thread, by the deadline, or before it returns if the add is
    /// refused at once.
    void push(std::string key, std::int64_t n, Deadline deadline, Completion<Added> done,
              const redis::Cancelled* cancelled);
    /// Starts the thread, if it does not run; a capacity error if the system starts none.
    Result<void> start();
    RetryStats stats() const;
    /// Waits for the queue to be empty, then as stop().
    std::size_t drain(Deadline deadline);
    /// Ends the thread and lets go of the journal; waits for that for at most two seconds.
    std::size_t stop();

  private:
    static const redis::Script& script();
    struct Flight;
    using Adds = std::deque<UnsettledAdd>;

    void work();
    void take_in();
    void land();
    void settle_replies(Flight& flight, const redis::ReplyArray& replies);
    void take_back(Flight& flight, const Error& why);
    void look_at_deadlines();
    void launch();
    void send(Adds& from, bool replay);
    void ask_for_time();
    void pause(std::unique_lock<std::mutex>& lock);
    void enqueue(std::vector<UnsettledAdd> adds, bool in_front);
    void accept(std::vector<UnsettledAdd>& adds);
    void pull_direct(std::vector<UnsettledAdd>& adds);
    Result<void> write(std::vector<UnsettledAdd>& adds);
    void make_room(std::vector<UnsettledAdd>& adds);
    void settled(UnsettledAdd& add, std::int64_t RetryStats::*count);
    void forget(const std::vector<AddId>& ids);
    void hold(UnsettledAdd add);
    void release_held();
    void went_away();
    void publish();
    void answer(UnsettledAdd& add, Result<Added> outcome);
    std::size_t waiting_count() const;
    JournaledAdd to_journaled(const UnsettledAdd& add) const;
    bool expires() const { return ttl_ms_ > 0; }

    const std::shared_ptr<const RetrySettings> settings_;
    const std::uint64_t writer_;
    const std::int64_t ttl_ms_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by the mutex.
    std::vector<UnsettledAdd> incoming_;
    std::uint64_t next_sequence_{1};
    RetryStats stats_;
    std::optional<SteadyTime> oldest_;
    std::size_t under_way_{0};  // Pushed and not answered.
    bool running_{false};
    bool stop_{false};
    bool closed_{false};
    std::thread::id thread_;

    // Of the thread alone.
    std::unique_ptr<RetryJournal> journal_;
    Adds direct_;   // To be sent for the first time.
    Adds waiting_;  // The queue, but for those in the flight.
    Adds held_;     // Of the queue: Redis answers, and refuses them for now.
    std::unordered_map<std::string, std::size_t, KeyedHash, std::equal_to<>> waiting_keys_;
    std::unordered_set<std::string, KeyedHash, std::equal_to<>> held_keys_;
    std::shared_ptr<Flight> flight_;
    std::vector<AddId> forgotten_;
    std::size_t singly_{
        0};  // Adds that are sent alone, because one of them was refused for its key.
    bool away_{false};
    bool store_closed_{false};
    bool direct_next_{false};
    Duration backoff_{0};
    SteadyTime retry_at_{};
    SteadyTime held_until_{};
    SteadyTime next_deadline_{SteadyTime::max()};
    SteadyTime next_sync_{};
    // The server's clock, in unix milliseconds, when this machine's was `asked_`.
    std::optional<SteadyTime> asked_;
    std::int64_t server_ms_{0};
    std::int64_t half_trip_ms_{0};
};

}  // namespace hotcount

// RetryingCounter: a counter whose adds wait in a queue while Redis does not answer.
//
//   add --> Redis answers: the value after this very add
//       --> it does not:   the add is put into the queue and `Queued` is returned, never a number;
//                          a thread of the library adds it when Redis answers again, once
//
// Each add carries the id of its writer (drawn for each process) and a sequence number. The script
// that adds remembers a writer's last number beside the key, so an add that was sent, lost its
// answer and is sent again is counted once. Later adds to a key that has adds in the queue go
// behind them.
//
//   {KEY}:retry.XXXX   the last number of the writer XXXX (16 hex digits); it expires 10 minutes and
//                      the max_age of the queue that accepted the add after that writer's last add,
//                      and takes 100 to 150 bytes until then
//   {KEY}:window       with a ttl: when the key's life began and ended, and the one before ended; it
//                      expires one ttl after the key
//
// Guarantee: an add that returned a number or Queued is counted exactly once, unless it
// expires. Any other failure says whether nothing was applied or the outcome is unknown, as
// Counter's does. An add that is under way when its process dies is counted once or not at all.
// HOLE: an add that is sent again counts twice if the number was removed or evicted, or if Redis'
// clock was ahead by max_age and 10 minutes meanwhile and was set back.
//
// max_age is measured by this machine's clock and, for an add that may have been sent, by Redis'
// too: an add that is too old by either expires. So no clock that is wrong, steps or stands still
// makes an add count that Redis may have forgotten. An add that was sent and then met a step of
// Redis' clock by more than max_age expires although it may have been counted.
//
// With a ttl an add belongs to the life of the key that stands when it is accepted, or to one that
// begins then if none stands. If that life is over when the queue reaches the add, the add expires:
// it is counted nowhere and RetryStats::expired tells. Accepted means: between the call and its
// deadline, by this machine's clock corrected by what Redis' clock says when it answers. HOLE:
// other ways to add to the same keys (try_add, an op_id, a Counter without a queue) leave no
// {KEY}:window.
//
// RetryingPeriodCounter is the same for a PeriodCounter. An add belongs to the period that it was
// made in, however late it is counted. If the number of that period is not kept any more when the
// queue reaches the add, the add expires. {KEY}:window is not needed: the key has the period in its
// name, and an expiry from the step that makes it.
//
// Safe from many threads. A forked child has a writer and a queue of its own, and no journal.
#pragma once

#include <cstdint>
#include <hotcount/counter.hpp>
#include <hotcount/period_counter.hpp>
#include <span>
#include <variant>

namespace hotcount {

/// The effect of an add when max_items adds wait.
enum class WhenFull : std::uint8_t {
    raise,        ///< The add fails with a capacity error; nothing was applied.
    drop_oldest,  ///< The add that has waited longest is dropped, and RetryStats::dropped tells.
};
std::string_view to_string(WhenFull when_full);

/// When the journal's bytes are forced to the disk. kill -9 of the program never loses an add that
/// returned Queued; the policies differ in what a power cut or a crash of the system loses.
enum class Fsync : std::uint8_t {
    always,    ///< Before Queued is returned: nothing is lost. One fdatasync (0.1 to 10 ms) for all
               ///< adds that wait for it together.
    interval,  ///< Once a second: up to a second of adds may be lost.
    off,       ///< When the system does it, on Linux within 30 s: 30 s of adds may be lost.
};
std::string_view to_string(Fsync fsync);

struct RetryQueue {
    /// The journal: a file that keeps the adds that wait, also when the program is killed. The next
    /// process that opens it adds them, to the store of its own counter and with the ttl and the
    /// max_age that they were accepted with. One process at a time owns it. Empty: in memory only.
    std::string path{};
    /// Most adds that wait; each takes about 250 bytes of memory and 70 bytes and its key of the
    /// file.
    std::size_t max_items{200'000};
    /// An add that has waited for longer is counted nowhere. Longer: a longer outage loses nothing;
    /// Redis remembers writers for as long. An add keeps that of the queue that accepted it,
    /// whichever process sends it.
    Duration max_age{std::chrono::hours{1}};
    WhenFull when_full{WhenFull::raise};
    Fsync fsync{Fsync::always};
};

/// The result of an add that was put into the queue.
struct Queued {
    std::int64_t waiting;  ///< How many adds wait now, this one included.
    bool durable;          ///< It is on the disk: journal with Fsync::always.
    bool operator==(const Queued&) const = default;
};
using Added = std::variant<std::int64_t, Queued>;

/// Numbers since the counter was made. `waiting`, `oldest_age`, `journal_bytes` and `is_away` are
/// present values.
struct RetryStats {
    std::int64_t waiting{0};
    std::int64_t queued{0};    ///< Adds put into the queue, those found in the journal included.
    std::int64_t replayed{0};  ///< Adds of the queue that are counted.
    std::int64_t expired{
        0};  ///< Counted nowhere: older than max_age, or their key's life or period is over.
    /// Counted nowhere: the key holds no counter or would overflow, or the period is too far ahead.
    std::int64_t refused{0};
    /// WhenFull::drop_oldest: adds dropped from the queue. A dropped add that was sent and not
    /// answered before may be counted.
    std::int64_t dropped{0};
    std::int64_t outages{0};  ///< Times that Redis, or a primary of a cluster, stopped answering.
    double oldest_age{0};     ///< Seconds that the oldest add has waited.
    std::int64_t journal_bytes{0};
    bool is_away{false};  ///< Redis, or a primary of a cluster, did not answer when last asked.
};

class RetryBatch;

class RetryingCounter {
  public:
    /// Opens the journal, if queue.path names one, and begins to send the adds in it. A config
    /// error for a bad option, and for a file that is no journal, has another version, is owned by
    /// another process or is damaged in the middle (the error names file and offset).
    /// permission_denied or capacity if the file system refuses.
    static Result<std::shared_ptr<RetryingCounter>> make(std::shared_ptr<redis::Client> client,
                                                         CounterOptions options, RetryQueue queue);
    RetryingCounter(const RetryingCounter&) = delete;
    RetryingCounter& operator=(const RetryingCounter&) = delete;
    ~RetryingCounter();

    /// Adds n, or puts the add into the queue. A capacity error: the queue or the disk is full and
    /// nothing was applied. A config error for a key whose braces make no hash tag.
    Result<Added> add(std::string_view key, std::int64_t n = 1, Timeout timeout = {});
    /// The same, sent by a thread of the library, which calls `done`. The call's channel is not
    /// used.
    void add_async(std::string_view key, std::int64_t n, Completion<Added> done,
                   AsyncCall call = {});
    /// add() of many keys in order, with an amount for each; keys may repeat. One failure does not
    /// stop the others. The result of an element is the value after its add, or Queued. Once an add
    /// is queued, all later adds to its key are too. A thread of the library sends the adds, at
    /// most 1,024 before adds of other calls get their turn.
    BatchResult<Added> add_many(std::span<const std::string_view> keys,
                                std::span<const std::int64_t> amounts, Timeout timeout = {});
    /// add_many() without waiting; that thread calls `done`. Arguments are copied. The call's
    /// channel is not used.
    void add_many_async(std::span<const std::string_view> keys,
                        std::span<const std::int64_t> amounts, Completion<BatchResult<Added>> done,
                        AsyncCall call = {});

    RetryStats stats() const;
    /// The servers that stopped answering since the last call of this, as messages name them: the
    /// server, or primaries of a cluster.
    std::vector<std::string> take_silent();
    const RetryQueue& queue() const;
    /// Waits until the queue is empty, or until the timeout (nullopt: the client's), and then
    /// closes the journal. Returns the number of adds that still wait: they stay in the journal, or
    /// are lost if there is none.
    std::size_t close(Timeout timeout = {});

  private:
    struct State;
    explicit RetryingCounter(std::unique_ptr<State> state);
    Result<std::string> name_of(std::string_view key) const;
    std::shared_ptr<RetryBatch> make_batch(std::span<const std::string_view> keys,
                                           std::span<const std::int64_t> amounts, Deadline deadline,
                                           const redis::Cancelled* cancelled,
                                           Completion<BatchResult<Added>> done) const;

    const std::unique_ptr<State> state_;
};

class RetryingPeriodCounter {
  public:
    /// As RetryingCounter::make. A journal may have adds of both kinds of counters, and either kind
    /// sends what it finds.
    static Result<std::shared_ptr<RetryingPeriodCounter>> make(
        std::shared_ptr<redis::Client> client, PeriodCounterOptions options, RetryQueue queue);
    RetryingPeriodCounter(const RetryingPeriodCounter&) = delete;
    RetryingPeriodCounter& operator=(const RetryingPeriodCounter&) = delete;
    ~RetryingPeriodCounter();

    /// Adds n to the period that `at` is in, or puts the add into the queue; failures as in
    /// RetryingCounter::add and PeriodCounter::add. Without `at` the period is the store's present
    /// one. While Redis does not answer, the present is the last time of Redis' clock plus the time
    /// since then, or this machine's time if Redis has not answered this process yet. An `at` is
    /// not checked while Redis does not answer: an add to a period that is no longer kept expires,
    /// and one to a period too far ahead is refused (RetryStats).
    Result<Added> add(std::string_view key, std::int64_t n = 1, std::optional<Instant> at = {},
                      Timeout timeout = {});
    /// The same, sent by a thread of the library, which calls `done`. The call's channel is not
    /// used.
    void add_async(std::string_view key, std::int64_t n, std::optional<Instant> at,
                   Completion<Added> done, AsyncCall call = {});
    /// add() of many keys, as RetryingCounter::add_many().
    Result<BatchResult<Added>> add_many(std::span<const std::string_view> keys,
                                        std::span<const std::int64_t> amounts,
                                        std::optional<Instant> at = {}, Timeout timeout = {});
    void add_many_async(std::span<const std::string_view> keys,
                        std::span<const std::int64_t> amounts, std::optional<Instant> at,
                        Completion<BatchResult<Added>> done, AsyncCall call = {});

    RetryStats stats() const;
    /// The servers that stopped answering since the last call of this, as messages name them: the
    /// server, or primaries of a cluster.
    std::vector<std::string> take_silent();
    const RetryQueue& queue() const;
    /// As RetryingCounter::close.
    std::size_t close(Timeout timeout = {});

  private:
    class State;
    explicit RetryingPeriodCounter(std::shared_ptr<State> state);

    const std::shared_ptr<State> state_;
};

/// A config error for a bad option of the queue.
Result<void> check_retry_queue(const RetryQueue& queue);

}  // namespace hotcount

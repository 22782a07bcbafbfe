// Finds the primary of a service that Sentinels watch, and ends its connections when it is replaced.
//
//   a thread for each Sentinel: SUBSCRIBE, and a look each second --> answers --choose_primary()--> the primary
//   find()    asks all of them anew                                   events --> Lease::end()
//
// A paused primary that is replaced acknowledges the commands in its sockets when it resumes, and
// reports the role of a primary for 10 s more: these writes are lost.
//  - Its connections therefore end when a Sentinel is elected to replace it, before the replica is
//    promoted. The outcome of their pending calls is unknown.
//  - The look each second finds an election whose message a lost subscription missed.
//  - A client process that was paused itself may read replies of the replaced primary before the
//    Sentinels' messages. So after a pause, and after 2.5 s without an answer of a majority, a reply
//    counts only once a round has ended: all Sentinels are asked anew (belief.hpp has the rules). A
//    thread of its own notices pauses and asks; connections withhold replies meanwhile.
//  - A reply waits for two rounds at most. A round ends with the last answer. If a Sentinel does not
//    answer, the round ends after kConfirm = 1 s in which the process ran, and later rounds end 50 ms
//    after a majority has answered, until that Sentinel answers again.
//  - While the process runs, that thread asks before the 2.5 s have passed, and no reply waits. If no
//    majority answers a round, connections stay in use, and their replies count.
//
// Thread-safe. Per process: a forked child has its own. The threads begin with the first find() and end
// with close().
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "belief.hpp"
#include "connection.hpp"
#include "sentinel_answers.hpp"
#include "tls.hpp"

namespace hotcount::redis {

class Sentinels : public std::enable_shared_from_this<Sentinels> {
  public:
    /// `changed` is called by any thread when the primary may be found again.
    Sentinels(const Options& options, std::function<void()> changed);
    ~Sentinels();
    Sentinels(const Sentinels&) = delete;
    Sentinels& operator=(const Sentinels&) = delete;

    /// Asks all Sentinels. After a majority has answered it waits at most kGrace for the others.
    Result<Primary> find(Deadline deadline);
    /// The lease for a connection to this primary.
    std::shared_ptr<Lease> lease(const Endpoint& primary);
    /// Does not wait for the threads.
    void close();

  private:
    struct Watched;
    class Session;

    Result<void> start_threads();
    void watch(Watched& sentinel);
    void follow(Watched& sentinel, Session& session);
    void rest(const Watched& sentinel) const;
    void record(Watched& sentinel, SteadyTime asked_at, SentinelAnswer answer);
    void note(Watched& sentinel, const SentinelEvent& event);
    struct Round {
        SteadyTime asked_at;
        bool replies_wait;
        Duration left;  // Of the time in which this process runs.
        // If no answer does, as the elected Sentinel is gone, the answers refute no connection.
        bool knows_last_failover{false};
    };
    bool confirmed(SteadyTime read_at) const;
    void keep_confirmed();
    bool round_is_due(SteadyTime time) const;
    bool round_is_over(Round& round);
    void act_on(const Round& round);
    Result<Primary> primary_since(SteadyTime since);
    SteadyTime when_majority_was_asked() const;
    template <class Which>
    void end_leases(const std::string& why, const Which& which);
    void ask_all() const;

    const Options options_;
    const std::function<void()> changed_;
    std::vector<std::unique_ptr<Watched>> watched_;
    std::atomic<bool> closed_{false};
    std::mutex mutex_;
    std::condition_variable answered_;
    std::uint64_t known_epoch_{0};
    SteadyTime known_since_{};  // When a Sentinel last knew of that failover.
    Belief belief_;
    std::atomic<bool> blind_{false};  // No majority answered the last round.
    bool confirms_{false};            // The thread of keep_confirmed() runs.
    std::optional<Endpoint> found_;   // By the last look, if a majority agreed.
    std::vector<std::weak_ptr<Lease>> leases_;
};

}  // namespace hotcount::redis

// What a process knows of a cluster: its nodes, a dialer for each, and the map, which a thread of the
// library asks for when somebody doubts it.
//
//   want() --> a node that nobody doubts; after 250 ms another; then the seeds --> Router --> listeners
//
// One request at a time, at most eight of them at once and eight a second. CLUSTER SLOTS and CLUSTER NODES
// travel together. A map is asked for again after 30 s.
//
// Thread-safe. Per process: a forked child has one of its own. Listeners and tasks run in threads of the
// map, which hold none of its locks.
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/detail/base/worker_pool.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "connection.hpp"
#include "dialer.hpp"
#include "router.hpp"

namespace hotcount::redis {

class ClusterMap : public std::enable_shared_from_this<ClusterMap> {
  public:
    ClusterMap(const Options& options, std::shared_ptr<KnownScripts> scripts);

    Router& router() { return router_; }

    struct Node {
        Options options;
        std::shared_ptr<Dialer> dialer;
        std::shared_ptr<NodeHeard> heard;
    };
    /// What a lane of the node needs. The number is one of the router's.
    const Node& node(std::uint16_t number);

    /// Asks for a newer map.
    void want();
    /// The same, and not of this node if another answers.
    void doubts(std::uint16_t node);
    /// Why the last try failed, if it began after this time.
    std::optional<Error> failure_since(SteadyTime time);
    /// What is known of that while nodes are still asked.
    Error why_none();
    struct Confirmation {
        bool owns;  ///< Another node said that the node has slots, as in the map before.
        SteadyTime asked_at;
    };
    std::optional<Confirmation> confirmation(std::uint16_t node);

    /// Called after each try to get a map, while `alive` is.
    void listen(std::weak_ptr<void> alive, std::function<void()> listener);
    void run_at(SteadyTime time, std::function<void()> task);
    void close();
    std::uint64_t refreshes() const { return refreshes_.load(std::memory_order_relaxed); }

  private:
    struct Asked {
        Endpoint endpoint;
        std::unique_ptr<const Options> options;
        std::unique_ptr<Connection> connection;
    };
    struct Listener {
        std::weak_ptr<void> alive;
        std::function<void()> call;
    };

    Options options_of(const Endpoint& endpoint) const;
    void schedule(SteadyTime not_before);
    void refresh(SteadyTime due);
    std::vector<Endpoint> candidates();
    // Asked for in a try to get a map if a connection is made: once, and again after the first refusal.
    struct AskedLogin {
        std::optional<Result<Login>> answer;
        bool again{false};
        bool failed() const { return answer && !answer->ok(); }
    };
    Result<Login> login();
    using Names = CallsApart<std::vector<Address>>;
    Result<std::vector<Address>> addresses_of(const Endpoint& endpoint, Deadline deadline);
    Result<Topology> ask(const Endpoint& endpoint, AskedLogin& login, Duration patience);
    static Result<Topology> ask_over(Connection& connection, const Endpoint& endpoint,
                                     Deadline deadline);
    void tell();

    const Options options_;
    const std::shared_ptr<KnownScripts> scripts_;
    Router router_;
    WorkerPool pool_{2};
    std::optional<Asked> asked_;                           // The refresh's.
    std::map<std::string, std::shared_ptr<Names>> names_;  // The refresh's, by endpoint.
    std::atomic<std::uint64_t> refreshes_{0};

    std::mutex mutex_;
    std::map<std::uint16_t, std::unique_ptr<Node>> nodes_;
    std::set<std::uint16_t> doubted_;
    SteadyTime due_{SteadyTime::max()};  // Of the next request.
    bool refreshing_{false};
    bool again_{false};
    bool closed_{false};
    SteadyTime paid_until_{};
    std::optional<std::pair<SteadyTime, Error>> failure_;
    std::optional<Error> last_refusal_;  // Of a node, since the last map.
    struct Told {
        SteadyTime asked_at;
        std::uint16_t by;
        std::map<std::uint16_t, std::uint64_t> owners;  // And their epochs.
        std::set<std::uint16_t> changed;                // Those with other epochs than before.
    };
    std::optional<Told> told_;
    std::vector<Listener> listeners_;
};

}  // namespace hotcount::redis

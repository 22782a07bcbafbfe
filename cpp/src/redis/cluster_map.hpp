// The nodes of a cluster, a dialer for each, and the slot map, which a thread of the library
// requests every 30 s, and sooner when a call needs it or a lane reports doubt.
//
//   want() --> a node without doubt; after 250 ms another; then the seeds --> Router --> listeners
//
// Requests are sequential: at most eight a second, after a burst of eight. CLUSTER SLOTS and
// CLUSTER NODES travel together. While a lost node owns slots and stays silent, requests go on:
// its calls wait for a dial, which a paused node does not answer within connect_timeout, and the
// first map with its successor ends that wait.
//
// Thread-safe. Per process: a forked child makes its own. Listeners and tasks run in threads of the
// map without its locks.
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
    /// The options, dialer and NodeHeard for a lane of the node with this number of the router.
    const Node& node(std::uint16_t number);

    /// Asks for a newer map.
    void want();
    /// Asks for one newer map, this node last: it has answered, but late.
    void doubts(std::uint16_t node);
    /// Asks for maps until this node, which is asked last, answers or owns no slot.
    void lost(std::uint16_t node);
    /// The error of the last request for a map, if it began after this time and failed.
    std::optional<Error> failure_since(SteadyTime time);
    /// The last refusal by a node since the last map, or else a deadline error.
    Error why_none();
    struct Confirmation {
        /// Another node's map gives it slots, with the same epoch as the map before; or it is a primary
        /// without slots in both, which imports its first slot.
        bool owns;
        SteadyTime asked_at;
    };
    /// Nothing if no other node knows yet: a redirection may tell of a promotion before the nodes have
    /// told each other.
    std::optional<Confirmation> confirmation(std::uint16_t node);

    /// Calls `listener` after each request for a map, until `alive` expires.
    void listen(std::weak_ptr<void> alive, std::function<void()> listener);
    void run_at(SteadyTime time, std::function<void()> task);
    void close();

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
    bool is_closed();
    void refresh(SteadyTime due);
    std::vector<Endpoint> candidates();
    void settle_doubts(SteadyTime asked_at);
    std::optional<bool> owns(std::uint16_t node) const;
    bool imports_its_first_slot(std::uint16_t node) const;
    // The login for one request: asked for with the first connection, and again after its first
    // refusal.
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

    std::mutex mutex_;
    std::map<std::uint16_t, std::unique_ptr<Node>> nodes_;
    std::map<std::uint16_t, SteadyTime> doubted_;  // When last lost.
    SteadyTime due_{SteadyTime::max()};            // Of the next request.
    bool refreshing_{false};
    bool again_{false};
    bool closed_{false};
    SteadyTime paid_until_{};
    std::optional<std::pair<SteadyTime, Error>> failure_;
    std::optional<Error> last_refusal_;  // Of a node, since the last map.
    struct WithoutSlots {
        NodeInfo primary;
        SteadyTime since;  // When the first of the last maps was asked for that all have it so.
    };
    struct Told {
        SteadyTime asked_at;
        std::uint16_t by;
        bool has_epochs;
        std::map<std::uint16_t, std::uint64_t> owners;  // And their epochs.
        std::set<std::uint16_t> changed;                // Nodes with a new epoch.
        std::vector<WithoutSlots> without_slots;
    };
    std::optional<Told> told_;
    std::vector<Listener> listeners_;
};

}  // namespace hotcount::redis

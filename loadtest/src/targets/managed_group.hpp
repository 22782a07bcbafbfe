// Groups of private servers, in which another server replaces one that fails.
//
//   sentinel        a primary, two replicas and three Sentinels (quorum 2, down after 1 s)
//   redis_cluster   three primaries with a replica each, cluster-node-timeout 2 s
//   postgres_pair   a primary and a standby that takes part in each commit
//   galera          three nodes of a MariaDB Galera cluster, all of which take writes
//
// The servers listen on ports of 127.0.0.1 that were free when the group began. Their data ends
// with the run: nothing is kept for a later audit.
//
//   pause      the primary stands still. A Redis is replaced if that lasts; a PostgreSQL goes on
//   kill9      the primary ends. A Redis is replaced, and comes back at the fault's end as a replica; the
//              standby of a PostgreSQL is promoted at the fault's end, as an operator would
//   cut        the primary of a pair is not heard any more, connections stay; at the fault's end it is
//              killed, and its standby is promoted. A primary of a cluster is heard by clients only: it
//              goes on until it misses the majority, and is replaced if that lasts
//   failover   the primary is replaced as planned
//   reshard    slots of one primary move to the next one
//
// A fault of galera takes the next node, and at its end that node joins the others again: killed and
// started (kill9), standing still (pause), heard by its clients and not by the other nodes (cut), stopped
// and started as planned (failover).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "managed_server.hpp"

namespace hotcount::loadtest {

/// Returns when a server of the group can be replaced. The servers end with the calling thread.
/// `durable`: a Redis has its writes on disk before it answers.
Result<std::unique_ptr<Managed>> start_group(ServerKind kind, bool durable,
                                             const std::atomic<bool>& interrupt);

/// `count` ports of 127.0.0.1 on which no program listens.
Result<std::vector<std::uint16_t>> free_ports(std::size_t count);

/// Calls `holds` every few milliseconds until it is true, for 30 s at most. The error names `what`.
Result<void> wait_until(std::string_view what, const std::atomic<bool>& interrupt,
                        const std::function<bool()>& holds);

class ServerGroup : public Managed {
  public:
    std::vector<pid_t> pids() const override;
    std::uint64_t starts() const override;

  protected:
    ServerGroup() : Managed({}) {}

    std::vector<std::unique_ptr<ManagedServer>> nodes_{};
};

/// The number that the statement returns, run in a session of its own; 0 if it returns none.
Result<std::int64_t> ask_number(const ManagedServer& server, const std::string& statement);
/// True if the statement returns `number`.
bool answers_with(const ManagedServer& server, const std::string& statement, std::int64_t number);

/// The common base of groups of Redis servers.
class RedisGroup : public ServerGroup {
  public:
    Result<Strike> strike(const Fault& fault) override;
    Result<void> mend(const Fault& fault) override;
    bool replaced() override;
    bool refuses() override { return !was_cut_ || refuses(struck_); }

  protected:
    Result<void> add_node(std::uint16_t port, bool durable, std::vector<std::string> more,
                          const std::atomic<bool>& interrupt);
    std::string replication(std::size_t node, std::string_view name);
    bool is_primary(std::size_t node) { return replication(node, "role") == "master"; }
    /// True if the replica has finished its first copy and is connected to its primary.
    bool follows(std::size_t node) { return replication(node, "master_link_status") == "up"; }

    /// The node that the next fault hits.
    virtual Result<std::size_t> next_struck() = 0;
    /// The nodes that may replace the primary.
    virtual std::vector<std::size_t> heirs_of(std::size_t primary) = 0;
    /// True if the node takes writes.
    virtual bool serves(std::size_t node) { return is_primary(node); }
    /// Asks for a planned failover, and returns before it has begun.
    virtual Result<void> fail_over() = 0;
    virtual Result<void> reshard(std::uint32_t slots);
    /// Cuts the connection between the struck node and the other nodes, in both directions.
    virtual Result<void> cut_off();
    virtual Result<void> let_back();
    /// True if the node refuses writes of clients that reach it.
    virtual bool refuses(std::size_t /*node*/) { return true; }

    std::vector<std::unique_ptr<RedisWire>> wires_{};
    std::size_t struck_{0};
    std::vector<std::size_t> heirs_{};

  private:
    bool was_cut_{false};
    /// Returns when the heirs have all that the primary had when this was called.
    Result<SteadyTime> await_copies();
};

Result<std::unique_ptr<Managed>> start_sentinel(bool durable, const std::atomic<bool>& interrupt);
Result<std::unique_ptr<Managed>> start_cluster(bool durable, const std::atomic<bool>& interrupt);
Result<std::unique_ptr<Managed>> start_postgres_pair(const std::atomic<bool>& interrupt);
Result<std::unique_ptr<Managed>> start_galera(const std::atomic<bool>& interrupt);

}  // namespace hotcount::loadtest

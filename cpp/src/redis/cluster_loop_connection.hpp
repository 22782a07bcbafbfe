// An event loop's connections to the nodes of a cluster.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <memory>

#include "cluster_map.hpp"
#include "socket_loop_connection.hpp"

namespace hotcount::redis {

std::unique_ptr<LoopConnection> make_cluster_loop_connection(
    const Options& options, std::shared_ptr<ClusterMap> map, LoopHost& host,
    std::shared_ptr<LoopConnections> loops);

}  // namespace hotcount::redis

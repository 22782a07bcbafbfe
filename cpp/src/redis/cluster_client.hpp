// The client of a Redis or Valkey cluster: as that of one server (redis.hpp), with a connection to each
// primary that calls need. ClusterNodes tells concepts which primary a key belongs to.
#pragma once

#include <cstdint>
#include <hotcount/redis.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// Client::make() has checked the options.
std::shared_ptr<Client> make_cluster_client(Options options);

/// The primaries of a cluster, as this process knows them, by numbers that stay theirs. A forked child
/// has other numbers. Thread-safe.
class ClusterNodes {
  public:
    static constexpr std::uint16_t kNobody = 0xffff;

    virtual ~ClusterNodes() = default;
    /// The node that has the slot, or kNobody: no map has one. Two loads of memory.
    virtual std::uint16_t owner(std::uint16_t slot) const = 0;
    /// Changes when an owner does.
    virtual std::uint64_t version() const = 0;
    /// As Options::address(); of kNobody that of the cluster.
    virtual std::string address(std::uint16_t node) const = 0;
    /// Those that own slots in the last map. Without a map it waits for one, and fails as a call does.
    virtual Result<std::vector<std::uint16_t>> primaries(Timeout timeout) = 0;
    /// Sends a command that names no key to this node, and to no other.
    virtual Result<Reply> execute_at(std::uint16_t node, std::span<const std::string_view> command,
                                     Timeout timeout) = 0;
};

/// Null: the client is one of a server. It lives as long as the client.
ClusterNodes* nodes_of(Client& client);

}  // namespace hotcount::redis

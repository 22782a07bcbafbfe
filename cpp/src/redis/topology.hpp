// Parses a cluster's slot map. CLUSTER SLOTS gives the endpoints for clients, CLUSTER NODES the
// epochs; the two replies are joined by node id. Also parses the redirects MOVED and ASK. Pure: the
// caller decides which of two maps is newer.
//
// Nothing here trusts the server: a map that contradicts itself is an error as a whole, and no part of it
// is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// A primary that owns slots. Its id stays the same when it gets another address.
struct NodeInfo {
    std::string id;
    Endpoint endpoint;
    std::uint64_t epoch{0};  ///< Its config epoch; 0 without CLUSTER NODES.
};

struct Topology {
    static constexpr std::uint16_t kNoNode = 0xFFFF;

    std::vector<NodeInfo> nodes;
    std::vector<std::uint16_t> owner;  ///< By slot: the index in `nodes`, or kNoNode.
    bool has_epochs{false};
};

/// The map from the replies to CLUSTER SLOTS and CLUSTER NODES, sent together. If `nodes` is null
/// or an error reply (an ACL may deny the command), the map has no epochs. `asked` is the node that
/// answered: an endpoint without a host gets the host of `asked`. An endpoint "?" is a config
/// error; replies that contradict each other or themselves are a reply error.
Result<Topology> read_topology(const Reply& slots, const Reply* nodes, const Endpoint& asked);

struct Redirect {
    std::uint16_t slot;
    Endpoint endpoint;
    bool ask;  ///< ASK, for this command alone; else MOVED.
};

/// Parses "MOVED 3999 host:port" or "ASK 3999 host:port", given without the leading "-". Returns
/// nullopt for any other line, and for the endpoint "?", which names no host.
std::optional<Redirect> read_redirect(std::string_view line, const Endpoint& asked);

}  // namespace hotcount::redis

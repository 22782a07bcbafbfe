// The owner of each slot of a cluster, and the next step of a call that left a node's lane.
// Decisions only: no I/O, no threads of its own. Thread-safe: owner() and version() are atomic
// loads, the other functions take a lock.
//
// The owner of a slot changes by MOVED, the reply of a node that has lost the slot, or by a map
// whose owner has at least the present owner's config epoch. So the view of a partitioned primary
// never wins.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster_client.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {

// -- topology.cpp: a cluster's slot map, and the redirections MOVED and ASK -------------------------
//
// CLUSTER SLOTS gives the endpoints for clients, CLUSTER NODES the epochs; the two replies are joined
// by node id. The caller decides which of two maps is newer. Nothing here trusts the server: a map
// that contradicts itself is an error as a whole, and no part of it is used.

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
    /// Primaries without slots that the asked node reaches, by the addresses of CLUSTER NODES.
    std::vector<NodeInfo> without_slots{};
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

// -- the router -----------------------------------------------------------------------------------

class Router {
  public:
    static constexpr std::uint16_t kNobody = 0xffff;
    /// The maximum number of nodes, including former addresses of nodes.
    static constexpr std::size_t kMostNodes = 4096;

    /// `address_map`: from an announced "host:port" to the "host:port" that this process can reach.
    explicit Router(std::map<std::string, std::string> address_map = {});
    /// The endpoint in the address map for an announced one, or the announced one itself.
    Endpoint translate(const Endpoint& announced) const;

    /// The node's number, which never changes, or kNobody.
    std::uint16_t owner(std::uint16_t slot) const {
        return owners_[slot].load(std::memory_order_acquire);
    }
    /// Changes when the slot gets another owner, or its owner another config epoch: the new owner may
    /// lack writes that the former one acknowledged. Never 0.
    std::uint32_t term(std::uint16_t slot) const {
        return terms_[slot].load(std::memory_order_acquire);
    }
    /// Changes when an owner does.
    std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

    struct Node {
        std::string id;  ///< Empty: known by a redirection alone.
        Endpoint endpoint;
        std::uint64_t epoch{0};
        bool owns{false};  ///< Slots, in the last map.
    };
    std::optional<Node> node(std::uint16_t number) const;
    /// The number of a node at this endpoint, a new one if none is known.
    std::uint16_t node_at(const Endpoint& endpoint);
    /// The nodes that own slots in the last map.
    std::vector<std::uint16_t> primaries() const;
    /// Whether it owns a slot by now, as maps and redirections tell together.
    bool owns(std::uint16_t number) const;
    bool has_map() const { return has_map_.load(std::memory_order_acquire); }

    /// `asked`: the node that gave the map. A map without epochs counts once two nodes gave it.
    void apply(const Topology& map, const Endpoint& asked);
    /// A node has answered that the slot is at this endpoint.
    void moved(std::uint16_t slot, const Endpoint& endpoint);

    /// The next step of a call that left a node's lane.
    struct Next {
        enum class Do : std::uint8_t {
            place,  ///< The slot's owner takes it, after `pause`.
            ask,    ///< Operation::route.target takes it, with ASKING.
            end,    ///< Its caller gets `error`: too little time is left.
        };
        Do what;
        Duration pause{0};
        std::optional<Error> error{};
        bool doubts_map{false};
    };
    Next decide(Operation& operation, std::uint16_t from);
    /// The error of a call in no lane whose deadline has passed. `why`: the last refusal.
    static Error unserved(const Operation& operation, const Error& why);

  private:
    std::uint16_t find_or_add(const Endpoint& endpoint);
    std::uint16_t number_of(const NodeInfo& info);
    bool is_proven(const Topology& map, const Endpoint& asked);
    void set_owner(std::uint16_t slot, std::uint16_t node, std::uint64_t floor);

    const std::map<std::string, std::string> address_map_;
    std::array<std::atomic<std::uint16_t>, kSlots> owners_;
    std::array<std::atomic<std::uint32_t>, kSlots> terms_;
    std::atomic<std::uint64_t> version_{0};
    std::atomic<bool> has_map_{false};
    mutable std::mutex mutex_;
    std::vector<Node> nodes_;
    std::array<std::uint64_t, kSlots> floors_{};  // A map's owner with a lower epoch is outdated.
    std::optional<std::pair<Endpoint, Topology>> unproven_;  // The last map without epochs.
};

}  // namespace hotcount::redis

// The client of a Redis or Valkey cluster: like that of one server (redis.hpp), with a connection
// to each primary that calls need. For concepts: the slot of a key, and ClusterNodes, which tells the
// primary that owns a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/redis.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

// -- slots.cpp: the slot of a key is the CRC16 of its hash tag or else of the whole key, mod 16384 --

inline constexpr std::size_t kSlots = 16384;

/// The part of a key that is hashed: the text between the first '{' and the next '}', if it is not
/// empty; otherwise the whole key.
std::string_view hash_tag(std::string_view key);
/// Whether the prefix has a '{' and no whole hash tag: the rest of a key would end the tag.
bool opens_hash_tag(std::string_view prefix);

std::uint16_t slot_of(std::string_view key);

// -- the client -----------------------------------------------------------------------------------

/// Client::make() has checked the options.
std::shared_ptr<Client> make_cluster_client(Options options);

/// The primaries of a cluster, as this process knows them, by numbers that stay theirs. A forked child
/// has other numbers. Thread-safe.
class ClusterNodes {
  public:
    static constexpr std::uint16_t kNobody = 0xffff;

    virtual ~ClusterNodes() = default;
    /// The number of the node that owns the slot, or kNobody if no map names an owner. Lock-free.
    virtual std::uint16_t owner(std::uint16_t slot) const = 0;
    /// Changes when the slot gets another owner, or its owner another config epoch: the new owner may
    /// lack writes that the former one acknowledged. Never 0. Lock-free.
    virtual std::uint32_t term(std::uint16_t slot) const = 0;
    /// Changes when an owner does.
    virtual std::uint64_t version() const = 0;
    /// As Options::address(); of kNobody that of the cluster.
    virtual std::string address(std::uint16_t node) const = 0;
    /// The primaries with slots in the last map. Without a map it waits for one; it fails like a
    /// call.
    virtual Result<std::vector<std::uint16_t>> primaries(Timeout timeout) = 0;
    /// Sends a command that names no key to this node, and to no other.
    virtual Result<Reply> execute_at(std::uint16_t node, std::span<const std::string_view> command,
                                     Timeout timeout) = 0;
};

/// Null for a client of a single server. The result lives as long as the client.
ClusterNodes* nodes_of(Client& client);

}  // namespace hotcount::redis

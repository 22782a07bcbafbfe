// The cluster bus of a private cluster, through which a node can be cut off from the others.
//
//   node --bus--> its peer's announced bus port --(a thread of this program)--> the peer's own bus port
//
// A dialling node names itself in its first message. While a node is cut off, messages from it and
// to it are lost: connections stay open and new ones are accepted, but nothing is relayed. Clients
// do not connect through the bus.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/result.hpp>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace hotcount::loadtest {

class ClusterBus {
  public:
    ClusterBus() = default;
    ~ClusterBus();
    ClusterBus(const ClusterBus&) = delete;
    ClusterBus& operator=(const ClusterBus&) = delete;

    /// By node: the ids, which CLUSTER MYID answers, the ports that are announced and the nodes' own, all of
    /// 127.0.0.1. Nothing is relayed before.
    Result<void> start(std::vector<std::string> ids, const std::vector<std::uint16_t>& announced,
                       std::vector<std::uint16_t> own);
    void cut_off(std::size_t node) { cut_ = node; }
    /// Ends the cut: the silent connections are closed, and the nodes dial again.
    void let_back() { cut_ = kNone; }

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    struct Side {
        int fd{-1};
        std::string pending{};  // For this side, and not yet taken.
    };
    struct Link {
        Side dialler{};
        Side peer{};  // Dialled when the dialler has named itself.
        std::size_t from{kNone};
        std::size_t to{kNone};
        std::string first{};
        bool silent{false};
        bool ended{false};
    };

    void run(const std::stop_token& ended);
    void accept_from(std::size_t node);
    void take(Link& link);
    bool name(Link& link);
    static bool relay(int from, Side& to);
    static bool flush(Side& side);

    std::vector<std::string> ids_{};
    std::vector<std::uint16_t> own_{};
    std::vector<int> listeners_{};
    std::list<Link> links_{};  // The thread's.
    std::atomic<std::size_t> cut_{kNone};
    std::jthread thread_{};
};

}  // namespace hotcount::loadtest

// A TCP connection between a coordinator and an agent, which carries frames.
//
//   length, 4 bytes, big-endian | kind, 1 byte | body
//
// Every frame is bounded, and so is every wait: what is no frame, or comes too slowly, is an error.
//
// Any thread may send; one thread receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hotcount::loadtest {

struct Address {
    std::string host;
    std::uint16_t port;
};
/// host:port, with an IPv6 address in brackets: [::1]:7420.
Result<Address> parse_address(std::string_view text);
std::string format_address(const Address& address);
/// Whether nobody but this machine reaches it.
bool is_loopback(const Address& address);

enum class FrameKind : std::uint8_t {
    hello = 1,  ///< Both: JSON, what they are.
    settings,   ///< To the agent: JSON, the trial and its part.
    ready,      ///< From the agent.
    start,      ///< To the agent: JSON, when, on its clock.
    ping,       ///< To the agent: a number.
    pong,       ///< From the agent: JSON, the number, its clock, how the load stands.
    stop,       ///< To the agent: end the load now.
    result,     ///< From the agent: JSON, what the ledger does not say.
    fetch,      ///< To the agent: send the ledger.
    records,    ///< From the agent: records of the ledger as they are.
    failed,     ///< From the agent: JSON, why it ends.
};
inline constexpr std::size_t kMostFrame = std::size_t{1} << 20;
/// Before a peer has said who it is.
inline constexpr std::size_t kMostHello = 4096;

struct Frame {
    FrameKind kind;
    std::string body;
};

class Link {
  public:
    /// Takes over a connected socket.
    explicit Link(int socket);
    static Result<std::unique_ptr<Link>> connect(const Address& address, Duration timeout);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    /// An error if it is not on its way within `timeout`; the link is of no use then.
    Result<void> send(FrameKind kind, std::string_view body, Duration timeout);
    /// None if no whole frame has come within `timeout`; closed if the peer hung up.
    Result<std::optional<Frame>> receive(Duration timeout, std::size_t most = kMostFrame);

  private:
    int socket_;
    std::mutex sending_;
    std::string received_;  // Of frames that are not whole yet.
};

/// A socket that listens.
class Listener {
  public:
    static Result<std::unique_ptr<Listener>> open(const Address& address);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    /// With the port that it has, if 0 was asked for.
    const Address& address() const { return address_; }
    /// The next connection, and where it comes from; none within `timeout`.
    std::optional<std::pair<int, std::string>> accept(Duration timeout);
    /// In a child that is to serve one connection alone.
    void close();

  private:
    Listener(int socket, Address address) : socket_(socket), address_(std::move(address)) {}
    int socket_;
    Address address_;
};

}  // namespace hotcount::loadtest

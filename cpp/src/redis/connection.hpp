// One connection to a server: resolves the name, connects, encrypts and authenticates; then sends
// bytes and parses replies.
//
// open() blocks, so threads of the dialer call it. One thread may call read_some() while another calls
// write_some(): with TLS a lock inside keeps them apart.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <hotcount/result.hpp>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reply_reader.hpp"
#include "tls.hpp"

namespace hotcount::redis {

/// From a server's name to a connected socket. Both functions block: threads of the dialer call them.
struct Address {
    sockaddr_storage place{};
    socklen_t size{0};
    std::string shown;  ///< For messages.
    std::string host;   ///< The name that was resolved; a certificate must be valid for it.

    bool operator==(const Address& other) const { return shown == other.shown; }
};

/// All addresses of the server's name, at least one, without a cache. Its time limits are those of
/// the system's resolver (resolv.conf).
Result<std::vector<Address>> resolve(const Options& options);
/// All addresses of this endpoint.
Result<std::vector<Address>> resolve(const Endpoint& endpoint);

/// A connected socket, non-blocking and close-on-exec. A deadline error if the peer does not accept
/// in time.
Result<int> connect_socket(const Address& address, Deadline deadline);

/// Another thread's hold on a connection: ends it when its server is replaced. Thread-safe.
class Lease {
  public:
    /// `confirmed` tells whether replies count that were read at a time or before. It does not block.
    Lease(Endpoint endpoint, std::function<bool(SteadyTime)> confirmed)
        : endpoint_(std::move(endpoint)), confirmed_(std::move(confirmed)) {}

    const Endpoint& endpoint() const { return endpoint_; }
    /// Stops all reads and writes of the connection. Replies not yet read are dropped.
    void end(const std::string& why);
    bool ended() const { return ended_.load(std::memory_order_acquire); }
    /// False while the Sentinels are asked whether the server was replaced, which ends the lease.
    bool confirmed(SteadyTime read_at) const { return confirmed_(read_at); }
    std::string why();

  private:
    friend class Connection;

    void attach(int socket);
    void detach();

    const Endpoint endpoint_;
    const std::function<bool(SteadyTime)> confirmed_;
    std::atomic<bool> ended_{false};
    std::mutex mutex_;
    std::string why_;
    int socket_{-1};
};

class Connection {
  public:
    /// Connects, verifies, authenticates and selects the database. Nothing of a caller's command
    /// has been sent when this fails. `options` has to outlive the connection. With a lease the server
    /// must also say that it is a primary.
    static Result<std::unique_ptr<Connection>> open(const Options& options, const TlsContext& tls,
                                                    std::span<const Script* const> scripts,
                                                    const Address& address, Deadline deadline,
                                                    const Login& login,
                                                    std::shared_ptr<Lease> lease = {});
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Returns the number of bytes that the kernel took. After 0 (the socket's buffer is full) the
    /// next call must pass the same bytes.
    Result<std::size_t> write_some(std::string_view bytes);
    /// Reads the available bytes into the parser; false if there are none, or if they are withheld.
    Result<bool> read_some();
    /// Whether bytes were received that the lease has not confirmed yet: call read_some() again.
    /// wait_for() waits for the lease then, and a loop must not watch the readable socket.
    bool withholds() const { return withheld_ > 0; }
    /// Whether the last read_some() seems to have emptied the socket.
    bool drained() const { return drained_; }
    int descriptor() const;
    /// Sends commands while nothing else is under way, and waits for a reply to each.
    Result<ReplyArray> ask(std::span<const std::vector<std::string_view>> commands,
                           Deadline deadline);
    std::uint64_t bytes_received() const { return bytes_received_; }
    /// Whether the server has sent anything since open() ended.
    bool answered() const { return bytes_received_ > bytes_of_greeting_; }
    /// The server's address.
    const Address& peer() const { return peer_; }
    /// Whether the handshake used HELLO; otherwise the protocol is RESP2.
    bool knows_hello() const { return knows_hello_; }
    /// The next complete reply, or nullopt until more is read. An error reply is a value here.
    Result<std::optional<Reply>> next_reply();
    /// Waits until the socket can be read (POLLIN) or written (POLLOUT); false at the deadline, or if
    /// the thread is interrupted.
    bool wait_for(short events, Deadline deadline) const;
    /// Whether the server closed the connection or sent an unexpected reply while no command was in
    /// flight. Check it before sending: a command sent into a closed connection has an unknown
    /// outcome.
    bool stale() const { return !replies_.idle() || readable(); }
    /// Whether bytes, or the end of the stream, can be read now.
    bool readable() const;
    /// Wakes threads that wait for the socket. Nothing can be read or written afterwards.
    void shut_down();

  private:
    Connection(int socket, const Address& peer, const Options& options);

    Result<void> secure(const TlsContext& tls, Deadline deadline);
    Result<void> greet(const Login& login, Deadline deadline);
    Result<bool> say_hello(const Login& login, Deadline deadline);
    Result<void> authenticate(std::initializer_list<std::string_view> command, Deadline deadline);
    Error not_let_in(const std::string& reply, const char* command) const;
    Result<Reply> execute(std::span<const std::string_view> command, Deadline deadline);
    Result<void> send_all(std::string_view bytes, std::string_view name, Deadline deadline);
    Result<Reply> receive_one(std::string_view name, Deadline deadline);
    Result<void> load(std::span<const Script* const> scripts, Deadline deadline);
    Result<void> check_primary(Deadline deadline);
    Result<void> nothing_left();
    Result<void> check_lease() const;
    Error too_late(std::string_view name) const;
    Error unavailable(std::string_view why) const;

    const int socket_;
    const Address peer_;
    const Options& options_;
    std::unique_ptr<TlsSession> tls_;  // Null: no TLS.
    ReplyReader replies_;
    bool drained_{true};
    std::atomic<std::uint64_t> bytes_received_{0};
    std::uint64_t bytes_of_greeting_{0};
    std::atomic<std::size_t> withheld_{0};  // Bytes in the room of replies_.
    SteadyTime withheld_since_{};
    bool knows_hello_{false};
    std::string role_;              // As HELLO has it.
    std::shared_ptr<Lease> lease_;  // Null: no Sentinels.
};

}  // namespace hotcount::redis

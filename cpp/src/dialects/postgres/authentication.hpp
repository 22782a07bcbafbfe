// Keeps the password from an unauthenticated server that asks for it in clear text.
//
// libpq sends the password to any server that asks for it, unless require_auth (from version 16 on)
// forbids that. With older versions the server's messages are inspected before libpq reads them,
// until the client is authenticated. With TLS, SSL_peek shows what libpq is about to read. Without
// TLS, more bytes could arrive between a peek and libpq's read, so libpq gets one end of a socket
// pair, and through it one whole message at a time.
#pragma once

#include <cstddef>
#include <hotcount/result.hpp>
#include <string>
#include <string_view>

namespace hotcount::sql {

/// Follows the messages of a server up to the end of authentication.
class AuthenticationReader {
  public:
    enum class Finding : std::uint8_t {
        harmless,
        nothing_yet,  ///< No whole TLS record has arrived; see() never returns this.
        clear_text,   ///< The server asks for the password in clear text.
        excessive,    ///< More than kMost bytes before authentication.
    };
    /// Upper bound in bytes of all that a server sends before it has authenticated a client, an
    /// error's text included. libpq's buffer takes this much at once.
    static constexpr std::size_t kMost = 8000;

    /// Inspects the next bytes of the stream. A message may come in parts.
    Finding see(std::string_view bytes);

  private:
    std::string unread_;  // The start of an incomplete message.
    std::size_t seen_{0};
};

/// Relays between libpq and the server: during the lifetime of this object libpq's descriptor is
/// one end of a socket pair. Not thread-safe.
class Interposed {
  public:
    explicit Interposed(int descriptor);
    Interposed(const Interposed&) = delete;
    Interposed& operator=(const Interposed&) = delete;
    /// Does not restore libpq's descriptor: libpq may have closed it, or be about to close it.
    ~Interposed();

    bool ok() const { return server_ >= 0 && ours_ >= 0; }
    int server() const { return server_; }
    enum class Read : std::uint8_t { message, nothing_yet, end, excessive };
    /// The server's next whole message. Reads no byte after it.
    Read read_message(std::string& message);
    bool give_to_libpq(std::string_view bytes);
    /// The bytes that libpq has written since the last call.
    std::string take_from_libpq();
    /// Reports the end of the stream to libpq.
    void end();
    /// Connects libpq's descriptor to the server again: only after authentication.
    void give_back();

  private:
    int descriptor_;
    int server_{-1};
    int ours_{-1};
    std::string partial_;
};

}  // namespace hotcount::sql

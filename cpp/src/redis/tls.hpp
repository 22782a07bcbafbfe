// TLS over a non-blocking socket with the system's OpenSSL, which the first use loads.
//
// OpenSSL keeps errors in a queue for each thread, and reads the outcome of an operation from it.
// An error left by another connection of the thread would count as a failure of this one, so the
// queue is emptied before each operation and after a failed operation.
#pragma once

#include <hotcount/detail/redis/options.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

struct ssl_ctx_st;
struct ssl_st;

namespace hotcount::redis {

/// The version of OpenSSL, or "not found".
std::string tls_version();

/// Certificates loaded once, used by every connection of a client. Thread-safe.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

/// Null if the options do not ask for TLS. A file or an OpenSSL that cannot be loaded is a config error.
Result<TlsContext> make_tls_context(const Options& options);

/// The words of an error for a connection that the server ended, with TLS or without.
inline constexpr const char* kEndedByServer = "the server closed the connection";

/// One connection's TLS. Thread-safe: one thread may read while another writes.
/// Errors have the code unavailable; their messages lack the server's address.
class TlsSession {
  public:
    /// The caller keeps the socket, and closes it. The certificate must be for `host`, or for
    /// TlsOptions::server_name.
    static Result<std::unique_ptr<TlsSession>> make(const TlsContext& context, int socket,
                                                    const Options& options,
                                                    const std::string& host);
    ~TlsSession();
    TlsSession(const TlsSession&) = delete;
    TlsSession& operator=(const TlsSession&) = delete;

    enum class Step : std::uint8_t { done, wants_to_read, wants_to_write };
    Result<Step> handshake();
    /// Returns the number of bytes that the kernel took. After 0 (the socket's buffer is full) the
    /// next call must pass the same bytes.
    Result<std::size_t> write(std::string_view bytes);
    /// Returns the number of bytes read, 0 if none have arrived. Leaves no bytes that poll() cannot
    /// see.
    Result<std::size_t> read(std::span<char> room);

  private:
    TlsSession(ssl_st* session, std::string name);

    Error failed(int result, int error_number);

    std::mutex mutex_;  // A session cannot be read and written at once.
    ssl_st* const session_;
    const std::string name_;  // The name that the certificate must be for.
    bool established_{false};
};

}  // namespace hotcount::redis

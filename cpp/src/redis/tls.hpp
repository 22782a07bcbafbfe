// TLS over a socket that does not block, by OpenSSL.
//
// OpenSSL keeps its errors in a queue per thread, and asks that queue what became of an operation:
// what another connection of the thread left there would be taken for this one's failure. So the
// queue is emptied before each operation, and after one that failed.
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

/// Certificates loaded once, used by every connection of a client. Thread-safe.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

/// Null where the options ask for no TLS. A file that cannot be loaded is a config error.
Result<TlsContext> make_tls_context(const Options& options);

/// One connection's TLS. Thread-safe: one thread may read while another writes.
/// Errors are unavailable, and say what failed without the server's address.
class TlsSession {
  public:
    /// The socket stays the caller's.
    static Result<std::unique_ptr<TlsSession>> make(const TlsContext& context, int socket,
                                                    const Options& options);
    ~TlsSession();
    TlsSession(const TlsSession&) = delete;
    TlsSession& operator=(const TlsSession&) = delete;

    enum class Step : std::uint8_t { done, wants_to_read, wants_to_write };
    Result<Step> handshake();
    /// Bytes handed to the kernel, 0 where it takes none now: then the same bytes come next.
    Result<std::size_t> write(std::string_view bytes);
    /// Bytes read, 0 where none are there now. Leaves nothing behind that poll() does not see.
    Result<std::size_t> read(std::span<char> room);

  private:
    TlsSession(ssl_st* session, std::string name);

    Error failed(int result, int error_number);

    std::mutex mutex_;  // A session cannot be read and written at once.
    ssl_st* const session_;
    const std::string name_;  // That the certificate has to be for.
    bool established_{false};
};

}  // namespace hotcount::redis

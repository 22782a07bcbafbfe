#include "tls.hpp"

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>

#include <mutex>

// Before 1.5.0 hiredis checks who signed a certificate but not whose it is: any certificate of a
// trusted authority would pass for the server's.
#if HIREDIS_MAJOR > 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR >= 5)
#define HOTCOUNT_CAN_VERIFY_NAMES 1
#else
#define HOTCOUNT_CAN_VERIFY_NAMES 0
#endif

namespace hotcount::redis {

void FreeTls::operator()(redisSSLContext* context) const { redisFreeSSLContext(context); }

Result<TlsContext> make_tls_context(const Options& options) {
    if (!options.tls.enabled) return TlsContext{};
#if HOTCOUNT_CAN_VERIFY_NAMES
    static std::once_flag initialised;
    std::call_once(initialised, [] { redisInitOpenSSL(); });
    const std::string& name =
        options.tls.server_name.empty() ? options.host : options.tls.server_name;
    const auto or_null = [](const std::string& text) {
        return text.empty() ? nullptr : text.c_str();
    };
    redisSSLOptions how{};
    how.cacert_filename = or_null(options.tls.ca_file);
    how.cert_filename = or_null(options.tls.cert_file);
    how.private_key_filename = or_null(options.tls.key_file);
    // An address is no server name in TLS's sense; it is checked against the certificate all the
    // same.
    const bool is_address = name.find_first_not_of("0123456789.:") == std::string::npos;
    how.server_name = is_address ? nullptr : name.c_str();
    how.verify_mode = REDIS_SSL_VERIFY_PEER;
    how.verify_name = name.c_str();
    redisSSLContextError error = REDIS_SSL_CTX_NONE;
    TlsContext context{redisCreateSSLContextWithOptions(&how, &error)};
    if (context == nullptr) {
        return make_error(ErrorCode::config,
                          options.address() + ": TLS: " + redisSSLContextGetError(error));
    }
    return context;
#else
    return make_error(ErrorCode::config,
                      "TLS needs hiredis 1.5 or newer, which can check the server's name");
#endif
}

}  // namespace hotcount::redis

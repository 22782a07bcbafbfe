// The TLS context of a client: certificates loaded once, used by every connection.
#pragma once

#include <hotcount/base/result.hpp>
#include <hotcount/redis/options.hpp>
#include <memory>

struct redisSSLContext;

namespace hotcount::redis {

struct FreeTls {
    void operator()(redisSSLContext* context) const;
};
using TlsContext = std::unique_ptr<redisSSLContext, FreeTls>;

/// Null where the options ask for no TLS. A file that cannot be loaded is a config error.
Result<TlsContext> make_tls_context(const Options& options);

}  // namespace hotcount::redis

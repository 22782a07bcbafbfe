#include "tls.hpp"

#include <dlfcn.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#define HOTCOUNT_TEXT_OF(value) #value
#define HOTCOUNT_TEXT(value) HOTCOUNT_TEXT_OF(value)

// The functions of OpenSSL that this file calls. dlopen() loads the system's OpenSSL with the first
// rediss: URL: a security fix needs no new wheel, and a process without TLS does not load it.
#define HOTCOUNT_OPENSSL_FUNCTIONS(F)     \
    F(BIO_clear_flags)                    \
    F(BIO_get_data)                       \
    F(BIO_get_new_index)                  \
    F(BIO_meth_new)                       \
    F(BIO_meth_set_ctrl)                  \
    F(BIO_meth_set_read)                  \
    F(BIO_meth_set_write)                 \
    F(BIO_new)                            \
    F(BIO_set_data)                       \
    F(BIO_set_flags)                      \
    F(BIO_set_init)                       \
    F(BIO_sock_should_retry)              \
    F(ERR_clear_error)                    \
    F(ERR_get_error)                      \
    F(ERR_peek_error)                     \
    F(ERR_reason_error_string)            \
    F(OpenSSL_version)                    \
    F(SSL_CTX_ctrl)                       \
    F(SSL_CTX_free)                       \
    F(SSL_CTX_load_verify_locations)      \
    F(SSL_CTX_new)                        \
    F(SSL_CTX_set_default_verify_paths)   \
    F(SSL_CTX_set_options)                \
    F(SSL_CTX_set_verify)                 \
    F(SSL_CTX_use_PrivateKey_file)        \
    F(SSL_CTX_use_certificate_chain_file) \
    F(SSL_ctrl)                           \
    F(SSL_do_handshake)                   \
    F(SSL_free)                           \
    F(SSL_get0_param)                     \
    F(SSL_get_error)                      \
    F(SSL_get_verify_result)              \
    F(SSL_new)                            \
    F(SSL_pending)                        \
    F(SSL_read)                           \
    F(SSL_set_bio)                        \
    F(SSL_set_connect_state)              \
    F(SSL_write)                          \
    F(TLS_client_method)                  \
    F(X509_VERIFY_PARAM_free)             \
    F(X509_VERIFY_PARAM_new)              \
    F(X509_VERIFY_PARAM_set1_host)        \
    F(X509_VERIFY_PARAM_set1_ip_asc)      \
    F(X509_VERIFY_PARAM_set_hostflags)    \
    F(X509_verify_cert_error_string)

namespace hotcount::redis {
namespace {

struct OpenSsl {
#define HOTCOUNT_DECLARE(name) decltype(&::name) name{nullptr};
    HOTCOUNT_OPENSSL_FUNCTIONS(HOTCOUNT_DECLARE)
#undef HOTCOUNT_DECLARE
};

// The library version that the headers belong to. find_openssl() sets the functions before any use.
constexpr const char* kLibrary = "libssl.so." HOTCOUNT_TEXT(OPENSSL_SHLIB_VERSION);
OpenSsl openssl;

Result<void> find_openssl() {
    // RTLD_LOCAL: other extension modules may bring their own OpenSSL, and the symbols must not
    // mix. If Python's ssl has loaded a library of this name, dlopen() returns that one.
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return make_error(ErrorCode::config,
                          "rediss needs OpenSSL, which is not installed (Debian: apt install "
                          "libssl" HOTCOUNT_TEXT(OPENSSL_SHLIB_VERSION) "): " +
                              std::string{dlerror()});
    }
    const char* missing = nullptr;
#define HOTCOUNT_FIND(name)                                                         \
    openssl.name = reinterpret_cast<decltype(openssl.name)>(dlsym(library, #name)); \
    if (openssl.name == nullptr) missing = #name;
    HOTCOUNT_OPENSSL_FUNCTIONS(HOTCOUNT_FIND)
#undef HOTCOUNT_FIND
    if (missing == nullptr) return {};
    return make_error(ErrorCode::config,
                      "rediss needs OpenSSL: " + std::string{kLibrary} + " lacks " + missing);
}

Result<void> load_openssl() {
    // A failure is not cached: OpenSSL may be installed while the process runs.
    static bool loaded = false;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (loaded) return {};
    HOTCOUNT_TRY(find_openssl());
    loaded = true;
    return {};
}

// The maximum payload of a TLS record. A record that the kernel took only in part counts as not
// sent, because the server cannot decrypt a part of it.
constexpr std::size_t kRecordBytes = 16 * 1024;

const std::string& expected_name(const Options& options, const std::string& host) {
    return options.tls.server_name.empty() ? host : options.tls.server_name;
}

// A good signature is not enough: the certificate must be for the server's name.
bool expect_name(X509_VERIFY_PARAM* verified, const std::string& name) {
    openssl.X509_VERIFY_PARAM_set_hostflags(verified, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return !name.empty() &&
           (openssl.X509_VERIFY_PARAM_set1_ip_asc(verified, name.c_str()) == 1 ||
            openssl.X509_VERIFY_PARAM_set1_host(verified, name.data(), name.size()) == 1);
}

// TLS sends no server name for an address; the certificate is checked against the address.
bool is_address(const std::string& name) {
    return name.find(':') != std::string::npos ||
           name.find_first_not_of("0123456789.") == std::string::npos;
}

// The text of the oldest error, which is nearest to the cause. Empties the queue.
std::string reason_of_queue() {
    const unsigned long error = openssl.ERR_get_error();
    const char* const reason = error == 0 ? nullptr : openssl.ERR_reason_error_string(error);
    std::string text = reason == nullptr ? "" : reason;
    if (text.empty() && error != 0 && ERR_SYSTEM_ERROR(error)) {
        text = std::strerror(ERR_GET_REASON(error));
    }
    openssl.ERR_clear_error();
    return text;
}

// -- a BIO that sends with MSG_NOSIGNAL; OpenSSL's own calls write() and raises SIGPIPE -----------

int socket_of(BIO* bio) {
    return static_cast<int>(reinterpret_cast<std::intptr_t>(openssl.BIO_get_data(bio)));
}

int write_socket(BIO* bio, const char* bytes, int size) {
    openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    const auto sent =
        send(socket_of(bio), bytes, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && openssl.BIO_sock_should_retry(-1) != 0)
        openssl.BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
    return static_cast<int>(sent);
}

int read_socket(BIO* bio, char* room, int size) {
    openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    const auto received = recv(socket_of(bio), room, static_cast<std::size_t>(size), MSG_DONTWAIT);
    if (received < 0 && openssl.BIO_sock_should_retry(-1) != 0)
        openssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    return static_cast<int>(received);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
    static const BIO_METHOD* const made = [] {
        BIO_METHOD* const method = openssl.BIO_meth_new(
            openssl.BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hotcount socket");
        if (method == nullptr) return method;
        openssl.BIO_meth_set_write(method, write_socket);
        openssl.BIO_meth_set_read(method, read_socket);
        openssl.BIO_meth_set_ctrl(method, control_socket);
        return method;
    }();
    return made;
}

}  // namespace

std::string tls_version() {
    return load_openssl() ? openssl.OpenSSL_version(OPENSSL_VERSION_STRING) : "not found";
}

Result<TlsContext> make_tls_context(const Options& options) {
    if (!options.tls.enabled) return TlsContext{};
    HOTCOUNT_TRY(load_openssl());
    openssl.ERR_clear_error();
    const TlsContext context{openssl.SSL_CTX_new(openssl.TLS_client_method()),
                             openssl.SSL_CTX_free};
    const auto refused = [&](const std::string& what) {
        const std::string reason = reason_of_queue();
        return make_error(ErrorCode::config, options.address() + ": TLS: " + what +
                                                 (reason.empty() ? "" : ": " + reason));
    };
    if (context == nullptr) return refused("no context could be made");
    SSL_CTX* const ssl = context.get();
    openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
    // Without renegotiation a write never waits for a read.
    openssl.SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION);
    openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_MODE,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                         nullptr);
    openssl.SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, nullptr);

    const std::unique_ptr<X509_VERIFY_PARAM, decltype(openssl.X509_VERIFY_PARAM_free)> tried{
        openssl.X509_VERIFY_PARAM_new(), openssl.X509_VERIFY_PARAM_free};
    const std::string& name = expected_name(options, options.host);
    if (tried == nullptr || !expect_name(tried.get(), name)) {
        return refused("the server's name '" + name + "' cannot be checked");
    }

    const TlsOptions& files = options.tls;
    if (files.ca_file.empty()) {
        if (openssl.SSL_CTX_set_default_verify_paths(ssl) != 1) {
            return refused("the system's certificates cannot be loaded");
        }
    } else if (openssl.SSL_CTX_load_verify_locations(ssl, files.ca_file.c_str(), nullptr) != 1) {
        return refused("ca_file cannot be loaded");
    }
    if (!files.cert_file.empty() &&
        openssl.SSL_CTX_use_certificate_chain_file(ssl, files.cert_file.c_str()) != 1) {
        return refused("cert_file cannot be loaded");
    }
    if (!files.key_file.empty() &&
        openssl.SSL_CTX_use_PrivateKey_file(ssl, files.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
        return refused("key_file cannot be loaded");
    }
    openssl.ERR_clear_error();
    return context;
}

TlsSession::TlsSession(ssl_st* session, std::string name)
    : session_(session), name_(std::move(name)) {}

TlsSession::~TlsSession() { openssl.SSL_free(session_); }

Result<std::unique_ptr<TlsSession>> TlsSession::make(const TlsContext& context, int socket,
                                                     const Options& options,
                                                     const std::string& host) {
    openssl.ERR_clear_error();
    SSL* const ssl = openssl.SSL_new(context.get());
    if (ssl == nullptr) return make_error(ErrorCode::unavailable, "TLS: " + reason_of_queue());
    const std::string& name = expected_name(options, host);
    std::unique_ptr<TlsSession> session{new TlsSession{ssl, name}};
    if (!expect_name(openssl.SSL_get0_param(ssl), name)) {
        openssl.ERR_clear_error();
        return make_error(ErrorCode::unavailable,
                          "TLS: the server's name '" + name + "' cannot be checked");
    }
    BIO* const bio = socket_method() == nullptr ? nullptr : openssl.BIO_new(socket_method());
    if (bio == nullptr) return make_error(ErrorCode::unavailable, "TLS: " + reason_of_queue());
    openssl.BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
    openssl.BIO_set_init(bio, 1);
    openssl.SSL_set_bio(ssl, bio, bio);
    if (!is_address(name) &&
        openssl.SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                         const_cast<char*>(name.c_str())) != 1) {
        return make_error(ErrorCode::unavailable, "TLS: the server's name: " + reason_of_queue());
    }
    openssl.SSL_set_connect_state(ssl);
    return session;
}

Result<TlsSession::Step> TlsSession::handshake() {
    const std::lock_guard lock(mutex_);
    openssl.ERR_clear_error();
    errno = 0;
    const int result = openssl.SSL_do_handshake(session_);
    const int error_number = errno;
    if (result == 1) {
        established_ = true;
        return Step::done;
    }
    const int kind = openssl.SSL_get_error(session_, result);
    if (kind == SSL_ERROR_WANT_READ) return Step::wants_to_read;
    if (kind == SSL_ERROR_WANT_WRITE) return Step::wants_to_write;
    return failed(result, error_number);
}

Result<std::size_t> TlsSession::write(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    std::size_t taken = 0;
    while (taken < bytes.size()) {
        const std::string_view record = bytes.substr(taken, kRecordBytes);
        openssl.ERR_clear_error();
        errno = 0;
        const int result =
            openssl.SSL_write(session_, record.data(), static_cast<int>(record.size()));
        const int error_number = errno;
        if (result > 0) {
            taken += static_cast<std::size_t>(result);
            continue;
        }
        const int kind = openssl.SSL_get_error(session_, result);
        if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) break;
        return failed(result, error_number);
    }
    return taken;
}

Result<std::size_t> TlsSession::read(std::span<char> room) {
    const std::lock_guard lock(mutex_);
    std::size_t received = 0;
    // Bytes that OpenSSL has decrypted and not returned cannot be seen at the socket.
    while (received < room.size() && (received == 0 || openssl.SSL_pending(session_) > 0)) {
        const auto left =
            static_cast<int>(std::min<std::size_t>(room.size() - received, INT32_MAX));
        openssl.ERR_clear_error();
        errno = 0;
        const int result = openssl.SSL_read(session_, room.data() + received, left);
        const int error_number = errno;
        if (result > 0) {
            received += static_cast<std::size_t>(result);
            continue;
        }
        const int kind = openssl.SSL_get_error(session_, result);
        if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE || received > 0) break;
        return failed(result, error_number);
    }
    return received;
}

Error TlsSession::failed(int result, int error_number) {
    const int kind = openssl.SSL_get_error(session_, result);
    const long verified = openssl.SSL_get_verify_result(session_);
    const unsigned long first = openssl.ERR_peek_error();
    const bool ended = kind == SSL_ERROR_ZERO_RETURN ||
                       (kind == SSL_ERROR_SYSCALL && first == 0 && error_number == 0) ||
                       ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    std::string why = reason_of_queue();
    if (!established_ && verified != X509_V_OK) {
        why = "the certificate does not hold for '" + name_ +
              "': " + openssl.X509_verify_cert_error_string(verified);
    } else if (ended) {
        why = kEndedByServer;
    } else if (why.empty()) {
        why = error_number != 0 ? std::strerror(error_number) : "failed";
    }
    return make_error(ErrorCode::unavailable, established_ ? why : "TLS: " + why);
}

}  // namespace hotcount::redis

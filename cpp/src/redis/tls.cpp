#include "tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace hotcount::redis {
namespace {

// The most that one TLS record holds. A record that the kernel did not take as a whole counts as not
// sent, because the server cannot read a part of it.
constexpr std::size_t kRecordBytes = 16 * 1024;

const std::string& expected_name(const Options& options, const std::string& host) {
    return options.tls.server_name.empty() ? host : options.tls.server_name;
}

// A good signature is not enough: the certificate must be for the server's name.
bool expect_name(X509_VERIFY_PARAM* verified, const std::string& name) {
    X509_VERIFY_PARAM_set_hostflags(verified, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return !name.empty() && (X509_VERIFY_PARAM_set1_ip_asc(verified, name.c_str()) == 1 ||
                             X509_VERIFY_PARAM_set1_host(verified, name.data(), name.size()) == 1);
}

// TLS sends no server name for an address; the certificate is checked against the address.
bool is_address(const std::string& name) {
    return name.find(':') != std::string::npos ||
           name.find_first_not_of("0123456789.") == std::string::npos;
}

// The text of the oldest error, which is nearest to the cause. Empties the queue.
std::string reason_of_queue() {
    const unsigned long error = ERR_get_error();
    const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
    std::string text = reason == nullptr ? "" : reason;
    if (text.empty() && error != 0 && ERR_SYSTEM_ERROR(error)) {
        text = std::strerror(ERR_GET_REASON(error));
    }
    ERR_clear_error();
    return text;
}

// -- the socket as OpenSSL sees it: its own writes with write(), which raises SIGPIPE ---------------

int socket_of(BIO* bio) {
    return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

int write_socket(BIO* bio, const char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    const auto sent =
        send(socket_of(bio), bytes, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && BIO_sock_should_retry(-1) != 0) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
}

int read_socket(BIO* bio, char* room, int size) {
    BIO_clear_retry_flags(bio);
    const auto received = recv(socket_of(bio), room, static_cast<std::size_t>(size), MSG_DONTWAIT);
    if (received < 0 && BIO_sock_should_retry(-1) != 0) BIO_set_retry_read(bio);
    return static_cast<int>(received);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
    static const BIO_METHOD* const made = [] {
        BIO_METHOD* const method =
            BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hotcount socket");
        if (method == nullptr) return method;
        BIO_meth_set_write(method, write_socket);
        BIO_meth_set_read(method, read_socket);
        BIO_meth_set_ctrl(method, control_socket);
        return method;
    }();
    return made;
}

}  // namespace

Result<TlsContext> make_tls_context(const Options& options) {
    if (!options.tls.enabled) return TlsContext{};
    ERR_clear_error();
    const TlsContext context{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
    const auto refused = [&](const std::string& what) {
        const std::string reason = reason_of_queue();
        return make_error(ErrorCode::config, options.address() + ": TLS: " + what +
                                                 (reason.empty() ? "" : ": " + reason));
    };
    if (context == nullptr) return refused("no context could be made");
    SSL_CTX* const ssl = context.get();
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    // Without renegotiation a write never waits for a read.
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, nullptr);

    const std::unique_ptr<X509_VERIFY_PARAM, decltype(&X509_VERIFY_PARAM_free)> tried{
        X509_VERIFY_PARAM_new(), X509_VERIFY_PARAM_free};
    const std::string& name = expected_name(options, options.host);
    if (tried == nullptr || !expect_name(tried.get(), name)) {
        return refused("the server's name '" + name + "' cannot be checked");
    }

    const TlsOptions& files = options.tls;
    if (files.ca_file.empty()) {
        if (SSL_CTX_set_default_verify_paths(ssl) != 1) {
            return refused("the system's certificates cannot be loaded");
        }
    } else if (SSL_CTX_load_verify_locations(ssl, files.ca_file.c_str(), nullptr) != 1) {
        return refused("ca_file cannot be loaded");
    }
    if (!files.cert_file.empty() &&
        SSL_CTX_use_certificate_chain_file(ssl, files.cert_file.c_str()) != 1) {
        return refused("cert_file cannot be loaded");
    }
    if (!files.key_file.empty() &&
        SSL_CTX_use_PrivateKey_file(ssl, files.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
        return refused("key_file cannot be loaded");
    }
    ERR_clear_error();
    return context;
}

TlsSession::TlsSession(ssl_st* session, std::string name)
    : session_(session), name_(std::move(name)) {}

TlsSession::~TlsSession() { SSL_free(session_); }

Result<std::unique_ptr<TlsSession>> TlsSession::make(const TlsContext& context, int socket,
                                                     const Options& options,
                                                     const std::string& host) {
    ERR_clear_error();
    SSL* const ssl = SSL_new(context.get());
    if (ssl == nullptr) return make_error(ErrorCode::unavailable, "TLS: " + reason_of_queue());
    const std::string& name = expected_name(options, host);
    std::unique_ptr<TlsSession> session{new TlsSession{ssl, name}};
    if (!expect_name(SSL_get0_param(ssl), name)) {
        ERR_clear_error();
        return make_error(ErrorCode::unavailable,
                          "TLS: the server's name '" + name + "' cannot be checked");
    }
    BIO* const bio = socket_method() == nullptr ? nullptr : BIO_new(socket_method());
    if (bio == nullptr) return make_error(ErrorCode::unavailable, "TLS: " + reason_of_queue());
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (!is_address(name) && SSL_set_tlsext_host_name(ssl, name.c_str()) != 1) {
        return make_error(ErrorCode::unavailable, "TLS: the server's name: " + reason_of_queue());
    }
    SSL_set_connect_state(ssl);
    return session;
}

Result<TlsSession::Step> TlsSession::handshake() {
    const std::lock_guard lock(mutex_);
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(session_);
    const int error_number = errno;
    if (result == 1) {
        established_ = true;
        return Step::done;
    }
    const int kind = SSL_get_error(session_, result);
    if (kind == SSL_ERROR_WANT_READ) return Step::wants_to_read;
    if (kind == SSL_ERROR_WANT_WRITE) return Step::wants_to_write;
    return failed(result, error_number);
}

Result<std::size_t> TlsSession::write(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    std::size_t taken = 0;
    while (taken < bytes.size()) {
        const std::string_view record = bytes.substr(taken, kRecordBytes);
        ERR_clear_error();
        errno = 0;
        const int result = SSL_write(session_, record.data(), static_cast<int>(record.size()));
        const int error_number = errno;
        if (result > 0) {
            taken += static_cast<std::size_t>(result);
            continue;
        }
        const int kind = SSL_get_error(session_, result);
        if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) break;
        return failed(result, error_number);
    }
    return taken;
}

Result<std::size_t> TlsSession::read(std::span<char> room) {
    const std::lock_guard lock(mutex_);
    std::size_t received = 0;
    // Bytes that OpenSSL has decrypted and not returned cannot be seen at the socket.
    while (received < room.size() && (received == 0 || SSL_pending(session_) > 0)) {
        const auto left =
            static_cast<int>(std::min<std::size_t>(room.size() - received, INT32_MAX));
        ERR_clear_error();
        errno = 0;
        const int result = SSL_read(session_, room.data() + received, left);
        const int error_number = errno;
        if (result > 0) {
            received += static_cast<std::size_t>(result);
            continue;
        }
        const int kind = SSL_get_error(session_, result);
        if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE || received > 0) break;
        return failed(result, error_number);
    }
    return received;
}

Error TlsSession::failed(int result, int error_number) {
    const int kind = SSL_get_error(session_, result);
    const long verified = SSL_get_verify_result(session_);
    const unsigned long first = ERR_peek_error();
    const bool ended = kind == SSL_ERROR_ZERO_RETURN ||
                       (kind == SSL_ERROR_SYSCALL && first == 0 && error_number == 0) ||
                       ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    std::string why = reason_of_queue();
    if (!established_ && verified != X509_V_OK) {
        why = "the certificate does not hold for '" + name_ +
              "': " + X509_verify_cert_error_string(verified);
    } else if (ended) {
        why = "the server closed the connection";
    } else if (why.empty()) {
        why = error_number != 0 ? std::strerror(error_number) : "failed";
    }
    return make_error(ErrorCode::unavailable, established_ ? why : "TLS: " + why);
}

}  // namespace hotcount::redis

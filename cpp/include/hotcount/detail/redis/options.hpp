// How to reach a Redis or Valkey server, and the bounds of a client.
//
//   redis://user:password@host:6379/0      redis+unix:///path.sock?db=0 (unix:// too)
//   rediss://host?ca_file=ca.pem&cert_file=c.pem&key_file=k.pem      over TLS, always verified
//   redis+sentinel://host:26379,host:26379/service/0     rediss+sentinel://, valkey+sentinel:// ...
//   redis+cluster://host:6379,host:6379     rediss+cluster://, valkey+cluster:// ...
//   all of them with ?connect_timeout=2.5 (seconds) and ?protocol=2
//   valkey:// is the same as redis://, valkeys:// as rediss://
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/url.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// Where a server listens: a name or an address, IPv6 without brackets.
struct Endpoint {
    std::string host;
    std::uint16_t port{0};

    bool operator==(const Endpoint&) const = default;
    /// "host:port", "[::1]:port".
    std::string str() const;
};

/// TLS always checks the server's certificate chain and name; no option switches that off.
struct TlsOptions {
    bool enabled{false};
    std::string ca_file{};    ///< CA certificates; empty: the system's.
    std::string cert_file{};  ///< The client's own certificate, with key_file; empty: none.
    std::string key_file{};
    std::string server_name{};  ///< The name to expect; empty: the host of the URL.
};

/// Most elements of one reply, those of nested arrays included; a map's entry counts as one.
inline constexpr std::size_t kMaxReplyElements = std::size_t{1} << 24;
/// How deep the arrays of one reply may nest.
inline constexpr std::size_t kMaxReplyDepth = 16;
/// Longest line of a reply, in bytes: simple strings and errors. Bulk strings are not lines.
inline constexpr std::size_t kMaxReplyLine = std::size_t{1} << 20;

struct Login {
    std::string user{};      ///< Empty: the default user.
    std::string password{};  ///< Empty: no AUTH.

    bool operator==(const Login&) const = default;
};

struct Options {
    std::string host{"127.0.0.1"};
    std::uint16_t port{6379};
    std::string unix_path{};  ///< If not empty, used instead of host and port.
    /// The Sentinels or cluster nodes that the URL names; empty: host and port name the server.
    std::vector<Endpoint> seeds{};
    /// The seeds are Sentinels, and name the primary of this service. Empty: no Sentinels.
    std::string service{};
    /// The login for the Sentinels, which do not know the server's users.
    Login sentinel_credentials{};
    /// False: no TLS to the Sentinels, even if the server uses TLS.
    bool sentinel_tls{true};
    /// The seeds are nodes of a cluster: calls go to the nodes that have the keys' slots.
    bool cluster{false};
    /// cluster: where this process reaches nodes that announce another address, as behind NAT or port
    /// forwarding: "10.0.0.5:7001" to "127.0.0.1:17001". Other nodes keep the announced address.
    std::map<std::string, std::string> address_map{};
    std::string user{};      ///< Empty: AUTH with the password alone (the default user).
    std::string password{};  ///< Empty: no AUTH.
    /// Returns user and password for each new connection, instead of the fields above, for
    /// passwords that rotate. A thread of its own calls it, one call at a time. It may block: the
    /// attempt to connect ends at connect_timeout. If the server refuses a login, the function is
    /// called once more. Empty: not used.
    std::function<Result<Login>()> credentials{};
    std::uint32_t database{0};
    /// Put before every key.
    std::string prefix{};
    TlsOptions tls{};
    /// Default time limit of a call, waiting for a connection included.
    Duration timeout{std::chrono::seconds{1}};
    /// How long a server that owes replies may be silent before its connection is given up and a new
    /// one is made. 0: 1.5 seconds, or `timeout` if that is longer and the URL names no seeds: where a
    /// server may be replaced, it is left before its successor is elected. The outcome of
    /// unanswered commands is unknown then, also for callers with a later deadline; commands that
    /// only read are sent again. One caller's short deadline never ends a connection. Shorter: a
    /// dead connection is replaced sooner, and a server that pauses (a slow script, a fork of its
    /// memory) causes more unknown outcomes. Longer: for commands that take longer than this.
    Duration silence_limit{0};
    Duration silence() const;  ///< silence_limit, with 0 replaced as described above.
    /// How long one attempt to connect may take, from the resolved name to the answered greeting;
    /// the addresses of a name share it. No call owns the attempt: a call that ends at its own
    /// deadline does not end it. More: a server that is far away or slow to greet can be reached.
    /// Less: a server that does not answer is given up, and another address tried, sooner.
    Duration connect_timeout{std::chrono::seconds{1}};
    /// 3: RESP3, or RESP2 if the server does not know HELLO. 2: RESP2 without a HELLO, for proxies
    /// that close the connection when they get one. The values of replies are the same.
    int protocol{3};
    /// Most calls that wait to be sent, on one connection. At the bound a caller waits until its
    /// deadline; an asynchronous call, or one of an event loop, fails with a capacity error.
    /// More: a longer backlog of a busy server is taken, at about 650 bytes a call.
    std::size_t max_queue{100'000};
    /// Most bytes sent and not yet answered, on one connection; a larger batch is sent alone.
    /// More: fewer system calls. Less: calls that come meanwhile are combined and sent sooner, and
    /// the server holds less for this client.
    std::size_t max_send_bytes{std::size_t{1} << 20};
    /// Most commands sent and not yet answered, on one connection. Others wait in the queue.
    std::size_t max_in_flight{16'384};
    /// How long a caller that is alone on the connection polls for its reply before it sleeps. It
    /// yields its core between two polls, and does not poll while replies take longer than this.
    /// More: a reply that arrives in time costs no wakeup, which on loopback more than doubles the
    /// rate of one thread, but each call may use that much CPU time. 0: never polls.
    Duration spin{std::chrono::microseconds{60}};
    /// The name in CLIENT LIST. It is sent with HELLO, and so not with RESP2.
    std::string client_name{"hotcount"};
    /// Maximum of exclusive connections, for commands that may not return exactly one reply. Each
    /// is made when it is needed. At the bound a caller waits until its deadline. More: fewer
    /// waits.
    std::size_t exclusive_connections{8};
    /// Maximum of memory for the reply of one call, in bytes. It limits the memory that a hostile
    /// server can make the client use. An array counts 48 bytes an element, a batch all of its
    /// replies. The bound is checked before memory is allocated; a reply beyond it, or beyond the
    /// bounds above, ends the connection. A complete string is copied, and takes twice its memory
    /// during the copy.
    /// More: larger values can be read. Less: a faulty server costs less. At least 1 MiB.
    std::size_t max_reply_bytes{std::size_t{512} << 20};

    /// For messages: host:port or the socket's path; no credentials.
    std::string address() const;
};

/// The hosts of a URL, each with its port or the default one. A host that is given twice, or has a
/// percent sign, is a config error.
Result<std::vector<Endpoint>> seeds_of(const Url& url, std::uint16_t default_port);

/// Options from a URL; a bad scheme, port, database or option is a config error.
Result<Options> parse_options(std::string_view url);

}  // namespace hotcount::redis

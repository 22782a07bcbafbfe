// How to reach a Redis or Valkey server.
//
//   redis://user:password@host:6379/0      redis+unix:///path.sock?db=0 (unix:// too)
//   rediss://host?ca_file=ca.pem&cert_file=c.pem&key_file=k.pem      over TLS, always verified
//   all of them with ?connect_timeout=2.5 (seconds) and ?protocol=2
//   valkey:// is the same as redis://, valkeys:// as rediss://
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/url.hpp>
#include <string>
#include <string_view>

namespace hotcount::redis {

/// TLS checks the server's certificate chain and name; there is no switch to leave that out.
struct TlsOptions {
    bool enabled{false};
    std::string ca_file{};    ///< Who may sign; empty: the system's certificates.
    std::string cert_file{};  ///< Our own certificate, with key_file; empty: none is shown.
    std::string key_file{};
    std::string server_name{};  ///< The name to expect; empty: the host of the URL.
};

/// Most elements of one reply, those of arrays in it included; a map's entry counts as one.
inline constexpr std::size_t kMaxReplyElements = std::size_t{1} << 24;
/// How deep arrays of one reply nest.
inline constexpr std::size_t kMaxReplyDepth = 16;
/// Longest line of a reply, in bytes: simple strings and errors. Strings with a length have none.
inline constexpr std::size_t kMaxReplyLine = std::size_t{1} << 20;

struct Options {
    std::string host{"127.0.0.1"};
    std::uint16_t port{6379};
    std::string unix_path{};  ///< Used instead of host and port where not empty.
    std::string user{};       ///< Empty: AUTH with the password alone (the default user).
    std::string password{};   ///< Empty: no AUTH.
    std::uint32_t database{0};
    /// Put before every key.
    std::string prefix{};
    TlsOptions tls{};
    /// Default time limit of a call, waiting for a connection included.
    Duration timeout{std::chrono::seconds{1}};
    /// How long a server that owes replies may say nothing before its connection is given up and
    /// another is made. 0: 1.5 seconds, or `timeout` where that is longer. What was sent and not
    /// answered is unknown then, also to callers whose deadline is later; what only reads goes
    /// again. One caller's short deadline never ends a connection. Shorter: a dead connection is
    /// replaced sooner, and a server that pauses (a slow script, a fork of its memory) makes more
    /// calls unknown. Longer: for commands that take the server longer than this.
    Duration silence_limit{0};
    Duration silence() const;  ///< What silence_limit means.
    /// How long one attempt to connect may take, from the resolved name to the answered greeting;
    /// the addresses of a name share it. It belongs to no call: a call that leaves at its own limit
    /// does not end it. More: a server far away or slow to greet is reached at all. Less: one that
    /// does not answer is given up, and another address tried, sooner.
    Duration connect_timeout{std::chrono::seconds{1}};
    /// 3: RESP3, and RESP2 where the server does not know HELLO. 2: RESP2, without asking, for
    /// proxies that close the connection at a HELLO. Replies are the same values.
    int protocol{3};
    /// Most calls waiting to be sent, on one connection. At the bound a caller waits until its
    /// deadline; a call that nobody waits for, and one of an event loop, fails with a capacity
    /// error. More: memory (about 300 bytes a call) against a busy server's backlog.
    std::size_t max_queue{100'000};
    /// Most bytes sent and not yet answered, on one connection; one larger batch may pass it alone.
    /// Larger sends amortise system calls; smaller ones let calls that come meanwhile be combined
    /// and sent sooner, and bound what the server must hold for us.
    std::size_t max_send_bytes{std::size_t{1} << 20};
    /// Most commands sent and not yet answered, on one connection. Others wait in their queue.
    std::size_t max_in_flight{16'384};
    /// How long a caller that is alone on the connection looks for its reply before it sleeps, in
    /// turn with whoever wants its core. More: a reply that comes within it costs no waking, which
    /// on loopback more than doubles what one thread gets done; it burns up to that much CPU a
    /// call. It is left out while replies take longer. 0: never.
    Duration spin{std::chrono::microseconds{60}};
    /// What CLIENT LIST shows. It is told with HELLO, so not where RESP2 is spoken.
    std::string client_name{"hotcount"};
    /// Most connections beside the shared one, made as transactions with WATCH and commands that are
    /// not known to answer exactly once need them. At the
    /// bound a caller waits until its deadline. More: fewer waits; too many retry for each other.
    std::size_t exclusive_connections{8};
    /// Most memory that the reply of one call takes, in bytes, an array's 48 bytes an element and
    /// all replies of a batch counted: what a hostile server can make us hold. It is checked before
    /// memory is taken. A reply beyond it, or beyond the bounds above, ends the connection. More:
    /// larger values can be read; less: a server gone wrong costs less. At least 1 MiB.
    std::size_t max_reply_bytes{std::size_t{512} << 20};

    /// For messages: host:port or the socket's path; no credentials.
    std::string address() const;
};

/// Options from a URL; a scheme, port, database or option that does not fit is a config error.
Result<Options> parse_options(std::string_view url);

}  // namespace hotcount::redis

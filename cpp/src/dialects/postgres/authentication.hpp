// Keeping a password from a server that asks for it in clear text without having shown who it is.
//
// libpq sends it to whoever asks. From version 16 on it can be told not to (require_auth). For older
// ones we read along: until the server has authenticated us its messages are looked at before libpq
// sees them. Over TLS they are peeked at where libpq is about to read them. Without TLS a peek
// would not do, because more may arrive between it and libpq's own reading: there libpq is given one
// end of a socket pair for as long, and one whole message at a time.
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
        nothing_yet,  ///< No whole record of TLS is there; see() never returns it.
        clear_text,   ///< It asks for the password as it is.
        excessive,    ///< More than any server says by then (kMost): not read on.
    };
    /// All that a server says until it has authenticated a client: an error's text included, and
    /// what libpq's buffer certainly takes at once.
    static constexpr std::size_t kMost = 8000;

    /// What follows in the stream. Messages may come in parts.
    Finding see(std::string_view bytes);

  private:
    std::string unread_;  // Of a message that is not there as a whole.
    std::size_t seen_{0};
};

/// A connection's descriptor in libpq's hands, with us between it and the server: its number leads
/// to a socket pair for the lifetime of this. Not for several threads.
class Interposed {
  public:
    explicit Interposed(int descriptor);
    Interposed(const Interposed&) = delete;
    Interposed& operator=(const Interposed&) = delete;
    /// libpq may have closed the descriptor, or be about to: then it is not given back.
    ~Interposed();

    bool ok() const { return server_ >= 0 && ours_ >= 0; }
    int server() const { return server_; }
    enum class Read : std::uint8_t { message, nothing_yet, end, excessive };
    /// The server's next whole message, and not a byte of what follows it.
    Read read_message(std::string& message);
    bool give_to_libpq(std::string_view bytes);
    /// What libpq has written since.
    std::string take_from_libpq();
    /// The end of the stream, for libpq.
    void end();
    /// libpq speaks to the server itself again: only once it has been authenticated.
    void give_back();

  private:
    int descriptor_;
    int server_{-1};
    int ours_{-1};
    std::string partial_;
};

}  // namespace hotcount::sql

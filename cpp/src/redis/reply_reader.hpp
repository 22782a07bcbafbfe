// Parses the bytes of a server into replies. No I/O; for one thread at a time.
//
// hiredis parses RESP2 and RESP3. This class makes Reply values of its elements and enforces the
// bounds of options.hpp, which hiredis lacks. Pushes and attributes are dropped at any place: they
// answer no command. Sizes that the server announces are checked before memory is allocated: a
// reply takes at most Options::max_reply_bytes, elements and their overhead included. hiredis
// buffers a string until its last byte has arrived, and then the string is copied: for that time
// its memory is allocated twice.
#pragma once

#include <cstddef>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct redisReader;    // hiredis's, of <hiredis/read.h>.
struct redisReadTask;  // One of the nested elements that it is reading.

namespace hotcount::redis {

/// The bytes of memory that a reply takes.
std::size_t memory_of(const Reply& reply);

class ReplyReader {
  public:
    explicit ReplyReader(std::size_t max_reply_bytes);
    ReplyReader(const ReplyReader&) = delete;
    ReplyReader& operator=(const ReplyReader&) = delete;
    ~ReplyReader();

    /// Space for the next bytes; not empty after next() has returned nullopt.
    std::span<char> room();
    /// This many bytes were put into room().
    void add(std::size_t bytes) { end_ += bytes; }
    /// The next complete reply, or nullopt until more bytes arrive. An error reply is a value here.
    /// An error after invalid bytes or a reply beyond the bounds, and then in each later call.
    Result<std::optional<Reply>> next();
    /// Whether next() has returned all bytes as replies.
    bool idle() const;

  private:
    // Called by hiredis for each element. Null refuses it, and `why_` says why.
    struct Elements;

    void feed();
    void bound_what_waits();
    bool charge(std::size_t bytes);
    bool charge_bulk(std::size_t size);
    void mark_error(char* type, const char* end);
    Reply* place(const redisReadTask& element);
    std::nullptr_t fail(std::string_view why);

    const std::size_t max_reply_bytes_;
    std::unique_ptr<char[]> buffer_;
    std::size_t begin_{0};  // Of the bytes not yet fed to hiredis.
    std::size_t end_{0};

    const std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
    bool ready_{false};       // It has bytes that it has not looked at.
    bool in_element_{false};  // It has the type of an element, and waits for the end of a line,
    std::size_t missing_{0};  // or for this many bytes of a string.
    bool charged_{false};     // That string is in `taken_` already.
    bool blob_error_{false};  // The next string was a "!".

    struct Taken {
        std::size_t memory{0};
        std::size_t elements{0};
    };
    Reply reply_;         // The incomplete reply.
    Taken taken_;         // By it.
    ReplyArray dropped_;  // Stands for pushes and attributes; always empty.
    const std::string too_large_;
    std::string_view why_;  // Set: the bytes are no replies. Without memory of its own.
};

}  // namespace hotcount::redis

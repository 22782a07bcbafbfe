// Parses the bytes of a server into replies. No I/O; for one thread at a time.
//
// hiredis reads RESP2 and RESP3. This class turns what it reads into Reply values and enforces the bounds
// of options.hpp, which hiredis lacks. Pushes and attributes are dropped wherever they stand: they answer
// no command. Sizes that the server announces are checked before memory is taken: a reply takes at most
// Options::max_reply_bytes, elements and their overhead counted. hiredis buffers a string until its last
// byte has come, and the string is copied then: for that moment its memory is taken twice.
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

    /// Where to put the next bytes; not empty once next() has returned none.
    std::span<char> room();
    /// This many bytes were put into room().
    void add(std::size_t bytes) { end_ += bytes; }
    /// The next whole reply, or none until more bytes come. An error reply is a value here. Bytes that
    /// are no reply, or a reply beyond the bounds, are an error, and so is everything after them.
    Result<std::optional<Reply>> next();
    /// Whether next() has returned everything that has come.
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
    std::size_t begin_{0};  // Of what has come and hiredis was not given.
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
    Reply reply_;         // The one that is coming.
    Taken taken_;         // By it.
    ReplyArray dropped_;  // Stands for pushes and attributes; always empty.
    const std::string too_large_;
    std::string_view why_;  // Set: the bytes are no replies. Without memory of its own.
};

}  // namespace hotcount::redis

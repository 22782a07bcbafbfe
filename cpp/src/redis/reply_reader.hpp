// Parses the bytes of a server into replies. No I/O; for one thread at a time.
//
// RESP2 and RESP3. Pushes and attributes are skipped wherever they stand: they answer no command. Sizes
// that the server announces are checked before memory is taken: a reply takes at most
// Options::max_reply_bytes, elements and their overhead counted, and keeps to the bounds of options.hpp
// on elements, depth and lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// The bytes of memory that a reply takes.
std::size_t memory_of(const Reply& reply);

class ReplyReader {
  public:
    explicit ReplyReader(std::size_t max_reply_bytes);

    /// Where to put the next bytes; not empty once next() has returned none.
    std::span<char> room();
    /// This many bytes were put into room().
    void add(std::size_t bytes) { end_ += bytes; }
    /// The next whole reply, or none until more bytes come. An error reply is a value here. Bytes that
    /// are no reply, or a reply beyond the bounds, are an error, and so is everything after them.
    Result<std::optional<Reply>> next();
    /// Whether next() has returned everything that has come.
    bool idle() const {
        return begin_ == end_ && frames_.empty() && !in_text_ && line_.empty() && why_.empty();
    }

  private:
    // An array whose elements are coming.
    struct Frame {
        enum class Kind : std::uint8_t { value, out_of_band };
        ReplyArray elements;
        std::size_t left;
        Kind kind;
    };

    void take_integers(Frame& frame);
    std::optional<std::int64_t> take_integer();
    std::optional<Reply> parse();
    std::optional<std::string_view> take_line();
    std::optional<Reply> parse_line(std::string_view line);
    std::optional<Reply> begin_text(char type, std::string_view digits);
    std::optional<Reply> begin_array(char type, std::string_view digits);
    bool take_text();
    Reply finish_text();
    std::optional<Reply> place(Reply value);
    std::optional<std::int64_t> number_in(std::string_view digits);
    std::optional<Reply> text_reply(char type, std::string_view text);
    bool charge(std::size_t bytes);
    void begin_next();
    std::nullopt_t fail(std::string_view why);

    const std::size_t max_reply_bytes_;
    std::unique_ptr<char[]> buffer_;
    std::size_t begin_{0};  // Of what has come and was not looked at.
    std::size_t end_{0};
    std::size_t searched_{0};  // Of that, where no line's end was found.

    std::vector<Frame> frames_;   // The outermost first.
    std::size_t out_of_band_{0};  // Frames of pushes and attributes among them.
    std::string line_;            // What came of a line that is longer than the buffer.
    std::string taken_line_;      // A line that is being looked at and was.
    bool in_text_{false};         // In a string with a length.
    char text_type_{0};
    std::string text_;
    std::size_t text_left_{0};  // Its end, "\r\n", included.
    std::size_t memory_{0};     // Of the reply that is coming.
    std::size_t elements_{0};
    std::string why_;  // Set: the bytes are no replies.
};

}  // namespace hotcount::redis

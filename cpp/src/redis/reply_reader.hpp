// Bytes from a server in, replies out. No I/O.
//
// Integers, which most replies to counters are, are read here; all else by hiredis, slice by slice.
#pragma once

#include <cstddef>
#include <hotcount/base/result.hpp>
#include <hotcount/redis/reply.hpp>
#include <memory>
#include <optional>
#include <span>

struct redisReader;

namespace hotcount::redis {

class ReplyReader {
  public:
    explicit ReplyReader(std::size_t max_reply_bytes);

    /// Where the next bytes go; never empty once next() has given all it has.
    std::span<char> room();
    /// So many have come: false where a reply is larger than it may be.
    bool add(std::size_t bytes);
    /// The next whole reply, or none until more has come. An error reply is a value here; bytes
    /// that are no reply are an error, and so is everything after them.
    Result<std::optional<Reply>> next();

  private:
    struct Free {
        void operator()(redisReader* reader) const;
    };
    std::optional<Reply> next_integer();
    bool parser_idle() const;

    const std::size_t max_reply_bytes_;
    std::unique_ptr<redisReader, Free> parser_;
    std::unique_ptr<char[]> buffer_;
    std::size_t begin_{0};  // Of what has come and was not looked at.
    std::size_t end_{0};
    std::size_t reply_bytes_{0};  // That came since the last whole reply.
};

}  // namespace hotcount::redis

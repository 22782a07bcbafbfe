#include "reply_reader.hpp"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

namespace hotcount::redis {
namespace {

// hiredis shifts its buffer with every feed: larger slices cost more than they save.
constexpr std::size_t kSliceBytes = 16 * 1024;

constexpr std::size_t kBufferBytes = 64 * 1024;

// ":-9223372036854775808\r\n"; anything longer is no integer.
constexpr std::size_t kIntegerBytes = 23;

// Elements of one array: hiredis makes room for all of them at once, on the server's word alone.
constexpr long long kMaxElements = 1LL << 24;

// The shape that RESP2 gives, whichever the connection speaks: maps are flat arrays, numbers that
// are no integers their text.
Reply to_reply(const redisReply& reply) {
    switch (reply.type) {
        case REDIS_REPLY_INTEGER:
        case REDIS_REPLY_BOOL:
            return Reply{static_cast<std::int64_t>(reply.integer)};
        case REDIS_REPLY_NIL:
            return Reply{};
        case REDIS_REPLY_ERROR:
            return Reply{ReplyError{std::string{reply.str, reply.len}}};
        case REDIS_REPLY_ARRAY:
        case REDIS_REPLY_MAP:
        case REDIS_REPLY_SET: {
            ReplyArray array;
            array.reserve(reply.elements);
            for (std::size_t i = 0; i < reply.elements; ++i) {
                array.push_back(to_reply(*reply.element[i]));
            }
            return Reply{std::move(array)};
        }
        default:
            return Reply{std::string{reply.str, reply.len}};
    }
}

struct FreeReply {
    void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

}  // namespace

void ReplyReader::Free::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyReader::ReplyReader(std::size_t max_reply_bytes)
    : max_reply_bytes_(max_reply_bytes),
      parser_(redisReaderCreate()),
      buffer_(new char[kBufferBytes]) {
    if (parser_ == nullptr) throw std::bad_alloc();
    parser_->maxelements = kMaxElements;
}

std::span<char> ReplyReader::room() {
    // What is left is less than an integer, or there would have been a reply to take first.
    if (begin_ > 0) {
        std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    return {buffer_.get() + end_, kBufferBytes - end_};
}

bool ReplyReader::add(std::size_t bytes) {
    end_ += bytes;
    reply_bytes_ += bytes;
    return reply_bytes_ <= max_reply_bytes_;
}

bool ReplyReader::parser_idle() const {
    return parser_->pos == parser_->len && parser_->ridx == -1;
}

// An integer reply that stands at the front of the buffer as a whole.
std::optional<Reply> ReplyReader::next_integer() {
    const char* const begin = buffer_.get() + begin_;
    const char* const end = buffer_.get() + end_;
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(begin + 1, end, value);
    if (error != std::errc{} || end - stop < 2 || stop[0] != '\r' || stop[1] != '\n') return {};
    begin_ += static_cast<std::size_t>(stop + 2 - begin);
    reply_bytes_ = 0;
    return Reply{value};
}

Result<std::optional<Reply>> ReplyReader::next() {
    const auto not_valid = [&](const char* why) {
        return make_error(ErrorCode::unavailable, std::string{"not a valid reply: "} + why);
    };
    while (true) {
        if (parser_idle()) {
            if (begin_ == end_) return std::optional<Reply>{};
            if (buffer_[begin_] == ':') {
                if (auto integer = next_integer()) return integer;
                // Not all of it is there yet; what cannot become one hiredis shall judge.
                const std::string_view left{buffer_.get() + begin_, end_ - begin_};
                if (left.size() < kIntegerBytes && left.find('\n') == std::string_view::npos) {
                    return std::optional<Reply>{};
                }
            }
        } else {
            void* raw = nullptr;
            if (redisReaderGetReply(parser_.get(), &raw) != REDIS_OK) {
                return not_valid(parser_->errstr);
            }
            const std::unique_ptr<redisReply, FreeReply> reply{static_cast<redisReply*>(raw)};
            if (reply != nullptr) reply_bytes_ = 0;
            // A push is out of band: it answers no command of ours.
            if (reply != nullptr && reply->type == REDIS_REPLY_PUSH) continue;
            if (reply != nullptr) return std::optional<Reply>{to_reply(*reply)};
        }
        if (begin_ == end_) return std::optional<Reply>{};
        const std::size_t slice = std::min(kSliceBytes, end_ - begin_);
        if (redisReaderFeed(parser_.get(), buffer_.get() + begin_, slice) != REDIS_OK) {
            return not_valid(parser_->errstr);
        }
        begin_ += slice;
    }
}

}  // namespace hotcount::redis

#include "reply_reader.hpp"

#include <hiredis/read.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <hotcount/detail/redis/options.hpp>
#include <new>
#include <utility>

namespace hotcount::redis {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;

// hiredis moves the rest of its buffer after each 1,024 bytes of replies, so more at once is slower.
constexpr std::size_t kFeedBytes = 4 * 1024;

// "-9223372036854775808" and some room; a line of a type that has a number is never longer.
constexpr std::size_t kNumberLineBytes = 32;

// The overhead of the allocation of a string that does not fit into the std::string itself.
constexpr std::size_t kAllocationBytes = 16;

constexpr std::size_t kVerbatimFormatBytes = 4;  // "txt:"

std::size_t memory_of_text(std::size_t size) {
    return size < sizeof(std::string) / 2 ? 0 : size + kAllocationBytes;
}

bool is_bulk(int type) { return type == REDIS_REPLY_STRING || type == REDIS_REPLY_VERB; }

bool is_text_line(int type) {
    return type == REDIS_REPLY_STATUS || type == REDIS_REPLY_ERROR || type == REDIS_REPLY_DOUBLE ||
           type == REDIS_REPLY_BIGNUM;
}

bool ends_line(const char* at) { return at[0] == '\r' && at[1] == '\n'; }

}  // namespace

std::size_t memory_of(const Reply& reply) {
    std::size_t bytes = sizeof(Reply);
    if (const auto* text = std::get_if<std::string>(&reply.value)) {
        bytes += memory_of_text(text->size());
    } else if (const auto* error = std::get_if<ReplyError>(&reply.value)) {
        bytes += memory_of_text(error->message.size());
    } else if (const auto* array = std::get_if<ReplyArray>(&reply.value)) {
        for (const Reply& element : *array) bytes += memory_of(element);
    }
    return bytes;
}

// No exception may pass through hiredis, which is C.
struct ReplyReader::Elements {
    static ReplyReader& reader_of(const redisReadTask* element) {
        return *static_cast<ReplyReader*>(element->privdata);
    }

    // `next` is where hiredis will look for the next element.
    template <class Write>
    static void* create(const redisReadTask* element, char* next, Write&& write) noexcept {
        ReplyReader& self = reader_of(element);
        self.mark_error(next, self.reader_->buf + self.reader_->len);
        try {
            if (Reply* const place = self.place(*element)) write(*place);
        } catch (const std::exception&) {
            return self.fail("there is no memory for it");
        }
        return &self;
    }

    static char* after_line(const redisReadTask* element) {
        const redisReader& reader = *reader_of(element).reader_;
        return reader.buf + reader.pos;
    }

    static void* string(const redisReadTask* element, char* text, std::size_t size) {
        ReplyReader& self = reader_of(element);
        const bool bulk = is_bulk(element->type);
        bool is_error = element->type == REDIS_REPLY_ERROR;
        if (bulk) {
            if (!ends_line(text + size)) return self.fail("a string without its end");
            if (!std::exchange(self.charged_, false) && !self.charge_bulk(size)) return nullptr;
            is_error = std::exchange(self.blob_error_, false);
        } else if (element->type == REDIS_REPLY_BIGNUM && (size == 0 || text[size - 1] == '-')) {
            return self.fail("a large number that is none");
        } else if (!self.charge(memory_of_text(size))) {
            return nullptr;
        }
        char* const next = bulk ? text + size + 2 : after_line(element);
        const std::size_t skipped = element->type == REDIS_REPLY_VERB ? kVerbatimFormatBytes : 0;
        return create(element, next, [&](Reply& place) {
            if (is_error) {
                place.value.emplace<ReplyError>().message.assign(text, size);
            } else {
                place.value.emplace<std::string>(text + skipped, size - skipped);
            }
        });
    }

    static void* array(const redisReadTask* element, std::size_t count) {
        ReplyReader& self = reader_of(element);
        const int type = element->type;
        const bool attribute = type == REDIS_REPLY_ATTR;
        std::size_t stated = attribute || type == REDIS_REPLY_MAP ? count / 2 : count;
        // An attribute without entries counts too: hiredis numbers the elements of an array by an int.
        if (attribute) ++stated;
        if (stated > kMaxReplyElements - self.taken_.elements) {
            return self.fail("more elements than a reply may have");
        }
        self.taken_.elements += stated;
        if (!self.charge(count * sizeof(Reply))) return nullptr;
        if (type == REDIS_REPLY_PUSH && element->parent != nullptr) {
            return self.fail("a push inside of a reply");
        }
        // To hiredis an attribute is an element of the array that it stands in.
        if (attribute && element->parent != nullptr) ++element->parent->elements;
        if (attribute || type == REDIS_REPLY_PUSH) {
            self.mark_error(after_line(element), self.reader_->buf + self.reader_->len);
            return &self.dropped_;
        }
        ReplyArray* elements = &self.dropped_;
        // Memory is touched only for elements that have come. They stay where they are.
        void* const created = create(element, after_line(element), [&](Reply& place) {
            elements = &place.value.emplace<ReplyArray>();
            elements->reserve(count);
        });
        return created == nullptr ? nullptr : elements;
    }

    static void* integer(const redisReadTask* element, long long number) {
        return create(element, after_line(element),
                      [&](Reply& place) { place.value.emplace<std::int64_t>(number); });
    }

    // Its text is kept, as RESP2 has it.
    static void* real(const redisReadTask* element, double, char* text, std::size_t size) {
        return string(element, text, size);
    }

    static void* nil(const redisReadTask* element) {
        ReplyReader& self = reader_of(element);
        const int type = element->type;
        if (self.blob_error_ ||
            (type != REDIS_REPLY_NIL && type != REDIS_REPLY_STRING && type != REDIS_REPLY_ARRAY)) {
            return self.fail("a length that is none");
        }
        // hiredis has not passed the line of a string yet.
        char* const line = after_line(element);
        return create(element, type == REDIS_REPLY_STRING ? line + std::strlen("-1\r\n") : line,
                      [](Reply& place) { place.value.emplace<std::monostate>(); });
    }

    static void* boolean(const redisReadTask* element, int truth) {
        return integer(element, truth);
    }

    static redisReader* make_reader() {
        static redisReplyObjectFunctions functions{string, array,   integer, real,
                                                   nil,    boolean, nullptr};
        redisReader* const reader = redisReaderCreateWithFunctions(&functions);
        if (reader == nullptr) throw std::bad_alloc{};
        return reader;
    }
};

ReplyReader::ReplyReader(std::size_t max_reply_bytes)
    : max_reply_bytes_(max_reply_bytes),
      buffer_(new char[kBufferBytes]),
      reader_(Elements::make_reader(), redisReaderFree),
      too_large_("it is larger than max_reply_bytes, " + std::to_string(max_reply_bytes)) {
    reader_->privdata = this;
    reader_->maxdepth = kMaxReplyDepth;
}

ReplyReader::~ReplyReader() = default;

std::span<char> ReplyReader::room() {
    if (begin_ > 0) {
        std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    return {buffer_.get() + end_, kBufferBytes - end_};
}

bool ReplyReader::idle() const {
    return begin_ == end_ && !ready_ && reader_->ridx < 0 && why_.empty();
}

Result<std::optional<Reply>> ReplyReader::next() {
    // All paths return this object, so that the compiler constructs it in place (NRVO): moving a
    // Reply takes 3 ns.
    Result<std::optional<Reply>> reply{std::optional<Reply>{}};
    while (why_.empty()) {
        if (!ready_) {
            if (begin_ == end_) return reply;
            feed();
            continue;
        }
        void* whole = nullptr;
        if (redisReaderGetReply(reader_.get(), &whole) != REDIS_OK) {
            if (why_.empty()) why_ = reader_->errstr;
        } else if (whole == nullptr) {
            ready_ = false;
            bound_what_waits();
        } else {
            ready_ = reader_->pos < reader_->len;
            in_element_ = false;
            taken_ = {};
            if (whole == &dropped_) continue;
            reply->emplace(std::move(reply_));
            return reply;
        }
    }
    reply = make_error(ErrorCode::unavailable, "not a valid reply: " + std::string{why_});
    return reply;
}

// Feeds hiredis one portion, which it parses before it gets the next.
void ReplyReader::feed() {
    char* const bytes = buffer_.get() + begin_;
    const std::size_t size = std::min(missing_ > 0 ? missing_ : kFeedBytes, end_ - begin_);
    if (!in_element_) mark_error(bytes, bytes + size);
    if (redisReaderFeed(reader_.get(), bytes, size) != REDIS_OK) {
        fail("there is no memory for it");
        return;
    }
    begin_ += size;
    if (missing_ > 0) {
        missing_ -= size;
        ready_ = missing_ == 0;
        return;
    }
    // hiredis searches a line from its beginning each time.
    ready_ = !in_element_ || std::memchr(bytes, '\n', size) != nullptr;
    if (!ready_) bound_what_waits();
}

// hiredis buffers an element until it is complete, whatever its size.
void ReplyReader::bound_what_waits() {
    const int type = reader_->task[reader_->ridx]->type;
    in_element_ = type >= 0;
    if (!in_element_) return;
    const char* const begin = reader_->buf + reader_->pos;
    const char* const end = reader_->buf + reader_->len;
    const auto size = static_cast<std::size_t>(end - begin);
    if (is_bulk(type)) {
        std::size_t length = 0;
        const char* const line_end = std::from_chars(begin, end, length).ptr;
        if (end - line_end >= 2 && ends_line(line_end)) {
            charged_ = charge_bulk(length);
            if (!charged_) return;
            missing_ = static_cast<std::size_t>(line_end - begin) + length + 4 - size;
            return;
        }
    }
    if (is_text_line(type)) {
        if (size > kMaxReplyLine) fail("a line that is too long");
    } else if (size > kNumberLineBytes) {
        fail("a line that is too long for its type");
    }
}

// Called before the memory is taken.
bool ReplyReader::charge(std::size_t bytes) {
    if (bytes > max_reply_bytes_ - taken_.memory) {
        fail(too_large_);
        return false;
    }
    taken_.memory += bytes;
    return true;
}

bool ReplyReader::charge_bulk(std::size_t size) { return charge(size) && charge(kAllocationBytes); }

// hiredis knows no "!", an error with a length: it is read as "$", and made an error.
void ReplyReader::mark_error(char* type, const char* end) {
    if (type == end || *type != '!') return;
    *type = '$';
    blob_error_ = true;
}

// Where an element belongs; null if it is dropped.
Reply* ReplyReader::place(const redisReadTask& element) {
    if (element.parent == nullptr) return &reply_;
    auto* const array = static_cast<ReplyArray*>(element.parent->obj);
    return array == &dropped_ ? nullptr : &array->emplace_back();
}

std::nullptr_t ReplyReader::fail(std::string_view why) {
    why_ = why;
    return nullptr;
}

}  // namespace hotcount::redis

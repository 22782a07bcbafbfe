#include "reply_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <hotcount/detail/redis/options.hpp>
#include <new>

namespace hotcount::redis {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;

// ":-9223372036854775808" and some room; a line of a type that has a number is never longer.
constexpr std::size_t kNumberLineBytes = 32;

// What a string takes beside its bytes, if they do not fit into the std::string itself.
constexpr std::size_t kAllocationBytes = 16;

// Types whose line is text of any length.
bool has_long_line(char type) { return type == '+' || type == '-' || type == ',' || type == '('; }

bool is_type(char type) { return std::strchr("+-:$*_,#!=(%~>|", type) != nullptr && type != '\0'; }

std::size_t memory_of_text(std::size_t size) {
    return size < sizeof(std::string) / 2 ? 0 : size + kAllocationBytes;
}

bool is_digits(std::string_view text) {
    if (text.starts_with('-')) text.remove_prefix(1);
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_double(std::string_view text) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return stop == end && error != std::errc::invalid_argument;
}

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

ReplyReader::ReplyReader(std::size_t max_reply_bytes)
    : max_reply_bytes_(max_reply_bytes), buffer_(new char[kBufferBytes]) {}

std::span<char> ReplyReader::room() {
    // What is left is less than a short line; otherwise next() would have taken it.
    if (begin_ > 0) {
        std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    return {buffer_.get() + end_, kBufferBytes - end_};
}

Result<std::optional<Reply>> ReplyReader::next() {
    if (frames_.empty() && begin_ != end_ && buffer_[begin_] == ':' && !in_text_ && line_.empty() &&
        why_.empty()) {
        if (const auto integer = take_integer()) {
            std::optional<Reply> reply{std::in_place};
            reply->value.emplace<std::int64_t>(*integer);
            return reply;
        }
    }
    std::optional<Reply> reply;
    try {
        if (why_.empty()) reply = parse();
    } catch (const std::bad_alloc&) {
        fail("there is no memory for it");
    }
    if (!why_.empty()) return make_error(ErrorCode::unavailable, "not a valid reply: " + why_);
    return reply;
}

// The integers of an array, but for its last element: most of what limiters get.
void ReplyReader::take_integers(Frame& frame) {
    while (frame.left > 1 && begin_ != end_ && buffer_[begin_] == ':') {
        const auto value = take_integer();
        if (!value) return;
        frame.elements.emplace_back().value.emplace<std::int64_t>(*value);
        --frame.left;
    }
}

// An integer that stands at the front of the buffer as a whole: most replies to counters.
std::optional<std::int64_t> ReplyReader::take_integer() {
    const char* const begin = buffer_.get() + begin_;
    const char* const end = buffer_.get() + end_;
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(begin + 1, end, value);
    if (error != std::errc{} || end - stop < 2 || stop[0] != '\r' || stop[1] != '\n') return {};
    begin_ += static_cast<std::size_t>(stop + 2 - begin);
    searched_ = 0;
    return value;
}

std::optional<Reply> ReplyReader::parse() {
    while (why_.empty()) {
        if (!frames_.empty() && out_of_band_ == 0 && !in_text_ && line_.empty()) {
            take_integers(frames_.back());
        }
        std::optional<Reply> value;
        if (in_text_) {
            if (!take_text()) return {};
            value = finish_text();
        } else {
            const auto line = take_line();
            if (!line) return {};
            value = parse_line(*line);
        }
        if (!value) continue;
        if (auto whole = place(std::move(*value))) return whole;
    }
    return {};
}

// The next line without its end; none until it is complete, and if it cannot be a line.
std::optional<std::string_view> ReplyReader::take_line() {
    const char* const begin = buffer_.get() + begin_;
    const std::size_t size = end_ - begin_;
    if (size == 0) return {};
    const char type = line_.empty() ? *begin : line_.front();
    if (!is_type(type)) return fail("a type that is none");
    while (searched_ < size) {
        const void* const found = std::memchr(begin + searched_, '\n', size - searched_);
        if (found == nullptr) {
            searched_ = size;
            break;
        }
        const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - begin);
        searched_ = at + 1;
        // Inside of a text a line feed by itself is one of its bytes.
        const bool ends = at > 0 ? begin[at - 1] == '\r' : line_.ends_with('\r');
        if (!ends) continue;
        begin_ += at + 1;
        searched_ = 0;
        if (line_.empty()) return std::string_view{begin, at - 1};
        taken_line_.clear();
        taken_line_.swap(line_);
        taken_line_.append(begin, at);
        taken_line_.pop_back();
        return std::string_view{taken_line_};
    }
    if (!has_long_line(type)) {
        if (size > kNumberLineBytes) return fail("a line that is too long for its type");
        return {};
    }
    if (line_.size() + size > kMaxReplyLine) return fail("a line that is too long");
    if (size == kBufferBytes || !line_.empty()) {
        line_.append(begin, size);
        begin_ = end_;
        searched_ = 0;
    }
    return {};
}

// A complete value; none if more bytes must come first, and for what is no value.
std::optional<Reply> ReplyReader::parse_line(std::string_view line) {
    const char type = line.front();
    const std::string_view rest = line.substr(1);
    switch (type) {
        case ':': {
            const auto number = number_in(rest);
            if (!number) return {};
            return Reply{*number};
        }
        case '+':
        case '-':
            return text_reply(type, rest);
        case '_':
            if (!rest.empty()) return fail("a null that is none");
            return Reply{};
        case '#':
            if (rest != "t" && rest != "f") return fail("a boolean that is none");
            return Reply{std::int64_t{rest == "t"}};
        case ',':
            if (!is_double(rest)) return fail("a double that is none");
            return text_reply(type, rest);
        case '(':
            if (!is_digits(rest)) return fail("a large number that is none");
            return text_reply(type, rest);
        case '$':
        case '=':
        case '!':
            return begin_text(type, rest);
        default:
            return begin_array(type, rest);
    }
}

std::optional<Reply> ReplyReader::begin_text(char type, std::string_view digits) {
    const auto size = number_in(digits);
    if (!size) return {};
    if (type == '$' && *size == -1) return Reply{};
    if (*size < 0 || (type == '=' && *size < 4)) return fail("a length that is none");
    const auto bytes = static_cast<std::size_t>(*size);
    if (!charge(bytes) || !charge(kAllocationBytes)) return {};
    in_text_ = true;
    text_type_ = type;
    text_left_ = bytes + 2;
    text_.clear();
    if (out_of_band_ == 0) text_.reserve(bytes + 2);
    return {};
}

// Takes what has come of the string; true if that is all of it.
bool ReplyReader::take_text() {
    const std::size_t taken = std::min(text_left_, end_ - begin_);
    // A text that is dropped keeps its last bytes, to be checked.
    if (out_of_band_ == 0) {
        text_.append(buffer_.get() + begin_, taken);
    } else {
        const std::size_t ends = std::min(text_left_, std::size_t{2});
        const std::size_t body = text_left_ - ends;
        if (taken > body) text_.append(buffer_.get() + begin_ + body, taken - body);
    }
    begin_ += taken;
    text_left_ -= taken;
    return text_left_ == 0;
}

Reply ReplyReader::finish_text() {
    in_text_ = false;
    if (!text_.ends_with("\r\n")) {
        fail("a string without its end");
        return {};
    }
    text_.resize(text_.size() - 2);
    if (out_of_band_ > 0) return {};
    if (text_type_ == '!') return Reply{ReplyError{std::move(text_)}};
    if (text_type_ == '=') text_.erase(0, 4);  // "txt:"
    return Reply{std::move(text_)};
}

std::optional<Reply> ReplyReader::begin_array(char type, std::string_view digits) {
    const auto size = number_in(digits);
    if (!size) return {};
    if (type == '*' && *size == -1) return Reply{};
    if (*size < 0) return fail("a number of elements that is none");
    const auto stated = static_cast<std::size_t>(*size);
    if (stated > kMaxReplyElements - elements_) return fail("more elements than a reply may have");
    const std::size_t count = type == '%' || type == '|' ? 2 * stated : stated;
    elements_ += stated;
    if (!charge(count * sizeof(Reply))) return {};
    if (type == '>' && !frames_.empty()) return fail("a push inside of a reply");
    const bool out_of_band = type == '>' || type == '|';
    if (count == 0) {
        if (!out_of_band) return Reply{ReplyArray{}};
        if (frames_.empty()) begin_next();
        return {};
    }
    if (frames_.size() >= kMaxReplyDepth) return fail("arrays deeper than a reply may be");
    using Kind = Frame::Kind;
    frames_.push_back({{}, count, out_of_band ? Kind::out_of_band : Kind::value});
    if (out_of_band) ++out_of_band_;
    // Memory is touched only for elements that have come.
    if (out_of_band_ == 0) frames_.back().elements.reserve(count);
    return {};
}

// Adds a value to the innermost array, or returns it as a whole reply.
std::optional<Reply> ReplyReader::place(Reply value) {
    while (!frames_.empty()) {
        Frame& frame = frames_.back();
        if (out_of_band_ == 0) frame.elements.push_back(std::move(value));
        if (--frame.left > 0) return {};
        const bool out_of_band = frame.kind == Frame::Kind::out_of_band;
        value = Reply{std::move(frame.elements)};
        frames_.pop_back();
        if (!out_of_band) continue;
        --out_of_band_;
        if (frames_.empty()) begin_next();
        return {};  // It is no element of the array.
    }
    begin_next();
    return value;
}

std::optional<std::int64_t> ReplyReader::number_in(std::string_view digits) {
    std::int64_t number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc{} || stop != end) return fail("a number that is none");
    return number;
}

std::optional<Reply> ReplyReader::text_reply(char type, std::string_view text) {
    if (!charge(memory_of_text(text.size()))) return {};
    if (out_of_band_ > 0) return Reply{};
    if (type == '-') return Reply{ReplyError{std::string{text}}};
    return Reply{std::string{text}};
}

// Called before the memory is taken.
bool ReplyReader::charge(std::size_t bytes) {
    if (bytes > max_reply_bytes_ - memory_) {
        fail("it is larger than max_reply_bytes, " + std::to_string(max_reply_bytes_));
        return false;
    }
    memory_ += bytes;
    return true;
}

void ReplyReader::begin_next() {
    memory_ = 0;
    elements_ = 0;
}

std::nullopt_t ReplyReader::fail(std::string_view why) {
    why_ = why;
    return std::nullopt;
}

}  // namespace hotcount::redis

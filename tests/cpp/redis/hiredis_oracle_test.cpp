// Our reply reader beside hiredis's, on replies that are drawn: what both read has to be the same.
//
// Replies without attributes and pushes, which hiredis gives to the caller as values, and without
// errors that have a length ("!"), which it does not know.
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "redis/reply_reader.hpp"

namespace hotcount::redis {
namespace {

struct FreeReader {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
};
struct FreeReply {
    void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

std::string in_quotes(std::string_view text) { return "'" + std::string{text} + "' "; }

// hiredis keeps the types of RESP3 apart; here each is shown as the value of RESP2, which we give.
std::string shown(const redisReply& reply) {
    const std::string_view text{reply.str != nullptr ? reply.str : "", reply.len};
    switch (reply.type) {
        case REDIS_REPLY_INTEGER:
        case REDIS_REPLY_BOOL:
            return std::to_string(reply.integer) + " ";
        case REDIS_REPLY_NIL:
            return "nil ";
        case REDIS_REPLY_ERROR:
            return "!" + in_quotes(text);
        case REDIS_REPLY_ARRAY:
        case REDIS_REPLY_MAP:
        case REDIS_REPLY_SET: {
            std::string all = "[";
            for (std::size_t i = 0; i < reply.elements; ++i) all += shown(*reply.element[i]);
            return all + "] ";
        }
        default:
            return in_quotes(text);
    }
}

struct Shown {
    std::string operator()(std::monostate) const { return "nil "; }
    std::string operator()(std::int64_t number) const { return std::to_string(number) + " "; }
    std::string operator()(double number) const { return std::to_string(number) + " "; }
    std::string operator()(bool truth) const { return truth ? "true " : "false "; }
    std::string operator()(const std::string& text) const { return in_quotes(text); }
    std::string operator()(const ReplyError& error) const { return "!" + in_quotes(error.message); }
    std::string operator()(const ReplyArray& array) const {
        std::string all = "[";
        for (const Reply& element : array) all += std::visit(*this, element.value);
        return all + "] ";
    }
};

class Draw {
  public:
    explicit Draw(unsigned seed) : random_(seed) {}

    std::size_t number(std::size_t below) { return random_() % below; }

    // hiredis reads nine levels.
    std::string reply(int depth = 0) {
        switch (number(depth < 7 ? 15 : 11)) {
            case 0:
                return ":" + std::to_string(static_cast<std::int64_t>(random_())) + "\r\n";
            case 1:
                return ":" + std::to_string(number(1000)) + "\r\n";
            case 2:
                return "+" + line() + "\r\n";
            case 3:
                return "-" + line() + "\r\n";
            case 4:
                return "_\r\n";
            case 5:
                return number(2) == 0 ? "#t\r\n" : "#f\r\n";
            case 6:
                return "," + std::to_string(static_cast<double>(number(100'000)) / 8) + "\r\n";
            case 7:
                return "(" + std::to_string(random_()) + std::to_string(random_()) + "\r\n";
            case 8:
                return text("=", "txt:");
            case 9:
                return "$-1\r\n";
            case 10:
                return text("$", "");
            case 11:
                return number(8) == 0 ? "*-1\r\n" : array("*", 1, depth);
            case 12:
                return array("~", 1, depth);
            case 13:
                return array("%", 2, depth);
            default:
                return array("*", 1, depth);
        }
    }

  private:
    std::string line() {
        std::string text;
        for (std::size_t left = number(20); left > 0; --left) {
            text += static_cast<char>(' ' + number(95));
        }
        return text;
    }
    std::string text(const char* type, const std::string& head) {
        std::string text = head;
        const std::size_t most = number(50) == 0 ? 100'000 : 30;
        for (std::size_t left = number(most); left > 0; --left) {
            text += static_cast<char>(number(256));
        }
        return type + std::to_string(text.size()) + "\r\n" + text + "\r\n";
    }
    std::string array(const char* type, std::size_t each, int depth) {
        const std::size_t size = number(5);
        std::string all = type + std::to_string(size) + "\r\n";
        for (std::size_t left = size * each; left > 0; --left) all += reply(depth + 1);
        return all;
    }

    std::mt19937_64 random_;
};

std::string read_by_hiredis(std::string_view bytes) {
    const std::unique_ptr<redisReader, FreeReader> reader{redisReaderCreate()};
    redisReaderFeed(reader.get(), bytes.data(), bytes.size());
    std::string all;
    while (true) {
        void* raw = nullptr;
        if (redisReaderGetReply(reader.get(), &raw) != REDIS_OK) return all + reader->errstr;
        if (raw == nullptr) return all;
        const std::unique_ptr<redisReply, FreeReply> reply{static_cast<redisReply*>(raw)};
        all += shown(*reply);
    }
}

std::string read_by_us(std::string_view bytes, std::size_t slice) {
    ReplyReader reader{std::size_t{1} << 24};
    std::string all;
    while (!bytes.empty()) {
        const std::span<char> room = reader.room();
        const std::string_view some = bytes.substr(0, std::min(slice, room.size()));
        std::memcpy(room.data(), some.data(), some.size());
        bytes.remove_prefix(some.size());
        reader.add(some.size());
        while (true) {
            const auto reply = reader.next();
            if (!reply) return all + reply.error().message;
            if (!*reply) break;
            all += std::visit(Shown{}, (*reply)->value);
        }
    }
    return all;
}

TEST(ReplyReader, ReadsDrawnRepliesAsHiredisDoes) {
    for (unsigned seed = 0; seed < 2000; ++seed) {
        Draw draw{seed};
        std::string bytes;
        for (std::size_t left = 1 + draw.number(20); left > 0; --left) bytes += draw.reply();
        const std::string expected = read_by_hiredis(bytes);
        ASSERT_EQ(read_by_us(bytes, 1 + draw.number(3000)), expected) << "seed " << seed;
    }
}

}  // namespace
}  // namespace hotcount::redis

#include "redis/reply_reader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <hotcount/detail/redis/options.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using testing::failed_with;

// Gives bytes to a reader in slices of `slice` bytes, and appends the replies.
Result<void> pour(ReplyReader& reader, std::string_view bytes, std::size_t slice,
                  std::vector<Reply>& replies) {
    while (!bytes.empty()) {
        const std::span<char> room = reader.room();
        const std::string_view some = bytes.substr(0, std::min(slice, room.size()));
        std::memcpy(room.data(), some.data(), some.size());
        bytes.remove_prefix(some.size());
        reader.add(some.size());
        while (true) {
            HOTCOUNT_TRY_ASSIGN(auto reply, reader.next());
            if (!reply) break;
            replies.push_back(std::move(*reply));
        }
    }
    return {};
}

Result<std::vector<Reply>> read(std::string_view bytes, std::size_t slice,
                                std::size_t most = std::size_t{1} << 20) {
    ReplyReader reader{most};
    std::vector<Reply> replies;
    HOTCOUNT_TRY(pour(reader, bytes, slice, replies));
    return replies;
}

std::string shown(const Reply& reply) {
    if (const auto* number = std::get_if<std::int64_t>(&reply.value))
        return std::to_string(*number);
    if (const auto* text = std::get_if<std::string>(&reply.value)) return "'" + *text + "'";
    if (const auto* error = std::get_if<ReplyError>(&reply.value)) return "!" + error->message;
    if (const auto* array = std::get_if<ReplyArray>(&reply.value)) {
        std::string all = "[";
        for (const Reply& element : *array) all += shown(element) + " ";
        return all + "]";
    }
    return "nil";
}

std::string shown(const std::vector<Reply>& replies) {
    std::string all;
    for (const Reply& reply : replies) all += shown(reply) + ";";
    return all;
}

TEST(ReplyReader, RepliesAreTheSameInSlicesOfAnySize) {
    const std::string bytes =
        ":1\r\n:-9223372036854775808\r\n$2\r\n42\r\n+OK\r\n:9223372036854775807\r\n"
        "*3\r\n:7\r\n$-1\r\n-WRONGTYPE no\r\n>2\r\n+push\r\n:5\r\n:0\r\n_\r\n-ERR x\r\n:12\r\n";
    const std::string expected =
        "1;-9223372036854775808;'42';'OK';9223372036854775807;[7 nil !WRONGTYPE no ];0;nil;!ERR x;"
        "12;";
    for (std::size_t slice = 1; slice <= bytes.size(); ++slice) {
        const auto replies = read(bytes, slice);
        ASSERT_TRUE(replies.ok()) << slice << ": " << replies.error().message;
        EXPECT_EQ(shown(*replies), expected) << "in slices of " << slice;
    }
}

// "\\r", "\\n", "\\\\" and "\\x0f" as the bytes that they stand for.
std::string unescaped(std::string_view text) {
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\') {
            bytes += text[i];
            continue;
        }
        const char kind = text[++i];
        unsigned char code = 0;
        if (kind == 'x') {
            std::from_chars(&text[i + 1], &text[i + 1] + 2, code, 16);
            i += 2;
        }
        bytes += kind == 'r'   ? '\r'
                 : kind == 'n' ? '\n'
                 : kind == 'x' ? static_cast<char>(code)
                               : kind;
    }
    return bytes;
}

// What bytes come to that are cut into two reads: replies, and how they end.
std::string outcome(std::string_view bytes, std::size_t cut,
                    std::size_t most = std::size_t{1} << 20) {
    ReplyReader reader{most};
    std::vector<Reply> replies;
    const bool taken = pour(reader, bytes.substr(0, cut), cut, replies) &&
                       pour(reader, bytes.substr(cut), bytes.size(), replies);
    return shown(replies) + (!taken ? "refused" : reader.idle() ? "" : "more");
}

// reply_vectors.txt: drawn streams, most of them damaged, what they come to, and what they came to with
// the reader of our own that hiredis has replaced, where that differs. It recorded them.
TEST(ReplyReader, RecordedStreamsComeToTheSameInEverySplit) {
    std::ifstream file{HOTCOUNT_REPLY_VECTORS};
    std::size_t vectors = 0;
    for (std::string line; std::getline(file, line); ++vectors) {
        const std::size_t tab = line.find('\t');
        const std::string bytes = unescaped(std::string_view{line}.substr(0, tab));
        const std::string expected =
            unescaped(line.substr(tab + 1, line.find('\t', tab + 1) - tab - 1));
        for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
            ASSERT_EQ(outcome(bytes, cut), expected) << line << " cut at " << cut;
        }
    }
    EXPECT_EQ(vectors, 300U);
}

TEST(ReplyReader, MoreThanItsBufferComesThrough) {
    std::string bytes;
    for (int i = 0; i < 50'000; ++i) bytes += ":" + std::to_string(i) + "\r\n";
    bytes += "$200000\r\n" + std::string(200'000, 'x') + "\r\n:1\r\n";
    const auto replies = read(bytes, bytes.size());
    ASSERT_TRUE(replies.ok());
    ASSERT_EQ(replies->size(), 50'002U);
    EXPECT_EQ(shown((*replies)[49'999]), "49999");
    EXPECT_EQ(shown(replies->back()), "1");
}

TEST(ReplyReader, WhatIsNoReplyIsAnError) {
    for (const char* bytes : {":\r\n", ":x\r\n", ":9223372036854775808\r\n", ":1 \r\n",
                              ":123456789012345678901234567890", "!!\r\n", "hello\r\n"}) {
        for (const std::size_t slice : {std::size_t{1}, std::size_t{100}}) {
            EXPECT_TRUE(failed_with(read(std::string{":1\r\n"} + bytes + ":2\r\n", slice),
                                    ErrorCode::unavailable, "not a valid reply"))
                << bytes;
        }
    }
}

TEST(ReplyReader, AttributesAndPushesAreReadOverWhereverTheyStand) {
    const std::string bytes =
        "|1\r\n+ttl\r\n:3600\r\n:1\r\n"
        ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n"
        "|1\r\n+a\r\n|1\r\n+inner\r\n*2\r\n:8\r\n:9\r\n+b\r\n"
        "*3\r\n:1\r\n|2\r\n$1\r\nx\r\n*1\r\n$3\r\nabc\r\n+y\r\n~0\r\n:2\r\n*1\r\n|0\r\n:3\r\n"
        ">0\r\n|0\r\n$3\r\nend\r\n";
    for (std::size_t slice = 1; slice <= bytes.size(); ++slice) {
        const auto replies = read(bytes, slice);
        ASSERT_TRUE(replies.ok()) << slice << ": " << replies.error().message;
        EXPECT_EQ(shown(*replies), "1;[1 2 [3 ] ];'end';") << "in slices of " << slice;
    }
}

TEST(ReplyReader, APushInsideOfAReplyIsAnError) {
    EXPECT_TRUE(failed_with(read("*2\r\n:1\r\n>1\r\n+push\r\n:2\r\n", 100), ErrorCode::unavailable,
                            "a push inside of a reply"));
}

TEST(ReplyReader, EveryTypeOfRESP3HasTheValueThatRESP2Gives) {
    const auto replies = read(
        "%2\r\n+a\r\n:1\r\n+b\r\n,1.5\r\n~2\r\n#t\r\n#f\r\n=6\r\ntxt:hi\r\n("
        "12345678901234567890\r\n"
        "!5\r\nERR x\r\n,inf\r\n,-1e30\r\n_\r\n*-1\r\n$-1\r\n$0\r\n\r\n*0\r\n",
        7);
    ASSERT_TRUE(replies.ok()) << replies.error().message;
    EXPECT_EQ(shown(*replies),
              "['a' 1 'b' '1.5' ];[1 0 ];'hi';'12345678901234567890';!ERR x;'inf';'-1e30';nil;nil;"
              "nil;'';[];");
}

TEST(ReplyReader, ALineMayBeLongerThanTheBuffer) {
    const std::string text(300'000, 'x');
    for (const std::size_t slice : {std::size_t{1000}, std::size_t{70'000}}) {
        const auto replies = read("+" + text + "\r\n-ERR " + text + "\r\n:1\r\n", slice);
        ASSERT_TRUE(replies.ok()) << replies.error().message;
        EXPECT_EQ(shown(*replies), "'" + text + "';!ERR " + text + ";1;");
    }
    EXPECT_TRUE(failed_with(read("+" + std::string(kMaxReplyLine + 1, 'x'), 65536, 1U << 30),
                            ErrorCode::unavailable, "a line that is too long"));
}

TEST(ReplyReader, AReplyHasABoundThatCountsItsElements) {
    EXPECT_TRUE(read("$100\r\n" + std::string(100, 'x') + "\r\n", 10, 200).ok());
    EXPECT_FALSE(read("$300\r\n" + std::string(300, 'x') + "\r\n", 10, 200).ok());
    std::string many;
    for (int i = 0; i < 100; ++i) many += ":1\r\n";
    EXPECT_TRUE(read(many, 10, 200).ok()) << "each is small";
    EXPECT_TRUE(failed_with(read("*100\r\n" + many, 10, 100 * sizeof(Reply) - 1),
                            ErrorCode::unavailable, "larger than max_reply_bytes"));
    EXPECT_TRUE(read("*100\r\n" + many, 10, 100 * sizeof(Reply)).ok());
    const std::string pair =
        "*2\r\n$100\r\n" + std::string(100, 'x') + "\r\n$50\r\n" + std::string(50, 'y') + "\r\n";
    constexpr std::size_t kBytes = 2 * sizeof(Reply) + 100 + 16 + 50 + 16;
    for (std::size_t cut = 0; cut <= pair.size(); ++cut) {
        EXPECT_EQ(outcome(pair + pair, cut, kBytes).back(), ';') << "each has the bound for itself";
        EXPECT_EQ(outcome(pair, cut, kBytes - 1), "refused") << "cut at " << cut;
    }
}

TEST(ReplyReader, WhatIsTooMuchIsRefusedOnTheServersWord) {
    struct Announced {
        const char* bytes;
        std::size_t most;
    };
    constexpr std::size_t kMost = std::size_t{512} << 20;
    for (const auto& [bytes, most] : std::initializer_list<Announced>{
             {"*2147483647\r\n", kMost},
             {"*9223372036854775807\r\n", kMost},
             {"%16777216\r\n", kMost},
             {"|16777217\r\n", kMost},
             {">16777217\r\n", kMost},
             {"*10000000\r\n*10000000\r\n", kMost},
             {"$536870913\r\n", kMost},
             {"$9223372036854775807\r\n", kMost},
             {":111111111111111111111111111111111111", kMost},
             {"$111111111111111111111111111111111111", kMost},
             {"*2\r\n$300000000\r\n", 200'000'000},
             {"*2\r\n$6\r\nabcdef\r\n$100\r\n", 200},
             // hiredis numbers the elements of an array by an int, and counts attributes.
             {"*16777215\r\n|0\r\n|0\r\n", 2 * kMost}}) {
        EXPECT_TRUE(failed_with(read(bytes, 100, most), ErrorCode::unavailable)) << bytes;
    }
    std::string deep;
    for (std::size_t i = 0; i < kMaxReplyDepth; ++i) deep += "*1\r\n";
    EXPECT_TRUE(read(deep + ":1\r\n", 100).ok());
    EXPECT_TRUE(
        failed_with(read("*1\r\n" + deep + ":1\r\n", 100), ErrorCode::unavailable, "depth"));
}

TEST(ReplyReader, WhatIsLeftOfAReplyIsNotIdle) {
    for (const char* bytes : {":", "+OK\r", "$5\r\nab", "*1\r\n", ">1\r\n", "|1\r\n+a\r\n"}) {
        ReplyReader reader{1000};
        EXPECT_TRUE(reader.idle());
        const std::string_view some{bytes};
        std::memcpy(reader.room().data(), some.data(), some.size());
        reader.add(some.size());
        ASSERT_TRUE(reader.next().ok());
        EXPECT_FALSE(reader.idle()) << bytes;
    }
    ReplyReader reader{1000};
    std::memcpy(reader.room().data(), ":1\r\n:2\r\n", 8);
    reader.add(8);
    for (const bool idle : {false, true}) {
        ASSERT_TRUE(reader.next().ok());
        EXPECT_EQ(reader.idle(), idle);
    }
}

// Drawn replies as their bytes, with pushes and attributes among them, and as they should be shown.
class Draw {
  public:
    explicit Draw(unsigned seed) : random_(seed) {}

    std::string bytes;
    std::string expected;

    void reply() {
        while (one_in(4)) push();
        value(0, &expected);
        expected += ";";
    }
    std::size_t number(std::size_t below) { return random_() % below; }

  private:
    bool one_in(std::size_t n) { return number(n) == 0; }

    void push() {
        const std::size_t size = number(3);
        bytes += ">" + std::to_string(size) + "\r\n";
        for (std::size_t i = 0; i < size; ++i) value(1, nullptr);
    }

    std::string text() {
        std::string drawn(one_in(20) ? number(100'000) : number(40), ' ');
        for (char& c : drawn) c = static_cast<char>(number(256));
        return drawn;
    }

    std::string line() {
        std::string drawn = text();
        // hiredis takes neither in a line.
        std::replace(drawn.begin(), drawn.end(), '\r', 'r');
        std::replace(drawn.begin(), drawn.end(), '\n', 'n');
        return drawn;
    }

    void value(std::size_t depth, std::string* seen) {
        if (one_in(8)) {
            const std::size_t pairs = number(3);
            bytes += "|" + std::to_string(pairs) + "\r\n";
            // Deep enough already, and what is dropped needs its depth too.
            for (std::size_t i = 0; i < 2 * pairs; ++i) leaf(nullptr);
        }
        if (depth < 6 && one_in(3)) return array(depth, seen);
        leaf(seen);
    }

    void array(std::size_t depth, std::string* seen) {
        const std::size_t size = number(5);
        const char type = "*~%"[number(3)];
        bytes += type + std::to_string(size) + "\r\n";
        if (seen != nullptr) *seen += "[";
        for (std::size_t i = 0; i < (type == '%' ? 2 * size : size); ++i) {
            value(depth + 1, seen);
            if (seen != nullptr) *seen += " ";
        }
        if (seen != nullptr) *seen += "]";
    }

    void leaf(std::string* seen) {
        std::string shown;
        switch (number(10)) {
            case 0:
                shown = std::to_string(static_cast<std::int64_t>(random_()));
                bytes += ":" + shown + "\r\n";
                break;
            case 1:
                shown = text();
                bytes += "$" + std::to_string(shown.size()) + "\r\n" + shown + "\r\n";
                shown = "'" + shown + "'";
                break;
            case 2:
                shown = line();
                bytes += "+" + shown + "\r\n";
                shown = "'" + shown + "'";
                break;
            case 3:
                shown = line();
                bytes += "-" + shown + "\r\n";
                shown = "!" + shown;
                break;
            case 4:
                shown = one_in(2) ? "1" : "0";
                bytes += shown == "1" ? "#t\r\n" : "#f\r\n";
                break;
            case 5:
                shown = "nil";
                bytes += one_in(2) ? "_\r\n" : (one_in(2) ? "$-1\r\n" : "*-1\r\n");
                break;
            case 6:
                shown = text();
                bytes += "=" + std::to_string(shown.size() + 4) + "\r\ntxt:" + shown + "\r\n";
                shown = "'" + shown + "'";
                break;
            case 7:
                shown = text();
                bytes += "!" + std::to_string(shown.size()) + "\r\n" + shown + "\r\n";
                shown = "!" + shown;
                break;
            case 8:
                shown = std::to_string(random_()) + std::to_string(random_());
                bytes += "(" + shown + "\r\n";
                shown = "'" + shown + "'";
                break;
            default:
                shown = "'" + std::to_string(number(1000)) + ".25'";
                bytes += "," + shown.substr(1, shown.size() - 2) + "\r\n";
        }
        if (seen != nullptr) *seen += shown;
    }

    std::mt19937_64 random_;
};

TEST(ReplyReader, DrawnRepliesAreReadAsTheyWereWritten) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        Draw draw{seed};
        for (int i = 0; i < 30; ++i) draw.reply();
        const std::size_t slice = 1 + draw.number(seed % 3 == 0 ? 10 : 70'000);
        const auto replies = read(draw.bytes, slice, std::size_t{1} << 24);
        ASSERT_TRUE(replies.ok()) << "seed " << seed << ": " << replies.error().message;
        ASSERT_TRUE(shown(*replies) == draw.expected) << "seed " << seed;
    }
}

TEST(ReplyReader, DrawnBytesEndInABoundedReplyOrAnError) {
    constexpr std::size_t kMost = 100'000;
    std::size_t errors = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        Draw draw{seed};
        for (int i = 0; i < 10; ++i) draw.reply();
        std::string bytes = draw.bytes;
        // Some of it becomes other bytes, and mostly such that mean something.
        constexpr std::string_view kTelling = "*$%>|~:+-#,(!=_0123456789\r\n";
        for (std::size_t i = 1 + draw.number(5); i > 0; --i) {
            const std::size_t at = draw.number(bytes.size());
            switch (draw.number(3)) {
                case 0:
                    bytes[at] = kTelling[draw.number(kTelling.size())];
                    break;
                case 1:
                    bytes.erase(at, 1 + draw.number(10));
                    break;
                default:
                    bytes.insert(at, 1, kTelling[draw.number(kTelling.size())]);
            }
        }
        const auto replies = read(bytes, 1 + draw.number(5000), kMost);
        if (!replies) {
            ++errors;
            continue;
        }
        for (const Reply& reply : *replies) {
            ASSERT_LE(memory_of(reply), kMost + sizeof(Reply)) << "seed " << seed;
        }
    }
    EXPECT_GT(errors, 500U) << "it takes anything";
}

}  // namespace
}  // namespace hotcount::redis

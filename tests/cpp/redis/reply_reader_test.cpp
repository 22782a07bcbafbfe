#include "../../../cpp/src/redis/reply_reader.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using testing::failed_with;

// What bytes come to in slices of so many.
Result<std::vector<Reply>> read(std::string_view bytes, std::size_t slice,
                                std::size_t most = std::size_t{1} << 20) {
    ReplyReader reader{most};
    std::vector<Reply> replies;
    while (!bytes.empty()) {
        const std::span<char> room = reader.room();
        const std::string_view some = bytes.substr(0, std::min(slice, room.size()));
        std::memcpy(room.data(), some.data(), some.size());
        bytes.remove_prefix(some.size());
        if (!reader.add(some.size())) return make_error(ErrorCode::unavailable, "too large");
        while (true) {
            HOTCOUNT_TRY_ASSIGN(auto reply, reader.next());
            if (!reply) break;
            replies.push_back(std::move(*reply));
        }
    }
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

TEST(ReplyReader, AReplyHasABound) {
    EXPECT_TRUE(read("$100\r\n" + std::string(100, 'x') + "\r\n", 10, 200).ok());
    EXPECT_FALSE(read("$300\r\n" + std::string(300, 'x') + "\r\n", 10, 200).ok());
    std::string many;
    for (int i = 0; i < 100; ++i) many += ":1\r\n";
    EXPECT_TRUE(read(many, 10, 200).ok()) << "each is small";
}

}  // namespace
}  // namespace hotcount::redis

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "redis/cluster_client.hpp"

namespace hotcount::redis {
namespace {

// As the specification has it, bit by bit.
unsigned slow_slot(std::string_view text) {
    unsigned crc = 0;
    for (const char c : text) {
        crc ^= static_cast<unsigned>(static_cast<unsigned char>(c)) << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = ((crc << 1U) ^ ((crc & 0x8000U) != 0 ? 0x1021U : 0U)) & 0xFFFFU;
        }
    }
    return crc % 16384;
}

TEST(Slots, AreThoseOfTheSpecification) {
    EXPECT_EQ(slot_of("123456789"), 0x31C3U % 16384);  // CRC-16/XMODEM's check value.
    EXPECT_EQ(slot_of("foo"), 12182);                  // CLUSTER KEYSLOT of Redis 7.0.
    EXPECT_EQ(slot_of(""), 0);
    std::minstd_rand random{1};
    for (std::size_t size = 0; size < 300; ++size) {
        std::string key;
        while (key.size() < size) {
            const char c = static_cast<char>(random() >> 8U);
            if (c != '{') key += c;
        }
        ASSERT_EQ(slot_of(key), slow_slot(key)) << size;
    }
}

TEST(Slots, AreThoseOfTheHashTag) {
    const std::pair<std::string, std::string> cases[] = {
        {"{user1000}.following", "user1000"},
        {"a{b}c{d}", "b"},
        {"foo{}{bar}", "foo{}{bar}"},
        {"foo{{bar}}zap", "{bar"},
        {"}{a}", "a"},
        {"a{b", "a{b"},
        {"a}b{", "a}b{"},
        {"{}", "{}"},
        {"{\xff}", "\xff"},
    };
    for (const auto& [key, tag] : cases) {
        EXPECT_EQ(hash_tag(key), tag) << key;
        EXPECT_EQ(slot_of(key), slow_slot(tag)) << key;
    }
}

}  // namespace
}  // namespace hotcount::redis

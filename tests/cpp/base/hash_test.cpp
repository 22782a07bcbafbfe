#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <hotcount/detail/base/hash.hpp>
#include <string>
#include <unordered_set>
#include <vector>

namespace hotcount {
namespace {

// The reference key 00 01 .. 0f, and inputs of 0, 1, 2 .. bytes 00 01 02 ..: the vectors of Rust's
// standard library.
TEST(SipHash13, GivesTheReferencesValues) {
    const HashKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
    const std::vector<std::uint64_t> expected{
        0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
        0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140,
        0x369095118d299a8e, 0x25a48eb36c063de4};
    std::string bytes;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(siphash13(key, bytes), expected[i]) << i;
        bytes += static_cast<char>(i);
    }
}

// As Python 3.11 and newer hashes bytes where PYTHONHASHSEED is 0.
TEST(SipHash13, GivesPythonsValue) {
    EXPECT_EQ(static_cast<std::int64_t>(siphash13({0, 0}, "abc")), -4594863902769663758);
}

// Whatever the lengths: a word of the hash has bytes of both, and either may be empty.
TEST(KeyedHashAfter, GivesTheHashOfTheWholeText) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += static_cast<char>(i * 37 + 200);
    for (std::size_t whole = 0; whole <= text.size(); ++whole) {
        for (std::size_t beginning = 0; beginning <= whole; ++beginning) {
            const KeyedHashAfter after{text.substr(0, beginning)};
            ASSERT_EQ(after(std::string_view{text}.substr(beginning, whole - beginning)),
                      keyed_hash(std::string_view{text}.substr(0, whole)))
                << beginning << " of " << whole;
        }
    }
}

TEST(KeyedHash, SpreadsKeysThatWereChosenToShareABucketOfTheStandardHash) {
    std::vector<std::string> chosen;
    for (int i = 0; chosen.size() < 1000; ++i) {
        std::string key = "user:" + std::to_string(i);
        if (std::hash<std::string>{}(key) % 1031 == 7) chosen.push_back(std::move(key));
    }
    const auto fullest_bucket = [&](auto table) {
        table.rehash(1031);
        EXPECT_EQ(table.bucket_count(), 1031U);
        table.insert(chosen.begin(), chosen.end());
        std::size_t most = 0;
        for (std::size_t i = 0; i < table.bucket_count(); ++i) {
            most = std::max(most, table.bucket_size(i));
        }
        return most;
    };
    EXPECT_EQ(fullest_bucket(std::unordered_set<std::string>{}), 1000U) << "or this shows nothing";
    // About one each; 20 would come about once in 10^18 processes.
    EXPECT_LT((fullest_bucket(std::unordered_set<std::string, KeyedHash>{})), 20U);
}

}  // namespace
}  // namespace hotcount

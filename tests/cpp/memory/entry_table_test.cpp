#include <gtest/gtest.h>

#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/memory/entry_table.hpp>
#include <map>
#include <random>
#include <set>
#include <string>

namespace hotcount::memory {
namespace {

// Few hashes, so that chains are long.
HashedKey named(std::string_view text, std::size_t beginning = 0) {
    return {text.substr(0, beginning), text.substr(beginning), keyed_hash(text) % 64};
}

class Table : public ::testing::Test {
  protected:
    void insert(const std::string& key, std::int64_t number) {
        entries_.insert(named(key, key.size() / 2))->entry.value.emplace<std::int64_t>() = number;
    }
    std::int64_t number_of(const EntryTable::Node& node) {
        return *node.entry.value.get_if<std::int64_t>();
    }
    EntryTable entries_;
};

TEST_F(Table, FindsAKeyHoweverItIsParted) {
    insert("limit:api:user", 1);
    insert("limit:api:usex", 2);
    for (std::size_t at = 0; at <= 14; ++at) {
        EXPECT_EQ(number_of(*entries_.find(named("limit:api:user", at))), 1) << at;
        EXPECT_EQ(number_of(*entries_.find(named("limit:api:usex", at))), 2) << at;
        EXPECT_EQ(entries_.find(named("limit:apj:user", at)), nullptr) << at;
    }
    EXPECT_EQ(entries_.find(named("limit:api:use")), nullptr);
    EXPECT_EQ(entries_.find(named("limit:api:user2")), nullptr);
    EXPECT_EQ(entries_.find(named("limit:api:user"))->key(), "limit:api:user");
}

// Keys are compared by words: no byte may be passed over, whatever the length.
TEST_F(Table, TellsKeysApartByEachByte) {
    for (std::size_t size = 1; size <= 40; ++size) {
        const std::string key(size, 'k');
        insert(key, 1);
        for (std::size_t at = 0; at < size; ++at) {
            std::string other = key;
            other[at] = 'j';
            for (const std::size_t beginning : {std::size_t{0}, size / 2, size}) {
                const HashedKey hashed{std::string_view{other}.substr(0, beginning),
                                       std::string_view{other}.substr(beginning), named(key).hash};
                ASSERT_EQ(entries_.find(hashed), nullptr) << size << ' ' << at;
            }
        }
    }
}

TEST_F(Table, HoldsWhatAMapHoldsWhileItIsWalked) {
    std::mt19937 random(7);
    const auto any = [&](std::uint32_t below) {
        return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random);
    };
    std::map<std::string, std::int64_t, std::less<>> expected;
    // Those that have been there since the round began, and were not met.
    std::set<std::int64_t> due;
    for (std::int64_t step = 0; step < 20'000; ++step) {
        const std::string key = std::to_string(any(500));
        EntryTable::Node* const node = entries_.find(named(key));
        ASSERT_EQ(node != nullptr, expected.contains(key)) << step;
        if (node == nullptr) {
            insert(key, step);
            expected[key] = step;
        } else if (any(2) == 0) {
            ASSERT_EQ(number_of(*node), expected[key]);
            due.erase(expected[key]);
            expected.erase(key);
            entries_.erase(node);
        }
        if (step % 5 == 0) {
            if (entries_.at_start()) {
                for (const auto& [name, number] : expected) due.insert(number);
            }
            std::set<std::int64_t> dropped;
            entries_.walk(1 + any(20), [&](Entry& entry) {
                const std::int64_t number = *entry.value.get_if<std::int64_t>();
                due.erase(number);
                if (any(4) != 0) return false;
                return dropped.insert(number).second;
            });
            std::erase_if(expected, [&](const auto& one) { return dropped.contains(one.second); });
            if (entries_.at_start()) {
                ASSERT_TRUE(due.empty()) << "not met: " << *due.begin();
            }
        }
        ASSERT_EQ(entries_.size(), expected.size());
    }
    std::map<std::string, std::int64_t, std::less<>> held;
    entries_.visit_all([&](EntryTable::Node& node) {
        held.emplace(node.key(), number_of(node));
        return false;
    });
    EXPECT_EQ(held, expected);
    entries_.visit_all([](const EntryTable::Node&) { return true; });
    EXPECT_EQ(entries_.size(), 0U);
}

}  // namespace
}  // namespace hotcount::memory

// What a memory store keeps under a key of a sorted set, and beside it.
//
//   SortedSet   member -> score, and the members in order of (score, member), as Redis orders them
//   Versions    member -> the version of its last write; a member without a score is a tombstone
//
// Both hold one pointer, so that they fit into a store's entry. Not thread-safe: the store's lock
// guards them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hotcount/detail/base/hash.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hotcount {

class SortedSet {
  public:
    struct Item {
        std::string_view member;
        double score;
    };

    std::size_t size() const { return index_ == nullptr ? 0 : index_->scores.size(); }
    bool empty() const { return size() == 0; }
    /// Adds the member or moves it to another score.
    void put(std::string_view member, double score);
    /// False if it was not there.
    bool erase(std::string_view member);
    /// The members at positions first to last, both inclusive, highest score first; equal scores
    /// by member, the greater bytes first. Views hold until the set changes. Costs `last` steps.
    std::vector<Item> highest(std::size_t first, std::size_t last) const;
    /// The member's position in that order, the highest being 0. Costs as many steps.
    std::optional<std::size_t> rank(std::string_view member) const;

  private:
    struct Index {
        std::unordered_map<std::string, double, KeyedHash, std::equal_to<>> scores;
        // Views of the keys above, which stay where they are while the map grows.
        std::set<std::pair<double, std::string_view>> order;
    };
    std::unique_ptr<Index> index_;
};

class Versions {
  public:
    std::optional<std::int64_t> find(std::string_view member) const;
    void put(std::string_view member, std::int64_t version);

  private:
    using Map = std::unordered_map<std::string, std::int64_t, KeyedHash, std::equal_to<>>;
    std::unique_ptr<Map> versions_;
};

}  // namespace hotcount

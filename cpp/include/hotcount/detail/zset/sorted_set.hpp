// The data of a sorted set in a memory store.
//
//   SortedSet   member -> score, and the members in order of (score, member), as Redis orders them
//   Versions    member -> the version of its last write, also for removed members (tombstones);
//               and the build of the set, if there is one
//   SetBuild    a replacement of the set, which a caller builds under a lease while readers see
//               the present set
//
// SortedSet and Versions hold only pointers, so that they fit into a store's entry. Not
// thread-safe: the store's lock guards them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
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
    /// False if the set does not have the member.
    bool erase(std::string_view member);
    std::optional<double> score(std::string_view member) const;
    /// The members at positions first to last, both inclusive, highest score first; equal scores
    /// by member, the greater bytes first. Views hold until the set changes. Costs `last` steps.
    std::vector<Item> highest(std::size_t first, std::size_t last) const;
    /// The member's position in the order of highest(), from 0. Costs that number of steps.
    std::optional<std::size_t> rank(std::string_view member) const;

  private:
    struct Index {
        std::unordered_map<std::string, double, KeyedHash, std::equal_to<>> scores;
        // Views of the keys above, which stay where they are while the map grows.
        std::set<std::pair<double, std::string_view>> order;
    };
    std::unique_ptr<Index> index_;
};

class SetBuild {
  public:
    SetBuild(std::string token, SteadyTime lease_ends);
    SetBuild(const SetBuild&) = delete;
    SetBuild& operator=(const SetBuild&) = delete;
    ~SetBuild();
    /// Whether any store of this process may have a build. Takes no lock.
    static bool exist() { return count_.load(std::memory_order_acquire) > 0; }

    /// An add by the builder. `set`: the present set, null if there is none. `known`: the member's
    /// version before this build.
    void add(std::string_view member, double score, std::optional<std::int64_t> version,
             const SortedSet* set, std::optional<std::int64_t> known);
    /// A write by another caller during the build; a removal has no score.
    void write(std::string_view member, std::optional<double> score,
               std::optional<std::int64_t> version, std::optional<std::int64_t> known);

    const std::string token;
    SteadyTime lease_ends;
    std::uint64_t chunks{0};
    SortedSet set;

    template <class Visit>
    void visit_versions(Visit&& visit) const {
        for (const auto& [member, note] : notes_) {
            if (note.version) visit(member, *note.version);
        }
    }

  private:
    enum class Written : std::uint8_t { before, with_version, without_version };
    struct Note {
        std::optional<std::int64_t> version{};
        Written written{Written::before};
    };
    static std::atomic<int> count_;
    std::unordered_map<std::string, Note, KeyedHash, std::equal_to<>> notes_;
};

class Versions {
  public:
    std::optional<std::int64_t> find(std::string_view member) const;
    void put(std::string_view member, std::int64_t version);
    /// The build, or null if there is none; a build whose lease has ended is dropped first.
    SetBuild* build(SteadyTime now);
    void set_build(std::unique_ptr<SetBuild> build) { build_ = std::move(build); }

  private:
    using Map = std::unordered_map<std::string, std::int64_t, KeyedHash, std::equal_to<>>;
    std::unique_ptr<Map> versions_;
    std::unique_ptr<SetBuild> build_;
};

}  // namespace hotcount

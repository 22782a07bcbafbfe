// Walks through a std::unordered_map a few entries at a time and erases some, so that no call waits
// for a walk through all of them. An entry that stays in the map is met once in each round. Not
// thread-safe: the lock of the map guards it too.
#pragma once

#include <cstddef>
#include <iterator>

namespace hotcount::memory {

template <class Map>
class IncrementalSweep {
  public:
    using Iterator = typename Map::iterator;

    /// Meets at most `most` entries and erases those for which visit(entry) is true. Returns how many
    /// it met: fewer than `most` when the round ended. The next call then begins a new round.
    template <class Visit>
    std::size_t walk(Map& map, std::size_t most, Visit&& visit) {
        if (!walking_ || buckets_ != map.bucket_count()) begin(map);
        std::size_t met = 0;
        while (met < most && next_ != map.end()) {
            ++met;
            next_ = visit(*next_) ? map.erase(next_) : std::next(next_);
        }
        if (next_ == map.end()) walking_ = false;
        return met;
    }
    /// True when the next walk begins a round: one has ended, or the map has grown and was reordered.
    bool at_start(const Map& map) const { return !walking_ || buckets_ != map.bucket_count(); }
    /// Call it before an entry is erased otherwise.
    void leave(Iterator entry) {
        if (walking_ && next_ == entry) ++next_;
    }
    /// Call it before many entries are erased otherwise.
    void restart() { walking_ = false; }

  private:
    void begin(Map& map) {
        next_ = map.begin();
        buckets_ = map.bucket_count();
        walking_ = true;
    }

    Iterator next_{};
    std::size_t buckets_{0};
    bool walking_{false};
};

}  // namespace hotcount::memory

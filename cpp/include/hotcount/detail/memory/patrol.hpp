// Walks through a std::unordered_map a few entries at a time, so that nobody waits for a look at all
// of them. Every entry that stays in the map is met once in a round. Not safe by itself: whoever
// guards the map guards it too.
#pragma once

#include <cstddef>
#include <iterator>

namespace hotcount::memory {

template <class Map>
class Patrol {
  public:
    using Iterator = typename Map::iterator;

    /// Meets at most `most` entries: visit(entry) is true for one that shall go. Returns how many it
    /// met; fewer than `most` where the round ended, which begins anew with the next call.
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
    /// True where the next walk begins a round: after one has ended, or a growing map was reordered.
    bool at_start(const Map& map) const { return !walking_ || buckets_ != map.bucket_count(); }
    /// To be told of an entry before another erases it.
    void leave(Iterator entry) {
        if (walking_ && next_ == entry) ++next_;
    }
    /// To be told before others erase many.
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

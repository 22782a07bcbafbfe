// The items that the folds of a process have left behind: held ones, whose row or journal rows another
// transaction has locked, and refused ones, for which a fold fails. Both keep rows in the journal.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <hotcount/clock.hpp>
#include <hotcount/sql.hpp>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "folder.hpp"
#include "journal.hpp"

namespace hotcount {

class LeftItems {
  public:
    /// How long an item that failed alone is left out.
    static constexpr Duration kRefusedFor = std::chrono::seconds{30};

    // -- refused --------------------------------------------------------------------------------

    void refuse(const sql::Id& item, const std::string& why) {
        const std::lock_guard lock(mutex_);
        refused_[item] = {why, Clock::now() + kRefusedFor};
    }

    /// The items that a fold which begins `now` leaves out, sorted. It tries the others again.
    std::vector<sql::Id> left_out(SteadyTime now) const {
        const std::lock_guard lock(mutex_);
        std::vector<sql::Id> items;
        for (const auto& [item, refused] : refused_) {
            if (refused.until > now) items.push_back(item);
        }
        return items;
    }

    /// All of them, also those that the next fold tries again.
    std::vector<sql::Id> refused_items() const {
        const std::lock_guard lock(mutex_);
        std::vector<sql::Id> items;
        for (const auto& [item, refused] : refused_) items.push_back(item);
        return items;
    }

    std::size_t refused() const {
        const std::lock_guard lock(mutex_);
        return refused_.size();
    }

    /// When the first of them is tried again; SteadyTime::max() without items.
    SteadyTime retry_at() const {
        const std::lock_guard lock(mutex_);
        SteadyTime first = SteadyTime::max();
        for (const auto& [item, left] : refused_) first = std::min(first, left.until);
        return first;
    }

    // -- held -----------------------------------------------------------------------------------

    bool holds() const {
        const std::lock_guard lock(mutex_);
        return !held_.empty();
    }

    /// A few items that folds have found locked repeatedly: the next fold waits for their rows. Each is
    /// returned again after a pause, unless `at_once`.
    std::vector<sql::Id> take_patient(Duration interval, bool at_once) {
        const std::lock_guard lock(mutex_);
        std::vector<sql::Id> items;
        const SteadyTime now = Clock::now();
        for (auto& [item, known] : held_) {
            if (known.misses < kPatientMisses) continue;
            if (!at_once && known.next_wait > now) continue;
            if (items.size() == kInsisted) break;
            items.push_back(item);
            known.next_wait = now + std::min<Duration>(interval * known.misses, kRefusedFor);
        }
        return items;
    }

    // -- both -----------------------------------------------------------------------------------

    /// The counts have moved to another place: no fold of the journal comes that would take them.
    void forget() {
        const std::lock_guard lock(mutex_);
        refused_.clear();
        held_.clear();
    }

    /// A fold that began at `begun` ended well. `only`: the items that it was asked for, if it was
    /// asked for some. Otherwise it has left out the items of left_out(begun).
    void note(const FoldedPage& folded, std::span<const sql::Id> only, SteadyTime begun) {
        const std::lock_guard lock(mutex_);
        if (only.empty()) end_retries(folded, begun);
        // Items whose count was updated, and items without rows, are not left behind any more.
        const std::set<sql::Id> now_held(folded.held.begin(), folded.held.end());
        const auto free = [&](const sql::Id& item) {
            if (now_held.contains(item)) return;
            held_.erase(item);
            if (only.empty()) return;  // end_retries() has ended its refusal.
            // A refusal that another call noted since this fold began is for later rows, and stays.
            const auto refused = refused_.find(item);
            if (refused != refused_.end() && refused->second.until <= begun + kRefusedFor) {
                refused_.erase(refused);
            }
        };
        if (folded.more) {
            for (const FoldedCount& count : folded.counts) free(count.item);
        } else if (!only.empty()) {
            for (const sql::Id& item : only) free(item);
        } else {
            std::erase_if(held_, [&](const auto& one) { return !now_held.contains(one.first); });
        }
        for (const sql::Id& item : now_held) {
            ++held_.try_emplace(item, Held{Clock::now()}).first->second.misses;
        }
    }

    void add_to(Folder::Stats& stats) const {
        const std::lock_guard lock(mutex_);
        stats.held = static_cast<std::int64_t>(held_.size());
        stats.held_for = Duration{0};
        for (const auto& [item, held] : held_) {
            stats.held_for = std::max<Duration>(stats.held_for, Clock::now() - held.since);
        }
        for (const auto& [item, refused] : refused_) stats.refused.emplace_back(item, refused.why);
    }

  private:
    using Clock = std::chrono::steady_clock;

    // After this many folds that skip a locked item one waits for its row, if the database has a queue
    // for row locks; it waits for at most kInsisted items.
    static constexpr int kPatientMisses = 2;
    static constexpr std::size_t kInsisted = 4;

    struct Refused {
        std::string why;
        SteadyTime until;
    };
    struct Held {
        SteadyTime since;  // When it was found so first.
        int misses{0};     // Folds that found it so.
        SteadyTime next_wait{};
    };

    // Items that the fold has tried again: an item that failed again has a later time. A full page
    // may lack some.
    void end_retries(const FoldedPage& folded, SteadyTime begun) {
        if (folded.more) {
            for (const FoldedCount& count : folded.counts) {
                const auto found = refused_.find(count.item);
                if (found != refused_.end() && found->second.until <= begun) refused_.erase(found);
            }
        } else {
            std::erase_if(refused_, [&](const auto& one) { return one.second.until <= begun; });
        }
    }

    mutable std::mutex mutex_{};
    std::map<sql::Id, Refused> refused_{};
    std::map<sql::Id, Held> held_{};
};

}  // namespace hotcount

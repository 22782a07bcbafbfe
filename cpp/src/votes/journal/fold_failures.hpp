// Counts the failed folds of a process and makes two log events: one when folds begin to fail, one
// when they work again. If the server is unreachable or slow, the first event waits for `patience`:
// the votes of callers fail too, and most such outages are short.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <hotcount/error.hpp>
#include <hotcount/votes.hpp>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "folder.hpp"
#include "sql/dialect.hpp"

namespace hotcount {

class FoldFailures {
  public:
    explicit FoldFailures(const std::string& vote_table,
                          Duration patience = std::chrono::seconds{10})
        : journal_(sql::TableName::of(vote_table).beside("_journal").text()), patience_(patience) {}

    void add(const Error& error) {
        const std::lock_guard lock(mutex_);
        const SteadyTime now = Clock::now();
        ++failed_;
        if (in_row_++ == 0) since_ = now;
        error_ = error.message;
        const bool may_pass =
            error.code == ErrorCode::unavailable || error.code == ErrorCode::deadline;
        if (told_) {
            has_event_ = false;  // Drops the event of a short recovery.
        } else if (!may_pass || now - since_ >= patience_) {
            has_event_ = true;
        }
    }

    /// Call it after a fold that succeeded and left no item out.
    void end() {
        const std::lock_guard lock(mutex_);
        if (in_row_ == 0) return;
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - since_).count();
        mended_ = "folds of " + journal_ + " work again, after " + std::to_string(ms) +
                  " ms in which " + std::to_string(in_row_) + " failed";
        in_row_ = 0;
        error_.clear();
        has_event_ = told_;
    }

    void add_to(Folder::Stats& stats) const {
        const std::lock_guard lock(mutex_);
        stats.failed = failed_;
        stats.failing = in_row_;
        if (in_row_ > 0) stats.failing_for = Clock::now() - since_;
        stats.last_error = error_;
    }

    std::optional<VotesEvent> take_event() {
        if (!has_event_.load(std::memory_order_acquire)) return {};
        const std::lock_guard lock(mutex_);
        if (!has_event_.exchange(false)) return {};
        told_ = in_row_ > 0;
        if (!told_) return VotesEvent{false, std::move(mended_)};
        return VotesEvent{true, "folds of " + journal_ +
                                    " fail: its rows stay and the items' counts fall behind, "
                                    "count() is exact. " +
                                    error_};
    }

  private:
    using Clock = std::chrono::steady_clock;

    const std::string journal_;
    const Duration patience_;
    mutable std::mutex mutex_{};
    std::uint64_t failed_{0};
    std::uint64_t in_row_{0};  // Since the last end().
    SteadyTime since_{};
    std::string error_{};
    std::string mended_{};
    bool told_{false};  // The last event that was taken says that folds fail.
    std::atomic<bool> has_event_{false};
};

}  // namespace hotcount

// The part of a WriteBehindCounter that lives in one process: its cells, and the threads that flush
// them.
//
//   begin() ... end()   an add: begin() raises its cell, end() records the outcome of sending it
//   flush()             sends the cells that Redis lacks, after a check whether Redis has lost data
//   two threads         one flushes every flush_interval; the other asks SQL once a second which
//                       cells it has, the longest waiting first, so a stalled database does not
//                       delay Redis
//
// A cell belongs to a writer's id and a key, and such a pair is never reused: after a cell was
// dropped, new cells get another id. An id is used for a seventh of kViewHorizon; a cell that
// outlives it is sealed, and a new cell takes the key's adds.
//
// Thread-safe: one mutex, which is not held during calls to servers. A forked child makes its own
// (ForkLocal).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/write_behind_counter.hpp>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "view_cells.hpp"
#include "view_tables.hpp"

namespace hotcount {

struct ViewSettings {
    std::shared_ptr<sql::Database> database;
    std::shared_ptr<redis::Client> client;
    WriteBehindOptions options;
    ViewCells cells;
    ViewTables tables;
};

class ViewWriter : public std::enable_shared_from_this<ViewWriter> {
  public:
    explicit ViewWriter(std::shared_ptr<ViewSettings> settings);
    ViewWriter(const ViewWriter&) = delete;
    ViewWriter& operator=(const ViewWriter&) = delete;

    struct Cell;
    /// An add between begin() and end().
    struct Open {
        std::shared_ptr<Cell> cell;
        ViewCell value;  ///< The cell with this add, to be sent.
        CellSum amount;
        Ack ack;
        std::uint64_t number{0};
        std::uint64_t epoch{0};
    };
    /// Counts the add in its cell; with Ack::local that is all. After an error nothing was counted.
    Result<Open> begin(std::string_view key, std::int64_t n, Ack ack);
    /// Takes the outcome of sending Open::value, and returns the caller's. If nothing was applied
    /// and no other add came or was sent meanwhile, the add is taken back.
    Result<void> end(const Open& add, Result<void> outcome);

    /// The acknowledged adds of this process to a key.
    std::vector<ViewCell> own_cells(std::string_view key) const;
    FlushReport flush(Deadline deadline);
    /// Flushes, ends the threads and refuses later adds. Returns the number of adds that are lost.
    std::int64_t close(Deadline deadline);
    WriteBehindStats stats() const;

  private:
    using CellPointer = std::shared_ptr<Cell>;
    struct Sent;

    Result<void> start();
    void flush_often();
    void ask_often();
    bool rests(std::unique_lock<std::mutex>& lock, Duration every);
    Result<CellPointer> cell_of(std::string_view key, const CellSum& amount);
    Result<void> make_room();
    void renew_writer();
    void mark_dirty(const CellPointer& cell);
    void mark_unapplied(const CellPointer& cell);
    void learn_applied(const CellPointer& cell, const CellSum& sum);
    void lost(const std::array<bool, ViewCells::kShards>& shards);
    std::size_t cell_count() const { return cells_.size() + sealed_; }

    Result<void> flush_now(Deadline deadline);
    Result<void> look_for_losses(Deadline deadline);
    Result<void> publish_dirty(Deadline deadline);
    Result<void> ask_applied(Deadline deadline);
    Result<bool> ask_page(std::size_t size, Deadline deadline);
    void forget_settled(const CellPointer& cell);

    const std::shared_ptr<ViewSettings> settings_;

    std::timed_mutex flush_mutex_;  // One flush at a time; taken before the other.
    // Under flush_mutex_.
    std::array<std::string, ViewCells::kShards> identities_;
    std::uint64_t reconnects_{0};

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Under the mutex.
    std::unordered_map<std::string, CellPointer, KeyedHash, std::equal_to<>> cells_;
    std::multimap<std::string, CellPointer, std::less<>> old_cells_;  // Sealed ones, by key.
    std::size_t sealed_{0};
    std::vector<CellPointer> dirty_;     // Cells with adds that Redis lacks.
    std::deque<CellPointer> unapplied_;  // Cells that SQL is not known to have in full.
    std::list<CellPointer> settled_;     // Cells that SQL has, or had, in full.
    std::string writer_;
    WallTime writer_since_{};
    std::uint64_t next_number_{1};
    std::uint64_t epoch_{1};  // Raised by each loss.
    WriteBehindStats stats_;
    bool flushes_{false};  // The flushing thread runs.
    bool asks_{false};     // The asking thread runs.
    bool closed_{false};
    bool stop_{false};
};

/// The worker of a WriteBehindCounter: cells from Redis to SQL.
std::shared_ptr<SyncWorker> make_view_worker(std::shared_ptr<ViewSettings> settings);

}  // namespace hotcount

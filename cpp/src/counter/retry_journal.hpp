// The journal of a RetryQueue: a file of queued adds. Adds and the settling of adds are appended.
// When much of the file is settled, it is rewritten.
//
//   header   "hotcount retries" (16 bytes), version (4), crc32c of the 20 bytes before (4)
//   frame    length of the body (4), crc32c of the body (4), body
//   body     kind (1): 1 = adds, 2 = settled, 3 = adds in periods; then its items
//   add      writer (8), sequence (8), amount (8), accepted in unix microseconds (8), that time in
//            milliseconds of Redis' clock or 0 (8), max_age and ttl or 0 in milliseconds (8 and 8),
//            length of the key (2), the key in full
//   add in a period   as an add, with two times in unix seconds in place of the ttl: the begin of
//            the period, and the end of the keeping of its number (8 and 8)
//   settled  writer (8), sequence (8)
// Numbers are little-endian. One append is one frame, which is valid as a whole or not at all.
//
// A frame at the end that is incomplete or does not fit its checksum is the rest of a write that
// was cut off; open() truncates it. Such a frame before a good one is damage, and an error that
// names file and offset. Settled frames are not forced to the disk: the script recognizes an add
// that is replayed although it was settled.
//
// One process owns the file, by flock on a file beside it ("PATH.lock", because the journal itself
// is replaced) and on the journal, in case the lock file is removed. The path is resolved when the
// journal is opened, so a program that changes its directory keeps its journal. A forked child
// closes its copy. One thread at a time makes calls; other threads may fork.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/period_counter.hpp>
#include <hotcount/retry_queue.hpp>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

/// CRC-32C (Castagnoli).
std::uint32_t crc32c(std::string_view bytes);

struct JournaledPeriod {
    Instant begins;
    Instant gone;  ///< The time from which its number is not kept.
    bool operator==(const JournaledPeriod&) const = default;
};

struct JournaledAdd {
    std::uint64_t writer;
    std::uint64_t sequence;
    std::int64_t n;
    std::int64_t accepted_us;  ///< Unix time by this machine's clock.
    std::int64_t server_ms;    ///< Unix time by Redis' clock; 0 if it was unknown.
    std::int64_t max_age_ms;   ///< Of its queue: Redis remembers its writer for little longer.
    std::int64_t ttl_ms;       ///< 0: the key does not expire, or has a period.
    std::optional<JournaledPeriod> period{};
    std::string key;
    bool operator==(const JournaledAdd&) const = default;
};

struct AddId {
    std::uint64_t writer;
    std::uint64_t sequence;
};

class RetryJournal final : public ForkAware {
  public:
    /// Opens or creates the file and locks it. `waiting` gets the unsettled adds: the writers in
    /// the order of the file, the adds of each by sequence. In the file they may be out of order,
    /// because a caller with a short deadline is answered before an earlier one.
    static Result<std::unique_ptr<RetryJournal>> open(const std::string& path, Fsync fsync,
                                                      std::vector<JournaledAdd>& waiting);
    ~RetryJournal();

    /// Appends adds. After success they are as durable as Fsync says; after an error the journal
    /// has none of them.
    Result<void> append(std::span<const JournaledAdd> adds);
    /// `live` returns the adds still queued after this. Called only if the file is rewritten.
    void settle(std::span<const AddId> ids, const std::function<std::vector<JournaledAdd>()>& live);
    /// Fsync::interval: forces unsynced bytes to the disk.
    void sync();
    bool has_unsynced() const { return unsynced_; }
    std::uint64_t bytes() const { return size_; }
    std::size_t live() const { return live_; }

    void before_fork() override;
    void after_fork(bool in_child) override;

  private:
    RetryJournal(std::string path, Fsync fsync) : path_(std::move(path)), fsync_(fsync) {}
    Result<void> take();
    Result<void> lock(int file, std::string_view name);
    Result<void> load(std::vector<JournaledAdd>& waiting);
    Result<void> write_new(std::span<const JournaledAdd> adds);
    Result<void> write_at_end(std::string_view bytes);
    Result<void> force();
    Error failed(std::string_view what, int number) const;
    Error damaged(std::uint64_t offset) const;

    const std::string path_;
    const Fsync fsync_;
    std::mutex mutex_;  // Held during each call, so that a fork waits for it.
    int file_{-1};
    int lock_{-1};
    std::uint64_t size_{0};
    std::size_t live_{0};     // Adds that are not settled.
    std::size_t written_{0};  // All adds in the file, settled ones too.
    bool unsynced_{false};
    bool broken_{false};  // The content on the disk is unknown: further adds are refused.
};

}  // namespace hotcount

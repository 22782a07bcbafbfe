// The journal of a RetryQueue: a file of adds that wait. Adds are appended; what became of them is
// appended too; when much of the file is settled it is written anew.
//
//   header   "hotcount retries" (16 bytes), version (4), crc32c of the 20 bytes before (4)
//   frame    length of the body (4), crc32c of the body (4), body
//   body     kind (1): 1 = adds, 2 = settled, 3 = adds in periods; then its items
//   add      writer (8), sequence (8), amount (8), accepted in unix microseconds (8), the same in
//            milliseconds of Redis' clock or 0 (8), max_age and ttl or 0 in milliseconds (8 and 8),
//            length of the key (2), the key in full
//   add in a period   the same with, in place of the ttl, when its period begins and when its number is
//            not kept any more, in unix seconds (8 and 8)
//   settled  writer (8), sequence (8)
// Numbers are little-endian. One append is one frame: it is there as a whole or not at all.
//
// A frame at the end that is incomplete or does not fit its checksum is the rest of a write that
// was cut off; open() cuts it away. The same with a good frame behind it is damage, and an error
// that names file and offset. Settled frames are not forced to the disk: an add that is replayed
// although it was settled is known to the script.
//
// One process owns the file, by flock on a file beside it ("PATH.lock", because the journal itself
// is replaced) and on the journal, for when somebody removed the other. The path is made absolute
// and without links at once: a program that changes its folder keeps its journal. A forked child
// closes its copy. Calls are made by one thread at a time; forks may come from others.
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
    Instant gone;  ///< From when on its number is not kept.
    bool operator==(const JournaledPeriod&) const = default;
};

struct JournaledAdd {
    std::uint64_t writer;
    std::uint64_t sequence;
    std::int64_t n;
    std::int64_t accepted_us;  ///< Unix time by this machine's clock.
    std::int64_t server_ms;    ///< Unix time by Redis' clock; 0 if nobody knew it.
    std::int64_t max_age_ms;   ///< Of its queue: Redis remembers its writer for little longer.
    std::int64_t ttl_ms;       ///< 0: the key does not expire, or is a period's.
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
    /// Opens or creates the file and takes it. `waiting` gets what was not settled: the writers as
    /// they stand in the file, the adds of each by sequence. Adds may stand there in another order,
    /// because a caller with a short deadline is answered before one who came earlier.
    static Result<std::unique_ptr<RetryJournal>> open(const std::string& path, Fsync fsync,
                                                      std::vector<JournaledAdd>& waiting);
    ~RetryJournal();

    /// Appends; when it returns without an error they are there as Fsync says. After an error none
    /// of them is.
    Result<void> append(std::span<const JournaledAdd> adds);
    /// `live`: what still waits after this, for when the file is written anew; asked only then.
    void settle(std::span<const AddId> ids, const std::function<std::vector<JournaledAdd>()>& live);
    /// Fsync::interval: when bytes wait for the disk, forces them there.
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
    std::size_t written_{0};  // Those, and the settled that take room in the file.
    bool unsynced_{false};
    bool broken_{false};  // Nobody knows what is on the disk: no add is taken any more.
};

}  // namespace hotcount

// The journal of a RetryQueue: a file of adds that wait. Adds are appended; what became of them is
// appended too; when much of the file is settled it is written anew.
//
//   header   "hotcount retries" (16 bytes), version (4), crc32c of the 20 bytes before (4)
//   frame    length of the body (4), crc32c of the body (4), body
//   body     kind (1): 1 = adds, 2 = settled; then its items
//   add      writer (8), sequence (8), amount (8), accepted in unix microseconds (8), ttl in
//            milliseconds or 0 (8), length of the key (2), the key in full
//   settled  writer (8), sequence (8)
// Numbers are little-endian. One append is one frame: it is there as a whole or not at all.
//
// A frame at the end that is incomplete or does not fit its checksum is the rest of a write that was
// cut off; open() cuts it away. The same with a good frame behind it is damage, and an error that names
// file and offset. Settled frames are not forced to the disk: an add that is replayed although it was
// settled is known to the script.
//
// One process owns the file, by flock on a file beside it ("PATH.lock", because the journal itself is
// replaced). A forked child closes its copy. Calls are made by one thread at a time; forks may come
// from others.
#pragma once

#include <cstdint>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/retry_queue.hpp>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

/// CRC-32C (Castagnoli).
std::uint32_t crc32c(std::string_view bytes);

struct JournaledAdd {
    std::uint64_t writer;
    std::uint64_t sequence;
    std::int64_t n;
    std::int64_t accepted_us;  ///< Unix time.
    std::int64_t ttl_ms;       ///< 0: the key does not expire.
    std::string key;
    bool operator==(const JournaledAdd&) const = default;
};

struct AddId {
    std::uint64_t writer;
    std::uint64_t sequence;
};

class RetryJournal final : public ForkAware {
  public:
    /// Opens or creates the file and takes it. `waiting` gets what was not settled, in order.
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
    std::size_t live_{0};
    bool unsynced_{false};
    bool broken_{false};  // Nobody knows what is on the disk: no add is taken any more.
};

}  // namespace hotcount

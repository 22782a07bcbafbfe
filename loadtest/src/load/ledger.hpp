// The record of each attempted operation, in a file that survives kill -9 of the generator.
//
//   ledger.bin   Header, 4096 bytes | Record 0 | Record 1 | ...           64 bytes each
//
// The file is mapped: a store is in the page cache at once, and the kernel keeps that when the
// process is killed (not when the machine loses power). `sent` is stored before the call and the
// answer after it returned, so a kill at any instant leaves a record that claims no more than what
// was known: an operation still `sent` may or may not have been applied.
//
// A record also says what the caller was told beside the outcome, for an audit of answers. The
// version of the format is 2; the first one had no more of that than a limiter's or an upsert's answer, and
// is refused.
//
// The file is sparse: it costs what was written. Little-endian, as the machines it runs on.
//
// A record is written by the planner first, then by the one worker that claimed it. Any process
// may read. Each record is one cache line, so workers do not slow each other down.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>
#include <string_view>

#include "workload.hpp"

namespace hotcount::loadtest {

enum class Status : std::uint32_t {
    empty = 0,    ///< Never planned; or of a part of a fleet that is missing: sent or not.
    planned = 1,  ///< Not sent. In the open loop this is a slot that no worker served.
    sent = 2,     ///< Sent; the process died before it knew the answer.
    ok = 3,       ///< Acknowledged.
    failed = 4,   ///< Refused: nothing was applied.
    unknown = 5,  ///< Sent, no answer: applied or not.
};

/// The contents of an answer, as bits of Answer::said and LedgerRecord::said.
namespace said {
/// `returned` is a read's count or value, or the value after an add.
inline constexpr std::uint8_t kNumber = 1;
/// `returned` is the user's vote before a cast, and `now` the one after it.
inline constexpr std::uint8_t kCast = 2;
inline constexpr std::uint8_t kChanged = 4;  ///< The cast: it changed the vote.
inline constexpr std::uint8_t kCounted = 8;  ///< The cast: the user's vote counts now.
inline constexpr std::uint8_t kExact = 16;   ///< The read: what it says is no copy.
}  // namespace said

struct LedgerRecord {
    /// The number in the answer to an acknowledged operation: as `said` describes it, for a limiter
    /// 1 (admitted) or 0, for a sorted set an Upsert.
    std::int64_t returned;
    std::int64_t item;
    std::int64_t user;   ///< 0 for a read.
    std::int32_t value;  ///< vote: 1, or its number; unvote: 0, or -1 to a counter; read: 0.
    OperationKind kind;
    bool resent;
    std::uint8_t error;        ///< Why it failed: ErrorCode + 1; 0 if it did not.
    std::uint8_t said;         ///< Bits of namespace said.
    std::int64_t intended_ns;  ///< These three from the start of the run; closed loop: 0.
    std::int64_t sent_ns;
    std::int64_t done_ns;
    std::uint32_t status;  ///< A Status; written last at each step.
    std::int32_t now;      ///< A cast: the user's vote after it.

    Status load_status() const {
        return static_cast<Status>(
            std::atomic_ref(const_cast<std::uint32_t&>(status)).load(std::memory_order_acquire));
    }
    void store_status(Status next) {
        std::atomic_ref(status).store(static_cast<std::uint32_t>(next), std::memory_order_release);
    }
};
static_assert(sizeof(LedgerRecord) == 64);

struct LedgerHeader {
    static constexpr char kMagic[8] = {'h', 'c', 'l', 'e', 'd', 'g', 'e', 'r'};
    static constexpr std::uint32_t kVersion = 2;

    char magic[8];
    std::uint32_t version;
    std::uint32_t record_bytes;
    std::uint64_t capacity;  ///< Records that fit in.
    std::uint64_t seed;
    std::uint64_t planned;    ///< Records 0 .. planned - 1 are filled in.
    std::int64_t started_ns;  ///< When the run began, on the machine's monotonic clock.
};

class Ledger {
  public:
    static constexpr std::size_t kHeaderBytes = 4096;

    /// Makes a new file; refuses one that exists.
    static Result<std::unique_ptr<Ledger>> create(const std::filesystem::path& path,
                                                  std::uint64_t capacity, std::uint64_t seed);
    /// Opens an existing one for reading. A file that is no ledger, of another version, or cut
    /// short is an error that says so.
    static Result<std::unique_ptr<Ledger>> open(const std::filesystem::path& path);
    ~Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    std::uint64_t capacity() const { return header_->capacity; }
    std::uint64_t seed() const { return header_->seed; }
    std::uint64_t planned() const {
        return std::atomic_ref(header_->planned).load(std::memory_order_acquire);
    }
    void set_planned(std::uint64_t planned) {
        std::atomic_ref(header_->planned).store(planned, std::memory_order_release);
    }
    /// The zero of the records' times.
    std::int64_t started_ns() const { return header_->started_ns; }
    void set_started_ns(std::int64_t started_ns) { header_->started_ns = started_ns; }
    LedgerRecord& operator[](std::uint64_t index) { return records_[index]; }
    const LedgerRecord& operator[](std::uint64_t index) const { return records_[index]; }

    /// Takes disk space for the records below `until`, ahead of their use: on a full disk a store
    /// into the mapping would kill the process, this returns an error.
    Result<void> reserve(std::uint64_t until);
    /// Cuts the file to the records planned. No thread may write to the ledger after this.
    Result<void> finish();

  private:
    Ledger(int file, void* mapping, std::size_t mapped_bytes, std::filesystem::path path);

    int file_;
    void* mapping_;
    std::size_t mapped_bytes_;
    std::filesystem::path path_;
    LedgerHeader* header_;
    LedgerRecord* records_;
    std::uint64_t reserved_{0};
};

}  // namespace hotcount::loadtest

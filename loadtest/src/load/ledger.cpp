#include "ledger.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "run_folder.hpp"

namespace hotcount::loadtest {
namespace {

// Space is reserved in steps of 16 MB, rare enough to cost nothing per operation.
constexpr std::uint64_t kReserveStep = 16 * 1024 * 1024 / sizeof(LedgerRecord);

std::size_t bytes_for(std::uint64_t records) {
    return Ledger::kHeaderBytes + static_cast<std::size_t>(records) * sizeof(LedgerRecord);
}

Error system_error(const std::filesystem::path& path, std::string_view what, int error) {
    const ErrorCode code = error == EACCES || error == EPERM || error == EROFS
                               ? ErrorCode::permission_denied
                           : is_full(error) || error == ENOMEM ? ErrorCode::capacity
                                                               : ErrorCode::config;
    return make_error(code,
                      fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

}  // namespace

Ledger::Ledger(int file, void* mapping, std::size_t mapped_bytes, std::filesystem::path path)
    : file_(file),
      mapping_(mapping),
      mapped_bytes_(mapped_bytes),
      path_(std::move(path)),
      header_(static_cast<LedgerHeader*>(mapping)),
      records_(reinterpret_cast<LedgerRecord*>(static_cast<char*>(mapping) + kHeaderBytes)) {}

Ledger::~Ledger() {
    munmap(mapping_, mapped_bytes_);
    close(file_);
}

Result<std::unique_ptr<Ledger>> Ledger::create(const std::filesystem::path& path,
                                               std::uint64_t capacity, std::uint64_t seed) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return system_error(path, "create", errno);
    const std::size_t bytes = bytes_for(capacity);
    void* mapping = MAP_FAILED;
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
        mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (mapping == MAP_FAILED) {
        const int error = errno;
        close(file);
        return system_error(path, "map", error);
    }
    std::unique_ptr<Ledger> ledger(new Ledger(file, mapping, bytes, path));
    HOTCOUNT_TRY(ledger->reserve(1));
    LedgerHeader& header = *ledger->header_;
    header.version = LedgerHeader::kVersion;
    header.record_bytes = sizeof(LedgerRecord);
    header.capacity = capacity;
    header.seed = seed;
    header.planned = 0;
    // The magic word is written last: a file that has it has a complete header.
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(header.magic, LedgerHeader::kMagic, sizeof(header.magic));
    return ledger;
}

Result<std::unique_ptr<Ledger>> Ledger::open(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return system_error(path, "open", errno);
    struct stat facts {};
    void* mapping = MAP_FAILED;
    std::size_t bytes = 0;
    if (fstat(file, &facts) == 0 && static_cast<std::size_t>(facts.st_size) >= kHeaderBytes) {
        bytes = static_cast<std::size_t>(facts.st_size);
        mapping = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    } else {
        close(file);
        return make_error(
            ErrorCode::config,
            fmt::format("{} is no ledger: it is shorter than a header", path.string()));
    }
    if (mapping == MAP_FAILED) {
        const int error = errno;
        close(file);
        return system_error(path, "map", error);
    }
    std::unique_ptr<Ledger> ledger(new Ledger(file, mapping, bytes, path));
    const LedgerHeader& header = *ledger->header_;
    const auto refuse = [&](std::string why) {
        return make_error(ErrorCode::config,
                          fmt::format("{} cannot be read: {}", path.string(), why));
    };
    if (std::memcmp(header.magic, LedgerHeader::kMagic, sizeof(header.magic)) != 0) {
        return refuse("it does not begin as a ledger does");
    }
    if (header.version < LedgerHeader::kVersion) {
        return refuse(
            fmt::format("it has version {}, which does not say what callers were told; hotcount at "
                        "commit 866ef8f1 is the last that reads it",
                        header.version));
    }
    if (header.version != LedgerHeader::kVersion || header.record_bytes != sizeof(LedgerRecord)) {
        return refuse(fmt::format(
            "it has version {} with {} bytes a record, this program knows {} "
            "with {}",
            header.version, header.record_bytes, LedgerHeader::kVersion, sizeof(LedgerRecord)));
    }
    if (header.planned > header.capacity || bytes_for(header.planned) > bytes) {
        return refuse(fmt::format("it speaks of {} records and ends before them", header.planned));
    }
    return ledger;
}

Result<void> Ledger::reserve(std::uint64_t until) {
    const std::uint64_t mapped = (mapped_bytes_ - kHeaderBytes) / sizeof(LedgerRecord);
    const std::uint64_t wanted = std::min(until, mapped);
    if (wanted <= reserved_) return {};
    const std::uint64_t target = std::min(mapped, (wanted / kReserveStep + 1) * kReserveStep);
    const int failed = fallocate(file_, 0, 0, static_cast<off_t>(bytes_for(target)));
    // If the file system cannot reserve space, each write takes it.
    if (failed != 0 && errno != EOPNOTSUPP) return system_error(path_, "extend", errno);
    reserved_ = target;
    return {};
}

Result<void> Ledger::finish() {
    if (ftruncate(file_, static_cast<off_t>(bytes_for(planned()))) != 0) {
        return system_error(path_, "cut", errno);
    }
    return {};
}

}  // namespace hotcount::loadtest

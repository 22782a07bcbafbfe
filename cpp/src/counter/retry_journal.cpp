#include "retry_journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <map>
#include <unordered_map>
#include <utility>

namespace hotcount {
namespace {

constexpr std::string_view kMagic{"hotcount retries"};
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kRemovedVersion = 2;
constexpr std::size_t kHeader = 24;
constexpr std::size_t kFrameHead = 8;
// Longest body: adds are appended in portions of at most this, so a length beyond it is no length.
constexpr std::size_t kMostBody = std::size_t{1} << 20;
constexpr std::size_t kAddBytes = 58;
constexpr std::size_t kAddInPeriodBytes = 66;
constexpr std::size_t kSettledBytes = 16;
enum Kind : char { kAdds = 1, kSettled = 2, kAddsInPeriods = 3 };
// The file is rewritten when it is larger than this and at least half of its adds are settled.
constexpr std::uint64_t kCompactFrom = std::uint64_t{1} << 20;

template <class Number>
void put(std::string& bytes, Number number) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
        bytes += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xFFU);
    }
}

template <class Number>
Number get(std::string_view bytes, std::size_t at) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
        number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    }
    return static_cast<Number>(number);
}

std::string header() {
    std::string bytes{kMagic};
    put(bytes, kVersion);
    put(bytes, crc32c(bytes));
    return bytes;
}

void put_frame(std::string& bytes, std::string_view body) {
    put(bytes, static_cast<std::uint32_t>(body.size()));
    put(bytes, crc32c(body));
    bytes += body;
}

std::int64_t unix_seconds(Instant at) { return at.time_since_epoch().count(); }

std::string frames_of(std::span<const JournaledAdd> adds) {
    std::string bytes;
    std::string body;
    const auto kind = [&](std::size_t i) { return adds[i].period ? kAddsInPeriods : kAdds; };
    for (std::size_t i = 0; i < adds.size(); ++i) {
        if (body.empty()) body += static_cast<char>(kind(i));
        const JournaledAdd& add = adds[i];
        put(body, add.writer);
        put(body, add.sequence);
        put(body, add.n);
        put(body, add.accepted_us);
        put(body, add.server_ms);
        put(body, add.max_age_ms);
        if (add.period) {
            put(body, unix_seconds(add.period->begins));
            put(body, unix_seconds(add.period->gone));
        } else {
            put(body, add.ttl_ms);
        }
        put(body, static_cast<std::uint16_t>(add.key.size()));
        body += add.key;
        if (i + 1 == adds.size() || kind(i + 1) != kind(i) || body.size() > kMostBody / 2) {
            put_frame(bytes, std::exchange(body, {}));
        }
    }
    return bytes;
}

Instant instant(std::int64_t unix_seconds) { return Instant{std::chrono::seconds{unix_seconds}}; }

std::optional<std::vector<JournaledAdd>> adds_of(std::string_view body) {
    const bool in_periods = body.front() == kAddsInPeriods;
    const std::size_t fixed = in_periods ? kAddInPeriodBytes : kAddBytes;
    std::vector<JournaledAdd> adds;
    for (std::size_t at = 1; at < body.size();) {
        if (body.size() - at < fixed) return std::nullopt;
        const std::size_t length = get<std::uint16_t>(body, at + fixed - 2);
        if (body.size() - at - fixed < length) return std::nullopt;
        const auto last = get<std::int64_t>(body, at + 48);
        std::optional<JournaledPeriod> period;
        if (in_periods) period = {instant(last), instant(get<std::int64_t>(body, at + 56))};
        adds.push_back({.writer = get<std::uint64_t>(body, at),
                        .sequence = get<std::uint64_t>(body, at + 8),
                        .n = get<std::int64_t>(body, at + 16),
                        .accepted_us = get<std::int64_t>(body, at + 24),
                        .server_ms = get<std::int64_t>(body, at + 32),
                        .max_age_ms = get<std::int64_t>(body, at + 40),
                        .ttl_ms = in_periods ? 0 : last,
                        .period = period,
                        .key = std::string{body.substr(at + fixed, length)}});
        at += fixed + length;
    }
    return adds;
}

// The body of the frame at `at`. Null if the frame is incomplete or damaged.
std::optional<std::string_view> frame_at(std::string_view bytes, std::size_t at) {
    if (bytes.size() - at < kFrameHead) return std::nullopt;
    const std::size_t length = get<std::uint32_t>(bytes, at);
    if (length == 0 || length > kMostBody || bytes.size() - at - kFrameHead < length) {
        return std::nullopt;
    }
    const char kind = bytes[at + kFrameHead];
    if (kind != kAdds && kind != kSettled && kind != kAddsInPeriods) return std::nullopt;
    const std::string_view body = bytes.substr(at + kFrameHead, length);
    if (crc32c(body) != get<std::uint32_t>(bytes, at + 4)) return std::nullopt;
    return body;
}

bool write_all(int file, std::string_view bytes, std::uint64_t at) {
    while (!bytes.empty()) {
        const ssize_t wrote = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            if (wrote == 0) errno = ENOSPC;
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(wrote));
        at += static_cast<std::uint64_t>(wrote);
    }
    return true;
}

std::optional<std::string> read_all(int file) {
    std::string bytes;
    std::array<char, 65536> part{};
    while (true) {
        const ssize_t size =
            ::pread(file, part.data(), part.size(), static_cast<off_t>(bytes.size()));
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return std::nullopt;
        if (size == 0) return bytes;
        bytes.append(part.data(), static_cast<std::size_t>(size));
    }
}

void close_file(int& file) {
    if (file >= 0) ::close(std::exchange(file, -1));
}

// Forces the entry of a new or renamed file to the disk.
bool sync_folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return false;
    const bool done = ::fsync(opened) == 0;
    close_file(opened);
    return done;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    static const auto kTable = [] {
        std::array<std::uint32_t, 256> table{};
        for (std::uint32_t i = 0; i < table.size(); ++i) {
            std::uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) {
                value = value >> 1 ^ ((value & 1U) != 0 ? 0x82F63B78U : 0U);
            }
            table[i] = value;
        }
        return table;
    }();
    std::uint32_t sum = ~0U;
    for (const char byte : bytes) {
        sum = sum >> 8 ^ kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xFFU];
    }
    return ~sum;
}

Error RetryJournal::failed(std::string_view what, int number) const {
    ErrorCode code = ErrorCode::unavailable;
    if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = ErrorCode::capacity;
    if (number == EACCES || number == EPERM || number == EROFS) code = ErrorCode::permission_denied;
    return make_error(
        code, "the journal " + path_ + ": " + std::string{what} + ": " + std::strerror(number));
}

Error RetryJournal::damaged(std::uint64_t offset) const {
    return bad_option("path",
                      path_ + " is damaged at byte " + std::to_string(offset) +
                          ", and good adds follow: nothing of it was taken. Restore the "
                          "file, or move it away to begin without what waits in it",
                      path_);
}

Result<std::unique_ptr<RetryJournal>> RetryJournal::open(const std::string& path, Fsync fsync,
                                                         std::vector<JournaledAdd>& waiting) {
    std::error_code why;
    auto resolved = std::filesystem::absolute(path, why);
    if (!why) resolved = std::filesystem::weakly_canonical(resolved, why);
    if (why) return bad_option("path", path + ": " + why.message(), path);
    std::unique_ptr<RetryJournal> journal{new RetryJournal(resolved.string(), fsync)};
    journal->start_watching_forks();
    HOTCOUNT_TRY(journal->take());
    HOTCOUNT_TRY(journal->load(waiting));
    return journal;
}

RetryJournal::~RetryJournal() {
    stop_watching_forks();
    if (unsynced_ && fsync_ != Fsync::off && file_ >= 0) (void)::fdatasync(file_);
    close_file(file_);
    close_file(lock_);
}

void RetryJournal::before_fork() { mutex_.lock(); }
void RetryJournal::after_fork(bool in_child) {
    if (in_child) {  // The parent keeps the lock, which its own descriptor holds.
        close_file(file_);
        close_file(lock_);
    }
    mutex_.unlock();
}

Result<void> RetryJournal::take() {
    const std::lock_guard guard(mutex_);
    const std::string beside = path_ + ".lock";
    lock_ = ::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_ < 0) return failed("open " + beside, errno);
    HOTCOUNT_TRY(lock(lock_, beside));
    const std::string pid = std::to_string(::getpid());
    if (::ftruncate(lock_, 0) != 0 || !write_all(lock_, pid, 0)) {
        return failed("write " + beside, errno);
    }
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ < 0) return failed("open", errno);
    struct stat about {};
    if (::fstat(file_, &about) != 0) return failed("fstat", errno);
    if (!S_ISREG(about.st_mode)) return bad_option("path", path_ + " is no regular file", path_);
    return lock(file_, path_);
}

// Refuses a file that another counter has locked, and names the process of that counter.
Result<void> RetryJournal::lock(int file, std::string_view name) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return failed("flock of " + std::string{name}, errno);
    std::array<char, 32> text{};
    const ssize_t size = file == lock_ ? ::pread(lock_, text.data(), text.size() - 1, 0) : 0;
    return bad_option("path",
                      path_ + " is the journal of another counter that is open, of the process " +
                          (size > 0 ? std::string{text.data()} : std::string{"?"}) +
                          ": each process needs a path of its own",
                      path_);
}

Result<void> RetryJournal::load(std::vector<JournaledAdd>& waiting) {
    const std::unique_lock guard(mutex_);
    const auto read = read_all(file_);
    if (!read) return failed("read", errno);
    const std::string_view bytes = *read;
    const std::string first = header();
    if (bytes.size() < kHeader) {
        // Its creation was cut off, if it is the beginning of a header.
        if (!first.starts_with(bytes)) {
            return bad_option("path", path_ + " is no journal of a RetryQueue", path_);
        }
        if (!write_all(file_, first, 0)) return failed("write", errno);
        if (::fdatasync(file_) != 0 || !sync_folder_of(path_)) return failed("fsync", errno);
        size_ = kHeader;
        return {};
    }
    if (bytes.substr(0, kMagic.size()) != kMagic) {
        return bad_option("path", path_ + " is no journal of a RetryQueue", path_);
    }
    if (crc32c(bytes.substr(0, kHeader - 4)) != get<std::uint32_t>(bytes, kHeader - 4)) {
        return bad_option("path",
                          path_ +
                              " is damaged at byte 0: its header does not fit its "
                              "checksum",
                          path_);
    }
    const auto version = get<std::uint32_t>(bytes, kMagic.size());
    if (version != kVersion) {
        std::string why = path_ + " is a journal of version " + std::to_string(version) +
                          ", and this hotcount reads version " + std::to_string(kVersion);
        if (version == kRemovedVersion) why += "; " + std::string{kLastReader};
        return bad_option("path", why, path_);
    }
    // By writer and sequence, in the order of the file.
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> places;
    std::vector<std::optional<JournaledAdd>> found;
    std::size_t at = kHeader;
    while (at < bytes.size()) {
        const auto body = frame_at(bytes, at);
        if (!body) {
            for (std::size_t next = at + 1; next + kFrameHead < bytes.size(); ++next) {
                if (frame_at(bytes, next)) return damaged(at);
            }
            if (::ftruncate(file_, static_cast<off_t>(at)) != 0) return failed("truncate", errno);
            break;
        }
        if (body->front() != kSettled) {
            auto adds = adds_of(*body);
            if (!adds) return damaged(at);
            for (JournaledAdd& add : *adds) {
                places[{add.writer, add.sequence}] = found.size();
                found.emplace_back(std::move(add));
            }
        } else {
            if ((body->size() - 1) % kSettledBytes != 0) return damaged(at);
            for (std::size_t i = 1; i < body->size(); i += kSettledBytes) {
                const auto place =
                    places.find({get<std::uint64_t>(*body, i), get<std::uint64_t>(*body, i + 8)});
                if (place != places.end()) found[place->second].reset();
            }
        }
        at += kFrameHead + body->size();
    }
    size_ = std::min<std::uint64_t>(at, bytes.size());
    std::unordered_map<std::uint64_t, std::size_t> ranks;
    for (auto& add : found) {
        if (!add) continue;
        ranks.try_emplace(add->writer, ranks.size());
        waiting.push_back(std::move(*add));
    }
    std::stable_sort(waiting.begin(), waiting.end(),
                     [&](const JournaledAdd& a, const JournaledAdd& b) {
                         return std::pair{ranks.at(a.writer), a.sequence} <
                                std::pair{ranks.at(b.writer), b.sequence};
                     });
    live_ = waiting.size();
    written_ = found.size();
    return {};
}

Result<void> RetryJournal::force() {
    if (::fdatasync(file_) == 0) {
        unsynced_ = false;
        return {};
    }
    // The kernel may have dropped the pages that it could not write: only a new file is good.
    const int why = errno;
    broken_ = true;
    return failed("fdatasync", why);
}

Result<void> RetryJournal::write_at_end(std::string_view bytes) {
    if (file_ < 0) return failed("it is closed", EBADF);
    if (!write_all(file_, bytes, size_)) {
        const int why = errno;
        if (::ftruncate(file_, static_cast<off_t>(size_)) != 0) broken_ = true;
        return failed("write", why);
    }
    return {};
}

Result<void> RetryJournal::append(std::span<const JournaledAdd> adds) {
    const std::lock_guard guard(mutex_);
    if (broken_) {
        return make_error(ErrorCode::unavailable,
                          "the journal " + path_ + " failed before and takes no more adds");
    }
    const std::string bytes = frames_of(adds);
    HOTCOUNT_TRY(write_at_end(bytes));
    if (fsync_ == Fsync::always) {
        if (auto forced = force(); !forced) {
            if (::ftruncate(file_, static_cast<off_t>(size_)) != 0) broken_ = true;
            return forced;
        }
    } else {
        unsynced_ = true;
    }
    size_ += bytes.size();
    live_ += adds.size();
    written_ += adds.size();
    return {};
}

void RetryJournal::sync() {
    const std::lock_guard guard(mutex_);
    if (unsynced_ && !broken_ && file_ >= 0) (void)force();
}

// A failure here loses no add: the script recognizes a settled add that is replayed.
void RetryJournal::settle(std::span<const AddId> ids,
                          const std::function<std::vector<JournaledAdd>()>& live) {
    const std::lock_guard guard(mutex_);
    if (file_ < 0) return;
    live_ -= std::min(live_, ids.size());
    if (live_ == 0) {
        if (::ftruncate(file_, kHeader) == 0) {
            size_ = kHeader;
            written_ = 0;
            return;
        }
    }
    std::string bytes;
    for (std::size_t at = 0; at < ids.size();) {
        std::string body{static_cast<char>(kSettled)};
        for (; at < ids.size() && body.size() < kMostBody / 2; ++at) {
            put(body, ids[at].writer);
            put(body, ids[at].sequence);
        }
        put_frame(bytes, body);
    }
    if (write_at_end(bytes)) size_ += bytes.size();
    if (size_ < kCompactFrom || live_ > written_ / 2) return;
    // If write_new() fails, the next try comes when half of these adds are settled: a try at each
    // call would cost a long queue time in the square of its length.
    written_ = live_;
    (void)write_new(live());
}

// Writes a new file beside the old one and renames it: a crash leaves one of the two.
Result<void> RetryJournal::write_new(std::span<const JournaledAdd> adds) {
    const std::string beside = path_ + ".new";
    int fresh = ::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fresh < 0) return failed("open " + beside, errno);
    const std::string bytes = header() + frames_of(adds);
    if (!write_all(fresh, bytes, 0) || ::fdatasync(fresh) != 0 ||
        ::flock(fresh, LOCK_EX | LOCK_NB) != 0 || ::rename(beside.c_str(), path_.c_str()) != 0) {
        const int why = errno;
        close_file(fresh);
        (void)::unlink(beside.c_str());
        return failed("write " + beside, why);
    }
    (void)sync_folder_of(path_);
    close_file(file_);
    file_ = fresh;
    size_ = bytes.size();
    live_ = written_ = adds.size();
    unsynced_ = broken_ = false;
    return {};
}

}  // namespace hotcount

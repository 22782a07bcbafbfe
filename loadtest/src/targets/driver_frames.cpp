#include "driver_frames.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace hotcount::loadtest {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kReceiveRoom = 64 * 1024;

/// Whether there is something to read before `until`.
bool wait_readable(int socket, SteadyTime until) {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        pollfd look{socket, POLLIN, 0};
        const int ready = poll(&look, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

}  // namespace

FrameWriter::FrameWriter(FrameType type) : bytes_(kLengthBytes, '\0') {
    put(static_cast<std::uint8_t>(type));
}

std::string FrameWriter::finish() {
    const auto length = static_cast<std::uint32_t>(bytes_.size() - kLengthBytes);
    std::memcpy(bytes_.data(), &length, sizeof(length));
    return std::move(bytes_);
}

void FrameReader::take_bytes(void* to, std::size_t size) {
    if (rest_.size() < size) {
        bad_ = true;
        return;
    }
    std::memcpy(to, rest_.data(), size);
    rest_.remove_prefix(size);
}

std::string FrameReader::take_text() {
    const auto length = take<std::uint16_t>();
    if (rest_.size() < length) bad_ = true;
    std::string text{rest_.substr(0, length)};
    rest_.remove_prefix(text.size());
    return text;
}

Result<std::optional<Frame>> FrameSource::cut() {
    const std::size_t size = end_ - begin_;
    if (size < kLengthBytes) return std::optional<Frame>{};
    std::uint32_t length = 0;
    std::memcpy(&length, buffer_.data() + begin_, sizeof(length));
    if (length == 0 || length > kMostFrame) {
        return make_error(ErrorCode::reply,
                          fmt::format("it announced a frame of {} bytes; a frame has 1 to {}",
                                      length, kMostFrame));
    }
    if (size < kLengthBytes + length) return std::optional<Frame>{};
    const char* const start = buffer_.data() + begin_ + kLengthBytes;
    Frame frame{static_cast<FrameType>(static_cast<std::uint8_t>(*start)),
                std::string{start + 1, length - 1}};
    begin_ += kLengthBytes + length;
    return std::optional{std::move(frame)};
}

Result<std::optional<Frame>> FrameSource::next(std::optional<SteadyTime> until) {
    for (;;) {
        HOTCOUNT_TRY_ASSIGN(auto frame, cut());
        if (frame) return frame;
        std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
        end_ -= std::exchange(begin_, 0);
        if (until && !wait_readable(socket_, *until)) {
            return make_error(ErrorCode::deadline, "it did not answer in time");
        }
        // Kept at its length: to fill it with zeros for each answer would cost more than the answer.
        buffer_.resize(std::max(buffer_.size(), end_ + kReceiveRoom));
        ssize_t received = 0;
        do {
            received = recv(socket_, buffer_.data() + end_, buffer_.size() - end_, 0);
        } while (received < 0 && errno == EINTR);
        end_ += static_cast<std::size_t>(std::max<ssize_t>(0, received));
        if (received > 0) continue;
        if (end_ == 0) return std::optional<Frame>{};
        return make_error(ErrorCode::reply, "it closed its connection in the middle of a frame");
    }
}

}  // namespace hotcount::loadtest

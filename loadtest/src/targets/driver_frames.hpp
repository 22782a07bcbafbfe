// The frames that the generator and a user's program exchange. docs/reference/load-protocol.md
// describes them for authors of such programs.
//
//   frame   u32 length of what follows | u8 type | body          all numbers little-endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hotcount::loadtest {

inline constexpr std::uint32_t kDriverProtocol = 1;
inline constexpr std::uint32_t kMostFrame = 1 << 20;

enum class FrameType : std::uint8_t {
    // To the program.
    set_up = 1,  ///< u8 fresh | u64 items | u64 timeout in ns
    cast = 2,    ///< u64 id | i64 item | i64 user | i64 value
    read = 3,    ///< u64 id | i64 item
    rows = 4,    ///< i64 first item | i64 last item
    counts = 5,  ///< as rows
    bye = 6,
    // From the program.
    hello = 129,       ///< u32 version | u32 connections | u32 in flight | u8 control
    ready = 130,       ///< u8 1: durable, 2: exact | 3 texts, each u16 length and UTF-8
    answer = 131,      ///< u64 id | u8 outcome | u8 told | i64 value | i64 previous
    row_page = 132,    ///< u8 last | any number of i64 item, i64 user, i64 value
    count_page = 133,  ///< u8 last | any number of i64 item, i64 count
    error = 134,       ///< UTF-8: instead of ready, row_page or count_page
};

struct Frame {
    FrameType type;
    std::string body{};
};

/// Writes a frame's body, number by number.
class FrameWriter {
  public:
    explicit FrameWriter(FrameType type);
    template <class Number>
    FrameWriter& put(Number number) {
        bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
        return *this;
    }
    /// The whole frame.
    std::string finish();

  private:
    std::string bytes_;
};

/// Reads a frame's body. A read past its end makes it bad and gives 0.
class FrameReader {
  public:
    explicit FrameReader(std::string_view body) : rest_(body) {}
    template <class Number>
    Number take() {
        Number number{};
        take_bytes(&number, sizeof(number));
        return number;
    }
    std::string take_text();
    std::size_t left() const { return rest_.size(); }
    /// Whether all of it was read, and there was nothing missing.
    bool complete() const { return !bad_ && rest_.empty(); }

  private:
    void take_bytes(void* to, std::size_t size);

    std::string_view rest_;
    bool bad_{false};
};

/// The frames that come in on a socket. One thread at a time.
class FrameSource {
  public:
    explicit FrameSource(int socket) : socket_(socket) {}
    /// The next frame; none at the end. `until`: unavailable once it is later; none: waits.
    Result<std::optional<Frame>> next(std::optional<SteadyTime> until);

  private:
    Result<std::optional<Frame>> cut();

    int socket_;
    std::string buffer_{};  // As long as it ever had to be.
    std::size_t begin_{0};  // The bytes that were received and not cut yet begin here,
    std::size_t end_{0};    // and end here.
};

}  // namespace hotcount::loadtest

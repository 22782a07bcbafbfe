#include "trial.hpp"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/histogram.hpp"

namespace hotcount::loadtest {
namespace {

// -- histograms as HdrHistogram's tools read them: payloads of version V2 ---------------------------

// The low byte 0x13 or 0x14 says V2 as the tools write it.
constexpr std::uint32_t kPlainCookie = 0x1c849313;
constexpr std::uint32_t kCompressedCookie = 0x1c849314;

template <class Number>
void append(std::string& to, Number number) {
    for (int shift = 8 * (static_cast<int>(sizeof number) - 1); shift >= 0; shift -= 8) {
        to.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> shift));
    }
}

// ZigZag, then seven bits a byte; a ninth byte has eight.
void append_packed(std::string& to, std::int64_t number) {
    auto rest =
        (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
    for (int byte = 0; byte < 8; ++byte) {
        if (rest < 0x80) {
            to.push_back(static_cast<char>(rest));
            return;
        }
        to.push_back(static_cast<char>((rest & 0x7f) | 0x80));
        rest >>= 7;
    }
    to.push_back(static_cast<char>(rest));
}

std::string pack_counts(const Histogram& histogram) {
    std::string counts;
    std::int64_t zeros = 0;
    const std::size_t last = Histogram::cell_of(histogram.max());
    for (std::size_t cell = 0; cell <= last; ++cell) {
        const std::uint64_t count = histogram.count_in(cell);
        if (count == 0) {
            ++zeros;
            continue;
        }
        if (zeros > 0) append_packed(counts, -zeros);
        zeros = 0;
        append_packed(counts, static_cast<std::int64_t>(count));
    }
    return counts;
}

std::string compressed(const std::string& plain) {
    uLongf size = compressBound(static_cast<uLong>(plain.size()));
    std::string packed(size, '\0');
    // compress() fails only for lack of memory: `packed` has the size that it asked for.
    if (compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                 reinterpret_cast<const Bytef*>(plain.data()),
                 static_cast<uLong>(plain.size())) != Z_OK) {
        throw std::bad_alloc();
    }
    packed.resize(size);
    return packed;
}

std::string base64(const std::string& bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t three = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            three = three << 8 |
                    (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
        }
        for (std::size_t i = 0; i < 4; ++i) {
            const bool beyond = at + i > bytes.size();
            text.push_back(beyond ? '=' : kDigits[three >> (18 - 6 * i) & 63]);
        }
    }
    return text;
}

// The payload: V2, compressed by zlib, as base64. Lossless, as both have the same cells: unit 1, three
// significant digits.
std::string encode_hdr(const Histogram& histogram) {
    const std::string counts = pack_counts(histogram);
    std::string plain;
    append(plain, kPlainCookie);
    append(plain, static_cast<std::uint32_t>(counts.size()));
    append(plain, std::uint32_t{0});  // The index is not moved.
    append(plain, std::uint32_t{3});  // Significant digits.
    append(plain, std::uint64_t{1});  // The least value that is told from 0.
    append(plain, static_cast<std::uint64_t>(Histogram::kLargest));
    append(plain, std::bit_cast<std::uint64_t>(1.0));  // Integers are the values themselves.
    plain += counts;
    const std::string packed = compressed(plain);
    std::string payload;
    append(payload, kCompressedCookie);
    append(payload, static_cast<std::uint32_t>(packed.size()));
    return base64(payload + packed);
}

// The first lines of a log whose values are nanoseconds. `started_s`: seconds since the epoch, from
// which its intervals count.
std::string hdr_head(double started_s) {
    return fmt::format(
        "#[Histogram log format version 1.3]\n"
        "#[Values are nanoseconds; Interval_Max is in milliseconds]\n"
        "#[StartTime: {:.3f} (seconds since epoch)]\n"
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
        "\"Interval_Compressed_Histogram\"\n",
        started_s);
}

// The line of one interval; `tag` has neither commas nor spaces. All times in seconds.
std::string hdr_line(std::string_view tag, double from_s, double length_s,
                     const Histogram& histogram) {
    return fmt::format("Tag={},{:.3f},{:.3f},{:.3f},{}\n", tag, from_s, length_s,
                       static_cast<double>(histogram.max()) * 1e-6, encode_hdr(histogram));
}

// -- the intervals ---------------------------------------------------------------------------------

// The kinds of answers: the columns of series.csv, and the tags of response.hlog.
enum Outcome : std::uint8_t { vote, unvote, read, failed, unknown, kOutcomes };
constexpr std::array<std::string_view, kOutcomes> kNames{"vote", "unvote", "read", "failed",
                                                         "unknown"};

struct Interval {
    // Made when there is something to record: a long run has many intervals.
    std::array<std::unique_ptr<Histogram>, kOutcomes> responses{};
    std::uint64_t unserved{0};
    std::int64_t waiting{
        0};  // How many more are due than are answered, against the interval before.

    void record(Outcome outcome, std::int64_t response_ns) {
        auto& responses_of = responses[outcome];
        if (!responses_of) responses_of = std::make_unique<Histogram>();
        responses_of->record(response_ns);
    }
};

Outcome outcome_of(const LedgerRecord& record) {
    if (record.load_status() == Status::failed) return failed;
    if (record.load_status() != Status::ok) return unknown;
    switch (record.kind) {
        case OperationKind::vote:
            return vote;
        case OperationKind::unvote:
            return unvote;
        case OperationKind::read:
            break;
    }
    return read;
}

// One edge is the end of the warm-up, so the first interval may be shorter than the others.
class Series {
  public:
    Series(const Ledger& ledger, bool open, Duration warmup) : open_(open) {
        std::int64_t last_ns = 0;
        for (std::uint64_t at = 0; at < ledger.planned(); ++at) {
            const LedgerRecord& record = ledger[at];
            last_ns = std::max({last_ns, record.done_ns, record.sent_ns});
        }
        while (last_ns / length_ns_ >= static_cast<std::int64_t>(kMostIntervals)) length_ns_ *= 2;
        first_ns_ = warmup.count() % length_ns_;
        if (first_ns_ == 0) first_ns_ = length_ns_;
        intervals_.resize(index_of(last_ns) + 1);
        for (std::uint64_t at = 0; at < ledger.planned(); ++at) take(ledger[at]);
    }

    /// Calls visit(interval, from_s, length_s) for each, in order.
    template <class Visit>
    void for_each(Visit visit) const {
        std::int64_t from_ns = 0;
        std::int64_t length_ns = first_ns_;
        for (const Interval& interval : intervals_) {
            visit(interval, static_cast<double>(from_ns) * 1e-9,
                  static_cast<double>(length_ns) * 1e-9);
            from_ns += length_ns;
            length_ns = length_ns_;
        }
    }

  private:
    std::size_t index_of(std::int64_t ns) const {
        return ns < first_ns_ ? 0 : static_cast<std::size_t>((ns - first_ns_) / length_ns_) + 1;
    }
    Interval& at(std::int64_t ns) {
        return intervals_[std::min(index_of(ns), intervals_.size() - 1)];
    }

    void take(const LedgerRecord& record) {
        const Status status = record.load_status();
        if (status == Status::empty) return;
        if (status == Status::planned) {
            // In the closed loop nothing is due before it is sent.
            if (open_) {
                ++at(record.intended_ns).unserved;
                ++at(record.intended_ns).waiting;
            }
            return;
        }
        const std::int64_t due_ns = open_ ? record.intended_ns : record.sent_ns;
        const bool answered = status != Status::sent;
        const std::int64_t ended_ns = answered ? record.done_ns : record.sent_ns;
        at(ended_ns).record(outcome_of(record), std::max<std::int64_t>(0, ended_ns - due_ns));
        ++at(due_ns).waiting;
        if (answered) --at(ended_ns).waiting;
    }

    bool open_;
    std::int64_t length_ns_{1'000'000'000};
    std::int64_t first_ns_{};
    std::vector<Interval> intervals_;
};

std::string csv_of(const Series& series, Duration warmup) {
    std::string text =
        "from_s,length_s,warmup,vote_ok,unvote_ok,read_ok,failed,unknown,unserved,p50_ms,p99_ms,"
        "max_ms,waiting\n";
    std::int64_t waiting = 0;
    const double warmup_s = std::chrono::duration<double>(warmup).count();
    series.for_each([&](const Interval& interval, double from_s, double length_s) {
        Histogram ok;
        std::array<std::uint64_t, kOutcomes> counts{};
        for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome) {
            const auto& responses = interval.responses[outcome];
            if (!responses) continue;
            counts[outcome] = responses->count();
            if (outcome < failed) ok.merge(*responses);
        }
        waiting += interval.waiting;
        const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-6; };
        text += fmt::format("{:.6g},{:.6g},{},{},{},{},{},{},{},{:.6g},{:.6g},{:.6g},{}\n", from_s,
                            length_s, from_s < warmup_s ? 1 : 0, counts[vote], counts[unvote],
                            counts[read], counts[failed], counts[unknown], interval.unserved,
                            ms(ok.value_at(0.5)), ms(ok.value_at(0.99)), ms(ok.max()), waiting);
    });
    return text;
}

std::string log_of(const Series& series, double started_s) {
    std::string text = hdr_head(started_s);
    series.for_each([&](const Interval& interval, double from_s, double length_s) {
        for (std::size_t outcome = 0; outcome < kOutcomes; ++outcome) {
            const auto& responses = interval.responses[outcome];
            if (responses) text += hdr_line(kNames[outcome], from_s, length_s, *responses);
        }
    });
    return text;
}

}  // namespace

Result<void> write_series(const Ledger& ledger, const TrialSettings& settings,
                          const std::filesystem::path& folder) {
    const Series series(ledger, settings.arrival != Arrival::closed, settings.warmup);
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch() -
                             std::chrono::nanoseconds{ledger.started_ns()};
    const double started_s = std::chrono::duration<double>(since_epoch - since_start).count();
    const std::pair<const char*, std::string> files[] = {
        {kSeriesFile, csv_of(series, settings.warmup)},
        {kResponseFile, log_of(series, started_s)},
    };
    for (const auto& [name, text] : files) {
        const std::filesystem::path path = folder / name;
        std::ofstream file(path);
        file << text;
        file.flush();
        if (!file) {
            return make_error(
                ErrorCode::unavailable,
                fmt::format("{} cannot be written: {}", path.string(), std::strerror(errno)));
        }
    }
    return {};
}

}  // namespace hotcount::loadtest

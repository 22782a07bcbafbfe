// Histograms as HdrHistogram's tools read them: a log of version 1.3 with payloads of version V2.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "load/histogram.hpp"

namespace hotcount::loadtest {

/// The payload: V2, compressed by zlib, as base64. Lossless, as both have the same cells: unit 1,
/// three significant digits.
std::string encode_hdr(const Histogram& histogram);

/// Writes a log whose values are nanoseconds.
class HdrLog {
  public:
    /// `started_s`: seconds since the epoch, of which the intervals are counted.
    HdrLog(std::ostream& out, double started_s);
    /// One interval; `tag` has neither commas nor spaces. All times in seconds.
    void add(std::string_view tag, double from_s, double length_s, const Histogram& histogram);

  private:
    std::ostream& out_;
};

}  // namespace hotcount::loadtest

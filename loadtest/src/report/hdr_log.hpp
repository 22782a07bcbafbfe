// Histograms as HdrHistogram's tools read them: a log of version 1.3 with payloads of version V2.
#pragma once

#include <string>
#include <string_view>

#include "load/histogram.hpp"

namespace hotcount::loadtest {

/// The payload: V2, compressed by zlib, as base64. Lossless, as both have the same cells: unit 1,
/// three significant digits.
std::string encode_hdr(const Histogram& histogram);

/// The first lines of a log whose values are nanoseconds. `started_s`: seconds since the epoch, from
/// which its intervals count.
std::string hdr_head(double started_s);
/// The line of one interval; `tag` has neither commas nor spaces. All times in seconds.
std::string hdr_line(std::string_view tag, double from_s, double length_s,
                     const Histogram& histogram);

}  // namespace hotcount::loadtest

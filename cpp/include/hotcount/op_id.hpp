// The name of an adding call (its op_id), by which a retry of the call is counted once.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hotcount {

/// A new op_id: a UUIDv7 (RFC 9562), 36 characters that hold the time in milliseconds and 74 random
/// bits. Stores refuse an op_id that is older than what they remember. Thread-safe with its defaults.
std::string new_op_id(WallTime now = system_clock()->wall_now(), Random& random = thread_random());

/// When an op_id was made, since the Unix epoch, if it is a UUIDv7; none for any other. 48 bits, which
/// is more than a WallTime can hold.
std::optional<std::chrono::milliseconds> made_at(std::string_view op_id);

}  // namespace hotcount

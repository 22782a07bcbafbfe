// The name of an adding call (its op_id), by which a retry of the call is counted once.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hotcount {

/// A new op_id: a UUIDv7 (RFC 9562), 36 characters that hold the time in milliseconds and 74 random
/// bits. A store refuses an op_id older than op_keep. Thread-safe with its defaults.
std::string new_op_id(WallTime now = system_clock()->wall_now(), Random& random = thread_random());

/// The time since the Unix epoch at which an op_id was made, if it is a UUIDv7. Returns nullopt for
/// other ids. The result is in milliseconds because 48 bits exceed WallTime.
std::optional<std::chrono::milliseconds> made_at(std::string_view op_id);

}  // namespace hotcount

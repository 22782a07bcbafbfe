// What names an adding call, so that a retry of it is counted once.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hotcount {

/// A new op_id: a UUIDv7 (RFC 9562), 36 characters with the time of its making in milliseconds and
/// 74 random bits. Stores refuse one that has become too old to be remembered.
std::string new_op_id(WallTime now = system_clock()->wall_now(), Random& random = thread_random());

/// When an op_id that is a UUIDv7 says it was made, since the unix epoch; none for any other. 48 bits:
/// more than fits a WallTime.
std::optional<std::chrono::milliseconds> made_at(std::string_view op_id);

}  // namespace hotcount

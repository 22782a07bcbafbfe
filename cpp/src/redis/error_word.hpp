// What a server's error reply leaves known, by its first word.
#pragma once

#include <hotcount/result.hpp>
#include <string_view>

namespace hotcount::redis {

/// `reply` is the error line without its "-"; `context` names server and command.
Error error_from_reply(std::string_view reply, std::string_view context);

/// Whether a refusal of a command with several keys may be for one of them: without that key the
/// rest may be served. Any other refusal is everybody's.
bool concerns_a_key(const Error& refusal);

/// Whether it is the command that the user may not run, whatever its keys are.
bool denies_the_command(const Error& refusal);

}  // namespace hotcount::redis

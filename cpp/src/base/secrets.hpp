// The passwords that this process has connected with, so that errors do not show them. The text of a
// server can hold one: an old Redis quotes the arguments of a command that it does not know, and a
// proxy answers what it likes. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace hotcount {

/// Keeps a password for hide_secrets(). It keeps the last 1,000, so every connect calls it again.
void remember_secret(std::string_view password);

/// The text with *** for each password in it. A password of less than four characters is hidden only
/// as a word of its own: a text without any "a" would tell that the password is "a". It takes a lock
/// and searches for each password, so it is for errors only.
std::string hide_secrets(std::string_view text);

}  // namespace hotcount

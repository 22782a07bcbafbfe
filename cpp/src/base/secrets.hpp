// The passwords with which this process has connected, so that errors do not show them. A server's
// text can hold a password: an old Redis quotes the arguments of an unknown command, and a proxy
// may return any text. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace hotcount {

/// Keeps a password for hide_secrets(). Only the last 1,000 are kept, so every connect calls this.
void remember_secret(std::string_view password);

/// The text with *** for each password in it. A password of less than 4 bytes is hidden only as a
/// word of its own: a text without any "a" would tell that the password is "a". The function
/// takes a lock and searches for each password, so it is for errors only.
std::string hide_secrets(std::string_view text);

}  // namespace hotcount

// The passwords that this process has connected with, wherever they came from. No text of a server's
// is passed on with one of them in it: an old Redis quotes the arguments of a command that it does not
// know, and a proxy says what it likes.
#pragma once

#include <string>
#include <string_view>

namespace hotcount {

/// Keeps a password for hide_secrets(): the 1000 that were given last. So whoever connects gives his
/// each time. Thread-safe.
void remember_secret(std::string_view password);

/// The text with *** for each password in it. One of less than four characters is hidden where it
/// stands alone: a text without its every "a" would tell what it was. Thread-safe; for the way of
/// an error, not for a call's.
std::string hide_secrets(std::string_view text);

}  // namespace hotcount

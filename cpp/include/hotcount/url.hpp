// URLs of stores and databases, parsed once for every backend.
//
//   scheme://user:password@host:port/path?name=value&name=value
//
// No message shows a password: str() hides it, and the error for text that is no URL does not quote it.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hotcount {

struct Url {
    std::string scheme;  ///< Lower case, a SQLAlchemy driver suffix ("+psycopg") removed.
    std::string user;
    std::string password;
    std::string host;              ///< Percent-decoded; [::1] without its brackets, zone included.
    bool host_was_escaped{false};  ///< It had a percent sign, which some parsers do not decode.
    std::optional<std::uint16_t> port;
    std::string path;  ///< Percent-decoded, with its leading "/".
    std::map<std::string, std::string> query;

    /// The URL with its password replaced by "***", for messages.
    std::string str() const;
};

/// A config error that names what is wrong if the text is no URL. Callers refuse unknown schemes.
Result<Url> parse_url(std::string_view text);

}  // namespace hotcount

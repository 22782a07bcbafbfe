// URLs of stores and databases, parsed once for every backend.
//
//   scheme://user:password@host:port/path?name=value&name=value
//
// A password leaves it through `password` alone; what cannot be taken apart is not echoed.
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
    std::string host;              ///< Percent-decoded; of [::1] what is inside, a zone included.
    bool host_was_escaped{false};  ///< It had a percent sign, which some readers leave as it is.
    std::optional<std::uint16_t> port;
    std::string path;  ///< Percent-decoded, with its leading "/".
    std::map<std::string, std::string> query;

    /// The URL with its password replaced by "***", for messages.
    std::string str() const;
};

/// Refuses what is not a URL, naming what is wrong; unknown schemes are the caller's to refuse.
Result<Url> parse_url(std::string_view text);

}  // namespace hotcount

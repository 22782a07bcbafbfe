// URLs of stores and databases, parsed once for every backend.
//
//   scheme://user:password@host:port/path?name=value&name=value
//   scheme://user:password@host:port,[::1]:port/path
//
// No message shows a password: str() hides it, and the error for a text that is no URL quotes
// nothing of the text.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

struct UrlHost {
    std::string host;  ///< Percent-decoded; [::1] without its brackets, zone included.
    std::optional<std::uint16_t> port;
};

struct Url {
    std::string scheme;  ///< Lower case, a SQLAlchemy driver suffix ("+psycopg") removed.
    std::string user;
    std::string password;
    std::string host;  ///< The first of `hosts`; `port` is its port.
    std::optional<std::uint16_t> port;
    std::vector<UrlHost> hosts;    ///< At least one, in order. Only a single one may be empty.
    bool host_was_escaped{false};  ///< A host had a "%", which some parsers do not decode.
    std::string path;              ///< Percent-decoded, with its leading "/".
    std::map<std::string, std::string> query;

    /// The URL with its password replaced by "***", for messages.
    std::string str() const;
};

/// A config error that names what is wrong if the text is no URL. Callers refuse unknown schemes.
Result<Url> parse_url(std::string_view text);

/// A config error if the URL names several hosts. `instead`: the URL that the error recommends.
Result<void> one_host(const Url& url, std::string_view instead);

}  // namespace hotcount

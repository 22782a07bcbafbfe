#include <algorithm>
#include <charconv>
#include <hotcount/base/codec.hpp>
#include <hotcount/base/url.hpp>

namespace hotcount {
namespace {

Error bad_url(const std::string& what) { return make_error(ErrorCode::config, "URL: " + what); }

bool is_scheme_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

// redis+unix and friends are schemes of their own; postgresql+psycopg names a driver we ignore.
std::string without_driver(const std::string& scheme) {
    for (const char* database : {"sqlite+", "postgresql+", "mysql+", "mariadb+"}) {
        const std::string_view prefix{database};
        if (scheme.starts_with(prefix)) return scheme.substr(0, prefix.size() - 1);
    }
    return scheme;
}

Result<void> parse_authority(std::string_view authority, Url& url) {
    if (const auto at = authority.rfind('@'); at != std::string_view::npos) {
        const std::string_view credentials = authority.substr(0, at);
        authority.remove_prefix(at + 1);
        const auto colon = credentials.find(':');
        HOTCOUNT_TRY_ASSIGN(url.user,
                            percent_decode(credentials.substr(0, colon), "URL: the user"));
        if (colon != std::string_view::npos) {
            HOTCOUNT_TRY_ASSIGN(url.password,
                                percent_decode(credentials.substr(colon + 1), "URL: the password"));
        }
    }
    std::string_view port;
    if (authority.starts_with('[')) {
        const auto close = authority.find(']');
        if (close == std::string_view::npos) return bad_url("an IPv6 host lacks its ']'");
        url.host = authority.substr(1, close - 1);
        authority.remove_prefix(close + 1);
        if (!authority.empty() && authority[0] != ':') return bad_url("text after the host's ']'");
        if (!authority.empty()) port = authority.substr(1);
    } else {
        const auto colon = authority.find(':');
        HOTCOUNT_TRY_ASSIGN(url.host, percent_decode(authority.substr(0, colon), "URL: the host"));
        if (colon != std::string_view::npos) port = authority.substr(colon + 1);
    }
    if (!port.empty()) {
        std::uint16_t number = 0;
        const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
        if (error != std::errc{} || end != port.data() + port.size() || number == 0) {
            return bad_url("port '" + printable(port) + "' is not a number from 1 to 65535");
        }
        url.port = number;
    }
    return {};
}

Result<void> parse_query(std::string_view text, Url& url) {
    while (!text.empty()) {
        const auto amp = text.find('&');
        const std::string_view pair = text.substr(0, amp);
        text.remove_prefix(amp == std::string_view::npos ? text.size() : amp + 1);
        if (pair.empty()) continue;
        const auto equals = pair.find('=');
        if (equals == std::string_view::npos) {
            return bad_url("option '" + printable(pair) + "' lacks its =value");
        }
        HOTCOUNT_TRY_ASSIGN(std::string name,
                            percent_decode(pair.substr(0, equals), "URL: an option's name"));
        HOTCOUNT_TRY_ASSIGN(std::string value,
                            percent_decode(pair.substr(equals + 1), "URL: option " + name));
        if (!url.query.emplace(name, value).second) {
            return bad_url("option '" + printable(name) + "' is given twice");
        }
    }
    return {};
}

}  // namespace

std::string Url::str() const {
    std::string text = scheme + "://";
    if (!user.empty() || !password.empty()) {
        text += printable(user);
        if (!password.empty()) text += ":***";
        text += '@';
    }
    text += printable(host);
    if (port) text += ":" + std::to_string(*port);
    text += printable(path);
    char separator = '?';
    for (const auto& [name, value] : query) {
        // An option may carry a secret under any name, so values stay out of messages.
        text += separator + printable(name) + "=...";
        separator = '&';
    }
    return text;
}

Result<Url> parse_url(std::string_view text) {
    const auto scheme_end = text.find("://");
    if (scheme_end == std::string_view::npos || scheme_end == 0) {
        // Not echoed: what is not a URL may be a bare password.
        return bad_url(
            "expected scheme://..., such as memory://, sqlite:///file.db or redis://host");
    }
    Url url;
    std::string scheme{text.substr(0, scheme_end)};
    std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (!std::all_of(scheme.begin(), scheme.end(), is_scheme_char)) {
        return bad_url("scheme '" + printable(scheme) + "' has a character that no scheme has");
    }
    url.scheme = without_driver(scheme);
    text.remove_prefix(scheme_end + 3);

    if (const auto question = text.find('?'); question != std::string_view::npos) {
        HOTCOUNT_TRY(parse_query(text.substr(question + 1), url));
        text = text.substr(0, question);
    }
    const auto slash = text.find('/');
    HOTCOUNT_TRY(parse_authority(text.substr(0, slash), url));
    if (slash != std::string_view::npos) {
        HOTCOUNT_TRY_ASSIGN(url.path, percent_decode(text.substr(slash), "URL: the path"));
    }
    return url;
}

}  // namespace hotcount

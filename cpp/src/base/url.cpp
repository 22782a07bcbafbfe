#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/url.hpp>
#include <utility>

namespace hotcount {
namespace {

// A URL with more hosts is a mistake: Sentinels are few, and a cluster's nodes name each other.
constexpr std::size_t kMostHosts = 64;

Error bad_url(const std::string& what) { return make_error(ErrorCode::config, "URL: " + what); }

bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Messages quote nothing of a text that could not be parsed: if a password has a '/', '?', '#' or
// '@' in it, any part of the URL may be a part of the password.

bool is_scheme_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' ||
           c == '_';
}

// redis+unix is a scheme of its own; postgresql+psycopg names a driver of SQLAlchemy, which is
// ignored.
std::string without_driver(const std::string& scheme) {
    for (const char* store : {"redis", "valkey", "memory"}) {
        if (scheme.starts_with(store)) return scheme;
    }
    return scheme.substr(0, scheme.find('+'));
}

// A host in brackets is an IPv6 address, with a zone if it is link-local: [fe80::1%eth0].
Result<void> check_ipv6(std::string_view host) {
    const auto percent = host.find('%');
    const std::string address{host.substr(0, percent)};
    in6_addr parsed{};
    if (address.find('\0') != std::string::npos ||
        inet_pton(AF_INET6, address.c_str(), &parsed) != 1) {
        return bad_url("the host in brackets is no IPv6 address");
    }
    if (percent == std::string_view::npos) return {};
    const std::string_view zone = host.substr(percent + 1);
    const bool plain = !zone.empty() && std::all_of(zone.begin(), zone.end(), [](char c) {
        return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
    });
    if (!plain) return bad_url("the zone of the IPv6 host has a character that no zone has");
    if (zone.starts_with("25")) {
        return bad_url("the zone of the IPv6 host is not escaped here: write [fe80::1%eth0]");
    }
    return {};
}

// Refuses hosts that other parsers of URLs read differently: for them a '#' ends the host.
Result<void> check_host(std::string_view host) {
    for (const char c : host) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte <= ' ' || byte == 0x7f) {
            return bad_url("the host has a space or a control character");
        }
        if (std::string_view{"[]\\^`{|}<>\""}.find(c) != std::string_view::npos) {
            return bad_url("the host has a character that no host has");
        }
    }
    return {};
}

// Takes user and password off the front of the authority.
Result<void> parse_credentials(std::string_view& authority, Url& url) {
    constexpr auto npos = std::string_view::npos;
    const auto at = authority.rfind('@');
    if (at == npos) return {};
    const std::string_view credentials = authority.substr(0, at);
    authority.remove_prefix(at + 1);
    if (credentials.find_first_of("[]") != npos) {
        return bad_url("a bracket stands before the host; in a user or password write %5B, %5D");
    }
    const auto comma = credentials.rfind(',');
    const auto colon = credentials.find(':');
    // "h1:1,u:p" are a host and a login behind it.
    const bool in_password = colon < comma && credentials.substr(0, comma).find('@') == npos &&
                             (comma == npos || credentials.find(':', comma) == npos);
    if (comma != npos && !in_password && url.scheme != "memory") {
        return bad_url(
            "user and password stand once, before the first host; in them write a comma as %2C");
    }
    HOTCOUNT_TRY_ASSIGN(url.user, percent_decode(credentials.substr(0, colon), "URL: the user"));
    if (colon != std::string_view::npos) {
        HOTCOUNT_TRY_ASSIGN(url.password,
                            percent_decode(credentials.substr(colon + 1), "URL: the password"));
    }
    return {};
}

Result<std::uint16_t> parse_port(std::string_view port) {
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc{} || end != port.data() + port.size() || number == 0) {
        return bad_url(
            "the port is not a number from 1 to 65535 (user:password go before an @, an IPv6 host "
            "in brackets)");
    }
    return number;
}

Result<void> parse_host(std::string_view text, Url& url) {
    UrlHost found;
    std::string_view port;
    if (text.starts_with('[')) {
        const auto close = text.find(']');
        if (close == std::string_view::npos) return bad_url("an IPv6 host lacks its ']'");
        found.host = text.substr(1, close - 1);
        HOTCOUNT_TRY(check_ipv6(found.host));
        text.remove_prefix(close + 1);
        if (!text.empty() && text[0] != ':') return bad_url("text after the host's ']'");
        if (!text.empty()) port = text.substr(1);
    } else {
        const auto colon = text.find(':');
        const std::string_view host = text.substr(0, colon);
        if (url.scheme != "memory") HOTCOUNT_TRY(check_host(host));  // The name of a memory store.
        HOTCOUNT_TRY_ASSIGN(found.host, percent_decode(host, "URL: the host"));
        if (found.host.find('\0') != std::string::npos) return bad_url("the host has a NUL");
        url.host_was_escaped |= host.find('%') != std::string_view::npos;
        if (colon != std::string_view::npos) port = text.substr(colon + 1);
    }
    if (!port.empty()) {
        HOTCOUNT_TRY_ASSIGN(found.port, parse_port(port));
    }
    url.hosts.push_back(std::move(found));
    return {};
}

Result<void> parse_authority(std::string_view authority, Url& url) {
    if (authority.find('#') != std::string_view::npos) {
        return bad_url("a '#' stands before the path; in a user or password write %23");
    }
    HOTCOUNT_TRY(parse_credentials(authority, url));
    // A comma is a character of a memory store's name.
    bool more = true;
    while (more) {
        const auto comma = url.scheme == "memory" ? std::string_view::npos : authority.find(',');
        more = comma != std::string_view::npos;
        if (url.hosts.size() == kMostHosts) {
            return bad_url("more than " + std::to_string(kMostHosts) + " hosts");
        }
        HOTCOUNT_TRY(parse_host(authority.substr(0, comma), url));
        if (more) authority.remove_prefix(comma + 1);
    }
    for (std::size_t i = 0; url.hosts.size() > 1 && i < url.hosts.size(); ++i) {
        if (!url.hosts[i].host.empty()) continue;
        return bad_url("host " + std::to_string(i + 1) + " of " + std::to_string(url.hosts.size()) +
                       " is empty");
    }
    url.host = url.hosts.front().host;
    url.port = url.hosts.front().port;
    return {};
}

// A password with a delimiter in it, after which the rest would count as a path or an option.
bool hides_credentials(const Url& url, std::string_view authority, std::string_view rest) {
    if (rest.find('@') == std::string_view::npos) return false;
    const bool has_no_host = url.scheme == "sqlite" || url.scheme == "memory" ||
                             url.scheme == "unix" || url.scheme.ends_with("+unix");
    return !has_no_host || !authority.empty();
}

bool is_secret(std::string_view option) {
    constexpr std::array<std::string_view, 8> kNames{"password",    "passwd", "pass",  "pwd",
                                                     "sslpassword", "auth",   "token", "secret"};
    return std::find(kNames.begin(), kNames.end(), option) != kNames.end();
}

Result<void> parse_query(std::string_view text, Url& url) {
    for (std::size_t number = 1; !text.empty(); ++number) {
        const auto amp = text.find('&');
        const std::string_view pair = text.substr(0, amp);
        text.remove_prefix(amp == std::string_view::npos ? text.size() : amp + 1);
        if (pair.empty()) continue;
        const auto equals = pair.find('=');
        if (equals == std::string_view::npos) {
            return bad_url("option " + std::to_string(number) + " after the ? lacks its =value");
        }
        HOTCOUNT_TRY_ASSIGN(std::string name,
                            percent_decode(pair.substr(0, equals), "URL: an option's name"));
        if (is_secret(name)) {
            return bad_url("a password is no option; it goes before the host: " + url.scheme +
                           "://user:password@host");
        }
        HOTCOUNT_TRY_ASSIGN(std::string value, percent_decode(pair.substr(equals + 1),
                                                              "URL: option " + printable(name)));
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
    bool is_first = true;
    for (const UrlHost& each : hosts) {
        if (!std::exchange(is_first, false)) text += ',';
        const bool is_ipv6 = each.host.find(':') != std::string::npos;
        text += is_ipv6 ? "[" + each.host + "]" : printable(each.host);
        if (each.port) text += ":" + std::to_string(*each.port);
    }
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
        // Not quoted: text that is no URL may be a password.
        return bad_url(
            "expected scheme://..., such as memory://, sqlite:///file.db or redis://host");
    }
    Url url;
    std::string scheme{text.substr(0, scheme_end)};
    std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (!std::all_of(scheme.begin(), scheme.end(), is_scheme_char)) {
        return bad_url("the scheme, before ://, has a character that no scheme has");
    }
    url.scheme = without_driver(scheme);
    text.remove_prefix(scheme_end + 3);

    const std::string_view authority = text.substr(0, text.find_first_of("/?"));
    if (hides_credentials(url, authority, text.substr(authority.size()))) {
        return bad_url(
            "an @ after the host. In a user or a password write / as %2F, ? as %3F and # as %23; "
            "elsewhere write @ as %40");
    }
    if (authority.find(',') != std::string_view::npos && authority.ends_with(':') &&
        text.substr(authority.size()).starts_with("//")) {
        return bad_url("the scheme stands once, before the first host");
    }
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

Result<void> one_host(const Url& url, std::string_view instead) {
    if (url.hosts.size() <= 1) return {};
    return bad_url(url.scheme + ":// takes one host, not " + std::to_string(url.hosts.size()) +
                   "; " + std::string{instead});
}

}  // namespace hotcount

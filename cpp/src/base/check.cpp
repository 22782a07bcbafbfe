#include <hotcount/base/check.hpp>
#include <hotcount/base/codec.hpp>
#include <string>

namespace hotcount {

Result<void> check_key(std::string_view key, KeyRule rule) {
    if (key.empty()) return make_error(ErrorCode::config, "key is empty; it takes 1 to 1000 bytes");
    if (key.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config,
                          "key is " + std::to_string(key.size()) +
                              " bytes long; it takes 1 to 1000 bytes: " + printable(key));
    }
    if (rule == KeyRule::sql_text && key.find('\0') != std::string_view::npos) {
        return make_error(ErrorCode::config,
                          "key has a NUL byte, which SQL text cannot hold: " + printable(key));
    }
    return {};
}

Result<void> check_identifier(std::string_view option, std::string_view name) {
    std::string prefix{option};
    if (name.empty()) return make_error(ErrorCode::config, prefix + " is empty");
    if (name.size() > kMaxIdentifierBytes) {
        return make_error(ErrorCode::config,
                          prefix + " is longer than 63 bytes: " + printable(name));
    }
    if (name.find('\0') != std::string_view::npos) {
        return make_error(ErrorCode::config, prefix + " has a NUL byte: " + printable(name));
    }
    return {};
}

}  // namespace hotcount

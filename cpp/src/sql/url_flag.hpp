// Options of a database's URL that are on or off.
#pragma once

#include <hotcount/result.hpp>
#include <string>

namespace hotcount::sql {

inline Result<bool> url_flag(const std::string& option, const std::string& value) {
    if (value == "true" || value == "1") return true;
    if (value == "false" || value == "0") return false;
    return make_error(ErrorCode::config, "URL: option " + option + " is neither true nor false");
}

}  // namespace hotcount::sql

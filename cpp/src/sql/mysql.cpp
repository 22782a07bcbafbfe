#include "mysql.hpp"

namespace hotcount::sql {

Result<std::shared_ptr<Database>> open_mysql(const Url& url, DatabaseOptions) {
    return make_error(ErrorCode::config, "URL: " + url.scheme + " is not there yet");
}

}  // namespace hotcount::sql

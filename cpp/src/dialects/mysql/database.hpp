// The dialect of MariaDB and MySQL, over libmariadb, which is loaded when the first such URL is
// opened.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>

namespace hotcount::sql {

Result<std::shared_ptr<Database>> open_mysql(const Url& url, DatabaseOptions options);

}  // namespace hotcount::sql

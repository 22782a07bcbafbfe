// The name of a table as an option gives it: `item`, `app.item`, or with a dot in a name of its own
// `app."my.item"`.
#pragma once

#include <hotcount/result.hpp>
#include <string>
#include <string_view>

namespace hotcount::sql {

struct TableName {
    std::string schema{};  ///< In MySQL a database. Empty: where the connection looks first.
    std::string name{};

    /// A config error that names `option` unless each part is a name that all dialects take. A part
    /// that begins with a quotation mark ends with one; within, two of them stand for one.
    static Result<TableName> parse(std::string_view option, std::string_view text);
    /// Of a text that parse() accepts.
    static TableName of(std::string_view text);

    /// The table in the same schema whose name is this one with `suffix`.
    TableName beside(std::string_view suffix) const;
    /// The name as SQL, quoted.
    std::string sql() const;
    /// The text from which parse() makes this name.
    std::string text() const;
};

}  // namespace hotcount::sql

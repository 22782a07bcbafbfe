// Values that go into SQL statements as parameters, and come out as columns.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <string>
#include <string_view>
#include <variant>

namespace hotcount::sql {

/// A bound parameter. Text is borrowed: it must outlive the call.
using Value = std::variant<std::monostate, std::int64_t, std::string_view>;

/// A row identifier as the application's tables have it: an integer, or text (a UUID is text in
/// its canonical lower-case form).
using Id = std::variant<std::int64_t, std::string>;

inline Value to_value(const Id& id) {
    if (const auto* number = std::get_if<std::int64_t>(&id)) return Value{*number};
    return Value{std::string_view{std::get<std::string>(id)}};
}

/// For messages: 42 or 'text'.
std::string to_string(const Id& id);

/// One result row, borrowed from its statement: valid only inside the visitor.
class Row {
  public:
    virtual ~Row() = default;
    virtual bool is_null(int column) const = 0;
    /// False for reals and text: SQLite turns an overflowing integer sum into a real.
    virtual bool is_integer(int column) const = 0;
    virtual std::int64_t integer(int column) const = 0;
    virtual std::string_view text(int column) const = 0;

    /// The column as an Id.
    Id id(int column) const {
        if (is_integer(column)) return Id{integer(column)};
        return Id{std::string{text(column)}};
    }
};

}  // namespace hotcount::sql

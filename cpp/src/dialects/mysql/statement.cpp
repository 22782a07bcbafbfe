#include "statement.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace hotcount::sql {

namespace lib = libmariadb;

namespace {

// The first size of a text column's buffer in bytes: enough for an id, a name or a count.
constexpr std::size_t kFirstBuffer = 256;

bool is_integer_type(lib::Type type) {
    return type == lib::kTiny || type == lib::kShort || type == lib::kLong ||
           type == lib::kLongLong || type == lib::kInt24 || type == lib::kYear;
}

// The value of a decimal, such as a SUM; nullopt if it has a fraction or exceeds 64 bits.
std::optional<std::int64_t> whole(std::string_view text) {
    const auto point = text.find('.');
    const std::string_view digits = text.substr(0, point);
    if (point != std::string_view::npos &&
        text.find_first_not_of('0', point + 1) != std::string_view::npos) {
        return std::nullopt;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return value;
}

std::string_view fetched(const MysqlColumn& column) {
    return {column.buffer.data(), std::min<std::size_t>(column.length, column.buffer.size())};
}

}  // namespace

void MysqlStatement::describe(const lib::Library& library) {
    parameters_.resize(library.stmt_param_count(handle));
    integers_.resize(parameters_.size());
    describe_rows(library);
}

void MysqlStatement::describe_rows(const lib::Library& library) {
    lib::Rows* const described = library.stmt_result_metadata(handle);
    if (described == nullptr) return;
    const std::size_t count = library.num_fields(described);
    const lib::Column* const fields = library.fetch_fields(described);
    columns.assign(count, MysqlColumn{});
    for (std::size_t i = 0; i < count; ++i) {
        columns[i].number = is_integer_type(fields[i].type);
        columns[i].decimal = fields[i].type == lib::kDecimal || fields[i].type == lib::kNewDecimal;
        columns[i].is_unsigned = (fields[i].flags & lib::kUnsigned) != 0;
        if (!columns[i].number) columns[i].buffer.resize(kFirstBuffer);
    }
    library.free_result(described);
    bind_columns(library);
}

void MysqlStatement::bind_columns(const lib::Library& library) {
    results_.assign(columns.size(), lib::Bind{});
    for (std::size_t i = 0; i < columns.size(); ++i) {
        MysqlColumn& column = columns[i];
        lib::Bind& bind = results_[i];
        bind.is_null = &column.null;
        bind.length = &column.length;
        if (column.number) {
            bind.buffer_type = lib::kLongLong;
            bind.buffer = &column.value;
            bind.buffer_length = sizeof column.value;
            bind.is_unsigned = column.is_unsigned ? 1 : 0;
        } else {
            bind.buffer_type = lib::kString;
            bind.buffer = column.buffer.data();
            bind.buffer_length = column.buffer.size();
        }
    }
    library.stmt_bind_result(handle, results_.data());
}

bool MysqlStatement::bind(const lib::Library& library, std::span<const Value> parameters) {
    if (order.size() != parameters_.size()) return false;
    if (parameters_.empty()) return true;
    for (std::size_t i = 0; i < order.size(); ++i) {
        if (order[i] >= parameters.size()) return false;
        lib::Bind& bind = parameters_[i];
        bind = lib::Bind{};
        const Value& parameter = parameters[order[i]];
        if (const auto* number = std::get_if<std::int64_t>(&parameter)) {
            integers_[i] = *number;
            bind.buffer_type = lib::kLongLong;
            bind.buffer = &integers_[i];
        } else if (const auto* text = std::get_if<std::string_view>(&parameter)) {
            bind.buffer_type = lib::kString;
            bind.buffer = const_cast<char*>(text->data());  // libmariadb only reads it.
            bind.buffer_length = text->size();
            bind.length_value = text->size();
            bind.length = &bind.length_value;
        } else {
            bind.buffer_type = lib::kNull;
        }
    }
    return library.stmt_bind_param(handle, parameters_.data()) == 0;
}

void MysqlStatement::complete(const lib::Library& library) {
    bool grown = false;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        MysqlColumn& column = columns[i];
        if (column.number || column.null != 0 || column.length <= column.buffer.size()) continue;
        column.buffer.resize(column.length);
        lib::Bind again{};
        again.buffer_type = lib::kString;
        again.buffer = column.buffer.data();
        again.buffer_length = column.buffer.size();
        again.length = &column.length;
        again.is_null = &column.null;
        library.stmt_fetch_column(handle, &again, static_cast<unsigned>(i), 0);
        grown = true;
    }
    if (grown) bind_columns(library);
}

void MysqlStatement::close(const lib::Library& library) {
    if (handle != nullptr) library.stmt_close(handle);
    handle = nullptr;
}

bool MysqlRow::is_integer(int column) const {
    const MysqlColumn& c = at(column);
    if (c.null != 0) return false;
    if (c.number) return !c.is_unsigned || c.value >= 0;
    return c.decimal && whole(fetched(c)).has_value();
}

std::int64_t MysqlRow::integer(int column) const {
    const MysqlColumn& c = at(column);
    if (c.null != 0) return 0;
    return c.number ? c.value : whole(fetched(c)).value_or(0);
}

std::string_view MysqlRow::text(int column) const {
    const MysqlColumn& c = at(column);
    if (c.null != 0) return {};
    if (!c.number) return fetched(c);
    written_ = c.is_unsigned ? std::to_string(static_cast<std::uint64_t>(c.value))
                             : std::to_string(c.value);
    return written_;
}

std::size_t end_of_statement(std::string_view text, std::size_t start) {
    char quote = '\0';
    for (std::size_t i = start; i < text.size(); ++i) {
        if (quote != '\0') {
            if (text[i] == quote) quote = '\0';
        } else if (text[i] == '\'' || text[i] == '"') {
            quote = text[i];
        } else if (text[i] == ';' && (i + 1 == text.size() || text[i + 1] == '\n')) {
            return i;
        }
    }
    return text.size();
}

}  // namespace hotcount::sql

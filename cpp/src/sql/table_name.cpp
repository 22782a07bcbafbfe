#include "table_name.hpp"

#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/sql/dialect.hpp>
#include <optional>
#include <vector>

namespace hotcount::sql {
namespace {

// Removes the first part and the dot behind it from `text`. nullopt if a quotation mark is not
// closed, or if the closing one is followed by something else.
std::optional<std::string> take_part(std::string_view& text) {
    std::string part;
    std::size_t at = 0;
    if (!text.starts_with('"')) {
        at = std::min(text.find('.'), text.size());
        part = text.substr(0, at);
    } else {
        for (++at; at < text.size(); ++at) {
            if (text[at] == '"' && !text.substr(at + 1).starts_with('"')) break;
            if (text[at] == '"') ++at;
            part += text[at];
        }
        if (at >= text.size()) return {};
        ++at;
        if (at < text.size() && text[at] != '.') return {};
    }
    text.remove_prefix(std::min(text.size(), at));
    return part;
}

std::string part_text(const std::string& part) {
    const bool plain = part.find('.') == std::string::npos && !part.starts_with('"');
    return plain ? part : quote_identifier(part);
}

}  // namespace

Result<TableName> TableName::parse(std::string_view option, std::string_view text) {
    std::vector<std::string> parts;
    for (std::string_view left = text;;) {
        const auto part = take_part(left);
        if (!part) {
            return bad_option(option,
                              "has a quotation mark that is not closed where the name ends: " +
                                  printable(std::string{text}));
        }
        HOTCOUNT_TRY(check_identifier(option, *part));
        parts.push_back(*part);
        if (left.empty()) break;
        left.remove_prefix(1);
    }
    if (parts.size() == 1) return TableName{"", parts[0]};
    if (parts.size() == 2) return TableName{parts[0], parts[1]};
    return bad_option(option, "takes a table, or schema.table: " + printable(std::string{text}) +
                                  "; a name that has a dot stands in quotation marks");
}

TableName TableName::of(std::string_view text) {
    auto parsed = parse("", text);
    return parsed ? std::move(*parsed) : TableName{"", std::string{text}};
}

TableName TableName::beside(std::string_view suffix) const {
    return {schema, name + std::string{suffix}};
}

std::string TableName::sql() const {
    return (schema.empty() ? "" : quote_identifier(schema) + ".") + quote_identifier(name);
}

std::string TableName::text() const {
    return (schema.empty() ? "" : part_text(schema) + ".") + part_text(name);
}

}  // namespace hotcount::sql

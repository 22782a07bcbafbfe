#include "dialect.hpp"

#include <charconv>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <optional>
#include <utility>

#include "statements.hpp"

namespace hotcount::sql {

Result<void> check_version(const std::string& database, std::string_view version,
                           const OldestServer& oldest) {
    std::array<int, 3> have{};
    const char* at = version.data();
    const char* const end = at + version.size();
    for (int& part : have) {
        const auto read = std::from_chars(at, end, part);
        if (read.ec != std::errc{} && &part == have.data()) return {};
        at = read.ptr;
        if (at == end || *at != '.') break;
        ++at;
    }
    if (have >= oldest.version) return {};
    std::string wanted;
    for (const int part : oldest.version) {
        wanted += (wanted.empty() ? "" : ".") + std::to_string(part);
    }
    return make_error(ErrorCode::config,
                      database + ": the server is " + std::string{oldest.product} + " " +
                          printable(version) + "; hotcount needs " + wanted + " or later");
}

std::string_view to_string(Dialect dialect) { return dialect.grammar().name(); }

namespace {

// The name of its own first.
std::vector<std::string_view> names_of(const Driver& driver) {
    std::vector<std::string_view> names{driver.grammar.name()};
    for (const Scheme& scheme : driver.schemes) {
        if (!scheme.alias && scheme.name != names.front()) names.push_back(scheme.name);
    }
    return names;
}

}  // namespace

Result<Dialect> dialect_of(std::string_view name) {
    std::string known;
    for (const Driver& driver : drivers()) {
        for (const std::string_view each : names_of(driver)) {
            if (each == name) return driver.grammar.dialect();
            known += (known.empty() ? "" : ", ") + std::string{each};
        }
    }
    return make_error(ErrorCode::config,
                      std::string{name} + " is not a dialect that hotcount knows: " + known);
}

std::vector<std::string_view> dialect_names() {
    std::vector<std::string_view> names;
    for (const Driver& driver : drivers()) {
        for (const std::string_view each : names_of(driver)) names.push_back(each);
    }
    return names;
}

std::vector<std::string_view> database_schemes() {
    std::vector<std::string_view> schemes;
    for (const Driver& driver : drivers()) {
        for (const Scheme& scheme : driver.schemes) schemes.push_back(scheme.name);
    }
    return schemes;
}

std::string quote_identifier(std::string_view name) {
    std::string quoted = "\"";
    for (const char c : name) {
        quoted += c;
        if (c == '"') quoted += c;
    }
    return quoted + "\"";
}

std::string Grammar::type(ColumnType type) const {
    switch (type) {
        case ColumnType::integer:
            return word("integer");
        case ColumnType::text:
            return word("text");
        case ColumnType::uuid:
            return word("uuid");
        case ColumnType::full_key:
            return word("full_key");
        case ColumnType::long_text:
            break;
    }
    return word("long_text");
}

std::string Grammar::own_write() const {
    const std::string begin = word("own_write");
    return begin.empty() ? begin : begin + " ";
}

std::string_view Grammar::parameter_type(ColumnType type) {
    if (type == ColumnType::integer) return "bigint";
    return type == ColumnType::uuid ? "uuid" : "text";
}

std::string Grammar::word(std::string_view name, const std::vector<std::string>& arguments) const {
    return Statements{words(), {}}.call(name, arguments);
}

std::string Grammar::clause(std::string_view name,
                            const std::vector<std::string>& arguments) const {
    const std::string text = word(name, arguments);
    return text.empty() ? text : " " + text;
}

Placed place_parameters(std::string_view text, Placeholders placeholders) {
    Placed placed;
    placed.text.reserve(text.size() + 8);
    char quote = '\0';
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote != '\0') {
            // A doubled quote closes and opens again, with the same result.
            if (c == quote) quote = '\0';
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '?') {
            std::size_t number = 0;
            std::size_t end = i + 1;
            for (; end < text.size() && text[end] >= '0' && text[end] <= '9'; ++end) {
                number = number * 10 + static_cast<std::size_t>(text[end] - '0');
            }
            switch (placeholders) {
                case Placeholders::as_written:
                    placed.text += text.substr(i, end - i);
                    break;
                case Placeholders::dollar:
                    placed.text += "$" + std::to_string(number);
                    break;
                case Placeholders::in_order:
                    placed.text += '?';
                    placed.parameters.push_back(number - 1);
                    break;
            }
            i = end - 1;
            continue;
        }
        placed.text += c;
    }
    return placed;
}

// -- names of tables ------------------------------------------------------------------------------

namespace {

// Removes the first part and the dot after it from `text`. nullopt if a quotation mark is not
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

#include <hotcount/detail/sql/dialect.hpp>

namespace hotcount::sql {

std::string_view to_string(Dialect dialect) {
    switch (dialect) {
        case Dialect::sqlite:
            return "sqlite";
        case Dialect::postgres:
            return "postgresql";
        case Dialect::mysql:
            return "mysql";
    }
    return "unknown";
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
    if (type == ColumnType::integer) return dialect_ == Dialect::sqlite ? "INTEGER" : "BIGINT";
    switch (dialect_) {
        case Dialect::sqlite:
            return "TEXT";
        case Dialect::postgres:
            // "C": bytes are compared, whatever the database's own collation.
            return type == ColumnType::uuid ? "UUID" : "TEXT COLLATE \"C\"";
        case Dialect::mysql:
            break;
    }
    // To the default collation 'a' and 'A' are one key; to utf8mb4_bin 'a' and 'a ' are; and what
    // does neither has one name in MariaDB and another in MySQL.
    return type == ColumnType::uuid ? "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin"
                                    : "VARBINARY(1000)";
}

std::string Grammar::table_end() const {
    switch (dialect_) {
        case Dialect::sqlite:
            return " WITHOUT ROWID";
        case Dialect::postgres:
            // Room on each page for the next versions of its rows: an update that moves no index
            // entry leaves nothing for VACUUM.
            return " WITH (fillfactor = 50)";
        case Dialect::mysql:
            break;
    }
    return " ENGINE=InnoDB";
}

std::string Grammar::create_view(std::string_view name) const {
    return (dialect_ == Dialect::sqlite ? "CREATE VIEW IF NOT EXISTS "
                                        : "CREATE OR REPLACE VIEW ") +
           std::string{name};
}

std::string Grammar::or_nothing(std::string_view key) const {
    if (dialect_ != Dialect::mysql) return " ON CONFLICT DO NOTHING";
    // Not INSERT IGNORE, which also swallows a missing foreign key and a value out of range.
    return " ON DUPLICATE KEY UPDATE " + std::string{key} + " = " + std::string{key};
}

std::string Grammar::or_update(std::string_view key) const {
    if (dialect_ == Dialect::mysql) return " ON DUPLICATE KEY UPDATE ";
    return " ON CONFLICT (" + std::string{key} + ") DO UPDATE SET ";
}

std::string Grammar::own(std::string_view table, std::string_view column) const {
    return std::string{table} + "." + std::string{column};
}

std::string Grammar::excluded(std::string_view column) const {
    return dialect_ == Dialect::mysql ? "VALUES(" + std::string{column} + ")"
                                      : "excluded." + std::string{column};
}

std::string Grammar::differ(std::string_view a, std::string_view b) const {
    const std::string left{a};
    const std::string right{b};
    switch (dialect_) {
        case Dialect::sqlite:
            return left + " IS NOT " + right;
        case Dialect::postgres:
            return left + " IS DISTINCT FROM " + right;
        case Dialect::mysql:
            break;
    }
    return "NOT (" + left + " <=> " + right + ")";
}

std::string Grammar::greater(std::string_view a, std::string_view b) const {
    return (dialect_ == Dialect::sqlite ? "MAX(" : "GREATEST(") + std::string{a} + ", " +
           std::string{b} + ")";
}

std::string Grammar::and_fits(std::string_view sum) const {
    if (dialect_ != Dialect::sqlite) return {};
    return " AND typeof(" + std::string{sum} + ") = 'integer'";
}

std::string Grammar::for_update() const { return dialect_ == Dialect::sqlite ? "" : " FOR UPDATE"; }

std::string Grammar::for_share() const {
    switch (dialect_) {
        case Dialect::sqlite:
            return "";
        case Dialect::postgres:
            return " FOR SHARE";
        case Dialect::mysql:
            break;
    }
    return " LOCK IN SHARE MODE";
}

Placed place_parameters(std::string_view text, Dialect dialect) {
    Placed placed;
    placed.text.reserve(text.size() + 8);
    char quote = '\0';
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote != '\0') {
            // A doubled quote closes and opens again: the same thing.
            if (c == quote) quote = '\0';
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '?') {
            std::size_t number = 0;
            std::size_t end = i + 1;
            for (; end < text.size() && text[end] >= '0' && text[end] <= '9'; ++end) {
                number = number * 10 + static_cast<std::size_t>(text[end] - '0');
            }
            if (dialect == Dialect::postgres) {
                placed.text += "$" + std::to_string(number);
            } else if (dialect == Dialect::mysql) {
                placed.text += '?';
                placed.parameters.push_back(number - 1);
            } else {
                placed.text += text.substr(i, end - i);
            }
            i = end - 1;
            continue;
        }
        placed.text += c;
    }
    return placed;
}

}  // namespace hotcount::sql

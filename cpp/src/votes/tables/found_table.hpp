// The definition of an existing table: its columns, keys and triggers.
//
// Each dialect reads it from its own catalogue (Adopter::find). Adoption compares it with the
// requirements of votes.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

struct FoundColumn {
    enum class Kind : std::uint8_t { integer, text, uuid, time, other };
    std::string name;
    std::string type;  ///< As the database spells it.
    Kind kind{Kind::other};
    bool may_be_null{true};
    /// A row gets a value, perhaps NULL, if an INSERT does not name the column.
    bool fills_itself{true};
    bool generated{false};  ///< No INSERT may name it.
    /// The value of `fills_itself` differs in each row (a number, a UUID), or is NULL.
    bool fills_apart{false};
    /// The collation of a text, unless texts of it compare with all others. Two compared columns
    /// must have the same one.
    std::string collation{};
};

/// Whether a default, as the database writes it, is a call that gives each row another value.
inline bool is_drawn(std::string_view text, FoundColumn::Kind kind) {
    return kind != FoundColumn::Kind::time && !text.starts_with('\'') && !text.starts_with("(-") &&
           text.find('(') != std::string_view::npos;
}

struct FoundTable {
    /// There, and no view.
    bool is_table{false};
    bool is_view{false};
    bool is_partitioned{false};
    /// Why no vote can be counted over its rows, in words that follow the table's name; or empty.
    std::string unfit{};
    /// Why no column can be added while other sessions write, in the same words; or empty.
    std::string fixed{};
    std::vector<FoundColumn> columns{};
    /// The columns of unique keys over all rows, checked at each statement's end; in the key's
    /// order.
    std::vector<std::vector<std::string>> keys{};
    /// Unique keys over a prefix of a column; that column's name is "" here.
    std::vector<std::vector<std::string>> part_keys{};
    /// The first column of each index.
    std::vector<std::string> indexed{};
    /// Names of indexes that were begun and not finished.
    std::vector<std::string> unfinished{};
    /// The columns that refer to the item table's key by a foreign key of their own.
    std::vector<std::string> refers{};
    /// Foreign keys to the item table whose rows have not been checked: the column, and the key's
    /// name.
    std::vector<std::pair<std::string, std::string>> unchecked{};
    /// Triggers or checks, which may refuse a vote or write another one.
    bool has_rules{false};

    const FoundColumn* find(std::string_view name) const {
        const auto found = std::find_if(columns.begin(), columns.end(),
                                        [&](const auto& column) { return column.name == name; });
        return found == columns.end() ? nullptr : &*found;
    }
    /// Names that differ from this one by case alone become this one.
    void spell(const std::string& name) {
        const auto one = [&](std::string& found) {
            const auto same = [](unsigned char a, unsigned char b) {
                return std::tolower(a) == std::tolower(b);
            };
            if (std::equal(found.begin(), found.end(), name.begin(), name.end(), same)) {
                found = name;
            }
        };
        for (FoundColumn& column : columns) one(column.name);
        for (auto* const of : {&keys, &part_keys}) {
            for (auto& key : *of) std::for_each(key.begin(), key.end(), one);
        }
        std::for_each(indexed.begin(), indexed.end(), one);
        std::for_each(refers.begin(), refers.end(), one);
    }
    bool has_key(std::vector<std::string> of) const {
        std::sort(of.begin(), of.end());
        return std::any_of(keys.begin(), keys.end(), [&](auto key) {
            std::sort(key.begin(), key.end());
            return key == of;
        });
    }
};

}  // namespace hotcount

// What a table is that exists already: its columns, keys and triggers, as the database tells them.
//
// Each dialect reads them from its own catalogue (Adopter::find). Adoption compares them with what
// votes need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

struct FoundColumn {
    enum class Kind : std::uint8_t { integer, text, uuid, time, other };
    std::string name;
    std::string type;  ///< As the database writes it.
    Kind kind{Kind::other};
    bool may_be_null{true};
    /// A row gets a value without an INSERT naming one, and be it NULL.
    bool fills_itself{true};
    bool generated{false};  ///< No INSERT may name it.
    /// The collation of a text if it is none that all texts compare with. Two columns that are
    /// compared have the same.
    std::string collation{};
};

struct FoundTable {
    /// There, and no view.
    bool is_table{false};
    bool is_view{false};
    std::vector<FoundColumn> columns{};
    /// Of unique keys that hold for all rows at each statement's end; each in the key's order.
    std::vector<std::vector<std::string>> keys{};
    /// The first column of each index.
    std::vector<std::string> indexed{};
    /// Names of indexes that were begun and not finished.
    std::vector<std::string> unfinished{};
    /// The columns that refer to the item table's key by a foreign key of their own.
    std::vector<std::string> refers{};
    bool has_triggers{false};

    const FoundColumn* find(std::string_view name) const {
        const auto found = std::find_if(columns.begin(), columns.end(),
                                        [&](const auto& column) { return column.name == name; });
        return found == columns.end() ? nullptr : &*found;
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

// How a dialect reads tables that the application has created, and the statements that add missing
// columns and keys while the application goes on writing.
//
// Each dialect defines one, in dialects/NAME/adopter.cpp. Stateless, thread-safe. Statements end in
// ";\n"; names come quoted as they stand in SQL.
#pragma once

#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <vector>

#include "found_table.hpp"
#include "layout.hpp"
#include "sql/dialect.hpp"

namespace hotcount {

class Adopter {
  public:
    virtual ~Adopter() = default;

    /// `items`, `id`: the item table and its key, to which `table` may refer.
    virtual Result<FoundTable> find(sql::Connection& connection, const sql::TableName& table,
                                    const sql::TableName& items, const std::string& id) const = 0;
    /// Whether a column's ids are of that type.
    virtual bool holds(const FoundColumn& column, IdType type) const = 0;
    /// A condition that is true for a value of `column` that is no id of that type; empty if the
    /// column's own type keeps them out.
    virtual std::string other_id(const std::string& column, IdType type) const {
        (void)column;
        (void)type;
        return {};
    }

    /// Whether names of columns that differ by case alone are one.
    virtual bool folds_names() const { return false; }

    /// The first statements of a script for the database's own client, whose session has default
    /// settings.
    virtual Result<std::string> begin_altering(sql::Connection& connection) const {
        (void)connection;
        return std::string{};
    }
    /// Statements that wait for a lock of a table, and so keep all behind them waiting: they give up
    /// soon.
    virtual std::string impatiently(const std::string& text) const { return text; }
    /// Why no unique key can be made while voters go on, in words that follow the table's name.
    virtual std::string cannot_add_key(const FoundTable& votes) const {
        (void)votes;
        return {};
    }
    /// Why the reference to the items cannot be added, in the same words; or empty.
    virtual std::string cannot_add_reference(const FoundTable& items, const FoundColumn& id,
                                             const FoundTable& votes,
                                             const FoundColumn& item) const {
        (void)items;
        (void)id;
        (void)votes;
        (void)item;
        return {};
    }
    /// The server checks the rows that are there when a reference is added.
    virtual bool checks_references() const { return false; }
    /// `columns`: each with its type, and a default unless it may be NULL.
    virtual std::string add_columns(const std::string& table,
                                    const std::vector<std::string>& columns) const = 0;
    /// Gives a column that every row needs a default; empty if no default is right for it.
    virtual std::string add_default(const std::string& table, const std::string& column,
                                    const FoundColumn& found) const {
        (void)table;
        (void)column;
        (void)found;
        return {};
    }
    /// A unique key over two columns. `unfinished`: an index of that name was begun.
    virtual std::string add_key(const sql::TableName& table, const std::string& key,
                                const std::string& first, const std::string& second,
                                bool unfinished) const = 0;
    virtual std::string add_index(const sql::TableName& table, const std::string& index,
                                  const std::string& column, bool unfinished) const = 0;
    /// The vote table's reference to the items; empty if the dialect cannot add one. `unchecked`: it
    /// is there by that name, and its rows are not checked.
    virtual std::string add_reference(const VoteNames& names, const std::string& key,
                                      bool unchecked) const {
        (void)names;
        (void)key;
        (void)unchecked;
        return {};
    }
    /// Begins a transaction in which each statement sees what was committed before it.
    virtual std::string begin() const = 0;
    /// Counts the votes of tables that hotcount has not counted before into the journal, and writes
    /// the marks. `openings` (may be empty), `rows` and `marks` are INSERTs that do nothing if the
    /// marks exist. Blocks no voter. Servers only.
    virtual std::string fill_journal(const VoteNames& names, const std::string& openings,
                                     const std::string& rows, const std::string& marks) const {
        (void)names;
        (void)openings;
        (void)rows;
        (void)marks;
        return {};
    }
    /// The text for the dialect's own client, whose session has default settings.
    virtual std::string for_client(const std::string& text) const { return text; }
};

}  // namespace hotcount

// A prepared statement of a session, with the buffers of its parameters and rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/sql/value.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmariadb.hpp"

namespace hotcount::sql {

struct MysqlColumn {
    bool number{false};  ///< Fetched as an integer; other columns are fetched as text.
    bool decimal{false};
    bool is_unsigned{false};
    char null{0};
    std::int64_t value{0};
    unsigned long length{0};
    std::string buffer{};  ///< A longer value is fetched a second time.
};

struct MysqlStatement {
    std::uint64_t id{0};
    libmariadb::Prepared* handle{nullptr};
    std::vector<std::size_t> order{};  ///< The parameter's index for each placeholder.
    std::vector<MysqlColumn> columns{};

    /// Allocates the buffers of parameters and columns. Called once, after the statement was
    /// prepared.
    void describe(const libmariadb::Library& library);
    /// Allocates the columns' buffers again: each result of a compound statement has its own
    /// columns.
    void describe_rows(const libmariadb::Library& library);
    /// Binds the parameters, borrowed until the statement has run. False if there are too few.
    bool bind(const libmariadb::Library& library, std::span<const Value> parameters);
    /// Called after a row was fetched: fetches values again that were longer than their buffers.
    void complete(const libmariadb::Library& library);
    void close(const libmariadb::Library& library);

  private:
    void bind_columns(const libmariadb::Library& library);

    std::vector<libmariadb::Bind> parameters_{};
    std::vector<std::int64_t> integers_{};
    std::vector<libmariadb::Bind> results_{};
};

/// The row that was fetched last, or a copy of an earlier one.
class MysqlRow final : public Row {
  public:
    explicit MysqlRow(const std::vector<MysqlColumn>& columns) : columns_(columns) {}
    bool is_null(int column) const override { return at(column).null != 0; }
    bool is_integer(int column) const override;
    std::int64_t integer(int column) const override;
    std::string_view text(int column) const override;

  private:
    const MysqlColumn& at(int column) const { return columns_[static_cast<std::size_t>(column)]; }
    const std::vector<MysqlColumn>& columns_;
    mutable std::string written_{};  // The text of an integer column.
};

/// Where the statement that starts at `start` ends in a script: at its ";\n", or the text's end.
std::size_t end_of_statement(std::string_view text, std::size_t start);

}  // namespace hotcount::sql

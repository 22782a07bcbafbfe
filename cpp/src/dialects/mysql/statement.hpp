// One statement as a session keeps it prepared: where its parameters come from and its rows go to.
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
    bool number{false};  ///< An integer column, fetched as one; others as text.
    bool decimal{false};
    bool is_unsigned{false};
    char null{0};
    std::int64_t value{0};
    unsigned long length{0};
    std::string buffer{};  ///< Its size is the most that is fetched at once.
};

struct MysqlStatement {
    std::uint64_t id{0};
    libmariadb::Prepared* handle{nullptr};
    std::vector<std::size_t> order{};  ///< Which parameter each placeholder stands for.
    std::vector<MysqlColumn> columns{};

    /// Once, after it was prepared: makes room for what it takes and returns.
    void describe(const libmariadb::Library& library);
    /// The same for the rows that it returns now: of a compound statement each result has its own.
    void describe_rows(const libmariadb::Library& library);
    /// Gives it the parameters, borrowed until it has run. False where there are too few.
    bool bind(const libmariadb::Library& library, std::span<const Value> parameters);
    /// After a row was fetched: fetches again what did not fit.
    void complete(const libmariadb::Library& library);
    void close(const libmariadb::Library& library);

  private:
    void bind_columns(const libmariadb::Library& library);

    std::vector<libmariadb::Bind> given_{};
    std::vector<std::int64_t> numbers_{};
    std::vector<libmariadb::Bind> taken_{};
};

/// The row that was fetched last, or one that was kept.
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
    mutable std::string written_{};  // An integer column asked for as text.
};

/// Where the statement that starts at `start` ends in a script: at its ";\n", or the text's end.
std::size_t end_of_statement(std::string_view text, std::size_t start);

}  // namespace hotcount::sql

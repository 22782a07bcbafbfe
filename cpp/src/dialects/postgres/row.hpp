// The rows of a libpq result, one after another.
#pragma once

#include <array>
#include <charconv>
#include <hotcount/detail/sql/value.hpp>

#include "libpq.hpp"

namespace hotcount::sql {

class PostgresRow final : public Row {
  public:
    PostgresRow(const Libpq& pq, const pg_result* result) : pq_(pq), result_(result) {}
    int number() const { return number_; }
    void advance() { ++number_; }

    bool is_null(int column) const override {
        return pq_.PQgetisnull(result_, number_, column) != 0;
    }
    bool is_integer(int column) const override {
        // int8, int2, int4, numeric: the OIDs of pg_type, which never change. A SUM of int8 is
        // numeric.
        static constexpr std::array<unsigned int, 4> kTypes{20, 21, 23, 1700};
        const unsigned int type = pq_.PQftype(result_, column);
        const bool number = type == kTypes[0] || type == kTypes[1] || type == kTypes[2];
        std::int64_t value = 0;
        return !is_null(column) && (number || (type == kTypes[3] && read(column, value)));
    }
    std::int64_t integer(int column) const override {
        std::int64_t value = 0;
        read(column, value);
        return value;
    }
    std::string_view text(int column) const override {
        return {pq_.PQgetvalue(result_, number_, column),
                static_cast<std::size_t>(pq_.PQgetlength(result_, number_, column))};
    }

  private:
    /// Whether the whole of it is a number of 64 bits.
    bool read(int column, std::int64_t& value) const {
        const std::string_view digits = text(column);
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return error == std::errc{} && end == digits.data() + digits.size();
    }

    const Libpq& pq_;
    const pg_result* result_;
    int number_{0};
};

}  // namespace hotcount::sql

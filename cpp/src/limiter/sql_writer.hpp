// Writes the hits of one group commit: one row for each key, locked in the order of the keys.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/detail/sql/group_commit.hpp>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"
#include "limiter/sql_table.hpp"
#include "limiter/stored_law.hpp"

namespace hotcount {

/// A hit, a refund, a block or a reset.
struct QueuedHit final : sql::QueuedWrite {
    using Apply = std::function<Outcome(StoredKey&, std::int64_t now_us)>;
    QueuedHit(std::string of_key, std::shared_ptr<const StoredLaw> by_law, bool needs,
              Apply to_apply)
        : key(std::move(of_key)),
          law(std::move(by_law)),
          needs_row(needs),
          apply(std::move(to_apply)) {}

    const std::string key;
    const std::shared_ptr<const StoredLaw> law;  // The same for all hits of a key.
    const bool needs_row;  // There must be a row; what looks or gives back makes none.
    const Apply apply;     // None: a reset.
    Outcome outcome{};     // Once it is written.
};

class HitWriter final : public sql::BatchWriter {
  public:
    explicit HitWriter(std::shared_ptr<const LimitTable> table) : table_(std::move(table)) {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::QueuedWrite>> batch) override;

  private:
    struct Row {
        bool needed{false};                 // The row must be there.
        std::optional<std::string> text{};  // As it is stored; none: it is not there.
        std::unique_ptr<StoredKey> key{};
    };
    using Rows = std::map<std::string_view, Row>;  // In the order of the locks.
    using Keys = std::vector<std::string_view>;

    /// The servers' clock; the later one if it is read several times.
    Result<std::int64_t> lock_rows(sql::Connection& connection, Rows& rows);
    Result<void> read(sql::Connection& connection, const Keys& keys, Rows& rows,
                      std::int64_t& now) const;
    void decide(std::span<const std::shared_ptr<sql::QueuedWrite>> batch, Rows& rows,
                std::int64_t now) const;
    Result<void> write_rows(sql::Connection& connection, const Rows& rows, std::int64_t now) const;
    Result<void> remove_expired(sql::Connection& connection, std::int64_t now,
                                std::size_t most) const;

    const std::shared_ptr<const LimitTable> table_;
    std::size_t inserted_{0};  // By the batch that is being written.
};

/// With a hint, if the table is missing.
Error explain_missing_limits(Error error);

}  // namespace hotcount

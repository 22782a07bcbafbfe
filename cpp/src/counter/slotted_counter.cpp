#include <algorithm>
#include <hotcount/base/check.hpp>
#include <hotcount/base/codec.hpp>
#include <hotcount/base/fork.hpp>
#include <hotcount/counter/slotted_counter.hpp>

#include "slot_table.hpp"

namespace hotcount {
namespace {

Error count_overflow(std::string_view key) {
    return make_error(ErrorCode::overflow, "the count of " + printable(key) +
                                               " would leave signed 64 bits; nothing was applied");
}

struct AddTicket final : sql::Ticket {
    AddTicket(std::string_view to_key, std::int64_t to_add, std::optional<std::string_view> id,
              std::int64_t in_slot)
        : key(to_key), n(to_add), slot(in_slot) {
        if (id) op_id.emplace(*id);
    }
    const std::string key;
    const std::int64_t n;
    const std::int64_t slot;
    std::optional<std::string> op_id{};
};

class AddWriter final : public sql::BatchWriter {
  public:
    AddWriter(std::shared_ptr<const SlotTable> table, Duration op_keep,
              std::shared_ptr<const Clock> clock)
        : table_(std::move(table)), op_keep_(op_keep), clock_(std::move(clock)) {}

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::Ticket>> batch) override {
        std::vector<const AddTicket*> adds;
        adds.reserve(batch.size());
        for (const auto& ticket : batch) {
            const auto* add = static_cast<const AddTicket*>(ticket.get());
            HOTCOUNT_TRY_ASSIGN(const bool fresh, remember(connection, *add));
            if (fresh) adds.push_back(add);
        }
        // Sorted, so that writers everywhere take their row locks in one order.
        std::stable_sort(adds.begin(), adds.end(), [](const auto* a, const auto* b) {
            return std::tie(a->key, a->slot) < std::tie(b->key, b->slot);
        });
        for (auto first = adds.begin(); first != adds.end();) {
            const AddTicket& row = **first;
            std::int64_t sum = 0;
            for (; first != adds.end() && (*first)->key == row.key && (*first)->slot == row.slot;
                 ++first) {
                const auto added = checked_add(sum, (*first)->n);
                if (!added) return count_overflow(row.key);
                sum = *added;
            }
            HOTCOUNT_TRY(add_to_slot(connection, row.key, row.slot, sum));
        }
        return {};
    }

    Result<void> add_to_slot(sql::Connection& connection, std::string_view key, std::int64_t slot,
                             std::int64_t n) const {
        // SQLite turns a sum beyond 64 bits into a real without a word.
        const sql::RowVisitor check = [&](const sql::Row& row) -> Result<void> {
            if (row.is_integer(0)) return {};
            return count_overflow(key);
        };
        HOTCOUNT_TRY(connection.query(table_->add, {key, slot, n}, check));
        return {};
    }

  private:
    // False where the add's op_id was counted before.
    Result<bool> remember(sql::Connection& connection, const AddTicket& add) const {
        if (!add.op_id) return true;
        const auto seconds_of = [](auto time) {
            return std::chrono::duration_cast<std::chrono::seconds>(time).count();
        };
        const std::int64_t now = seconds_of(clock_->wall_now().time_since_epoch());
        // Two forgotten for each one remembered: the ledger shrinks while it is used.
        HOTCOUNT_TRY(connection.execute(table_->forget_ops, {now - seconds_of(op_keep_)}));
        HOTCOUNT_TRY_ASSIGN(
            const std::int64_t added,
            connection.execute(table_->remember_op,
                               {std::string_view{add.key}, std::string_view{*add.op_id}, now}));
        return added == 1;
    }

    std::shared_ptr<const SlotTable> table_;
    Duration op_keep_;
    std::shared_ptr<const Clock> clock_;
};

class SqlSlottedCounter final : public SlottedCounter {
  public:
    SqlSlottedCounter(std::shared_ptr<sql::Database> database, SlottedCounterOptions options)
        : database_(std::move(database)),
          options_(std::move(options)),
          table_(std::make_shared<const SlotTable>(options_)),
          slots_(options_.slots),
          commit_([this] {
              return std::make_unique<sql::GroupCommit>(
                  database_, std::make_shared<AddWriter>(table_, options_.op_keep, options_.clock),
                  options_.commit);
          }) {}

    Result<void> create_table(Timeout timeout) override {
        const Deadline deadline = database_->deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database_->writer(deadline));
        HOTCOUNT_TRY(connection->begin(deadline));
        HOTCOUNT_TRY(connection->run_script(table_->schema));
        return connection->commit();
    }

    Result<void> add(std::string_view key, std::int64_t n, std::optional<std::string_view> op_id,
                     Timeout timeout) override {
        HOTCOUNT_TRY(check_key(key, KeyRule::sql_text));
        if (op_id) HOTCOUNT_TRY(check_op_id(*op_id));
        return commit_.get().submit(make_ticket(key, n, op_id), database_->deadline(timeout));
    }

    std::vector<Result<void>> add_many(
        std::span<const std::pair<std::string_view, std::int64_t>> amounts,
        Timeout timeout) override {
        std::vector<Result<void>> results(amounts.size());
        std::vector<std::shared_ptr<sql::Ticket>> tickets;
        std::vector<std::size_t> places;  // Where each ticket's result belongs.
        for (std::size_t i = 0; i < amounts.size(); ++i) {
            const auto& [key, n] = amounts[i];
            results[i] = check_key(key, KeyRule::sql_text);
            if (!results[i]) continue;
            tickets.push_back(make_ticket(key, n, std::nullopt));
            places.push_back(i);
        }
        auto written = commit_.get().submit_all(tickets, database_->deadline(timeout));
        for (std::size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(written[i]);
        return results;
    }

    Result<std::int64_t> get(std::string_view key, Timeout timeout) override {
        return std::move(get_many(std::span{&key, 1}, timeout).front());
    }

    std::vector<Result<std::int64_t>> get_many(std::span<const std::string_view> keys,
                                               Timeout timeout) override {
        std::vector<Result<std::int64_t>> counts;
        counts.reserve(keys.size());
        const Deadline deadline = database_->deadline(timeout);
        auto connection = database_->reader(deadline);
        auto begun =
            connection ? (*connection)->begin_read(deadline) : Result<void>{connection.error()};
        if (!begun) {
            counts.assign(keys.size(), begun.error());
            return counts;
        }
        for (const std::string_view key : keys) {
            auto checked = check_key(key, KeyRule::sql_text);
            if (!checked) {
                counts.emplace_back(std::move(checked).error());
            } else {
                counts.push_back(read_sum(**connection, key));
            }
        }
        return counts;
    }

    Result<std::int64_t> reset(std::string_view key, Timeout timeout) override {
        return rewrite(key, timeout, false);
    }

    Result<std::int64_t> compact(std::string_view key, Timeout timeout) override {
        return rewrite(key, timeout, true);
    }

    Result<void> resize(std::int64_t slots) override {
        HOTCOUNT_TRY(check_slots(slots));
        slots_.store(slots, std::memory_order_relaxed);
        return {};
    }

    std::int64_t slots() const override { return slots_.load(std::memory_order_relaxed); }
    const SlottedCounterOptions& options() const override { return options_; }

    static Result<void> check_slots(std::int64_t slots) {
        if (slots >= 1 && slots <= 10'000) return {};
        return make_error(ErrorCode::config,
                          "slots is " + std::to_string(slots) + "; it takes 1 to 10000");
    }

  private:
    static Result<void> check_op_id(std::string_view op_id) {
        if (!op_id.empty() && op_id.size() <= kMaxKeyBytes) return {};
        return make_error(ErrorCode::config, "op_id takes 1 to 1000 bytes");
    }

    std::shared_ptr<AddTicket> make_ticket(std::string_view key, std::int64_t n,
                                           std::optional<std::string_view> op_id) const {
        return std::make_shared<AddTicket>(key, n, op_id,
                                           choose_slot(options_.slot_choice, slots()));
    }

    Result<std::int64_t> read_sum(sql::Connection& connection, std::string_view key) const {
        std::int64_t sum = 0;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            sum = row.integer(0);
            return {};
        };
        HOTCOUNT_TRY(connection.query(table_->sum, {key}, read));
        return sum;
    }

    // Removes the key's rows and, where `keep`, puts their sum into slot 0.
    Result<std::int64_t> rewrite(std::string_view key, Timeout timeout, bool keep) {
        HOTCOUNT_TRY(check_key(key, KeyRule::sql_text));
        const Deadline deadline = database_->deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const sql::Lease connection, database_->writer(deadline));
        HOTCOUNT_TRY(connection->begin(deadline));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t sum, read_sum(*connection, key));
        HOTCOUNT_TRY(connection->execute(table_->remove, {key}));
        if (keep && sum != 0) {
            HOTCOUNT_TRY(connection->execute(table_->add, {key, std::int64_t{0}, sum}));
        }
        HOTCOUNT_TRY(connection->commit());
        return sum;
    }

    std::shared_ptr<sql::Database> database_;
    SlottedCounterOptions options_;
    std::shared_ptr<const SlotTable> table_;
    std::atomic<std::int64_t> slots_;
    ForkLocal<sql::GroupCommit> commit_;
};

}  // namespace

Result<std::shared_ptr<SlottedCounter>> SlottedCounter::make(
    std::shared_ptr<sql::Database> database, SlottedCounterOptions options) {
    HOTCOUNT_TRY(check_identifier("table", options.table));
    HOTCOUNT_TRY(check_identifier("key_column", options.key_column));
    HOTCOUNT_TRY(check_identifier("slot_column", options.slot_column));
    HOTCOUNT_TRY(check_identifier("count_column", options.count_column));
    HOTCOUNT_TRY(SqlSlottedCounter::check_slots(options.slots));
    if (options.op_keep < std::chrono::seconds{1}) {
        return make_error(ErrorCode::config, "op_keep must be 1 second or more");
    }
    HOTCOUNT_TRY(sql::check_options(options.commit));
    return std::shared_ptr<SlottedCounter>{
        std::make_shared<SqlSlottedCounter>(std::move(database), std::move(options))};
}

}  // namespace hotcount

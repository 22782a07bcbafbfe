#include "slot_writer.hpp"

#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/counter/session_statements.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <tuple>

#include "hotcount_embedded/counter/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount {
namespace {

sql::Statements slot_statements(const SlottedCounterOptions& options, const sql::Grammar& g) {
    return {{sql::counter::kSlotsSql, g.words()},
            {{"table", sql::quote_identifier(options.table)},
             {"key", sql::quote_identifier(options.key_column)},
             {"slot", sql::quote_identifier(options.slot_column)},
             {"count", sql::quote_identifier(options.count_column)},
             {"op", sql::quote_identifier(options.table + "_op")},
             {"op_index", sql::quote_identifier(options.table + "_op_at")},
             {"indexes_apart", sql::flag(g.creates_indexes_apart())},
             {"locks_rows", sql::flag(g.locks_rows())},
             {"session_mode", std::string{g.session_mode()}}}};
}

}  // namespace

SlotTable::SlotTable(const SlottedCounterOptions& options, sql::Dialect dialect)
    : SlotTable(slot_statements(options, dialect.grammar()), !dialect.grammar().locks_rows()) {}

SlotTable::SlotTable(const sql::Statements& sql, bool one_writer)
    : schema(sql["schema"]),
      add(sql::repeat_rows(sql["add"], 1)),
      add_or_insert(sql::repeat_rows(sql["add_or_insert"], 1)),
      take_free(sql["take_free"]),
      find(sql["find"]),
      sum(sql["sum"]),
      lock_rows(sql["lock_rows"]),
      remove(sql["remove"]),
      remember_op(sql["remember_op"]),
      old_ops(sql["old_ops"]),
      forget_op(sql["forget_op"]),
      one_writer_(one_writer) {
    if (one_writer_) return;
    for (const std::size_t rows : {256U, 64U, 16U, 4U}) {
        add_rows.push_back({rows, sql::Statement{sql::repeat_rows(sql["add_or_insert"], rows)}});
    }
}

// For an add in the application's own transaction, which uses the same rows.
std::map<std::string, std::string> counter_session_statements(
    sql::Dialect dialect, const SlottedCounterOptions& options) {
    const sql::Grammar& g = dialect.grammar();
    const sql::Statements sql = slot_statements(options, g);
    std::map<std::string, std::string> made;
    const auto add = [&](const char* name, std::string_view statement) {
        made[name] = sql::session_statement(g, sql[statement], {"key", "slot", "n"});
    };
    add("add", "session_add");
    if (g.locks_rows()) add("update", "session_update");
    if (!g.session_mode().empty()) add("find", "session_find");
    add("sum", "sum");
    return made;
}

namespace {

// A server refuses a number that its column cannot hold. The server's message follows ours.
Error name_key(Error error, std::string_view key) {
    if (error.code != ErrorCode::overflow) return error;
    Error named = count_overflow(key);
    named.message += ": " + error.message;
    named.server_code = std::move(error.server_code);
    return named;
}

Result<bool> finds(sql::Connection& connection, const sql::Statement& statement,
                   std::string_view key, std::int64_t slot) {
    bool found = false;
    const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
        found = true;
        return {};
    };
    HOTCOUNT_TRY(connection.query(statement, {key, slot}, see));
    return found;
}

}  // namespace

Error count_overflow(std::string_view key) {
    return make_error(ErrorCode::overflow, "the count of " + printable(key) +
                                               " would leave signed 64 bits; nothing was applied")
        .about(&ErrorFacts::key, key);
}

Result<void> add_to_slot(sql::Connection& connection, const SlotTable& table, std::string_view key,
                         std::int64_t slot, std::int64_t n) {
    if (table.one_writer()) {
        // SQLite turns a sum beyond 64 bits into a real without a word.
        const sql::RowVisitor check = [&](const sql::Row& row) -> Result<void> {
            if (row.is_integer(0)) return {};
            return count_overflow(key);
        };
        HOTCOUNT_TRY(connection.query(table.add, {key, slot, n}, check));
        return {};
    }
    auto changed = connection.execute(table.add, {key, slot, n});
    if (changed && *changed == 0) {
        // Absent; or n is 0, which MySQL does not count as a change.
        changed = connection.execute(table.add_or_insert, {key, slot, n});
    }
    if (!changed) return name_key(std::move(changed).error(), key);
    return {};
}

void Spread::grow(std::int64_t found_too_few) {
    if (!adaptive_) return;
    const std::int64_t more = std::min(2 * found_too_few, most_);
    if (more > found_too_few) {
        slots_.compare_exchange_strong(found_too_few, more, std::memory_order_relaxed);
    }
}

Result<void> SlotWriter::write(sql::Connection& connection, Batch batch, sql::BatchTurn&) {
    HOTCOUNT_TRY_ASSIGN(const auto adds, not_yet_counted(connection, batch));
    HOTCOUNT_TRY_ASSIGN(const std::vector<Sum> sums, this->sums(connection, adds));
    std::span<const Sum> left{sums};
    const bool looks = spread_->adaptive() && !table_->one_writer();
    for (const auto& [rows, add_or_insert] : table_->add_rows) {
        if (looks) break;
        for (; left.size() >= rows; left = left.subspan(rows)) {
            std::vector<sql::Value> parameters;
            parameters.reserve(3 * rows);
            for (const Sum& sum : left.first(rows)) {
                parameters.insert(parameters.end(), {sum.key, sum.slot, sum.n});
            }
            HOTCOUNT_TRY(connection.run(add_or_insert, parameters, nullptr));
        }
    }
    for (const Sum& sum : left) {
        HOTCOUNT_TRY(looks && !sum.named
                         ? add_where_free(connection, sum)
                         : add_to_slot(connection, *table_, sum.key, sum.slot, sum.n));
    }
    return {};
}

Result<std::vector<sql::BatchWriter::Found>> SlotWriter::find_applied(
    sql::Connection&, std::span<const std::shared_ptr<sql::QueuedWrite>> batch) {
    std::vector<Found> found;
    found.reserve(batch.size());
    for (const auto& write : batch) {
        const bool again = static_cast<const QueuedAdd&>(*write).op_id.has_value();
        found.push_back(again ? Found::nothing_applied : Found::unknown);
    }
    return found;
}

Result<std::vector<const QueuedAdd*>> SlotWriter::not_yet_counted(
    sql::Connection& connection, std::span<const std::shared_ptr<sql::QueuedWrite>> batch) const {
    std::vector<const QueuedAdd*> adds;
    std::vector<const QueuedAdd*> with_id;
    adds.reserve(batch.size());
    for (const auto& write : batch) {
        const auto* add = static_cast<const QueuedAdd*>(write.get());
        (add->op_id ? with_id : adds).push_back(add);
    }
    if (with_id.empty()) return adds;
    std::stable_sort(with_id.begin(), with_id.end(), [](const auto* a, const auto* b) {
        return std::tie(a->key, *a->op_id) < std::tie(b->key, *b->op_id);
    });
    const auto seconds_of = [](auto time) {
        return std::chrono::duration_cast<std::chrono::seconds>(time).count();
    };
    const std::int64_t now = seconds_of(clock_->wall_now().time_since_epoch());
    // Two forgotten for each one remembered: the ledger shrinks while it is used.
    HOTCOUNT_TRY(forget_ops(connection, now - seconds_of(op_keep_), 2 * with_id.size()));
    for (const QueuedAdd* add : with_id) {
        HOTCOUNT_TRY_ASSIGN(
            const std::int64_t added,
            connection.execute(table_->remember_op,
                               {std::string_view{add->key}, std::string_view{*add->op_id}, now}));
        if (added == 1) adds.push_back(add);
    }
    return adds;
}

Result<void> SlotWriter::forget_ops(sql::Connection& connection, std::int64_t before,
                                    std::size_t limit) const {
    std::vector<std::pair<std::string, std::string>> old;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        old.emplace_back(row.text(0), row.text(1));
        return {};
    };
    HOTCOUNT_TRY(
        connection.query(table_->old_ops, {before, static_cast<std::int64_t>(limit)}, read));
    for (const auto& [key, op_id] : old) {
        HOTCOUNT_TRY(connection.execute(table_->forget_op,
                                        {std::string_view{key}, std::string_view{op_id}}));
    }
    return {};
}

std::int64_t SlotWriter::slot_for(const sql::Connection& connection) const {
    const auto slots = static_cast<std::uint64_t>(spread_->slots());
    if (choice_ == SlotChoice::random) {
        return static_cast<std::int64_t>(thread_random().below(slots));
    }
    if (table_->one_writer()) return 0;
    return static_cast<std::int64_t>(connection.place() % slots);
}

// One for each row, sorted, so that writers everywhere take their locks in one order.
Result<std::vector<SlotWriter::Sum>> SlotWriter::sums(
    const sql::Connection& connection, std::span<const QueuedAdd* const> adds) const {
    std::vector<Sum> all;
    all.reserve(adds.size());
    for (const QueuedAdd* add : adds) {
        const bool named = add->slot.has_value();
        all.push_back({add->key, named ? *add->slot : slot_for(connection), add->n, named});
    }
    std::stable_sort(all.begin(), all.end(), [](const Sum& a, const Sum& b) {
        return std::tie(a.key, a.slot) < std::tie(b.key, b.slot);
    });
    std::vector<Sum> sums;
    sums.reserve(all.size());
    for (const Sum& each : all) {
        if (sums.empty() || sums.back().key != each.key || sums.back().slot != each.slot) {
            sums.push_back(each);
            continue;
        }
        const auto sum = checked_add(sums.back().n, each.n);
        if (!sum) return count_overflow(each.key);
        sums.back().n = *sum;
        sums.back().named |= each.named;
    }
    return sums;
}

// Tries the row without waiting first. A row that another transaction has locked makes adaptive
// slots grow, and the add goes to another slot.
Result<void> SlotWriter::add_where_free(sql::Connection& connection, const Sum& sum) const {
    const std::int64_t slots = spread_->slots();
    std::int64_t slot = sum.slot % slots;
    auto added = [&]() -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(const bool taken, finds(connection, table_->take_free, sum.key, slot));
        if (!taken) {
            HOTCOUNT_TRY_ASSIGN(const bool held, finds(connection, table_->find, sum.key, slot));
            if (held) {
                spread_->grow(slots);
                slot = slot_for(connection);
            }
        }
        return add_to_slot(connection, *table_, sum.key, slot, sum.n);
    }();
    if (!added && sql::is_transient(added.error())) spread_->grow(slots);
    return added;
}

std::int64_t choose_slot(SlotChoice choice, std::int64_t slots) {
    const auto bound = static_cast<std::uint64_t>(slots);
    if (choice == SlotChoice::random) {
        return static_cast<std::int64_t>(thread_random().below(bound));
    }
    // Threads get consecutive places, so that the first `slots` threads have a slot each. A process
    // begins at a random place: from 0, all processes would write to the same few slots.
    static std::atomic<std::uint64_t> next_place{0};
    static ForkLocal<const std::uint64_t> start{
        [] { return std::make_unique<const std::uint64_t>(thread_random().below(1'000'000)); }};
    thread_local const std::uint64_t place = next_place.fetch_add(1, std::memory_order_relaxed);
    return static_cast<std::int64_t>((start.get() + place) % bound);
}

}  // namespace hotcount

#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <hotcount/slotted_counter.hpp>

#include "slot_writer.hpp"

namespace hotcount {
namespace {

class SqlSlottedCounter final : public SlottedCounter,
                                public std::enable_shared_from_this<SqlSlottedCounter> {
  public:
    SqlSlottedCounter(std::shared_ptr<sql::Database> database, SlottedCounterOptions options)
        : database_(std::move(database)),
          options_(std::move(options)),
          table_(std::make_shared<const SlotTable>(options_, database_->dialect())),
          spread_(std::make_shared<Spread>(options_.slots, options_.adaptive)),
          commit_([this] {
              return std::make_unique<sql::GroupCommit>(
                  database_, std::make_shared<SlotWriter>(table_, options_, spread_),
                  options_.commit);
          }),
          elsewhere_([this] {
              return std::make_unique<WaitingCalls>(database_->name(), options_.commit.workers,
                                                    options_.commit.max_queue);
          }) {}

    // -- calls that are waited for ----------------------------------------------------------------

    Result<void> create_table(Timeout timeout) override {
        const Deadline deadline = database_->deadline(timeout);
        return sql::transact(*database_, deadline,
                             [&](sql::Connection& connection) -> Result<void> {
                                 return connection.run_script(table_->schema);
                             });
    }

    Result<void> add(std::string_view key, std::int64_t n, std::optional<std::string_view> op_id,
                     std::optional<std::int64_t> slot, Timeout timeout) override {
        HOTCOUNT_TRY(check_add(key, op_id, slot));
        return commit_.get().submit(std::make_shared<QueuedAdd>(key, n, op_id, slot),
                                    database_->deadline(timeout));
    }

    std::vector<Result<void>> add_many(
        std::span<const std::pair<std::string_view, std::int64_t>> amounts,
        Timeout timeout) override {
        Batch batch = check(amounts);
        return batch.merge(commit_.get().submit_all(batch.writes, database_->deadline(timeout)));
    }

    Result<std::int64_t> get(std::string_view key, Timeout timeout) override {
        return std::move(get_many(std::span{&key, 1}, timeout).front());
    }

    std::vector<Result<std::int64_t>> get_many(std::span<const std::string_view> keys,
                                               Timeout timeout) override {
        std::vector<Result<std::int64_t>> counts;
        counts.reserve(keys.size());
        const Deadline deadline = database_->deadline(timeout);
        // One sum is one statement, which spares BEGIN and COMMIT.
        const bool alone =
            keys.size() == 1 && !database_->dialect().grammar().reads_alone_at_session_level();
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            counts.clear();
            for (const std::string_view key : keys) {
                if (auto checked = check_text(key); !checked) {
                    counts.emplace_back(std::move(checked).error());
                    continue;
                }
                auto sum =
                    read_sum(connection, key, alone ? std::optional{deadline} : std::nullopt);
                if (!sum && sql::is_transient(sum.error())) return std::move(sum).error();
                counts.push_back(std::move(sum));
            }
            return {};
        };
        const auto done = alone ? sql::read_statement(*database_, deadline, read)
                                : sql::read_snapshot(*database_, deadline, read);
        // Sums that were read before the error stay.
        if (!done) counts.resize(keys.size(), done.error());
        return counts;
    }

    Result<std::int64_t> reset(std::string_view key, Timeout timeout) override {
        return rewrite(key, timeout, false);
    }

    Result<std::int64_t> compact(std::string_view key, Timeout timeout) override {
        return rewrite(key, timeout, true);
    }

    // -- calls that are not -----------------------------------------------------------------------

    void add_async(std::string_view key, std::int64_t n, std::optional<std::string_view> op_id,
                   std::optional<std::int64_t> slot, Completion<void> done,
                   AsyncCall call) override {
        if (auto fits = check_add(key, op_id, slot); !fits) return done(std::move(fits));
        commit_.get().submit_async(std::make_shared<QueuedAdd>(key, n, op_id, slot),
                                   database_->deadline(call.timeout), std::move(done));
    }

    void add_many_async(std::span<const std::pair<std::string_view, std::int64_t>> amounts,
                        Completion<std::vector<Result<void>>> done, AsyncCall call) override {
        const auto batch = std::make_shared<Batch>(check(amounts));
        commit_.get().submit_all_async(batch->writes, database_->deadline(call.timeout),
                                       [batch, done = std::move(done)](auto written) {
                                           done(batch->merge(std::move(written)));
                                       });
    }

    void create_table_async(Completion<void> done, AsyncCall call) override {
        elsewhere(call, std::move(done),
                  [](SlottedCounter& self, Timeout left) { return self.create_table(left); });
    }

    void get_async(std::string_view key, Completion<std::int64_t> done, AsyncCall call) override {
        of_key<&SlottedCounter::get>(key, std::move(done), call);
    }
    void reset_async(std::string_view key, Completion<std::int64_t> done, AsyncCall call) override {
        of_key<&SlottedCounter::reset>(key, std::move(done), call);
    }
    void compact_async(std::string_view key, Completion<std::int64_t> done,
                       AsyncCall call) override {
        of_key<&SlottedCounter::compact>(key, std::move(done), call);
    }

    void get_many_async(std::span<const std::string_view> keys,
                        Completion<std::vector<Result<std::int64_t>>> done,
                        AsyncCall call) override {
        elsewhere(call, std::move(done),
                  [kept = std::vector<std::string>(keys.begin(), keys.end())](SlottedCounter& self,
                                                                              Timeout left) {
                      const std::vector<std::string_view> views(kept.begin(), kept.end());
                      return Result{self.get_many(views, left)};
                  });
    }

    Result<void> resize(std::int64_t slots) override {
        HOTCOUNT_TRY(check_slots(slots));
        spread_->resize(slots);
        return {};
    }

    std::int64_t slots() const override { return spread_->slots(); }
    const SlottedCounterOptions& options() const override { return options_; }

    static Result<void> check_slots(std::int64_t slots) {
        if (slots >= 1 && slots <= 10'000) return {};
        return bad_value("slots", slots, "it takes 1 to 10000");
    }

  private:
    // A batch's valid elements as writes, and the errors of the others by index.
    struct Batch {
        std::vector<Result<void>> results;
        std::vector<std::shared_ptr<sql::QueuedWrite>> writes;
        std::vector<std::size_t> places;  // Where each write's result belongs.

        std::vector<Result<void>> merge(std::vector<Result<void>> written) {
            for (std::size_t i = 0; i < places.size(); ++i) {
                results[places[i]] = std::move(written[i]);
            }
            return std::move(results);
        }
    };

    Batch check(std::span<const std::pair<std::string_view, std::int64_t>> amounts) const {
        Batch batch;
        batch.results.resize(amounts.size());
        for (std::size_t i = 0; i < amounts.size(); ++i) {
            const auto& [key, n] = amounts[i];
            batch.results[i] = check_text(key);
            if (!batch.results[i]) continue;
            batch.writes.push_back(std::make_shared<QueuedAdd>(key, n));
            batch.places.push_back(i);
        }
        return batch;
    }

    // Runs `work` in a thread of elsewhere_; the counter lives until then.
    template <class T, class Work>
    void elsewhere(const AsyncCall& call, Completion<T> done, Work work) {
        const Deadline deadline = database_->deadline(call.timeout);
        elsewhere_.get().run<T>(deadline, call.cancelled, std::move(done),
                                [self = shared_from_this(), work = std::move(work), deadline] {
                                    return work(*self, deadline.remaining());
                                });
    }
    template <auto Now>
    void of_key(std::string_view key, Completion<std::int64_t> done, const AsyncCall& call) {
        if (auto fits = check_text(key); !fits) return done(std::move(fits).error());
        elsewhere(call, std::move(done),
                  [key = std::string{key}](SlottedCounter& self, Timeout left) {
                      return (self.*Now)(key, left);
                  });
    }

    bool text_is_utf8() const { return database_->dialect().grammar().text_is_utf8(); }
    KeyRule key_rule() const { return text_is_utf8() ? KeyRule::utf8_text : KeyRule::sql_text; }
    Result<void> check_text(std::string_view key) const { return check_key(key, key_rule()); }

    Result<void> check_add(std::string_view key, std::optional<std::string_view> op_id,
                           std::optional<std::int64_t> slot) const {
        HOTCOUNT_TRY(check_text(key));
        if (op_id) HOTCOUNT_TRY(check_op_id(*op_id));
        const std::int64_t most = spread_->most() - 1;
        if (!slot || (*slot >= 0 && *slot <= most)) return {};
        return bad_value("slot", *slot, "it takes 0 to " + std::to_string(most));
    }

    Result<void> check_op_id(std::string_view op_id) const {
        if (op_id.empty() || op_id.size() > kMaxKeyBytes) {
            return bad_option("op_id", "takes 1 to 1000 bytes");
        }
        if (text_is_utf8() && !check_text(op_id)) {
            return bad_option("op_id", "takes UTF-8 without NUL in this database");
        }
        return {};
    }

    // `alone`: reads in a transaction of its own, until that deadline.
    Result<std::int64_t> read_sum(sql::Connection& connection, std::string_view key,
                                  std::optional<Deadline> alone) const {
        std::int64_t sum = 0;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            // The servers return sums as decimals.
            if (!row.is_integer(0)) return sum_overflow(key);
            sum = row.integer(0);
            return {};
        };
        const std::array<sql::Value, 1> parameters{key};
        auto found = alone ? connection.read_alone(table_->sum, parameters, &read, *alone)
                           : connection.run(table_->sum, parameters, &read);
        if (!found && found.error().code == ErrorCode::overflow) return sum_overflow(key);
        if (!found) return std::move(found).error();
        return sum;
    }

    // Removes the key's rows and, if `keep`, puts their sum into slot 0. Only rows that it has
    // locked and read are removed: a row that another transaction adds meanwhile stays.
    Result<std::int64_t> rewrite(std::string_view key, Timeout timeout, bool keep) {
        HOTCOUNT_TRY(check_text(key));
        const Deadline deadline = database_->deadline(timeout);
        return sql::transact(*database_, deadline, [&](sql::Connection& connection) {
            return rewrite_within(connection, key, keep);
        });
    }

    Result<std::int64_t> rewrite_within(sql::Connection& connection, std::string_view key,
                                        bool keep) const {
        constexpr std::int64_t kFirst = 0;
        // Slot 0 must exist and be locked first, because every writer locks slots in order.
        if (keep) HOTCOUNT_TRY(add_to_slot(connection, *table_, key, kFirst, 0));
        std::vector<std::int64_t> slots;
        __extension__ __int128 sum = 0;
        std::int64_t first = 0;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            const std::int64_t slot = row.integer(0);
            const std::int64_t count = row.is_null(1) ? 0 : row.integer(1);
            slots.push_back(slot);
            if (slot == kFirst) first = count;
            sum += count;
            return {};
        };
        HOTCOUNT_TRY(connection.query(table_->lock_rows, {key}, read));
        const auto whole = static_cast<std::int64_t>(sum);
        if (whole != sum) return sum_overflow(key);
        const bool keep_first = keep && whole != 0;
        for (const std::int64_t slot : slots) {
            if (slot == kFirst && keep_first) continue;
            HOTCOUNT_TRY(connection.execute(table_->remove, {key, slot}));
        }
        if (keep_first) {
            // The difference may overflow 64 bits although the count does not.
            const auto difference = checked_subtract(whole, first);
            if (!difference) {
                HOTCOUNT_TRY(connection.execute(table_->remove, {key, kFirst}));
            }
            const std::int64_t n = difference.value_or(whole);
            if (n != 0) HOTCOUNT_TRY(add_to_slot(connection, *table_, key, kFirst, n));
        }
        return whole;
    }

    static Error sum_overflow(std::string_view key) {
        return make_error(ErrorCode::overflow,
                          "the sum over the slots of " + printable(key) + " leaves signed 64 bits")
            .about(&ErrorFacts::key, key);
    }

    std::shared_ptr<sql::Database> database_;
    SlottedCounterOptions options_;
    std::shared_ptr<const SlotTable> table_;
    std::shared_ptr<Spread> spread_;
    ForkLocal<sql::GroupCommit> commit_;
    ForkLocal<WaitingCalls> elsewhere_;
};

Result<void> check_options(const SlottedCounterOptions& options) {
    HOTCOUNT_TRY(check_identifier("table", options.table));
    HOTCOUNT_TRY(check_identifier("key_column", options.key_column));
    HOTCOUNT_TRY(check_identifier("slot_column", options.slot_column));
    HOTCOUNT_TRY(check_identifier("count_column", options.count_column));
    HOTCOUNT_TRY(SqlSlottedCounter::check_slots(options.slots));
    if (options.op_keep < std::chrono::seconds{1}) {
        return bad_option("op_keep", "must be 1 second or more");
    }
    return sql::check_options(options.commit);
}

}  // namespace

Result<std::string> slotted_counter_schema(sql::Dialect dialect,
                                           const SlottedCounterOptions& options) {
    HOTCOUNT_TRY(check_options(options));
    return SlotTable{options, dialect}.schema;
}

Result<std::shared_ptr<SlottedCounter>> SlottedCounter::make(
    std::shared_ptr<sql::Database> database, SlottedCounterOptions options) {
    HOTCOUNT_TRY(check_options(options));
    return std::shared_ptr<SlottedCounter>{
        std::make_shared<SqlSlottedCounter>(std::move(database), std::move(options))};
}

}  // namespace hotcount

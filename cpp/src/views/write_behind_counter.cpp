#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

#include "sql/dialect.hpp"
#include "view_writer.hpp"

namespace hotcount {
namespace {

constexpr std::int64_t kMostAmount = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeastAmount = std::numeric_limits<std::int64_t>::min();

// A cell whose adds wait for their commit.
struct QueuedCell final : sql::QueuedWrite {
    explicit QueuedCell(ViewCell to_write) : cell(std::move(to_write)) {}
    const ViewCell cell;
};

class CellWriter final : public sql::BatchWriter {
  public:
    explicit CellWriter(std::shared_ptr<ViewSettings> settings) : settings_(std::move(settings)) {}

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override {
        std::vector<ViewCell> cells;
        cells.reserve(batch.size());
        for (const auto& write : batch) {
            cells.push_back(static_cast<const QueuedCell*>(write.get())->cell);
        }
        sort_and_merge(cells);
        HOTCOUNT_TRY_ASSIGN(const auto old, settings_->tables.apply(connection, cells));
        if (std::find(old.begin(), old.end(), true) == old.end()) return {};
        return ViewTables::clock_is_behind();
    }

  private:
    const std::shared_ptr<ViewSettings> settings_;
};

class SqlWriteBehindCounter final : public WriteBehindCounter,
                                    public std::enable_shared_from_this<SqlWriteBehindCounter> {
  public:
    explicit SqlWriteBehindCounter(std::shared_ptr<ViewSettings> settings)
        : settings_(std::move(settings)),
          writer_([s = settings_] {
              return std::make_unique<std::shared_ptr<ViewWriter>>(std::make_shared<ViewWriter>(s));
          }),
          commit_([s = settings_] {
              return std::make_unique<sql::GroupCommit>(
                  s->database, std::make_shared<CellWriter>(s), s->options.commit);
          }),
          elsewhere_([s = settings_] {
              return std::make_unique<WaitingCalls>(s->database->name(), s->options.commit.workers,
                                                    s->options.commit.max_queue);
          }) {}
    SqlWriteBehindCounter(const SqlWriteBehindCounter&) = delete;
    SqlWriteBehindCounter& operator=(const SqlWriteBehindCounter&) = delete;
    ~SqlWriteBehindCounter() override { (void)close({}); }

    Result<void> create_tables(Timeout timeout) override {
        HOTCOUNT_TRY(settings_->cells.check_eviction(settings_->client->deadline(timeout)));
        return sql::transact(*settings_->database, settings_->database->deadline(timeout),
                             [&](sql::Connection& connection) {
                                 return connection.run_script(settings_->tables.schema());
                             });
    }

    Result<void> add(std::string_view key, std::int64_t n, Ack ack, Timeout timeout) override {
        HOTCOUNT_TRY(check_add(key, n));
        if (n == 0) return {};
        const auto writer = writer_.get();
        HOTCOUNT_TRY_ASSIGN(const ViewWriter::Open open, writer->begin(key, n, ack));
        if (ack == Ack::local) return {};
        if (ack == Ack::sql) {
            return writer->end(open, commit_.get().submit(std::make_shared<QueuedCell>(open.value),
                                                          settings_->database->deadline(timeout)));
        }
        // The channel waits: `done` is called before it returns.
        Result<void> outcome;
        settings_->cells.publish(open.value, settings_->client->waiting(),
                                 settings_->client->deadline(timeout),
                                 [&](Result<void> sent) { outcome = std::move(sent); });
        return writer->end(open, std::move(outcome));
    }

    void add_async(std::string_view key, std::int64_t n, Ack ack, Completion<void> done,
                   AsyncCall call) override {
        if (auto fits = check_add(key, n); !fits || n == 0) return done(std::move(fits));
        const auto writer = writer_.get();
        auto open = writer->begin(key, n, ack);
        if (!open) return done(std::move(open).error());
        if (ack == Ack::local) return done({});
        auto end = [writer, open = *open, done = std::move(done)](Result<void> outcome) {
            done(writer->end(open, std::move(outcome)));
        };
        if (ack == Ack::sql) {
            return commit_.get().submit_async(std::make_shared<QueuedCell>(open->value),
                                              settings_->database->deadline(call.timeout),
                                              std::move(end));
        }
        redis::Channel& channel =
            call.channel != nullptr ? *call.channel : settings_->client->without_waiting();
        settings_->cells.publish(open->value, channel, settings_->client->deadline(call.timeout),
                                 std::move(end));
    }

    std::vector<Result<void>> add_many(
        std::span<const std::pair<std::string_view, std::int64_t>> amounts, Ack ack,
        Timeout timeout) override {
        Batch batch = begin(amounts, ack);
        if (ack == Ack::sql) {
            batch.end_all(
                commit_.get().submit_all(batch.writes(), settings_->database->deadline(timeout)));
        } else {
            settings_->cells.publish_all(
                batch.cells, settings_->client->waiting(), settings_->client->deadline(timeout),
                [&](std::size_t i, Result<void> outcome) { batch.end(i, std::move(outcome)); },
                [] {});
        }
        return std::move(batch.results);
    }

    void add_many_async(std::span<const std::pair<std::string_view, std::int64_t>> amounts, Ack ack,
                        Completion<std::vector<Result<void>>> done, AsyncCall call) override {
        const auto batch = std::make_shared<Batch>(begin(amounts, ack));
        if (batch->cells.empty()) return done(std::move(batch->results));
        if (ack == Ack::sql) {
            return commit_.get().submit_all_async(
                batch->writes(), settings_->database->deadline(call.timeout),
                [batch, done = std::move(done)](std::vector<Result<void>> written) {
                    batch->end_all(std::move(written));
                    done(std::move(batch->results));
                });
        }
        redis::Channel& channel =
            call.channel != nullptr ? *call.channel : settings_->client->without_waiting();
        settings_->cells.publish_all(
            batch->cells, channel, settings_->client->deadline(call.timeout),
            [batch](std::size_t i, Result<void> outcome) { batch->end(i, std::move(outcome)); },
            [batch, done = std::move(done)] { done(std::move(batch->results)); });
    }

    // Reads this process, then Redis, then SQL. Adds move in this direction, so an add that moves
    // meanwhile is found at its next place.
    Result<Count> get(std::string_view key, Timeout timeout) override {
        HOTCOUNT_TRY(check_text(key));
        const WallTime as_of = settings_->options.clock->wall_now();
        const Deadline deadline = settings_->database->deadline(timeout);
        const std::string name{key};
        HOTCOUNT_TRY_ASSIGN(const auto cells, cells_of(std::span{&name, 1}, timeout));
        HOTCOUNT_TRY_ASSIGN(
            const ViewTables::Known known,
            sql::read_snapshot(*settings_->database, deadline, [&](sql::Connection& connection) {
                return settings_->tables.read(connection, key, cells);
            }));
        return count_of(name, cells, known, as_of);
    }

    std::vector<Result<Count>> get_many(std::span<const std::string_view> keys,
                                        Timeout timeout) override {
        std::vector<Result<Count>> counts;
        counts.reserve(keys.size());
        std::vector<std::string> names;
        for (const std::string_view key : keys) {
            auto checked = check_text(key);
            counts.push_back(checked ? Result<Count>{Count{}}
                                     : Result<Count>{std::move(checked).error()});
            if (counts.back()) names.emplace_back(key);
        }
        const auto found = counts_of(names, timeout);
        std::size_t next = 0;
        for (auto& count : counts) {
            if (!count) continue;
            count = found ? (*found)[next++] : Result<Count>{found.error()};
        }
        return counts;
    }

    void get_many_async(std::span<const std::string_view> keys,
                        Completion<std::vector<Result<Count>>> done, AsyncCall call) override {
        const Deadline deadline = settings_->database->deadline(call.timeout);
        elsewhere_.get().run<std::vector<Result<Count>>>(
            deadline, call.cancelled, std::move(done),
            [self = shared_from_this(), kept = std::vector<std::string>(keys.begin(), keys.end()),
             deadline] {
                const std::vector<std::string_view> names(kept.begin(), kept.end());
                return Result{self->get_many(names, deadline.remaining())};
            });
    }

    Result<std::int64_t> reset(std::string_view key, Timeout timeout) override {
        HOTCOUNT_TRY(check_text(key));
        const Deadline deadline = settings_->database->deadline(timeout);
        const std::string name{key};
        HOTCOUNT_TRY_ASSIGN(const auto cells, cells_of(std::span{&name, 1}, timeout));
        // A writer of its own: no other transaction waits for its cell.
        const std::string writer = new_writer(*settings_->options.clock);
        return sql::transact(
            *settings_->database, deadline,
            [&](sql::Connection& connection) -> Result<std::int64_t> {
                if (!cells.empty()) HOTCOUNT_TRY(settings_->tables.apply(connection, cells));
                return settings_->tables.take_total(connection, {name, writer, {}});
            });
    }

    Result<FlushReport> flush(Timeout timeout) override {
        return writer_.get()->flush(settings_->client->deadline(timeout));
    }

    Result<std::shared_ptr<SyncWorker>> sync_worker() override {
        return make_view_worker(settings_);
    }

    void run_async(Deadline deadline, std::function<void(WriteBehindCounter&)> work,
                   std::function<void(Error)> refuse) override {
        elsewhere_.get().run(
            deadline, [self = shared_from_this(), work = std::move(work)] { work(*self); },
            std::move(refuse));
    }

    std::int64_t close(Timeout timeout) override {
        return writer_.get()->close(settings_->client->deadline(timeout));
    }

    WriteBehindStats stats() const override { return writer_.get()->stats(); }
    const WriteBehindOptions& options() const override { return settings_->options; }

    Contract contract() const override {
        return {
            .strategy = "write_behind_counter",
            .acknowledged =
                "ack='cache': Redis has the add; ack='local': this process has it, and Redis "
                "after flush_interval; ack='sql': it is committed in SQL",
            .may_lose =
                "ack='cache': what Redis loses (a crash without appendfsync always, FLUSHALL, a "
                "failover) before a worker has brought it to SQL, and only if the process that "
                "added is gone before it has sent it again; ack='local': the same, and the last "
                "flush_interval when the process is killed; ack='sql': nothing",
            .durable = false,
            .exact = false};
    }

  private:
    bool text_is_utf8() const { return settings_->database->dialect().grammar().text_is_utf8(); }
    Result<void> check_text(std::string_view key) const {
        return check_key(key, text_is_utf8() ? KeyRule::utf8_text : KeyRule::sql_text);
    }
    Result<void> check_add(std::string_view key, std::int64_t n) const {
        HOTCOUNT_TRY(check_text(key));
        if (n == kLeastAmount) {
            return bad_value("n", n, "at least -9223372036854775807");
        }
        return {};
    }

    // The adds of a batch to one key.
    struct Sum {
        std::string_view key;
        std::int64_t n{0};
        std::vector<std::size_t> places;
    };

    // A batch's adds between begin() and end(), and the results of all.
    struct Batch {
        std::shared_ptr<ViewWriter> writer;
        std::vector<Result<void>> results;
        std::vector<ViewWriter::Open> open{};
        std::vector<std::vector<std::size_t>> places{};  // Of the results of each one's amounts.
        std::vector<ViewCell> cells{};                   // To be sent.

        void settle(std::span<const std::size_t> its_places, const Result<void>& outcome) {
            for (const std::size_t place : its_places) results[place] = outcome;
        }
        void end(std::size_t i, Result<void> outcome) {
            settle(places[i], writer->end(open[i], std::move(outcome)));
        }
        void end_all(std::vector<Result<void>> outcomes) {
            for (std::size_t i = 0; i < outcomes.size(); ++i) end(i, std::move(outcomes[i]));
        }
        std::vector<std::shared_ptr<sql::QueuedWrite>> writes() const {
            std::vector<std::shared_ptr<sql::QueuedWrite>> all;
            all.reserve(cells.size());
            for (const ViewCell& each : cells) all.push_back(std::make_shared<QueuedCell>(each));
            return all;
        }
    };

    Batch begin(std::span<const std::pair<std::string_view, std::int64_t>> amounts, Ack ack) {
        Batch batch{writer_.get(), std::vector<Result<void>>(amounts.size())};
        for (Sum& sum : sum_up(amounts, batch.results)) {
            if (sum.n == 0) continue;  // They cancel out.
            auto begun = batch.writer->begin(sum.key, sum.n, ack);
            if (!begun) {
                batch.settle(sum.places, std::move(begun).error());
            } else if (ack != Ack::local) {
                batch.cells.push_back(begun->value);
                batch.open.push_back(std::move(*begun));
                batch.places.push_back(std::move(sum.places));
            }
        }
        return batch;
    }

    // The sums per key of valid amounts other than 0. Further elements get their results here.
    std::vector<Sum> sum_up(std::span<const std::pair<std::string_view, std::int64_t>> amounts,
                            std::vector<Result<void>>& results) const {
        std::vector<Sum> sums;
        std::unordered_map<std::string_view, std::size_t, KeyedHash> found;
        for (std::size_t i = 0; i < amounts.size(); ++i) {
            const auto& [key, n] = amounts[i];
            results[i] = check_add(key, n);
            if (!results[i] || n == 0) continue;
            const auto [at, is_new] = found.try_emplace(key, sums.size());
            if (is_new) sums.push_back({key, 0, {}});
            Sum& sum = sums[at->second];
            if (const auto more = checked_add(sum.n, n); more && *more != kLeastAmount) {
                sum.n = *more;
                sum.places.push_back(i);
            } else {
                results[i] = bad_option("n",
                                        "leaves signed 64 bits together with the other "
                                        "amounts for " +
                                            printable(key));
            }
        }
        return sums;
    }

    // The cells of this process and of Redis, sorted and without duplicates.
    Result<std::vector<ViewCell>> cells_of(std::span<const std::string> names,
                                           Timeout timeout) const {
        std::vector<ViewCell> cells;
        const auto writer = writer_.get();
        for (const std::string& name : names) {
            auto own = writer->own_cells(name);
            std::move(own.begin(), own.end(), std::back_inserter(cells));
        }
        HOTCOUNT_TRY_ASSIGN(const auto cached,
                            settings_->cells.read(names, settings_->client->deadline(timeout)));
        cells.insert(cells.end(), cached.begin(), cached.end());
        std::erase_if(cells, [](const ViewCell& each) { return each.writer.empty(); });
        sort_and_merge(cells);
        return cells;
    }

    Result<std::vector<Result<Count>>> counts_of(std::span<const std::string> names,
                                                 Timeout timeout) const {
        const WallTime as_of = settings_->options.clock->wall_now();
        const Deadline deadline = settings_->database->deadline(timeout);
        HOTCOUNT_TRY_ASSIGN(const auto cells, cells_of(names, timeout));
        HOTCOUNT_TRY_ASSIGN(
            const auto known,
            sql::read_snapshot(*settings_->database, deadline, [&](sql::Connection& connection) {
                return settings_->tables.read_many(connection, names, cells);
            }));
        std::vector<Result<Count>> counts;
        counts.reserve(names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            const auto [first, last] = std::equal_range(
                cells.begin(), cells.end(), ViewCell{names[i], {}, {}},
                [](const ViewCell& a, const ViewCell& b) { return a.key < b.key; });
            counts.push_back(count_of(names[i], {first, last}, known[i], as_of));
        }
        return counts;
    }

    // The total, plus the excess of each cell over its row in SQL.
    static Result<Count> count_of(std::string_view key, std::span<const ViewCell> cells,
                                  const ViewTables::Known& known, WallTime as_of) {
        std::unordered_map<std::string_view, CellSum, KeyedHash> rows;
        for (const ViewCell& row : known.cells) rows[row.writer] = row.sum;
        __extension__ __int128 value = known.total;
        __extension__ __int128 pending = 0;
        for (const ViewCell& each : cells) {
            if (each.writer < known.first) continue;  // Perhaps it is in the total.
            const auto row = rows.find(each.writer);
            const CellSum more = beyond(each.sum, row == rows.end() ? CellSum{} : row->second);
            value += more.up;
            value -= more.down;
            pending += more.up;
            pending += more.down;
        }
        const auto whole = static_cast<std::int64_t>(value);
        if (whole != value) {
            return make_error(ErrorCode::overflow,
                              "the count of " + printable(key) + " leaves signed 64 bits")
                .about(&ErrorFacts::key, key);
        }
        return Count{
            .value = whole,
            .exact = false,
            .as_of = as_of,
            .source = pending > 0 ? "cache" : "sql",
            .pending = pending > kMostAmount ? kMostAmount : static_cast<std::int64_t>(pending)};
    }

    const std::shared_ptr<ViewSettings> settings_;
    mutable ForkLocal<std::shared_ptr<ViewWriter>> writer_;
    ForkLocal<sql::GroupCommit> commit_;
    ForkLocal<WaitingCalls> elsewhere_;
};

Result<void> check_options(const WriteBehindOptions& options) {
    HOTCOUNT_TRY(check_identifier("table", options.table));
    // The longest name beside it has ten bytes more.
    HOTCOUNT_TRY(check_identifier("table", options.table + "_by_writer"));
    if (options.prefix.size() > kMaxKeyBytes) {
        return bad_option("prefix", "is longer than 1000 bytes");
    }
    using std::chrono::milliseconds;
    if (options.flush_interval < milliseconds{1} ||
        options.flush_interval > std::chrono::minutes{1}) {
        return bad_option("flush_interval", "takes 0.001 to 60 seconds");
    }
    if (options.max_cells < 1 || options.max_cells > 10'000'000) {
        return bad_value("max_cells", options.max_cells, "it takes 1 to 10000000");
    }
    if (options.interval < milliseconds{1} || options.interval > std::chrono::hours{1}) {
        return bad_option("interval", "takes 0.001 to 3600 seconds");
    }
    return sql::check_options(options.commit);
}

}  // namespace

std::string_view to_string(Ack ack) {
    constexpr std::array<std::string_view, 3> kNames{"cache", "local", "sql"};
    return kNames[static_cast<std::size_t>(ack)];
}

Result<std::string> write_behind_schema(sql::Dialect dialect, const WriteBehindOptions& options) {
    HOTCOUNT_TRY(check_options(options));
    return ViewTables{options, dialect}.schema();
}

Result<std::shared_ptr<WriteBehindCounter>> WriteBehindCounter::make(
    std::shared_ptr<sql::Database> database, std::shared_ptr<redis::Client> client,
    WriteBehindOptions options) {
    HOTCOUNT_TRY(check_options(options));
    auto settings = std::shared_ptr<ViewSettings>(
        new ViewSettings{database, client, options, ViewCells{client, options.prefix},
                         ViewTables{options, database->dialect()}});
    HOTCOUNT_TRY(settings->cells.check_eviction(client->deadline({})));
    return std::shared_ptr<WriteBehindCounter>{
        std::make_shared<SqlWriteBehindCounter>(std::move(settings))};
}

}  // namespace hotcount

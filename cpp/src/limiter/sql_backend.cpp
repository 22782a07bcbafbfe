// Limiters over a SQL database: a row for each key, the law in this process, the server's clock.
//
//   hits --> group commit --> one transaction: lock the rows in the order of their keys, read rows
//                             and clock, decide the hits in order, write changed rows, commit
//
// An absent key is first inserted without a state, so that only one transaction decides on it.
// Calls that only look read one row and lock nothing. A transaction that inserts a row removes two
// expired ones.
//
// Thread-safe. The calls of one limiter, at whatever rates, share transactions.
#include <array>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <hotcount/limiter.hpp>
#include <variant>

#include "limiter/algorithm.hpp"
#include "limiter/sql_writer.hpp"
#include "limiter/wrapped_backend.hpp"

namespace hotcount {
namespace {

// The state that calls need, as they may outlive the backend.
struct LimitStore {
    std::shared_ptr<sql::Database> database;
    std::shared_ptr<const LimitTable> table;

    Result<void> create_table(Deadline deadline) const {
        return sql::transact(*database, deadline, [&](sql::Connection& connection) -> Result<void> {
            return connection.run_script(table->schema);
        });
    }

    struct Looked {
        Outcome outcome{};
        bool moved{false};  // The clock was set back, so the row must be written.
    };

    // The outcome that a hit would have, from the committed row, without a lock.
    Result<Looked> look(const StoredLaw& law, const std::string& key, std::int64_t cost,
                        Deadline deadline) const {
        std::string text;
        std::int64_t now = 0;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            text = row.text(0);
            now = row.integer(1);
            return {};
        };
        const std::array<sql::Value, 1> parameters{std::string_view{key}};
        // One row is one statement, which spares BEGIN and COMMIT.
        const bool alone = !database->dialect().grammar().reads_alone_at_session_level();
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            text.clear();
            auto found = alone ? connection.read_alone(table->look, parameters, &see, deadline)
                               : connection.run(table->look, parameters, &see);
            if (!found) return explain_missing_limits(std::move(found).error());
            return {};
        };
        HOTCOUNT_TRY(alone ? sql::read_statement(*database, deadline, read)
                           : sql::read_snapshot(*database, deadline, read));
        if (table->one_writer()) now = wall_us();
        const auto state = law.open(text);
        if (!state) return no_limit_state(key);
        const Outcome outcome = state->hit(now, cost, Take::nothing);
        return Looked{outcome, state->changed()};
    }
};

// The queues that the limiters of one make() share, at all rates. A forked child has its own.
struct LimitCalls {
    LimitCalls(const std::shared_ptr<sql::Database>& database, const std::string& table)
        : store(std::make_shared<const LimitStore>(LimitStore{
              database, std::make_shared<const LimitTable>(table, database->dialect())})),
          commit([store = store] {
              return std::make_unique<sql::GroupCommit>(store->database,
                                                        std::make_shared<HitWriter>(store->table),
                                                        sql::GroupCommitOptions{});
          }),
          elsewhere([store = store] {
              const sql::GroupCommitOptions defaults;
              return std::make_unique<WaitingCalls>(store->database->name(), defaults.workers,
                                                    defaults.max_queue);
          }) {}

    const std::shared_ptr<const LimitStore> store;
    ForkLocal<sql::GroupCommit> commit;
    ForkLocal<WaitingCalls> elsewhere;
};

class SqlLimiterBackend final : public LimiterBackend {
  public:
    SqlLimiterBackend(std::shared_ptr<LimitCalls> calls, std::shared_ptr<const StoredLaw> law)
        : LimiterBackend({"", calls->store->database->name(), key_rule(*calls->store->database)}),
          calls_(std::move(calls)),
          store_(calls_->store),
          law_(std::move(law)) {}

    void create_table(const AsyncCall& call, Completion<void> done) override {
        read(call, std::move(done),
             [](const LimitStore& store, Deadline by) { return store.create_table(by); });
    }

    void run(const std::string& key, const LimitRequest& request, const AsyncCall& call,
             Completion<Outcome> done) override {
        std::visit([&](const auto& one) { start(key, one, call, std::move(done)); }, request.call);
    }

    void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                  const AsyncCall& call, Completion<std::vector<Result<Outcome>>> done) override {
        Hits hits = queued(keys, costs);
        sql::GroupCommit& commit = calls_->commit.get();
        const Deadline by = deadline(call.timeout);
        if (call.waits) return done(outcomes(hits, commit.submit_all(hits, by)));
        commit.submit_all_async(hits, by,
                                [hits, done = std::move(done)](std::vector<Result<void>> written) {
                                    done(outcomes(hits, std::move(written)));
                                });
    }

  private:
    using Hits = std::vector<std::shared_ptr<sql::QueuedWrite>>;

    static KeyRule key_rule(const sql::Database& database) {
        return database.dialect().grammar().text_is_utf8() ? KeyRule::utf8_text : KeyRule::sql_text;
    }

    void start(const std::string& key, const HitRequest& hit, const AsyncCall& call,
               Completion<Outcome> done) {
        if (hit.once != nullptr) {
            return refuse("op_id is for Memory and Redis: a limiter over a database remembers none",
                          done);
        }
        const std::int64_t cost = price(hit.cost, hit.take);
        if (only_looks(cost, hit.take)) {
            return read<LimitStore::Looked>(
                call,
                [calls = calls_, move = hit_of(key, 1, Take::nothing), call,
                 by = deadline(call.timeout),
                 done = std::move(done)](const Result<LimitStore::Looked>& look) {
                    if (!look) return done(look.error());
                    // In vain without the right to write, or while others hold the row: the next
                    // call tries.
                    if (look->moved) submit(*calls, move, by, call.waits, [](Result<void>) {});
                    done(look->outcome);
                },
                [law = law_, key, cost](const LimitStore& store, Deadline by) {
                    return store.look(*law, key, cost, by);
                });
        }
        write(hit_of(key, cost, hit.take), call, std::move(done));
    }
    void start(const std::string& key, const RefundRequest& refund, const AsyncCall& call,
               Completion<Outcome> done) {
        const auto apply = [n = refund.n](auto& row, std::int64_t now) {
            return row.refund(now, n);
        };
        write(queued(key, false, apply), call, std::move(done));
    }
    void start(const std::string& key, const BlockRequest& block, const AsyncCall& call,
               Completion<Outcome> done) {
        const auto apply = [life = block.life](auto& row, std::int64_t now) {
            return row.block(now, life);
        };
        write(queued(key, true, apply), call, std::move(done));
    }
    void start(const std::string& key, const ResetRequest&, const AsyncCall& call,
               Completion<Outcome> done) {
        write(queued(key, false, nullptr), call, std::move(done));
    }
    static void start(const std::string&, const ReserveRequest&, const AsyncCall&,
                      const Completion<Outcome>& done) {
        refuse(kNoReservations, done);
    }
    static void start(const std::string&, const CommitRequest&, const AsyncCall&,
                      const Completion<Outcome>& done) {
        refuse(kNoReservations, done);
    }
    static constexpr const char* kNoReservations =
        "reserve is for Memory and Redis: a limiter over a database has no reservations";
    static void refuse(const char* why, const Completion<Outcome>& done) {
        done(make_error(ErrorCode::config, why));
    }

    Deadline deadline(Timeout timeout) const { return store_->database->deadline(timeout); }

    std::int64_t price(std::int64_t cost, Take take) const {
        return take == Take::what_fits ? std::min(cost, law_->limit()) : cost;
    }
    // A hit that is always denied must not create a row.
    bool only_looks(std::int64_t cost, Take take) const {
        return take == Take::nothing || cost > law_->limit();
    }
    std::shared_ptr<QueuedHit> queued(const std::string& key, bool needs_row,
                                      QueuedHit::Apply apply) const {
        return std::make_shared<QueuedHit>(key, law_, needs_row, std::move(apply));
    }
    std::shared_ptr<QueuedHit> hit_of(const std::string& key, std::int64_t cost, Take take) const {
        return queued(key, take != Take::nothing, [cost, take](auto& row, std::int64_t now) {
            return row.hit(now, cost, take);
        });
    }

    // All hits in order, including hits that only look.
    Hits queued(std::span<const std::string> keys, std::span<const std::int64_t> costs) const {
        Hits hits;
        hits.reserve(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const Take take = only_looks(costs[i], Take::all) ? Take::nothing : Take::all;
            hits.push_back(hit_of(keys[i], costs[i], take));
        }
        return hits;
    }
    static Result<Outcome> outcome(const sql::QueuedWrite& hit, Result<void> written) {
        if (!written) return std::move(written).error();
        return static_cast<const QueuedHit&>(hit).outcome;
    }
    static std::vector<Result<Outcome>> outcomes(const Hits& hits,
                                                 std::vector<Result<void>> written) {
        std::vector<Result<Outcome>> found;
        found.reserve(hits.size());
        for (std::size_t i = 0; i < hits.size(); ++i) {
            found.push_back(outcome(*hits[i], std::move(written[i])));
        }
        return found;
    }

    void write(const std::shared_ptr<QueuedHit>& hit, const AsyncCall& call,
               Completion<Outcome> done) const {
        submit(*calls_, hit, deadline(call.timeout), call.waits,
               [hit, done = std::move(done)](Result<void> written) {
                   done(outcome(*hit, std::move(written)));
               });
    }
    static void submit(LimitCalls& calls, std::shared_ptr<sql::QueuedWrite> hit, Deadline by,
                       bool waits, Completion<void> done) {
        sql::GroupCommit& commit = calls.commit.get();
        if (waits) return done(commit.submit(hit, by));
        commit.submit_async(std::move(hit), by, std::move(done));
    }
    template <class T, class Work>
    void read(const AsyncCall& call, Completion<T> done, Work work) {
        const Deadline by = deadline(call.timeout);
        if (call.waits) return done(work(*store_, by));
        calls_->elsewhere.get().run<T>(
            by, call.cancelled, std::move(done),
            [store = store_, work = std::move(work), by] { return work(*store, by); });
    }

    const std::shared_ptr<LimitCalls> calls_;
    const std::shared_ptr<const LimitStore> store_;
    const std::shared_ptr<const StoredLaw> law_;
};

// Its index has a longer name.
Result<void> check_table(const LimiterOptions& options) {
    HOTCOUNT_TRY_ASSIGN(const auto table, sql::TableName::parse("table", options.table));
    constexpr std::size_t kMost = kMaxIdentifierBytes - LimitTable::kIndexSuffix.size();
    if (table.name.size() <= kMost) return {};
    return bad_option("table", "has " + std::to_string(table.name.size()) +
                                   " bytes; it takes up to " + std::to_string(kMost));
}

}  // namespace

Result<std::shared_ptr<Limiter>> Limiter::make(std::shared_ptr<sql::Database> database,
                                               LimiterOptions options) {
    HOTCOUNT_TRY(check_limiter_options(options));
    if (options.on_error != OutagePolicy::raise) {
        return bad_option("on_error", "is for Redis: over a database the error is raised");
    }
    if (options.deny_cache > 0) return bad_option("deny_cache", "is for Redis");
    HOTCOUNT_TRY(check_table(options));
    auto calls = std::make_shared<LimitCalls>(database, options.table);
    auto leases = make_leases(options);
    return make_with(
        [calls = std::move(calls), leases = std::move(leases)](
            const LimiterOptions& chosen) -> Result<std::unique_ptr<LimiterBackend>> {
            HOTCOUNT_TRY_ASSIGN(auto law, find_algorithm(chosen.algorithm).stored(chosen));
            return with_leases(std::make_unique<SqlLimiterBackend>(calls, std::move(law)), leases,
                               chosen);
        },
        std::move(options));
}

Result<std::string> limiter_schema(sql::Dialect dialect, const LimiterOptions& options) {
    HOTCOUNT_TRY(check_table(options));
    return LimitTable{options.table, dialect}.schema;
}

}  // namespace hotcount

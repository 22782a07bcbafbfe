#include <algorithm>
#include <hotcount/detail/sql/group_commit.hpp>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "votes.hpp"

namespace hotcount::peers {
namespace {

// -- strategy "alone": vote rows and nothing else ------------------------------------------------

/// A connection whose statements are transactions of their own, whatever is begun around them.
class AutocommitConnection final : public sql::Connection {
  public:
    explicit AutocommitConnection(sql::Lease lease) : lease_(std::move(lease)) {}

    Result<void> begin(Deadline) override {
        begun_ = true;
        return {};
    }
    Result<void> begin_read(Deadline deadline) override { return begin(deadline); }
    Result<void> commit() override {
        begun_ = false;
        return {};
    }
    void rollback() override { begun_ = false; }
    bool in_transaction() const override { return begun_; }
    bool broken() const override { return lease_->broken(); }
    Result<std::int64_t> run(const sql::Statement& statement,
                             std::span<const sql::Value> parameters,
                             const sql::RowVisitor* visit) override {
        return lease_->run(statement, parameters, visit);
    }
    Result<void> run_script(const std::string& text) override { return lease_->run_script(text); }

  private:
    sql::Lease lease_;
    bool begun_{false};
};

class AutocommitDatabase final : public sql::Database {
  public:
    explicit AutocommitDatabase(std::shared_ptr<sql::Database> under)
        : Database(under->name(), under->options()), under_(std::move(under)) {}

    sql::Dialect dialect() const override { return under_->dialect(); }
    Result<sql::Lease> writer(Deadline deadline) override {
        HOTCOUNT_TRY_ASSIGN(sql::Lease lease, under_->writer(deadline));
        return sql::Lease(new AutocommitConnection(std::move(lease)),
                          [](sql::Connection* connection) { delete connection; });
    }
    Result<sql::Lease> reader(Deadline deadline) override { return under_->reader(deadline); }
    void close() override { under_->close(); }
    bool closed() const override { return under_->closed(); }
    Stats stats() const override { return under_->stats(); }

  private:
    std::shared_ptr<sql::Database> under_;
};

struct Row {
    std::int64_t item;
    std::int64_t user;
};

struct QueuedRow final : sql::QueuedWrite {
    explicit QueuedRow(Row of) : row(of) {}
    Row row;
};

/// Inserts vote rows, each statement's in the order of the primary key.
class RowWriter final : public sql::BatchWriter {
  public:
    explicit RowWriter(sql::Dialect dialect) : dialect_(dialect) {}

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override {
        std::vector<Row> rows;
        rows.reserve(batch.size());
        for (const auto& write : batch) rows.push_back(static_cast<QueuedRow&>(*write).row);
        return insert(connection, rows);
    }

    Result<void> insert(sql::Connection& connection, std::vector<Row>& rows) {
        std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
            return a.item != b.item ? a.item < b.item : a.user < b.user;
        });
        if (sql::to_string(dialect_) == "postgresql" && rows.size() > 1) {
            std::string items = "{";
            std::string users = "{";
            for (const Row& row : rows) {
                items += std::to_string(row.item) + ',';
                users += std::to_string(row.user) + ',';
            }
            items.back() = '}';
            users.back() = '}';
            HOTCOUNT_TRY(connection.execute(arrays_, {items, users}));
            return {};
        }
        std::vector<sql::Value> values;
        values.reserve(2 * rows.size());
        for (const Row& row : rows) {
            values.emplace_back(row.item);
            values.emplace_back(row.user);
        }
        HOTCOUNT_TRY(connection.run(of(rows.size()), values, nullptr));
        return {};
    }

  private:
    const sql::Statement& of(std::size_t rows) {
        auto& statement = made_[rows];
        if (statement == nullptr) {
            std::string text = "INSERT INTO vote (item_id, user_id, val, prev, version) VALUES ";
            for (std::size_t i = 0; i < rows; ++i) {
                text += (i > 0 ? ", (?" : "(?") + std::to_string(2 * i + 1) + ", ?" +
                        std::to_string(2 * i + 2) + ", 1, 0, NULL)";
            }
            statement = std::make_unique<const sql::Statement>(std::move(text));
        }
        return *statement;
    }

    const sql::Dialect dialect_;
    const sql::Statement arrays_{
        "INSERT INTO vote (item_id, user_id, val, prev, version) SELECT item, voter, 1, 0, NULL "
        "FROM unnest(CAST(?1 AS bigint[]), CAST(?2 AS bigint[])) AS b (item, voter)"};
    std::unordered_map<std::size_t, std::unique_ptr<const sql::Statement>> made_{};
};

// -- both kinds of voters ------------------------------------------------------------------------

class ByVotes final : public Voters {
  public:
    explicit ByVotes(std::shared_ptr<Votes> votes) : votes_(std::move(votes)) {}
    Result<void> vote(std::int64_t item, std::int64_t user) override {
        HOTCOUNT_TRY(votes_->cast(Ballot{item, user}, kTimeout));
        return {};
    }
    void vote_async(std::int64_t item, std::int64_t user, Completion<Cast> done) override {
        votes_->cast_async(Ballot{item, user}, std::move(done), kTimeout);
    }
    Result<std::int64_t> count(std::int64_t item) override {
        HOTCOUNT_TRY_ASSIGN(const Count count,
                            votes_->count(sql::Id{item}, Consistency::cached, kTimeout));
        return count.value;
    }

  private:
    std::shared_ptr<Votes> votes_;
};

class Alone final : public Voters {
  public:
    static Result<std::unique_ptr<Voters>> make(const std::shared_ptr<sql::Database>& database,
                                                int callers) {
        auto made = std::make_unique<Alone>();
        made->database_ = database;
        made->writer_ = std::make_shared<RowWriter>(database->dialect());
        if (callers == 1) {
            HOTCOUNT_TRY_ASSIGN(sql::Lease lease, database->writer(Deadline::after(kTimeout)));
            made->own_.emplace(std::move(lease));
        } else {
            made->group_ =
                std::make_unique<sql::GroupCommit>(std::make_shared<AutocommitDatabase>(database),
                                                   made->writer_, sql::GroupCommitOptions{});
        }
        return std::unique_ptr<Voters>(std::move(made));
    }
    Result<void> vote(std::int64_t item, std::int64_t user) override {
        if (group_ != nullptr) {
            return group_->submit(std::make_shared<QueuedRow>(Row{item, user}),
                                  Deadline::after(kTimeout));
        }
        std::vector<Row> one{{item, user}};
        return writer_->insert(**own_, one);
    }
    void vote_async(std::int64_t, std::int64_t, Completion<Cast> done) override {
        done(make_error(ErrorCode::config, "alone has nothing to put aside"));
    }
    Result<std::int64_t> count(std::int64_t) override {
        return make_error(ErrorCode::config, "alone counts nothing");
    }

  private:
    std::shared_ptr<sql::Database> database_{};  // Outlives the lease.
    std::shared_ptr<RowWriter> writer_{};
    std::optional<sql::Lease> own_{};
    std::unique_ptr<sql::GroupCommit> group_{};
};

Result<VoteStrategy> strategy_named(const std::string& name) {
    for (const VoteStrategy one :
         {VoteStrategy::naive, VoteStrategy::slotted, VoteStrategy::batched}) {
        if (to_string(one) == name) return one;
    }
    return make_error(ErrorCode::config, "--strategy takes naive, slotted, batched or alone");
}

}  // namespace

Result<std::shared_ptr<sql::Database>> open_database(const Settings& settings) {
    sql::DatabaseOptions options;
    options.timeout = kTimeout;
    // A connection for each caller, as the strategies with a transaction a vote want it; and for
    // the pool's threads, which write what is put aside.
    options.max_writers = static_cast<std::size_t>(settings.callers) + (settings.aside ? 8 : 0);
    return sql::open_database(settings.url, options);
}

Result<std::shared_ptr<Votes>> make_votes(const std::shared_ptr<sql::Database>& database,
                                          const std::string& strategy) {
    VotesOptions options;
    if (strategy != "alone") {
        HOTCOUNT_TRY_ASSIGN(options.strategy, strategy_named(strategy));
    }
    return Votes::make(database, options);
}

Result<std::unique_ptr<Voters>> make_voters(const Settings& settings) {
    HOTCOUNT_TRY_ASSIGN(auto database, open_database(settings));
    if (settings.strategy == "alone") return Alone::make(database, settings.callers);
    HOTCOUNT_TRY_ASSIGN(auto votes, make_votes(database, settings.strategy));
    return std::unique_ptr<Voters>(std::make_unique<ByVotes>(std::move(votes)));
}

}  // namespace hotcount::peers

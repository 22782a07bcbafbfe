// Votes from several processes of C++ callers in a closed loop; prints one line of JSON.
//
//   hotcount-peers-votes --db URL --strategy batched --processes 12 --callers 1 --items 10000
//
// Each process has a Votes object and connections of its own, as each worker of a web server has.
// All of them vote for the same items, every vote by another user. The tables are the default ones,
// made in an empty database or schema; loadtest/peers/vote_processes.py makes one for each load.
//
// Strategy "alone" inserts the same vote rows and does nothing else: no count, no look at the item
// beyond the foreign key's. One caller a process runs one autocommit statement a vote; more callers
// go through the group commit that batched goes through, one autocommit statement a batch. It is
// the rate that no way of counting can exceed on this path.
//
// --aside: votes for item 1 do not wait (cast_async), so that the callers of the other items go on
// whatever becomes of them. --hold: item 1's row is held FOR UPDATE by another connection for as
// long as the measurement lasts; it implies --aside.
//
// Afterwards, per item: votes in the table = votes acknowledged = count() = vote_count after
// flush(). A read that is below what was acknowledged before it fails the run as well.
// Exit code: 0, 1 where a vote or read failed, was lost or doubled, 2 on bad usage.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "load/histogram.hpp"
#include "load/permutation.hpp"
#include "load/zipf.hpp"

namespace {

namespace sql = hotcount::sql;
namespace loadtest = hotcount::loadtest;
using hotcount::Ballot;
using hotcount::Cast;
using hotcount::Completion;
using hotcount::Count;
using hotcount::Deadline;
using hotcount::Duration;
using hotcount::ErrorCode;
using hotcount::FlushReport;
using hotcount::make_error;
using hotcount::Random;
using hotcount::Result;
using hotcount::Votes;
using hotcount::VotesOptions;
using hotcount::VoteStrategy;
using loadtest::Histogram;
using std::chrono::milliseconds;

constexpr Duration kTimeout = std::chrono::seconds{60};
constexpr Duration kSetUpTimeout = std::chrono::minutes{2};
constexpr std::int64_t kAsideItem = 1;
/// Votes for the item aside that may be under way in a process; more go to another item.
constexpr std::int64_t kMostAside = 20'000;
constexpr std::size_t kItemsAtOnce = 1000;

struct Settings {
    std::string url{};
    std::string strategy{"batched"};
    int processes{1};
    int callers{1};
    std::int64_t items{1};
    double zipf{0.99};
    double reads{0};
    double seconds{2};
    double warm_up{0.4};
    std::uint64_t seed{1};
    bool aside{false};
    bool hold{false};
};

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

std::size_t histogram_cells() { return Histogram::cell_of(Histogram::kLargest) + 1; }

using Number = std::atomic<std::uint64_t>;

/// What all processes share: memory that is mapped before they are forked.
class Board {
  public:
    struct State {
        std::atomic<bool> tables_made{false};
        std::atomic<int> ready{0};
        std::atomic<bool> go{false};
        std::atomic<std::int64_t> opens_ns{INT64_MAX};
        std::atomic<std::int64_t> closes_ns{INT64_MAX};
        Number votes{0}, reads{0};  ///< Answered between opens_ns and closes_ns.
        Number aside_sent{0}, aside_landed{0}, aside_diverted{0}, aside_worst_ns{0};
        std::atomic<bool> failed{false};
        char error[1024]{};
    };

    explicit Board(std::int64_t items) : items_(static_cast<std::size_t>(items) + 1) {
        const std::size_t numbers = items_ + 2 * histogram_cells();
        size_ = sizeof(State) + numbers * sizeof(Number);
        memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory_ == MAP_FAILED) throw std::bad_alloc();
        state_ = new (memory_) State;
        numbers_ = reinterpret_cast<Number*>(static_cast<char*>(memory_) + sizeof(State));
        for (std::size_t i = 0; i < numbers; ++i) new (numbers_ + i) Number(0);
    }
    Board(const Board&) = delete;
    Board& operator=(const Board&) = delete;
    ~Board() { munmap(memory_, size_); }

    State* operator->() const { return state_; }
    /// Votes acknowledged for an item, by all processes so far.
    Number& acknowledged(std::int64_t item) const { return numbers_[item]; }
    Number* vote_cells() const { return numbers_ + items_; }
    Number* read_cells() const { return vote_cells() + histogram_cells(); }

    void fail(const std::string& why) const {
        if (state_->failed.exchange(true)) return;  // The first one's words are kept.
        std::strncpy(state_->error, why.c_str(), sizeof(state_->error) - 1);
        state_->closes_ns.store(0);
    }

  private:
    std::size_t items_;
    std::size_t size_{};
    void* memory_{};
    State* state_{};
    Number* numbers_{};
};

// -- votes alone ---------------------------------------------------------------

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

    Result<void> write(sql::Connection& connection,
                       std::span<const std::shared_ptr<sql::QueuedWrite>> batch) override {
        std::vector<Row> rows;
        rows.reserve(batch.size());
        for (const auto& write : batch) rows.push_back(static_cast<QueuedRow&>(*write).row);
        return insert(connection, rows);
    }

    Result<void> insert(sql::Connection& connection, std::vector<Row>& rows) {
        std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
            return a.item != b.item ? a.item < b.item : a.user < b.user;
        });
        if (dialect_ == sql::Dialect::postgres && rows.size() > 1) {
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

// -- who votes -------------------------------------------------------------------

/// What a process's callers share.
class Voters {
  public:
    virtual ~Voters() = default;
    virtual Result<void> vote(std::int64_t item, std::int64_t user) = 0;
    virtual void vote_async(std::int64_t item, std::int64_t user, Completion<Cast> done) = 0;
    virtual Result<std::int64_t> count(std::int64_t item) = 0;
};

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
        HOTCOUNT_TRY_ASSIGN(const Count count, votes_->count(sql::Id{item}, kTimeout));
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

Result<std::shared_ptr<sql::Database>> open(const Settings& settings) {
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
    HOTCOUNT_TRY_ASSIGN(auto database, open(settings));
    if (settings.strategy == "alone") return Alone::make(database, settings.callers);
    HOTCOUNT_TRY_ASSIGN(auto votes, make_votes(database, settings.strategy));
    return std::unique_ptr<Voters>(std::make_unique<ByVotes>(std::move(votes)));
}

// -- one process -------------------------------------------------------------------

class Process {
  public:
    Process(const Settings& settings, const Board& board, int number)
        : settings_(settings), board_(board), number_(number) {}

    void run() {
        while (!board_->tables_made.load() && !board_->failed.load()) pause();
        auto voters = make_voters(settings_);
        if (!voters) return board_.fail(voters.error().message);
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(settings_.callers));
        for (int caller = 0; caller < settings_.callers; ++caller) {
            threads.emplace_back([this, caller, &voters = **voters] { call(voters, caller); });
        }
        board_->ready.fetch_add(1);
        threads.clear();
        // Nothing is left behind unanswered, on which the audit would depend.
        while (aside_under_way_.load() > 0) pause();
    }

  private:
    static void pause() { std::this_thread::sleep_for(milliseconds{1}); }

    void call(Voters& voters, int caller) {
        Random random(loadtest::mix(settings_.seed, static_cast<std::uint64_t>(number_) << 32 |
                                                        static_cast<std::uint64_t>(caller)));
        const auto size = static_cast<std::uint64_t>(settings_.items);
        const loadtest::Zipf zipf(size, settings_.aside ? 0 : settings_.zipf);
        const loadtest::Permutation scrambled(size);
        const auto draw = [&] {
            return 1 + static_cast<std::int64_t>(scrambled.permute(1, zipf.draw(random) - 1));
        };
        std::vector<std::uint32_t> vote_ns(histogram_cells());
        std::vector<std::uint32_t> read_ns(histogram_cells());
        std::uint64_t votes = 0;
        std::uint64_t reads = 0;

        while (!board_->go.load() && !board_->failed.load()) pause();
        for (;;) {
            std::int64_t item = draw();
            const std::int64_t began = now_ns();
            if (began >= board_->closes_ns.load(std::memory_order_relaxed)) break;
            const auto user = static_cast<std::int64_t>(random.next() >> 1);
            if (settings_.aside && item == kAsideItem) {
                if (put_aside(voters, user, began)) continue;
                item = kAsideItem + 1;
            }
            const bool reads_now = settings_.reads > 0 && random.unit() < settings_.reads;
            const bool good = reads_now ? read(voters, item) : vote(voters, item, user);
            if (!good) break;
            const std::int64_t ended = now_ns();
            if (ended < board_->opens_ns.load(std::memory_order_relaxed) ||
                ended >= board_->closes_ns.load(std::memory_order_relaxed)) {
                continue;
            }
            ++(reads_now ? read_ns : vote_ns)[Histogram::cell_of(ended - began)];
            ++(reads_now ? reads : votes);
        }
        board_->votes.fetch_add(votes);
        board_->reads.fetch_add(reads);
        for (std::size_t cell = 0; cell < vote_ns.size(); ++cell) {
            if (vote_ns[cell] > 0) board_.vote_cells()[cell].fetch_add(vote_ns[cell]);
            if (read_ns[cell] > 0) board_.read_cells()[cell].fetch_add(read_ns[cell]);
        }
    }

    bool vote(Voters& voters, std::int64_t item, std::int64_t user) const {
        const auto voted = voters.vote(item, user);
        if (voted) {
            board_.acknowledged(item).fetch_add(1);
        } else {
            board_.fail("a vote failed: " + voted.error().message);
        }
        return voted.ok();
    }

    bool read(Voters& voters, std::int64_t item) const {
        const auto known = static_cast<std::int64_t>(board_.acknowledged(item).load());
        const auto count = voters.count(item);
        if (!count) {
            board_.fail("a read failed: " + count.error().message);
        } else if (*count < known) {
            board_.fail("a read of item " + std::to_string(item) + " gave " +
                        std::to_string(*count) + " when " + std::to_string(known) +
                        " votes had been acknowledged");
        }
        return count && *count >= known;
    }

    /// False where too many are under way.
    bool put_aside(Voters& voters, std::int64_t user, std::int64_t began) {
        if (aside_under_way_.load() >= kMostAside) {
            board_->aside_diverted.fetch_add(1);
            return false;
        }
        aside_under_way_.fetch_add(1);
        board_->aside_sent.fetch_add(1);
        voters.vote_async(kAsideItem, user, [this, began](const Result<Cast>& cast) {
            if (cast) {
                board_.acknowledged(kAsideItem).fetch_add(1);
                board_->aside_landed.fetch_add(1);
                const auto took = static_cast<std::uint64_t>(now_ns() - began);
                std::uint64_t worst = board_->aside_worst_ns.load();
                while (worst < took && !board_->aside_worst_ns.compare_exchange_weak(worst, took)) {
                }
            } else {
                board_.fail("a vote that was put aside failed: " + cast.error().message);
            }
            aside_under_way_.fetch_sub(1);
        });
        return true;
    }

    const Settings& settings_;
    const Board& board_;
    const int number_;
    std::atomic<std::int64_t> aside_under_way_{0};
};

// -- all of them -------------------------------------------------------------------

/// The processes; those that still run when this ends are killed.
class Children {
  public:
    Children(const Settings& settings, const Board& board) {
        const pid_t parent = getpid();
        for (int number = 0; number < settings.processes; ++number) {
            const pid_t pid = fork();
            if (pid < 0) {
                board.fail("fork failed");
                return;
            }
            if (pid > 0) {
                pids_.push_back(pid);
                continue;
            }
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent) Process(settings, board, number).run();
            _exit(0);
        }
    }
    Children(const Children&) = delete;
    Children& operator=(const Children&) = delete;
    ~Children() {
        for (const pid_t pid : pids_) kill(pid, SIGKILL);
        while (!pids_.empty()) collect(0);
    }

    /// Notes who has ended; an end that was not asked for fails the run.
    void check(const Board& board) {
        const std::size_t before = pids_.size();
        const bool well = collect(WNOHANG);
        if (!well || (pids_.size() < before && now_ns() < board->closes_ns.load())) {
            board.fail("a process of voters ended early");
        }
    }
    bool ended() const { return pids_.empty(); }

  private:
    bool collect(int how) {
        bool well = true;
        std::erase_if(pids_, [&](pid_t pid) {
            int status = 0;
            if (waitpid(pid, &status, how) == 0) return false;
            well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            return true;
        });
        return well;
    }

    std::vector<pid_t> pids_{};
};

Result<void> set_up(const Settings& settings) {
    HOTCOUNT_TRY_ASSIGN(auto database, open(settings));
    HOTCOUNT_TRY_ASSIGN(auto votes, make_votes(database, settings.strategy));
    HOTCOUNT_TRY(votes->create_tables(kSetUpTimeout));
    std::vector<sql::Id> items;
    for (std::int64_t item = 1; item <= settings.items; ++item) items.emplace_back(item);
    return votes->add_items(items, kSetUpTimeout);
}

/// The measurement, seen from outside: opens it, holds the item meanwhile, closes it.
Result<void> watch(const Settings& settings, const Board& board, Children& children) {
    const auto wait_until = [&](const auto& over) {
        while (!over() && !board->failed.load()) {
            children.check(board);
            std::this_thread::sleep_for(milliseconds{5});
        }
    };
    wait_until([&] { return board->ready.load() == settings.processes; });
    board->go.store(true);
    const std::int64_t warm_ns = now_ns() + in_ns(settings.warm_up);
    wait_until([&] { return now_ns() >= warm_ns; });

    std::shared_ptr<sql::Database> database;
    std::optional<sql::Lease> holder;  // After the database, which it must not outlive.
    if (settings.hold) {
        HOTCOUNT_TRY_ASSIGN(database, sql::open_database(settings.url));
        const Deadline deadline = Deadline::after(kTimeout);
        HOTCOUNT_TRY_ASSIGN(sql::Lease lease, database->writer(deadline));
        const sql::Statement lock("SELECT id FROM item WHERE id = ?1 FOR UPDATE");
        HOTCOUNT_TRY(lease->begin(deadline));
        HOTCOUNT_TRY(lease->execute(lock, {kAsideItem}));
        holder.emplace(std::move(lease));
    }
    const std::int64_t opens_ns = now_ns();
    const std::int64_t closes_ns = opens_ns + in_ns(settings.seconds);
    board->opens_ns.store(opens_ns);
    board->closes_ns.store(closes_ns);
    wait_until([&] { return now_ns() >= closes_ns; });
    if (holder) (*holder)->rollback();
    holder.reset();
    wait_until([&] { return children.ended(); });
    if (board->failed.load()) return make_error(ErrorCode::database, board->error);
    return {};
}

Result<void> audit(const Settings& settings, const Board& board) {
    HOTCOUNT_TRY_ASSIGN(auto database, open(settings));
    HOTCOUNT_TRY_ASSIGN(auto votes, make_votes(database, settings.strategy));
    const bool counted = settings.strategy != "alone";
    std::vector<std::int64_t> rows(static_cast<std::size_t>(settings.items) + 1);
    std::vector<std::int64_t> shown(rows.size());
    if (counted) {
        HOTCOUNT_TRY_ASSIGN(const FlushReport flushed, votes->flush(kSetUpTimeout));
        if (flushed.pending > 0) return make_error(ErrorCode::database, "flush() left counts");
    }
    {
        const Deadline deadline = Deadline::after(kSetUpTimeout);
        HOTCOUNT_TRY_ASSIGN(sql::Lease reader, database->reader(deadline));
        HOTCOUNT_TRY(reader->begin_read(deadline));
        const auto into = [](std::vector<std::int64_t>& numbers) {
            return sql::RowVisitor{[&numbers](const sql::Row& row) -> Result<void> {
                numbers.at(static_cast<std::size_t>(row.integer(0))) = row.integer(1);
                return {};
            }};
        };
        const sql::Statement of_votes("SELECT item_id, COUNT(*) FROM vote GROUP BY item_id");
        const sql::Statement of_items("SELECT id, COALESCE(vote_count, 0) FROM item");
        HOTCOUNT_TRY(reader->query(of_votes, {}, into(rows)));
        HOTCOUNT_TRY(reader->query(of_items, {}, into(shown)));
        reader->rollback();
    }
    const auto differ = [](std::int64_t item, const char* what, std::int64_t is,
                           std::int64_t expected) {
        return make_error(ErrorCode::database, "item " + std::to_string(item) + ": " + what + " " +
                                                   std::to_string(is) + ", not " +
                                                   std::to_string(expected));
    };
    for (std::int64_t item = 1; item <= settings.items; ++item) {
        const auto said = static_cast<std::int64_t>(board.acknowledged(item).load());
        const std::int64_t there = rows[static_cast<std::size_t>(item)];
        const std::int64_t column = shown[static_cast<std::size_t>(item)];
        if (there != said) return differ(item, "acknowledged votes found", there, said);
        if (counted && column != said) return differ(item, "vote_count is", column, said);
    }
    for (std::int64_t first = 1; counted && first <= settings.items; first += kItemsAtOnce) {
        std::vector<sql::Id> items;
        for (std::int64_t item = first; item <= settings.items && items.size() < kItemsAtOnce;
             ++item) {
            items.emplace_back(item);
        }
        HOTCOUNT_TRY_ASSIGN(const auto counts, votes->count_many(items, kSetUpTimeout));
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const std::int64_t item = first + static_cast<std::int64_t>(i);
            const std::int64_t there = rows[static_cast<std::size_t>(item)];
            if (counts[i].value != there) return differ(item, "count() is", counts[i].value, there);
        }
    }
    return {};
}

nlohmann::json latency(const Number* cells) {
    std::uint64_t total = 0;
    for (std::size_t cell = 0; cell < histogram_cells(); ++cell) total += cells[cell].load();
    const auto at = [&](double quantile) {
        const auto wanted =
            static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(total)));
        std::uint64_t seen = 0;
        for (std::size_t cell = 0; cell < histogram_cells(); ++cell) {
            seen += cells[cell].load();
            if (seen >= wanted && seen > 0) {
                return static_cast<double>(Histogram::cell_end(cell)) * 1e-3;
            }
        }
        return 0.0;
    };
    return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"max", at(1)}};
}

Result<nlohmann::json> run(const Settings& settings) {
    const Board board(settings.items);
    // Before anything is opened here: the children start from nothing, as workers do.
    Children children(settings, board);
    HOTCOUNT_TRY(set_up(settings));
    board->tables_made.store(true);
    HOTCOUNT_TRY(watch(settings, board, children));
    HOTCOUNT_TRY(audit(settings, board));
    std::uint64_t acknowledged = 0;
    for (std::int64_t item = 1; item <= settings.items; ++item) {
        acknowledged += board.acknowledged(item).load();
    }
    return nlohmann::json{
        {"votes", board->votes.load()},
        {"reads", board->reads.load()},
        {"seconds", settings.seconds},
        {"vote_us", latency(board.vote_cells())},
        {"read_us", latency(board.read_cells())},
        {"acknowledged", acknowledged},
        {"aside",
         {{"sent", board->aside_sent.load()},
          {"landed", board->aside_landed.load()},
          {"diverted", board->aside_diverted.load()},
          {"worst_us", static_cast<double>(board->aside_worst_ns.load()) * 1e-3}}}};
}

}  // namespace

int main(int count, char** words) {
    Settings settings;
    CLI::App app{"Votes from several processes of C++ callers, on one database; one line of JSON."};
    app.add_option("--db", settings.url, "postgresql:// or mariadb://, without tables yet")
        ->required();
    app.add_option("--strategy", settings.strategy)
        ->check(CLI::IsMember({"naive", "slotted", "batched", "alone"}));
    app.add_option("--processes", settings.processes)->check(CLI::Range(1, 64));
    app.add_option("--callers", settings.callers, "threads in each")->check(CLI::Range(1, 256));
    app.add_option("--items", settings.items)->check(CLI::Range(1, 1'000'000));
    app.add_option("--zipf", settings.zipf, "exponent; not with --aside, which votes evenly");
    app.add_option("--reads", settings.reads, "share of the calls")->check(CLI::Range(0.0, 0.99));
    app.add_option("--seconds", settings.seconds)->check(CLI::Range(0.01, 600.0));
    app.add_option("--warm-up", settings.warm_up, "seconds")->check(CLI::Range(0.0, 60.0));
    app.add_option("--seed", settings.seed);
    app.add_flag("--aside", settings.aside, "votes for item 1 do not wait");
    app.add_flag("--hold", settings.hold, "another connection holds item 1's row");
    try {
        app.parse(count, words);
        settings.aside = settings.aside || settings.hold;
        if (settings.strategy == "alone" && (settings.reads > 0 || settings.aside)) {
            throw CLI::ValidationError("alone takes neither --reads nor --aside");
        }
        if (settings.aside && settings.items < 2) {
            throw CLI::ValidationError("--aside and --hold take --items of 2 or more");
        }
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    const auto line = run(settings);
    if (!line) {
        std::cerr << line.error().message << '\n';
        return 1;
    }
    std::cout << line->dump() << '\n';
    return 0;
}

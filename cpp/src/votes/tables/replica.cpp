#include "replica.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <deque>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <mutex>

#include "count_place.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "layout.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How often a heartbeat is written within read_max_lag.
constexpr int kBeats = 4;
// For a connection to the replica, and for a look at the primary.
constexpr Duration kDialsFor = seconds{2};
constexpr Duration kLooksFor = seconds{5};
// Between two attempts to reach a replica that is away: one at a time in a process.
constexpr Duration kFirstRedial = seconds{1};
constexpr int kRedialDoublings = 4;  // To 16 s.
// How long a replica that is behind is left alone: each read would ask it and then the primary.
constexpr Duration kLeftAloneFor = milliseconds{100};
// A call whose deadline is shorter than kShort and passes is no sign that the replica is away, until
// this happens to kMostShort calls in a row.
constexpr Duration kShort = milliseconds{500};
constexpr int kMostShort = 3;
// How far the primary's clock may be behind the time expected from two looks, because it is being
// slewed. A larger difference is a step back.
constexpr Duration kSlew = milliseconds{100};
// Heartbeats of the primary that are remembered.
constexpr std::size_t kSeen = 32;

// Whether the error says nothing about the replica's use: a conflict with its replay, or an error
// that the primary would return as well.
bool is_of_this_read(const Error& error) {
    return error.condition == SqlCondition::transaction_conflict ||
           error.code == ErrorCode::overflow;
}

std::string drawn_number() {
    std::array<char, 16> hex{};
    const auto end =
        std::to_chars(hex.data(), hex.data() + hex.size(), thread_random().next(), 16).ptr;
    return {hex.data(), end};
}

Error of_read_url(Error error) {
    error.message = "read_url: " + error.message;
    error.about(&ErrorFacts::option, "read_url");
    return error;
}

}  // namespace

std::optional<std::int64_t> heartbeat_time(std::string_view heartbeat) {
    std::int64_t time = 0;
    const char* const end = heartbeat.data() + heartbeat.size();
    const auto read = std::from_chars(heartbeat.data(), end, time);
    if (read.ec != std::errc{} || read.ptr == end || *read.ptr != ' ') return {};
    return time;
}

struct Replica::Work {
    Work(std::shared_ptr<sql::Database> of, std::shared_ptr<sql::Database> opened,
         const VotesOptions& options, const sql::Statements& sql)
        : primary(std::move(of)),
          url(options.read_url),
          max_lag(options.read_max_lag),
          clock(options.clock),
          read_beat_(sql["read_beat"]),
          look_(sql["look_at_primary"]),
          beat_(sql["beat"]),
          first_beat_(sql["first_beat"]),
          replica_(std::move(opened)),
          up_(replica_ != nullptr) {}

    static Result<std::shared_ptr<sql::Database>> open(const sql::Database& primary,
                                                       const std::string& url) {
        sql::DatabaseOptions how = primary.options();
        how.timeout = std::min(how.timeout, kDialsFor);
        return sql::open_database(url, how);
    }

    const std::shared_ptr<sql::Database> primary;
    const std::string url;
    const Duration max_lag;
    const std::shared_ptr<const Clock> clock;
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::uint64_t> fallbacks{0};
    std::atomic<bool> has_warning{false};

    // -- for reads ------------------------------------------------------------------------------

    /// Null if it is not to be asked now.
    std::shared_ptr<sql::Database> usable() {
        const std::lock_guard lock(mutex_);
        if (!up_ || !looked_ || SteadyClock::now() < rest_until_) return nullptr;
        return replica_;
    }

    /// True if a look or a connection is due: this caller has the thread do it.
    bool take_turn() {
        const std::lock_guard lock(mutex_);
        const SteadyTime now = SteadyClock::now();
        if (busy_ || (now < next_look_ && (up_ || now < next_dial_))) return false;
        busy_ = true;
        return true;
    }
    void give_turn_back() {
        const std::lock_guard lock(mutex_);
        busy_ = false;
        next_look_ = SteadyClock::now() + pause();
    }

    struct Beat {
        std::string text{};
        bool of_standby{false};
        std::string server{};
    };
    Result<Beat> read_beat(sql::Connection& connection) {
        Beat beat;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            beat = {std::string{row.text(0)}, row.integer(1) != 0, std::string{row.text(2)}};
            return {};
        };
        HOTCOUNT_TRY(connection.query(read_beat_, {}, see));
        return beat;
    }

    /// The greatest age of a snapshot with that heartbeat; nullopt if the heartbeat does not count.
    std::optional<Duration> age_of(const Beat& beat) {
        const std::lock_guard lock(mutex_);
        const SteadyTime now = SteadyClock::now();
        const auto us = heartbeat_time(beat.text);
        const bool known = std::any_of(seen_.begin(), seen_.end(),
                                       [&](const Seen& each) { return each.text == beat.text; });
        if (known) {
            proved_until_ = now + 2 * max_lag;
            strange_since_.reset();
        }
        const bool ours = known || beat.text.ends_with(" " + server_);
        const bool promoted = beat.server != server_ && is_promoted(beat.of_standby);
        if (us && ours && !promoted && now < proved_until_) {
            const Duration age = now - our_time(*us);
            if (age >= Duration{0} && age <= max_lag) return age;
        }
        if ((!ours || promoted) && now > looked_at_ + pause() / kBeats) next_look_ = now;
        rest_until_ = now + std::min(kLeftAloneFor, pause());
        note_refusal(!ours, promoted, us, now);
        return {};
    }

    void note_answer(Duration age) {
        reads.fetch_add(1, std::memory_order_relaxed);
        const std::lock_guard lock(mutex_);
        lag_ = age;
        failures_ = 0;
        short_ones_ = 0;
        trouble_.clear();
    }

    /// `had`: the time that the read was given.
    void note_failure(const Error& error, Duration had) {
        if (is_of_this_read(error) || interrupted()) return;
        const std::lock_guard lock(mutex_);
        if (error.code == ErrorCode::deadline) {
            if (had < kShort && ++short_ones_ < kMostShort) return;
            short_ones_ = 0;
            // The replica is away, or the read was long: the thread finds out.
            up_ = false;
            next_dial_ = SteadyClock::now();
            return;
        }
        is_down(error);
    }

    // -- the thread -----------------------------------------------------------------------------

    void work() {
        bool looks = false;
        bool dials = false;
        {
            const std::lock_guard lock(mutex_);
            const SteadyTime now = SteadyClock::now();
            looks = now >= next_look_;
            dials = !up_ && now >= next_dial_;
        }
        if (looks) look();
        if (dials) dial();
        const std::lock_guard lock(mutex_);
        busy_ = false;
    }

    void note_down(const Error& error) {
        const std::lock_guard lock(mutex_);
        is_down(error);
    }

    void add_stats(VotesStats& stats) {
        stats.replica_reads = reads.load(std::memory_order_relaxed);
        stats.replica_fallbacks = fallbacks.load(std::memory_order_relaxed);
        const std::lock_guard lock(mutex_);
        stats.replica_error = trouble_.empty() ? look_trouble_ : trouble_;
        stats.replica_lag = lag_;
    }
    std::optional<std::string> take_warning() {
        if (!has_warning.load(std::memory_order_acquire)) return {};
        const std::lock_guard lock(mutex_);
        if (!has_warning.exchange(false)) return {};
        return std::move(warning_);
    }

  private:
    struct Seen {
        std::string text;
        std::int64_t us;
        SteadyTime since;  // The primary had it by then.
    };

    Duration pause() const { return max_lag / kBeats; }
    bool is_promoted(bool standby) {
        promoted_ = !standby && (promoted_ || was_standby_);
        was_standby_ = standby;
        return promoted_;
    }
    // When the primary's clock said so, or earlier.
    SteadyTime our_time(std::int64_t us) const {
        return looked_at_ - microseconds{primary_us_ - us};
    }

    // The primary's clock, and its heartbeat; a new one if that is old.
    void look() {
        std::int64_t now_us = 0;
        std::string heartbeat;
        std::string server;
        SteadyTime sent;
        SteadyTime came;
        const Deadline deadline = Deadline::after(kLooksFor);
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            now_us = row.integer(0);
            heartbeat = row.is_null(1) ? std::string{} : std::string{row.text(1)};
            server = row.text(2);
            return {};
        };
        const auto read = [&](sql::Connection& connection) -> Result<void> {
            sent = SteadyClock::now();
            HOTCOUNT_TRY(connection.query(look_, {}, see));
            came = SteadyClock::now();
            return {};
        };
        auto looked = sql::read_snapshot(*primary, deadline, read);
        if (!looked) return note_no_look(looked.error());
        // One from the future is of a clock that was wrong.
        auto us = heartbeat_time(heartbeat);
        // After a step back the existing heartbeats look younger than they are, here and on the
        // replica.
        const bool stepped = stepped_back(sent, now_us);
        const bool is_old = stepped || !heartbeat.ends_with(" " + server) || !us || *us > now_us ||
                            microseconds{now_us - *us} >= pause();
        if (is_old) {
            heartbeat = std::to_string(now_us) + " " + drawn_number() + " " + server;
            us = now_us;
            auto written = sql::transact(*primary, deadline, [&](sql::Connection& connection) {
                return write_beat(connection, heartbeat);
            });
            if (!written) return note_no_look(written.error());
        }
        const std::lock_guard lock(mutex_);
        const SteadyTime now = SteadyClock::now();
        looked_ = true;
        server_ = std::move(server);
        primary_us_ = now_us;
        looked_at_ = sent;
        look_took_ = came - sent;
        std::erase_if(seen_, [&](const Seen& each) { return stepped || each.us > now_us; });
        if (stepped) proved_until_ = SteadyTime{};
        const auto known = [&](const Seen& each) { return each.text == heartbeat; };
        if (std::none_of(seen_.begin(), seen_.end(), known)) {
            seen_.push_back({std::move(heartbeat), *us, now});
            if (seen_.size() > kSeen) seen_.pop_front();
        }
        // Processes look at different moments, so that the later ones find a recent heartbeat.
        const auto spread = static_cast<std::uint64_t>(pause().count() / 4);
        const Duration drawn{static_cast<Duration::rep>(thread_random().below(spread + 1))};
        next_look_ = std::max<SteadyTime>(our_time(*us) + pause(), now) + drawn;
        look_trouble_.clear();
    }

    // Whether the primary's clock was set back since the last look.
    bool stepped_back(SteadyTime sent, std::int64_t now_us) {
        const std::lock_guard lock(mutex_);
        if (!looked_) return false;
        const Duration passed = sent - looked_at_;
        const Duration expected = passed - look_took_ - kSlew - passed / 1000;
        return microseconds{now_us - primary_us_} < expected;
    }

    Result<void> write_beat(sql::Connection& connection, const std::string& heartbeat) {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t changed,
                            connection.execute(beat_, {std::string_view{heartbeat}}));
        if (changed == 0) {
            HOTCOUNT_TRY(connection.execute(first_beat_, {std::string_view{heartbeat}}));
        }
        return {};
    }

    // If the primary is away, the callers' own statements fail. Other errors, such as a missing
    // right, are reported only here.
    void note_no_look(const Error& error) {
        const std::lock_guard lock(mutex_);
        next_look_ = SteadyClock::now() + pause();
        const bool transient = error.code == ErrorCode::unavailable ||
                               error.code == ErrorCode::deadline || error.code == ErrorCode::closed;
        if (transient) return;
        const bool begins = look_trouble_.empty();
        look_trouble_ = "no heartbeat can be written to the primary: " + error.message;
        if (begins) warn(look_trouble_);
    }

    void dial() {
        std::shared_ptr<sql::Database> database;
        {
            const std::lock_guard lock(mutex_);
            database = replica_;
        }
        if (database == nullptr || database->closed()) {
            auto opened = open(*primary, url);
            if (!opened) return note_down(opened.error());
            database = *std::move(opened);
        }
        const auto ask = [&](sql::Connection& connection) { return read_beat(connection); };
        auto asked = sql::read_snapshot(*database, Deadline::after(kDialsFor), ask);
        if (!asked) return note_down(asked.error());
        const std::lock_guard lock(mutex_);
        replica_ = std::move(database);
        up_ = true;
    }

    // -- under the mutex ------------------------------------------------------------------------

    void is_down(const Error& error) {
        up_ = false;
        next_dial_ =
            SteadyClock::now() + kFirstRedial * (1 << std::min(failures_++, kRedialDoublings));
        proved_until_ = SteadyTime{};  // The next connection may be to another server.
        note_trouble(error.message);
    }

    // An old heartbeat may only mean that no process has read here for a while. It is the replica's
    // fault if the primary has had a later one for half of max_lag.
    void note_refusal(bool strange, bool promoted, std::optional<std::int64_t> us, SteadyTime now) {
        const auto is_missed = [&](const Seen& each) {
            return each.us > us.value_or(0) && now - each.since > max_lag / 2;
        };
        if (strange || now >= proved_until_) {
            // Time without reads is not counted, because there were no looks either.
            if (!strange_since_ || now - refused_at_ > max_lag) strange_since_ = now;
            refused_at_ = now;
        }
        if (strange_since_ && now - *strange_since_ > max_lag) {
            note_trouble(
                "it shows no heartbeat that the primary has had: it is behind by more "
                "than read_max_lag, or no replica of " +
                primary->name());
        } else if (promoted) {
            note_trouble("it was promoted, and is not the primary of these votes");
        } else if (std::any_of(seen_.begin(), seen_.end(), is_missed)) {
            note_trouble("it is behind by more than read_max_lag");
        }
    }

    void note_trouble(const std::string& why) {
        const bool begins = trouble_.empty();
        trouble_ = why;
        if (begins) warn(why);
    }

    void warn(const std::string& why) {
        const auto shown = parse_url(url);
        warning_ = "the replica " + (shown ? shown->str() : std::string{"of read_url"}) +
                   " is not used, the primary answers: " + why;
        has_warning.store(true, std::memory_order_release);
    }

    const sql::Statement read_beat_;
    const sql::Statement look_;
    const sql::Statement beat_;
    const sql::Statement first_beat_;

    std::mutex mutex_;
    std::shared_ptr<sql::Database> replica_;  // Null until it could be opened.
    bool up_;
    bool busy_{false};   // The thread has something to do.
    int failures_{0};    // Since its last answer.
    int short_ones_{0};  // Deadlines shorter than kShort that calls have met since then.
    SteadyTime next_dial_{};
    SteadyTime rest_until_{};
    SteadyTime proved_until_{};                // Known to be the primary's replica until then.
    std::optional<SteadyTime> strange_since_;  // Since then it has shown no known heartbeat.
    SteadyTime refused_at_{};                  // The last time that it did so.
    std::string server_;                       // The primary, as the last look found it.
    bool was_standby_{false};                  // When it was last read.
    bool promoted_{false};                     // The server is no replica any more.
    bool looked_{false};
    Duration look_took_{0};
    SteadyTime next_look_{};
    std::int64_t primary_us_{0};  // The primary's clock at looked_at_ or later.
    SteadyTime looked_at_{};
    std::deque<Seen> seen_;
    Duration lag_{0};
    std::string trouble_;       // Why the replica is not used; empty while it answers.
    std::string look_trouble_;  // Why no heartbeat can be written on the primary.
    std::string warning_;
};

Result<std::shared_ptr<Replica>> Replica::make(std::shared_ptr<sql::Database> primary,
                                               const VotesOptions& options) {
    const VoteDialect& dialect = vote_dialect(primary->dialect());
    const sql::Grammar& grammar = dialect.grammar();
    if (!dialect.is_server()) {
        return bad_option("read_url", "must be None with " + std::string{grammar.name()} +
                                          ", which is a file without replicas");
    }
    const auto url = parse_url(options.read_url);
    if (!url) return of_read_url(url.error());
    for (const sql::Driver& driver : sql::drivers()) {
        const auto is_named = [&](const sql::Scheme& scheme) { return scheme.name == url->scheme; };
        if (!std::any_of(driver.schemes.begin(), driver.schemes.end(), is_named)) continue;
        if (driver.grammar.dialect() == grammar.dialect()) continue;
        return bad_option("read_url", "is of " + std::string{driver.grammar.name()} +
                                          ", and the votes are in " + std::string{grammar.name()});
    }
    auto opened = Work::open(*primary, options.read_url);
    if (!opened && opened.error().code == ErrorCode::config) return of_read_url(opened.error());
    const auto first = opened ? *opened : nullptr;
    const auto make_work =
        [primary, first, options,
         sql = vote_statements(vote_sql::kMarksSql, VoteNames{options, grammar}, grammar)] {
            return std::make_unique<Handle>(std::make_shared<Work>(primary, first, options, sql));
        };
    std::shared_ptr<Replica> replica{new Replica{make_work}};
    if (!opened) replica->handle_.get().work->note_down(opened.error());
    return replica;
}

std::optional<WallTime> Replica::read(Deadline deadline, const Body& body) {
    Handle& handle = handle_.get();
    const std::shared_ptr<Work> work = handle.work;
    if (work->primary->closed()) return {};
    if (work->take_turn()) {
        if (handle.thread.start()) {
            handle.thread.run([work] { work->work(); });
        } else {
            work->give_turn_back();
        }
    }
    const auto fall_back = [&]() -> std::optional<WallTime> {
        work->fallbacks.fetch_add(1, std::memory_order_relaxed);
        return {};
    };
    const auto database = work->usable();
    if (database == nullptr) return fall_back();
    std::optional<Duration> age;
    WallTime as_of;
    const auto read = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(const Work::Beat beat, work->read_beat(connection));
        // Before the age, which grows if this thread is stopped here: as_of may be too early alone.
        const WallTime now = work->clock->wall_now();
        age = work->age_of(beat);
        if (!age) return {};
        as_of = now - std::chrono::ceil<WallTime::duration>(*age);
        return body(connection);
    };
    const Duration half = deadline.remaining() / 2;
    auto done = sql::read_snapshot(*database, Deadline::after(half), read);
    if (!done) work->note_failure(done.error(), half);
    if (!done || !age) return fall_back();
    work->note_answer(*age);
    return as_of;
}

void Replica::add_stats(VotesStats& stats) const { handle_.get().work->add_stats(stats); }

std::optional<std::string> Replica::take_warning() { return handle_.get().work->take_warning(); }

}  // namespace hotcount

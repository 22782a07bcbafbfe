#include "folder.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/sql/transaction.hpp>
#include <mutex>

#include <hotcount/detail/base/worker_pool.hpp>

#include "fold_failures.hpp"
#include "fold_progress.hpp"
#include "left_items.hpp"

namespace hotcount {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// From this many rows of this process on, a fold does not wait for the end of the pause.
constexpr std::size_t kManyRows = kFoldPage;
// Exact reads sum the journal's rows. Summing kManyRead rows, and kManyReadPerItem more for each item
// of the last fold, costs about as much as a fold (2 to 3 ms of the server's time, and 16 us an
// item). After that many a fold starts early, so that reads and folds together cost at most twice the
// minimum.
constexpr std::size_t kManyRead = 20'000;
constexpr std::size_t kManyReadPerItem = 125;
constexpr std::size_t kLeastPage = 100;
// The journal is tidied after kRowsPerTidying folded rows or kFoldsPerTidying folds. Tidying takes a
// fifth of the time at most, however many rows an old snapshot keeps.
constexpr std::size_t kRowsPerTidying = 2'000;
constexpr int kFoldsPerTidying = 10;
constexpr int kRestOfTidying = 5;
constexpr std::size_t kMostRefusals = 100;
constexpr Duration kLongestRest = seconds{30};
// The shortest pause between two looks for rows of other processes, and the time limit of a look.
constexpr Duration kLookPause = seconds{5};
constexpr Duration kLookPatience = seconds{2};
bool took_too_long(const Error& error) { return error.code == ErrorCode::deadline; }
bool is_taken(const FoldedPage& folded) { return folded.outcome == FoldedPage::Outcome::taken; }
// The application closed the database: other processes fold, or this one when it opens it again.
bool is_closed(const Error& error) { return error.code == ErrorCode::closed; }

// Adds up to a tenth, so that processes that wait for the same moment spread out.
Duration with_jitter(Duration pause) {
    const auto tenth = std::max<Duration::rep>(pause.count() / 10, 1);
    return pause + Duration{static_cast<Duration::rep>(
                       thread_random().below(static_cast<std::uint64_t>(tenth)))};
}

Error still_taken() {
    return make_error(ErrorCode::deadline,
                      "another process folded the journal, or moved the counts, until the "
                      "deadline; what it has not folded is still to be");
}

}  // namespace

Duration look_pause(const VotesOptions& options) {
    return std::max<Duration>(options.fold_interval, kLookPause);
}

struct Folder::Work {
    Work(std::shared_ptr<Journal> of, const VotesOptions& options, Duration most, Publish to)
        : journal(std::move(of)),
          interval(options.fold_interval),
          look_pause(hotcount::look_pause(options)),
          patience(most),
          publish(std::move(to)),
          bad_folds(options.vote_table) {}

    const std::shared_ptr<Journal> journal;
    const Duration interval;
    const Duration look_pause;
    const Duration patience;
    const Publish publish;

    std::mutex mutex{};
    std::condition_variable changed{};
    std::size_t appended{0};  // Rows of this process since its last fold began.
    std::uint64_t total{0};   // Rows of this process.
    bool folding{false};      // The thread folds.
    std::size_t read{0};      // Rows that reads have summed since.
    std::size_t many_read{kManyRead};
    bool again{false};  // There are more rows to fold, of any process.
    bool stop{false};
    bool started{false};
    bool votes{false};  // This process has appended rows.
    std::atomic<bool> looks{false};
    SteadyTime look_at{};     // The next look, if `looks`.
    SteadyTime not_before{};  // The next fold.
    SteadyTime soon{};        // The next fold, if `read` has reached many_read.
    Stats stats{};
    FoldFailures bad_folds;  // Has a lock of its own.
    LeftItems left;          // Has a lock of its own.
    std::size_t page{kFoldPage};
    std::size_t untidied{0};  // Rows folded since the journal was tidied.
    int folds_until_tidying{kFoldsPerTidying};
    SteadyTime tidy_after{};

    // -- the thread -----------------------------------------------------------------------------

    void run() {
        int failures = 0;
        std::unique_lock lock(mutex);
        while (true) {
            const bool hurried = votes && read >= many_read;
            const bool wanted = appended > 0 || again || hurried;
            if (!wanted) {
                if (stop) return;
                wait_for_work(lock);
                continue;
            }
            const bool many = appended >= kManyRows;
            const SteadyTime begin = hurried ? soon : not_before;
            if (!many && !stop && SteadyClock::now() < begin) {
                changed.wait_until(lock, begin);
                continue;
            }
            const bool last = stop;
            const std::size_t rows = std::exchange(appended, 0);
            read = 0;
            const bool more = std::exchange(again, false);
            folding = true;
            lock.unlock();
            FoldProgress progress{Deadline::after(patience), false};
            auto folded = fold_all(!many && !last, progress, hurried);
            lock.lock();
            folding = false;
            if (last || (!folded && is_closed(folded.error()))) return;
            failures = folded ? 0 : std::min(failures + 1, 5);
            Duration rest = interval;
            if (!folded) {
                rest = std::min<Duration>(interval * (1 << failures), kLongestRest);
            } else if (folded->outcome == FoldedPage::Outcome::not_due) {
                rest = folded->due_in;
            } else {
                rest = std::max(interval, std::min<Duration>(kRest * stats.took, kLongestPause));
            }
            rest = with_jitter(rest);
            not_before = SteadyClock::now() + rest;
            soon = folded ? SteadyClock::now() + std::min(rest, std::max(kShortPause, stats.took))
                          : not_before;
            const bool done = folded && (folded->outcome == FoldedPage::Outcome::folded ||
                                         folded->outcome == FoldedPage::Outcome::elsewhere);
            // Most rows that are left belong to later votes; the processes of those voters fold them.
            if (done && (looks || folded->left)) look_after(look_pause);
            if (!folded && only_reads(folded.error())) {
                look_after(LeftItems::kRefusedFor);
                continue;
            }
            // The appended rows may not be folded yet.
            if (!done) again = again || rows > 0 || more;
            if (folded && (folded->more || !progress.held.empty() || left.holds())) again = true;
        }
    }

    // Requires the lock. Returns false if the system starts no more threads.
    static bool start(const std::shared_ptr<Work>& work) {
        if (!work->started) work->started = spawn_thread([work] { work->run(); }).ok();
        return work->started;
    }

    // Waits for work: appended rows, a retry of an item that was left out, or a look.
    void wait_for_work(std::unique_lock<std::mutex>& lock) {
        const SteadyTime retry = left.retry_at();
        const bool look_first = looks && look_at < retry;
        if (!look_first && retry == SteadyTime::max()) return changed.wait(lock);
        const SteadyTime first = look_first ? look_at : retry;
        if (changed.wait_until(lock, first) == std::cv_status::no_timeout) return;
        if (look_first) {
            look(lock);
        } else {
            again = true;
        }
    }

    void look_after(Duration pause) {
        looks = true;
        look_at = SteadyClock::now() + with_jitter(pause);
    }

    void look(std::unique_lock<std::mutex>& lock) {
        looks = false;  // A later use may see rows that this look does not.
        lock.unlock();
        const auto seen = journal->look(Deadline::after(kLookPatience));
        lock.lock();
        if (!seen) {
            const ErrorCode code = seen.error().code;
            if (code == ErrorCode::unavailable || code == ErrorCode::deadline) {
                look_after(look_pause);
            }
            return;
        }
        const Duration rest = look_pause - seen->since_folded;
        const bool others_fold = seen->since_folded >= Duration{0} && rest > Duration{0};
        if (seen->has_rows && !others_fold) again = true;
        if (seen->has_rows && others_fold) {
            look_after(rest);
        } else if (seen->others_append) {
            look_after(look_pause);
        }
    }

    // A login that only reads counts may have no right to fold. Then other processes fold;
    // `hotcount doctor` reports if none does.
    bool only_reads(const Error& error) const {
        return !votes && error.code == ErrorCode::permission_denied;
    }

    // -- folding --------------------------------------------------------------------------------

    // Folds the whole journal page by page, except for items left out. Returns the sum of the pages.
    Result<FoldedPage> fold_all(bool due_only, FoldProgress& progress, bool hurried = false) {
        const Deadline deadline = progress.deadline;
        FoldedPage all;
        while (true) {
            const SteadyTime begun = SteadyClock::now();
            const std::vector<sql::Id> but = left.left_out(begun);
            std::size_t most;
            {
                const std::lock_guard lock(mutex);
                most = page;
            }
            auto folded = journal->fold(FoldRequest{due_only, hurried, {}, but, most}, deadline);
            if (!folded && is_one_items_fault(folded.error())) {
                folded = fold_apart(but, folded.error(), deadline);
            }
            if (!folded) {
                const std::lock_guard lock(mutex);
                const bool is_failure = progress.on_demand || !only_reads(folded.error());
                if (is_failure && !is_closed(folded.error())) bad_folds.add(folded.error());
                if (!took_too_long(folded.error())) return folded;
                page = std::max(page / 4, kLeastPage);
                if (most > kLeastPage && !deadline.passed()) continue;
                return folded;
            }
            if (folded->outcome != FoldedPage::Outcome::folded) {
                if (!folded->counts.empty()) {  // fold_apart() has committed a part.
                    folded->more = true;
                    note_fold(*folded, {}, begun, progress);
                    tell(*folded, progress);
                }
                all.outcome = folded->outcome;
                all.due_in = folded->due_in;
                if (all.outcome == FoldedPage::Outcome::elsewhere) left.forget();
                return all;
            }
            note_fold(*folded, {}, begun, progress);
            tell(*folded, progress);
            all.rows += folded->rows;
            // If most of a page was put back, the next page would be the same rows.
            const bool circles = 2 * folded->held.size() > folded->rows;
            if (!folded->more || circles || deadline.passed()) {
                all.more = folded->more;
                all.left = folded->left;
                wait_for_starved(false, progress);
                return all;
            }
            due_only = false;  // The pause follows the last page.
        }
    }

    // Voters that share an item's row lock may hold it without a gap; a fold that waits for the lock
    // gets it. It waits briefly and for a few items at a time, because voters queue behind it.
    void wait_for_starved(bool at_once, FoldProgress& progress) {
        if (!journal->may_starve()) return;
        for (const sql::Id& item : left.take_patient(interval, at_once)) {
            const std::span<const sql::Id> only{&item, 1};
            const auto begun = SteadyClock::now();
            auto folded = journal->fold(FoldRequest{false, false, only, {}, kFoldPage, true},
                                        progress.deadline);
            if (!folded || folded->outcome != FoldedPage::Outcome::folded) continue;
            note_fold(*folded, only, begun, progress);
            tell(*folded, progress);
        }
    }

    static bool is_one_items_fault(const Error& error) {
        return !sql::is_transient(error) && sql::may_be_one_writes_fault(error);
    }

    // Folds a page item by item range, halving a range that fails. `why`: the error of the whole page.
    Result<FoldedPage> fold_apart(std::span<const sql::Id> but, const Error& why,
                                  Deadline deadline) {
        HOTCOUNT_TRY_ASSIGN(std::vector<sql::Id> items, journal->items(deadline));
        FoldedPage all;
        all.more = items.size() >= kFoldPage;
        std::erase_if(items, [&](const sql::Id& item) {
            return std::binary_search(but.begin(), but.end(), item);
        });
        std::size_t refusals = 0;
        HOTCOUNT_TRY(fold_half(items, deadline, all, refusals));
        if (refusals > 0) bad_folds.add(why);
        return all;
    }

    Result<void> fold_half(std::span<const sql::Id> items, Deadline deadline, FoldedPage& all,
                           std::size_t& refusals) {
        if (items.empty() || all.outcome != FoldedPage::Outcome::folded) return {};
        auto folded = journal->fold(FoldRequest{false, false, items, {}, kFoldPage}, deadline);
        if (folded) {
            all.outcome = folded->outcome;
            all.rows += folded->rows;
            all.more = all.more || folded->more;
            all.counts.insert(all.counts.end(), folded->counts.begin(), folded->counts.end());
            all.held.insert(all.held.end(), folded->held.begin(), folded->held.end());
            return {};
        }
        if (!is_one_items_fault(folded.error())) return std::move(folded).error();
        // Single items do not cause this many refusals.
        if (refusals == kMostRefusals) return std::move(folded).error();
        if (items.size() == 1) {
            ++refusals;
            left.refuse(items.front(), folded.error().message);
            return {};
        }
        const std::size_t half = items.size() / 2;
        HOTCOUNT_TRY(fold_half(items.first(half), deadline, all, refusals));
        return fold_half(items.subspan(half), deadline, all, refusals);
    }

    // Folds the journal as it is now. `wait_for_held`: also waits for locked items.
    Result<FoldReport> fold_now(bool wait_for_held, Deadline deadline) {
        FoldProgress progress{deadline, true};
        FoldPauses pauses{deadline};
        FoldedPage folded;
        const std::uint64_t before = total_appended();
        do {
            HOTCOUNT_TRY_ASSIGN(folded, fold_all(false, progress));
            if (is_taken(folded)) {
                pauses.rest();
                folded.more = true;
                continue;
            }
            HOTCOUNT_TRY(try_refused(folded, progress));
            if (!progress.held.empty()) pauses.begin();
            while (wait_for_held && !progress.held.empty() && !deadline.passed()) {
                pauses.rest();
                const auto begun = SteadyClock::now();
                HOTCOUNT_TRY(fold_held(folded, progress));
                wait_for_starved(true, progress);
                // Attempts at many items take half of the time at most.
                pauses.at_least(SteadyClock::now() - begun);
            }
            if (wait_for_held && progress.is_behind(folded)) {
                pauses.rest();
                folded.more = true;
            }
        } while (folded.more && (is_taken(folded) || progress.held.empty()) && !deadline.passed());
        if (is_taken(folded)) return still_taken();
        if (wait_for_held && !folded.more && progress.held.empty()) {
            settle(before, pauses, deadline);
        }
        return FoldReport{static_cast<std::int64_t>(progress.shown.size()),
                          static_cast<std::int64_t>(progress.held.size()),
                          static_cast<std::int64_t>(left.refused()), folded.more};
    }

    std::uint64_t total_appended() {
        const std::lock_guard lock(mutex);
        return total;
    }

    // The caller has folded the rows that were in the journal when `before` rows had been appended.
    // Waits for the thread's fold under way and cancels the next one, so that the caller may drop the
    // tables. Rows appended since need the next fold.
    void settle(std::uint64_t before, FoldPauses& pauses, Deadline deadline) {
        std::unique_lock lock(mutex);
        for (pauses.begin(); folding && total == before && !deadline.passed(); lock.lock()) {
            lock.unlock();
            pauses.rest();
        }
        if (folding || total != before || left.holds()) return;
        appended = 0;
        read = 0;
        again = false;
    }

    // Folds the items that are held. Without time for that they stay held.
    Result<void> fold_held(FoldedPage& all, FoldProgress& progress) {
        std::vector<sql::Id> items(progress.held.begin(), progress.held.end());
        const auto begun = SteadyClock::now();
        FoldedPage part;
        std::size_t refusals = 0;
        auto done = fold_half(items, progress.deadline, part, refusals);
        if (refusals > 0) {
            for (const sql::Id& item : left.left_out(SteadyClock::now())) {
                if (progress.held.erase(item) > 0) std::erase(items, item);
            }
        }
        all.more = all.more || part.more;
        // Unless the fold was whole, only the items that have a count are known to be folded.
        if (!done || part.outcome != FoldedPage::Outcome::folded) part.more = true;
        note_fold(part, items, begun, progress);
        tell(part, progress);
        if (part.outcome == FoldedPage::Outcome::elsewhere) progress.held.clear();
        if (done || took_too_long(done.error())) return {};
        Error error = std::move(done).error();
        error.message += "; not folded yet: " + std::to_string(progress.held.size()) +
                         " items that another transaction had locked";
        return error;
    }

    // Folds each item whose fold failed before, alone.
    Result<void> try_refused(FoldedPage& all, FoldProgress& progress) {
        for (const sql::Id& item : left.refused_items()) {
            FoldedPage one;
            std::size_t refusals = 0;
            const std::span<const sql::Id> only{&item, 1};
            const auto begun = SteadyClock::now();
            HOTCOUNT_TRY(fold_half(only, progress.deadline, one, refusals));
            if (refusals > 0 || one.outcome != FoldedPage::Outcome::folded) continue;
            note_fold(one, only, begun, progress);
            tell(one, progress);
            all.more = all.more || one.more;
        }
        return {};
    }

    void tell(const FoldedPage& folded, const FoldProgress& progress) {
        if (publish && !folded.counts.empty()) publish(folded.counts);
        const auto begun = SteadyClock::now();
        {
            const std::lock_guard lock(mutex);
            if (folded.rows == 0) return;
            untidied += folded.rows;
            --folds_until_tidying;
            const bool due = untidied >= kRowsPerTidying || folds_until_tidying <= 0;
            if (!due || begun < tidy_after) return;
            untidied = 0;
            folds_until_tidying = kFoldsPerTidying;
            tidy_after = SteadyTime::max();  // One thread at a time.
        }
        // If tidying fails, the server's own cleanup does it later. A fold on demand spends only a
        // part of its deadline on it.
        const Duration most =
            progress.on_demand
                ? std::min<Duration>(patience, progress.deadline.remaining() / kRestOfTidying)
                : patience;
        (void)journal->tidy(Deadline::after(most));
        const auto ended = SteadyClock::now();
        const std::lock_guard lock(mutex);
        tidy_after = ended + kRestOfTidying * (ended - begun);
    }

    // -- bookkeeping ----------------------------------------------------------------------------

    // `only`: the items to which the fold was restricted, if any. `begun`: when it began, and without
    // `only` took the items to leave out.
    void note_fold(const FoldedPage& folded, std::span<const sql::Id> only, SteadyTime begun,
                   FoldProgress& progress) {
        progress.note(folded, only);
        left.note(folded, only, begun);
        if (left.refused() == 0) bad_folds.end();
        const std::lock_guard lock(mutex);
        if (folded.rows > 0) {
            ++stats.folds;
            stats.rows += folded.rows;
            many_read = kManyRead + kManyReadPerItem * folded.counts.size();
            if (only.empty()) stats.took = SteadyClock::now() - begun;
            if (page < kFoldPage && folded.more) page = std::min(2 * page, kFoldPage);
        }
    }
};

Folder::Handle::~Handle() {
    const std::lock_guard lock(work->mutex);
    work->stop = true;
    work->changed.notify_all();
}

Folder::Folder(std::shared_ptr<Journal> journal, const VotesOptions& options, Duration patience,
               Publish publish)
    : handle_([journal = std::move(journal), interval = options, patience,
               publish = std::move(publish)] {
          return std::make_unique<Handle>(
              std::make_shared<Work>(journal, interval, patience, publish));
      }) {}

Folder::~Folder() = default;

void Folder::note_appended(std::size_t rows) {
    if (rows == 0) return;
    const std::shared_ptr<Work>& work = handle_.get().work;
    const std::lock_guard lock(work->mutex);
    const bool many = work->appended < kManyRows && work->appended + rows >= kManyRows;
    const bool first = work->appended == 0;
    work->appended += rows;
    work->total += rows;
    work->votes = true;
    // If the system starts no thread, the next rows try again. Other processes fold too.
    (void)Work::start(work);
    if (first || many) work->changed.notify_one();
}

void Folder::watch() {
    const std::shared_ptr<Work>& work = handle_.get().work;
    if (work->looks.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(work->mutex);
    if (work->looks || !Work::start(work)) return;
    work->look_after(work->look_pause);
    work->changed.notify_one();
}

void Folder::note_read(std::size_t rows) {
    if (rows == 0) return;
    const std::shared_ptr<Work>& work = handle_.get().work;
    const std::lock_guard lock(work->mutex);
    const bool many = work->read < work->many_read && work->read + rows >= work->many_read;
    work->read += rows;
    if (many) work->changed.notify_one();
}

Result<FoldReport> Folder::fold_now(Deadline deadline) {
    return handle_.get().work->fold_now(true, deadline);
}

Result<FoldReport> Folder::fold_once(Deadline deadline) {
    return handle_.get().work->fold_now(false, deadline);
}

Folder::Stats Folder::stats() const {
    const std::shared_ptr<Work>& work = handle_.get().work;
    const std::lock_guard lock(work->mutex);
    Stats stats = work->stats;
    work->left.add_to(stats);
    work->bad_folds.add_to(stats);
    return stats;
}

std::optional<VotesEvent> Folder::take_event() const {
    return handle_.get().work->bad_folds.take_event();
}

}  // namespace hotcount

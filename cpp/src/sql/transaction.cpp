#include <algorithm>
#include <array>
#include <hotcount/base/interrupt.hpp>
#include <hotcount/base/random.hpp>
#include <hotcount/sql/transaction.hpp>

namespace hotcount::sql {

bool is_transient(const Error& error) {
    // An outcome that is unknown may have been a success: doing it again is the caller's to decide.
    if (error.code == ErrorCode::outcome_unknown) return false;
    // PostgreSQL's SQLSTATEs and MySQL's numbers. SQLITE_BUSY is not among them: the busy handler
    // has waited until the deadline then.
    static constexpr std::array<std::string_view, 5> kCodes{
        "40001",  // serialization_failure
        "40P01",  // deadlock_detected
        "55P03",  // lock_not_available
        "1205",   // ER_LOCK_WAIT_TIMEOUT
        "1213",   // ER_LOCK_DEADLOCK
    };
    return std::find(kCodes.begin(), kCodes.end(), error.server_code) != kCodes.end();
}

bool Retry::again(const Error& error) {
    if (!is_transient(error) || deadline_.passed()) return false;
    constexpr Duration kFirst = std::chrono::microseconds{100};
    constexpr int kDoublings = 8;
    const Duration longest = kFirst * (1 << std::min(attempts_, kDoublings));
    ++attempts_;
    const Duration pause{static_cast<Duration::rep>(
        thread_random().below(static_cast<std::uint64_t>(longest.count())))};
    if (pause >= deadline_.remaining()) return false;
    sleep_or_interrupt(pause);
    database_.count_retry();
    return !deadline_.passed();
}

Error Retry::give_up(Error error) const {
    if (!is_transient(error)) return error;
    error.code = ErrorCode::deadline;
    error.message += "; the deadline passed after " + std::to_string(attempts_ + 1) +
                     " attempts; nothing was applied";
    return error;
}

}  // namespace hotcount::sql

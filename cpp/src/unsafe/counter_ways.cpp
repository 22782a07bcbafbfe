#include "counter_ways.hpp"

namespace hotcount {
namespace {

// The add is counted by now, whatever comes of the rest: nobody may take it for not applied.
Error counted(const Error& error) {
    return make_error(ErrorCode::outcome_unknown,
                      "the add was counted, and then its expiry failed: " + error.message,
                      error.server_code);
}

}  // namespace

Result<std::int64_t> add_by_seed(CounterBackend& steps, const std::string& key, std::int64_t n,
                                 Timeout timeout) {
    const CounterOptions& options = steps.options();
    const Deadline deadline = Deadline::after(steps.limit(timeout));
    if (!options.ttl) return steps.incr(key, n, timeout);

    const bool set_nx = options.method == CounterMethod::set_nx_incr;
    if (set_nx) HOTCOUNT_TRY(steps.set_nx(key, *options.ttl, deadline.remaining()));
    HOTCOUNT_TRY_ASSIGN(const std::int64_t value, steps.incr(key, n, deadline.remaining()));
    const auto expire = [&] { return steps.expire(key, *options.ttl, deadline.remaining()); };

    const Compensation compensation = options.compensation;
    const bool first =
        !set_nx || compensation == Compensation::first || compensation == Compensation::both;
    if (first && value == n) {
        if (const auto done = expire(); !done) return counted(done.error());
    }
    if (set_nx && (compensation == Compensation::ttl || compensation == Compensation::both)) {
        const auto left = wait_for<std::optional<Duration>>([&](auto done) {
            steps.ttl(key, steps.waiting(deadline.remaining()), std::move(done));
        });
        if (!left) return counted(left.error());
        if (!*left) {
            if (const auto done = expire(); !done) return counted(done.error());
        }
    }
    return value;
}

}  // namespace hotcount

#include <hotcount/concurrency_limit.hpp>

#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <optional>

#include "limiter/concurrency_backend.hpp"
#include "limiter/waiting_line.hpp"

namespace hotcount {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How often the head of the waiters asks: a place is taken up within the longer pause after it was given
// back, and the waiters cost a server 10 calls a second; 50 if several wait, for which places may come
// free one after another.
constexpr milliseconds kFirstPause{5};
constexpr milliseconds kLongestPause{100};
constexpr milliseconds kPauseForOthers{20};

Result<void> check_options(const ConcurrencyOptions& options) {
    HOTCOUNT_TRY(check_limiter_name(options.name));
    if (options.limit < 1 || options.limit > ConcurrencyOptions::kMaxLimit) {
        return bad_value("limit", options.limit,
                         "it takes 1 to " + std::to_string(ConcurrencyOptions::kMaxLimit));
    }
    if (options.lease < milliseconds{1} || options.lease > Rate::kMaxPeriod) {
        return bad_option("lease", "takes 0.001 seconds to 366 days");
    }
    return {};
}

template <class Backed>
Result<std::shared_ptr<ConcurrencyLimit>> make_limit(std::shared_ptr<Backed> store,
                                                     ConcurrencyOptions options) {
    HOTCOUNT_TRY(check_options(options));
    auto backend = concurrency_over(std::move(store), options);
    return std::make_shared<ConcurrencyLimit>(std::move(backend), std::move(options));
}

// What a decision says of a limit: N in each lease.
Rate rate_of(const ConcurrencyOptions& options) {
    return {options.limit, std::chrono::ceil<microseconds>(options.lease), options.limit};
}

}  // namespace

Error no_holders(std::string_view key) {
    return make_error(ErrorCode::wrong_type,
                      "the key " + printable(key) + " holds no places of a ConcurrencyLimit")
        .about(&ErrorFacts::key, std::string{key});
}

Result<std::shared_ptr<ConcurrencyLimit>> ConcurrencyLimit::make(
    std::shared_ptr<memory::Store> store, ConcurrencyOptions options) {
    return make_limit(std::move(store), std::move(options));
}

Result<std::shared_ptr<ConcurrencyLimit>> ConcurrencyLimit::make(
    std::shared_ptr<redis::Client> client, ConcurrencyOptions options) {
    return make_limit(std::move(client), std::move(options));
}

ConcurrencyLimit::ConcurrencyLimit(std::unique_ptr<ConcurrencyBackend> backend,
                                   ConcurrencyOptions options)
    : options_(std::move(options)),
      prefix_("concurrency:" + escape_part(options_.name)),
      backend_(std::move(backend)) {}
ConcurrencyLimit::~ConcurrencyLimit() = default;

Result<std::string> ConcurrencyLimit::full(std::string_view key, std::string_view holder) const {
    // What encode_plain() adds does not count.
    HOTCOUNT_TRY(check_key(key.starts_with("%25") ? key.substr(2) : key));
    if (holder.empty() || holder.size() > kMaxKeyBytes) {
        return bad_option("holder", "takes 1 to 1000 bytes");
    }
    return full_key(backend_->store_prefix(), prefix_, key);
}

Result<Decision> ConcurrencyLimit::try_acquire(std::string_view key, std::string_view holder,
                                               Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        try_acquire_async(key, holder, std::move(done), backend_->waiting(timeout));
    });
}

Result<Decision> ConcurrencyLimit::acquire(std::string_view key, std::string_view holder,
                                           Timeout patience) {
    Waiting waiting;
    waiting.ask = [&] { return try_acquire(key, holder); };
    // A place may be given back at any time.
    waiting.knows_when = false;
    if (patience) waiting.ends = std::chrono::steady_clock::now() + *patience;
    Duration longest = kFirstPause;
    waiting.pause = [&](const Decision& refusal, bool has_followers) -> std::optional<Duration> {
        Duration next = std::min(longest, *refusal.retry_after);
        longest = std::min<Duration>(2 * longest, has_followers ? kPauseForOthers : kLongestPause);
        if (!waiting.ends) return next;
        const Duration left = *waiting.ends - std::chrono::steady_clock::now();
        if (left <= Duration{0}) return std::nullopt;
        return std::min(next, left);
    };
    return wait_in_line(this, key, waiting);
}

Result<bool> ConcurrencyLimit::renew(std::string_view key, std::string_view holder,
                                     Timeout timeout) {
    return wait_for<bool>([&](Completion<bool> done) {
        renew_async(key, holder, std::move(done), backend_->waiting(timeout));
    });
}

Result<bool> ConcurrencyLimit::release(std::string_view key, std::string_view holder,
                                       Timeout timeout) {
    return wait_for<bool>([&](Completion<bool> done) {
        release_async(key, holder, std::move(done), backend_->waiting(timeout));
    });
}

void ConcurrencyLimit::try_acquire_async(std::string_view key, std::string_view holder,
                                         Completion<Decision> done, AsyncCall call) {
    const auto name = full(key, holder);
    if (!name) return done(name.error());
    backend_->acquire(*name, holder, call,
                      [rate = rate_of(options_), done = std::move(done)](Result<Outcome> found) {
                          if (!found) return done(std::move(found).error());
                          done(to_decision(*found, {&rate, 1}, false));
                      });
}

void ConcurrencyLimit::renew_async(std::string_view key, std::string_view holder,
                                   Completion<bool> done, AsyncCall call) {
    const auto name = full(key, holder);
    if (!name) return done(name.error());
    backend_->renew(*name, holder, call, std::move(done));
}

void ConcurrencyLimit::release_async(std::string_view key, std::string_view holder,
                                     Completion<bool> done, AsyncCall call) {
    const auto name = full(key, holder);
    if (!name) return done(name.error());
    backend_->release(*name, holder, call, std::move(done));
}

}  // namespace hotcount

// ConcurrencyLimit, and its places in memory and over Redis.
#include <algorithm>
#include <array>
#include <hotcount/concurrency_limit.hpp>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <optional>
#include <vector>

#include "hotcount_embedded/limiter/lua.hpp"
#include "limiter/backends.hpp"
#include "limiter/waiting_line.hpp"
#include "redis/scripts.hpp"

namespace hotcount {

/// Keys come checked and in full, with a holder's id. Memory calls `done` before a call returns.
class ConcurrencyBackend {
  public:
    virtual ~ConcurrencyBackend() = default;

    virtual std::string_view store_prefix() const = 0;
    /// How a call waits: it has ended when it returns.
    virtual AsyncCall waiting(Timeout timeout) const { return {nullptr, timeout, nullptr}; }
    virtual void acquire(const std::string& key, std::string_view holder, const AsyncCall& call,
                         Completion<Outcome> done) = 0;
    virtual void renew(const std::string& key, std::string_view holder, const AsyncCall& call,
                       Completion<bool> done) = 0;
    virtual void release(const std::string& key, std::string_view holder, const AsyncCall& call,
                         Completion<bool> done) = 0;
};

namespace {

// The error for a key that holds something else.
Error no_holders(std::string_view key) {
    return make_error(ErrorCode::wrong_type,
                      "the key " + printable(key) + " holds no places of a ConcurrencyLimit")
        .about(&ErrorFacts::key, std::string{key});
}

std::int64_t whole_microseconds(Duration duration) {
    return std::chrono::ceil<std::chrono::microseconds>(duration).count();
}

// -- in memory ------------------------------------------------------------------------------------

struct PlaceHolder {
    std::string id;
    SteadyTime ends;
};
using PlaceHolders = std::vector<PlaceHolder>;

class ConcurrencyInMemory final : public ConcurrencyBackend {
  public:
    ConcurrencyInMemory(std::shared_ptr<memory::Store> store, const ConcurrencyOptions& options)
        : store_(std::move(store)),
          limit_(static_cast<std::size_t>(options.limit)),
          lease_(options.lease) {}

    std::string_view store_prefix() const override { return store_->options().prefix; }

    void acquire(const std::string& key, std::string_view holder, const AsyncCall&,
                 Completion<Outcome> done) override {
        auto outcome =
            store_->upsert(key, [&](memory::Entry& entry, bool fresh) -> Result<Outcome> {
                auto* const holders = entry.as<PlaceHolders>(fresh);
                if (holders == nullptr) return no_holders(key);
                const SteadyTime now = store_->now();
                std::erase_if(*holders, [=](const PlaceHolder& one) { return one.ends <= now; });
                PlaceHolder* mine = find(*holders, holder);
                const bool takes = mine != nullptr || holders->size() < limit_;
                if (takes) {
                    if (mine == nullptr) {
                        holders->push_back({std::string{holder}, now});
                        mine = &holders->back();
                    }
                    mine->ends = now + lease_;
                }
                // The released place may have had the longest lease.
                entry.expires_at = std::ranges::max(*holders, {}, &PlaceHolder::ends).ends;
                return describe(*holders, takes, now);
            });
        if (!outcome && store_->admits_untracked(outcome.error())) {
            outcome = Outcome{true, static_cast<std::int64_t>(limit_) - 1, 0, 0, true};
        }
        done(std::move(outcome));
    }

    void renew(const std::string& key, std::string_view holder, const AsyncCall&,
               Completion<bool> done) override {
        done(store_->modify(key, [&](memory::Entry* entry) -> Result<bool> {
            if (entry == nullptr) return false;
            auto* const holders = entry->as<PlaceHolders>(false);
            if (holders == nullptr) return no_holders(key);
            PlaceHolder* const mine = find(*holders, holder);
            const SteadyTime now = store_->now();
            if (mine == nullptr || mine->ends <= now) return false;
            mine->ends = now + lease_;
            entry->expires_at = std::max(*entry->expires_at, mine->ends);
            return true;
        }));
    }

    void release(const std::string& key, std::string_view holder, const AsyncCall&,
                 Completion<bool> done) override {
        done(store_->modify(key, [&](memory::Entry* entry) -> Result<bool> {
            if (entry == nullptr) return false;
            auto* const holders = entry->as<PlaceHolders>(false);
            if (holders == nullptr) return no_holders(key);
            PlaceHolder* const mine = find(*holders, holder);
            if (mine == nullptr) return false;
            const SteadyTime now = store_->now();
            const bool held = mine->ends > now;
            *mine = std::move(holders->back());
            holders->pop_back();
            if (holders->empty()) entry->expires_at = now;
            return held;
        }));
    }

  private:
    static PlaceHolder* find(PlaceHolders& holders, std::string_view id) {
        const auto found = std::ranges::find(holders, id, &PlaceHolder::id);
        return found == holders.end() ? nullptr : &*found;
    }
    Outcome describe(PlaceHolders& holders, bool takes, SteadyTime now) const {
        const SteadyTime last = std::ranges::max(holders, {}, &PlaceHolder::ends).ends;
        Outcome outcome{takes, 0, 0, whole_microseconds(last - now)};
        if (takes) {
            outcome.remaining =
                static_cast<std::int64_t>(limit_ - std::min(limit_, holders.size()));
            return outcome;
        }
        // More than one lease must end where a limit of the same name lets more in.
        const auto room = holders.begin() + static_cast<std::ptrdiff_t>(holders.size() - limit_);
        std::ranges::nth_element(holders, room, {}, &PlaceHolder::ends);
        outcome.retry_after_us = whole_microseconds(room->ends - now);
        return outcome;
    }

    std::shared_ptr<memory::Store> store_;
    std::size_t limit_;
    Duration lease_;
};

// -- over Redis -----------------------------------------------------------------------------------

using redis::Script;

bool is_acquired(const redis::Reply& reply, std::size_t) {
    const auto* const all = std::get_if<redis::ReplyArray>(&reply.value);
    return all != nullptr && all->size() == 4 &&
           std::ranges::all_of(*all,
                               [](const redis::Reply& one) { return redis::is_integer(one, 1); });
}

const Script& acquire_script() {
    static const std::string kText = with_names(lua::limiter::kConcurrencyAcquireLua);
    static const Script kScript{kText, Script::Kind::single, is_acquired};
    return kScript;
}
const Script& renew_script() {
    static const Script kScript{lua::limiter::kConcurrencyRenewLua, Script::Kind::single,
                                redis::is_integer};
    return kScript;
}
const Script& release_script() {
    static const Script kScript{lua::limiter::kConcurrencyReleaseLua, Script::Kind::single,
                                redis::is_integer};
    return kScript;
}

class ConcurrencyOverRedis final : public ConcurrencyBackend {
  public:
    ConcurrencyOverRedis(std::shared_ptr<redis::Client> client, const ConcurrencyOptions& options)
        : client_(std::move(client)),
          limit_(options.limit),
          limit_text_(std::to_string(options.limit)),
          lease_(std::to_string(whole_microseconds(options.lease))) {
        client_->prepare(acquire_script());
        client_->prepare(release_script());
    }

    std::string_view store_prefix() const override { return client_->options().prefix; }
    AsyncCall waiting(Timeout timeout) const override {
        return redis::waiting_call(*client_, timeout);
    }

    void acquire(const std::string& key, std::string_view holder, const AsyncCall& call,
                 Completion<Outcome> done) override {
        const std::string_view keys[] = {key};
        const std::string member = with_lease(holder);
        const std::string_view arguments[] = {limit_text_, lease_, member};
        submit(
            redis::Request::run(acquire_script(), keys, {}, arguments, redis::Repeat::counted_once),
            call, [key, limit = limit_, done = std::move(done)](const Result<redis::Reply>& reply) {
                if (!reply) return done(about(key, reply.error()));
                std::array<std::int64_t, 4> numbers{};
                const auto& parts = std::get<redis::ReplyArray>(reply->value);
                for (std::size_t i = 0; i < numbers.size(); ++i) {
                    numbers[i] = std::get<std::int64_t>(parts[i].value);
                }
                const bool takes = numbers[0] != 0;
                done(Outcome{takes, std::max<std::int64_t>(limit - numbers[1], 0),
                             takes ? 0 : numbers[2], numbers[3]});
            });
    }

    void renew(const std::string& key, std::string_view holder, const AsyncCall& call,
               Completion<bool> done) override {
        const std::string_view keys[] = {key};
        const std::string member = with_lease(holder);
        const std::string_view arguments[] = {lease_, member};
        submit(
            redis::Request::run(renew_script(), keys, {}, arguments, redis::Repeat::counted_once),
            call, to_bool(key, std::move(done)));
    }

    // Never repeated, because a second release would find no place and report that.
    void release(const std::string& key, std::string_view holder, const AsyncCall& call,
                 Completion<bool> done) override {
        const std::string_view keys[] = {key};
        const std::string member = with_lease(holder);
        const std::string_view arguments[] = {member};
        submit(redis::Request::run(release_script(), keys, {}, arguments), call,
               to_bool(key, std::move(done)));
    }

  private:
    // As the set has it: if the server's clock is set back, it says how long a place may be held.
    std::string with_lease(std::string_view holder) const {
        return std::string{holder} + " " + lease_;
    }
    void submit(redis::Request request, const AsyncCall& call,
                Completion<redis::Reply> done) const {
        redis::submit(*client_, std::move(request), call, std::move(done));
    }
    static Error about(const std::string& key, const Error& error) {
        if (error.code == ErrorCode::wrong_type) return no_holders(key);
        return about_limit(key, error);
    }
    static Completion<redis::Reply> to_bool(const std::string& key, Completion<bool> done) {
        return [key, done = std::move(done)](const Result<redis::Reply>& reply) {
            if (!reply) return done(about(key, reply.error()));
            done(std::get<std::int64_t>(reply->value) != 0);
        };
    }

    std::shared_ptr<redis::Client> client_;
    std::int64_t limit_;
    std::string limit_text_;
    std::string lease_;
};

// -- the limit ------------------------------------------------------------------------------------

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The pauses between two calls of the head of the waiters: they double from the first one. A free
// place is taken within the longest. The waiters of a key cost a server 10 calls a second, or 50 if
// several wait, because several places may come free one after another.
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

template <class OverStore, class Store>
Result<std::shared_ptr<ConcurrencyLimit>> make_limit(std::shared_ptr<Store> store,
                                                     ConcurrencyOptions options) {
    HOTCOUNT_TRY(check_options(options));
    auto backend = std::make_unique<OverStore>(std::move(store), options);
    return std::make_shared<ConcurrencyLimit>(std::move(backend), std::move(options));
}

// The limit as the rate of a decision: N per lease.
Rate rate_of(const ConcurrencyOptions& options) {
    return {options.limit, std::chrono::ceil<microseconds>(options.lease), options.limit};
}

}  // namespace

Result<std::shared_ptr<ConcurrencyLimit>> ConcurrencyLimit::make(
    std::shared_ptr<memory::Store> store, ConcurrencyOptions options) {
    return make_limit<ConcurrencyInMemory>(std::move(store), std::move(options));
}

Result<std::shared_ptr<ConcurrencyLimit>> ConcurrencyLimit::make(
    std::shared_ptr<redis::Client> client, ConcurrencyOptions options) {
    return make_limit<ConcurrencyOverRedis>(std::move(client), std::move(options));
}

ConcurrencyLimit::ConcurrencyLimit(std::unique_ptr<ConcurrencyBackend> backend,
                                   ConcurrencyOptions options)
    : options_(std::move(options)),
      prefix_("concurrency:" + escape_part(options_.name)),
      backend_(std::move(backend)) {}
ConcurrencyLimit::~ConcurrencyLimit() { forget_lines_of(this); }

Result<std::string> ConcurrencyLimit::full(std::string_view key, std::string_view holder) const {
    // The prefix of encode_plain() does not count.
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
    waiting.pause = [&](const Decision& decision, bool has_followers) -> std::optional<Duration> {
        if (decision.allowed) return std::nullopt;
        const Duration next = std::min(longest, *decision.retry_after);
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

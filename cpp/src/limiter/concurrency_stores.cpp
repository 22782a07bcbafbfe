// The places of a ConcurrencyLimit in memory, and over Redis.
#include <algorithm>
#include <array>
#include <vector>

#include "hotcount_embedded/limiter/lua.hpp"
#include "limiter/backends.hpp"
#include "limiter/concurrency_backend.hpp"
#include "redis/scripts.hpp"

namespace hotcount {
namespace {

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
                // One that gave its place back may have had the longest lease.
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
    static const Script kScript{lua::limiter::kConcurrencyAcquireLua, Script::Kind::single,
                                is_acquired};
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

    // Never repeated: the second answer would be that there was nothing to give back.
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

}  // namespace

std::unique_ptr<ConcurrencyBackend> concurrency_over(std::shared_ptr<memory::Store> store,
                                                     const ConcurrencyOptions& options) {
    return std::make_unique<ConcurrencyInMemory>(std::move(store), options);
}

std::unique_ptr<ConcurrencyBackend> concurrency_over(std::shared_ptr<redis::Client> client,
                                                     const ConcurrencyOptions& options) {
    return std::make_unique<ConcurrencyOverRedis>(std::move(client), options);
}

}  // namespace hotcount

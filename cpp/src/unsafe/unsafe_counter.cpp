// The unsafe methods of a counter that expires, step by step, holes included (counter.hpp names them).
// The holes are between the steps: a key may expire between two of them, and a caller may be cut off
// before the next one.
#include <hotcount/detail/base/codec.hpp>

#include "counter/backend.hpp"

namespace hotcount {
namespace {

// What the methods need beside adds without a ttl. Each is one step: nothing holds two together.
class UnsafeCounterSteps {
  public:
    virtual ~UnsafeCounterSteps() = default;
    // SET key 0 NX PX ttl.
    virtual Result<void> set_nx(const std::string& key, Duration ttl, Timeout timeout) = 0;
    // PEXPIRE: the ttl starts anew.
    virtual Result<void> expire(const std::string& key, Duration ttl, Timeout timeout) = 0;
};

class MemorySteps final : public UnsafeCounterSteps {
  public:
    explicit MemorySteps(std::shared_ptr<memory::Store> store) : store_(std::move(store)) {}

    Result<void> set_nx(const std::string& key, Duration ttl, Timeout) override {
        return store_->upsert(key, [&](memory::Entry& entry, bool fresh) {
            if (fresh) {
                entry.as<std::int64_t>(fresh);
                entry.expires_at = store_->now() + ttl;
            }
            return Result<void>{};
        });
    }
    Result<void> expire(const std::string& key, Duration ttl, Timeout) override {
        return store_->modify(key, [&](memory::Entry* entry) {
            if (entry != nullptr) entry->expires_at = store_->now() + ttl;
            return Result<void>{};
        });
    }

  private:
    std::shared_ptr<memory::Store> store_;
};

class RedisSteps final : public UnsafeCounterSteps {
  public:
    explicit RedisSteps(std::shared_ptr<redis::Client> client) : client_(std::move(client)) {}

    Result<void> set_nx(const std::string& key, Duration ttl, Timeout timeout) override {
        const std::string milli = milliseconds(ttl);
        return run({"SET", key, "0", "NX", "PX", milli}, key, timeout);
    }
    Result<void> expire(const std::string& key, Duration ttl, Timeout timeout) override {
        const std::string milli = milliseconds(ttl);
        return run({"PEXPIRE", key, milli}, key, timeout);
    }

  private:
    static std::string milliseconds(Duration duration) {
        return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
    }
    Result<void> run(std::initializer_list<std::string_view> command, const std::string& key,
                     Timeout timeout) {
        const auto reply = client_->execute(std::span{command.begin(), command.size()}, timeout);
        if (reply) return {};
        const Error& error = reply.error();
        return make_error(error.code, error.message + " (key " + printable(key) + ")",
                          error.server_code)
            .about(&ErrorFacts::key, key);
    }

    std::shared_ptr<redis::Client> client_;
};

// The add is counted by now, whatever happens next: the error must not say that nothing was applied.
Error counted(const Error& error) {
    return make_error(ErrorCode::outcome_unknown,
                      "the add was counted, and then its expiry failed: " + error.message,
                      error.server_code);
}

// Adds in steps; all else goes to a safe backend that knows no ttl. Counter refuses what these methods
// do not offer before it comes here: try_add, op_id, calls without waiting.
class UnsafeBackend final : public ForwardingCounterBackend {
  public:
    UnsafeBackend(std::unique_ptr<CounterBackend> plain, std::unique_ptr<UnsafeCounterSteps> steps,
                  CounterOptions options)
        : ForwardingCounterBackend(std::move(plain), std::move(options)),
          steps_(std::move(steps)) {}

    Route waiting(Timeout timeout) override {
        Route route = next().waiting(timeout);
        // All steps of an add together, over memory too.
        route.deadline = Deadline::after(limit(timeout));
        return route;
    }

    void add(std::string key, std::int64_t n, const Route& route,
             Completion<std::int64_t> done) override {
        done(add_in_steps(key, n, route.deadline));
    }
    void add_many(std::vector<std::string> keys, std::vector<std::int64_t> amounts,
                  const Route& route, Completion<BatchResult<std::int64_t>> done) override {
        BatchResult<std::int64_t> column{std::vector<std::int64_t>(keys.size()), {}};
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (auto value = add_in_steps(keys[i], amounts[i], route.deadline)) {
                column.values[i] = *value;
            } else {
                column.errors.emplace(i, std::move(value).error());
            }
        }
        done(std::move(column));
    }

  private:
    Result<std::int64_t> add_in_steps(const std::string& key, std::int64_t n, Deadline deadline) {
        const auto incr = [&] {
            return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
                next().add(key, n, next().waiting(deadline.remaining()), std::move(done));
            });
        };
        if (!options().ttl) return incr();
        const Duration ttl = *options().ttl;

        const bool set_nx = options().method == CounterMethod::set_nx_incr;
        if (set_nx) HOTCOUNT_TRY(steps_->set_nx(key, ttl, deadline.remaining()));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, incr());
        const auto expire = [&] { return steps_->expire(key, ttl, deadline.remaining()); };

        const Compensation compensation = options().compensation;
        const bool first =
            !set_nx || compensation == Compensation::first || compensation == Compensation::both;
        if (first && value == n) {
            if (const auto done = expire(); !done) return counted(done.error());
        }
        if (set_nx && (compensation == Compensation::ttl || compensation == Compensation::both)) {
            const auto left = wait_for<std::optional<Duration>>([&](auto done) {
                next().ttl(key, next().waiting(deadline.remaining()), std::move(done));
            });
            if (!left) return counted(left.error());
            if (!*left) {
                if (const auto done = expire(); !done) return counted(done.error());
            }
        }
        return value;
    }

    std::unique_ptr<UnsafeCounterSteps> steps_;
};

CounterOptions without_ttl(CounterOptions options) {
    options.ttl.reset();
    return options;
}

}  // namespace

std::unique_ptr<CounterBackend> make_unsafe_backend(std::shared_ptr<memory::Store> store,
                                                    CounterOptions options) {
    auto steps = std::make_unique<MemorySteps>(store);
    auto plain = make_memory_backend(std::move(store), without_ttl(options));
    return std::make_unique<UnsafeBackend>(std::move(plain), std::move(steps), std::move(options));
}

std::unique_ptr<CounterBackend> make_unsafe_backend(std::shared_ptr<redis::Client> client,
                                                    CounterOptions options) {
    auto steps = std::make_unique<RedisSteps>(client);
    auto plain = make_redis_backend(std::move(client), without_ttl(options));
    return std::make_unique<UnsafeBackend>(std::move(plain), std::move(steps), std::move(options));
}

}  // namespace hotcount

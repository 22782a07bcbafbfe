// What Counter asks of a store. Keys come checked and in full.
#pragma once

#include <hotcount/counter/counter.hpp>
#include <memory>

namespace hotcount {

class CounterBackend {
  public:
    explicit CounterBackend(CounterOptions options) : options_(std::move(options)) {}
    virtual ~CounterBackend() = default;

    virtual std::string_view store_prefix() const = 0;
    virtual Result<std::int64_t> add(const std::string& key, std::int64_t n, Timeout timeout) = 0;
    virtual Result<std::int64_t> add_once(const std::string& key, std::int64_t n,
                                          std::string_view op_id, Timeout timeout) = 0;
    virtual Result<TryAdd> try_add(const std::string& key, std::int64_t n, Bounds bounds,
                                   Timeout timeout) = 0;
    /// Results by index; element by element where a backend has nothing better.
    virtual std::vector<Result<std::int64_t>> add_many(std::span<const std::string> keys,
                                                       std::span<const std::int64_t> amounts,
                                                       Timeout timeout);
    virtual std::vector<Result<std::int64_t>> get_many(std::span<const std::string> keys,
                                                       Timeout timeout);
    virtual Result<std::int64_t> get(const std::string& key, Timeout timeout) = 0;
    virtual Result<std::int64_t> reset(const std::string& key, Timeout timeout) = 0;
    virtual Result<std::optional<Duration>> ttl(const std::string& key, Timeout timeout) = 0;

    const CounterOptions& options() const { return options_; }

  private:
    CounterOptions options_;
};

std::unique_ptr<CounterBackend> make_memory_backend(std::shared_ptr<memory::Store> store,
                                                    CounterOptions options);
std::unique_ptr<CounterBackend> make_redis_backend(std::shared_ptr<redis::Client> client,
                                                   CounterOptions options);

/// The error for a value that would leave 64 bits.
Error counter_overflow(std::string_view key);

}  // namespace hotcount

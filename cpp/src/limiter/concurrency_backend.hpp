// Where the places of a ConcurrencyLimit are kept.
#pragma once

#include <cstdint>
#include <hotcount/concurrency_limit.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "limiter/algorithm.hpp"

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

/// The error for a key that holds something else.
Error no_holders(std::string_view key);

std::unique_ptr<ConcurrencyBackend> concurrency_over(std::shared_ptr<memory::Store> store,
                                                     const ConcurrencyOptions& options);
std::unique_ptr<ConcurrencyBackend> concurrency_over(std::shared_ptr<redis::Client> client,
                                                     const ConcurrencyOptions& options);

}  // namespace hotcount

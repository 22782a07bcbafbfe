// Opens connections for one lane: TLS context loaded once, scripts loaded with each connection.
#pragma once

#include <array>
#include <atomic>
#include <hotcount/redis/options.hpp>
#include <memory>
#include <vector>

#include "connection.hpp"
#include "tls.hpp"

namespace hotcount::redis {

/// The scripts that a client's concepts use. Thread-safe, without a lock that a fork could catch.
class KnownScripts {
  public:
    void add(const Script& script) {
        for (std::atomic<const Script*>& place : places_) {
            const Script* known = nullptr;
            if (place.compare_exchange_strong(known, &script) || known == &script) return;
        }
    }
    std::vector<const Script*> all() const {
        std::vector<const Script*> scripts;
        for (const std::atomic<const Script*>& place : places_) {
            const Script* const known = place.load();
            if (known == nullptr) break;
            scripts.push_back(known);
        }
        return scripts;
    }

  private:
    std::array<std::atomic<const Script*>, 64> places_{};  // More than there are.
};

/// For one thread at a time.
class Dialer {
  public:
    Dialer(const Options& options, std::shared_ptr<KnownScripts> scripts)
        : options_(options), scripts_(std::move(scripts)) {}

    Result<std::unique_ptr<Connection>> dial(Deadline deadline) {
        if (options_.tls.enabled && tls_ == nullptr) {
            HOTCOUNT_TRY_ASSIGN(tls_, make_tls_context(options_));
        }
        return Connection::open(options_, tls_.get(), scripts_->all(), deadline);
    }

  private:
    const Options& options_;
    std::shared_ptr<KnownScripts> scripts_;
    TlsContext tls_;
};

}  // namespace hotcount::redis

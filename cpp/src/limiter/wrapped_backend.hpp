// A backend that stands before another one and passes on what it does not decide itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"

namespace hotcount {

/// The elements of a batch that the backend behind is asked about, and the answers to the others.
struct AskedElements {
    /// The answer to a key and a cost, if it needs no asking.
    using Known = std::function<std::optional<Outcome>(const std::string&, std::int64_t)>;

    AskedElements(std::span<const std::string> all, std::span<const std::int64_t> price,
                  const Known& known)
        : outcomes(all.size(), Outcome{}) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (const auto outcome = known(all[i], price[i])) {
                outcomes[i] = *outcome;
                continue;
            }
            keys.push_back(all[i]);
            costs.push_back(price[i]);
            places.push_back(i);
        }
    }
    /// All answers in order.
    std::vector<Result<Outcome>> join(std::vector<Result<Outcome>> answers) {
        for (std::size_t i = 0; i < answers.size(); ++i) {
            outcomes[places[i]] = std::move(answers[i]);
        }
        return std::move(outcomes);
    }

    std::vector<Result<Outcome>> outcomes;
    std::vector<std::string> keys{};
    std::vector<std::int64_t> costs{};
    std::vector<std::size_t> places{};
};

class WrappedBackend : public LimiterBackend {
  public:
    explicit WrappedBackend(std::shared_ptr<LimiterBackend> backend)
        : backend_(std::move(backend)) {}

    std::string_view store_prefix() const override { return backend_->store_prefix(); }
    std::string store_name() const override { return backend_->store_name(); }
    KeyRule key_rule() const override { return backend_->key_rule(); }
    AsyncCall waiting(Timeout timeout) const override { return backend_->waiting(timeout); }
    const void* joins() const override { return backend_->joins(); }
    LimiterBackend& innermost() override { return backend_->innermost(); }
    Result<void> refund_local(const std::string& key, std::int64_t n) override {
        return backend_->refund_local(key, n);
    }
    const OutageAnswers* stand_in() const override { return backend_->stand_in(); }
    std::optional<OutageEvent> next_outage_event() override {
        return backend_->next_outage_event();
    }

    void create_table(const AsyncCall& call, Completion<void> done) override {
        backend_->create_table(call, std::move(done));
    }
    void reset(const std::string& key, const AsyncCall& call, Completion<void> done) override {
        backend_->reset(key, call, std::move(done));
    }
    void hit_once(const std::string& key, std::int64_t cost, const OnceOnly& once,
                  const AsyncCall& call, Completion<Outcome> done) override {
        backend_->hit_once(key, cost, once, call, std::move(done));
    }
    void reserve(const std::string& key, std::int64_t n, std::string_view id, std::int64_t lease_us,
                 const AsyncCall& call, Completion<Outcome> done) override {
        backend_->reserve(key, n, id, lease_us, call, std::move(done));
    }
    void commit(const std::string& key, std::string_view id, std::int64_t used,
                const OnceOnly* once, const AsyncCall& call, Completion<Outcome> done) override {
        backend_->commit(key, id, used, once, call, std::move(done));
    }
    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override {
        backend_->hit_together(std::move(hits), call, std::move(done));
    }

  protected:
    // Shared, because calls may outlive the limiter.
    const std::shared_ptr<LimiterBackend> backend_;
};

}  // namespace hotcount

// hotcount.ConcurrencyLimit and hotcount.aio.ConcurrencyLimit: declared in
// hotcount/concurrency_limit.py and hotcount/aio/concurrency_limit.py.
#include <hotcount/concurrency_limit.hpp>

#include <array>

#include "concepts/bound_limiter.hpp"
#include "limiter_arguments.hpp"
#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"

namespace hotcount::python {
namespace {

constexpr std::array kConcurrencyOptions{always_shown(option<&ConcurrencyOptions::limit>()),
                                         option<&ConcurrencyOptions::lease>(),
                                         option_or_none<&ConcurrencyOptions::name>()};

class BoundConcurrencyLimit final : public Bound<ConcurrencyLimit> {
  public:
    BoundConcurrencyLimit(std::shared_ptr<ConcurrencyLimit> limit, StoreReference reference)
        : Bound(std::move(limit), std::move(reference), &kTag<BoundConcurrencyLimit>) {}

    std::string shown_options() const override {
        return python::shown_options<ConcurrencyOptions, kConcurrencyOptions>(core->options());
    }

    py::object to_python(const Decision& decision) const {
        const ConcurrencyOptions& options = core->options();
        std::vector<std::string> violated;
        if (!decision.allowed) violated.push_back(options.name);
        return decision_class.make(decision.allowed, decision.limit, decision.remaining,
                                   decision.retry_after, decision.reset_after,
                                   to_string(decision.reason), options.name, options.lease,
                                   violated, options.limit);
    }
    py::object to_python(bool held) const { return py::bool_(held); }
};

std::shared_ptr<BoundBase> make_concurrency_limit(const std::string& title, py::handle where,
                                                  const ConcurrencyOptions& options) {
    StoreReference store(where, "store", title.c_str(), {StoreKind::memory, StoreKind::redis});
    const auto make = [&](auto opened) {
        return std::make_shared<BoundConcurrencyLimit>(
            unwrap(ConcurrencyLimit::make(std::move(opened), options)), std::move(store));
    };
    if (store.kind() == StoreKind::memory) return make(store.backend<memory::Store>());
    return make(store.backend<redis::Client>());
}

// Nobody waits for it: who has waited for an acquire without an answer has waited long enough.
Result<void> release_later(ConcurrencyLimit& limit, std::string_view key, std::string_view holder,
                           Timeout timeout) {
    limit.release_async(key, holder, [](const Result<bool>&) {}, {nullptr, timeout, nullptr});
    return {};
}

}  // namespace

template <>
struct BoundOf<ConcurrencyLimit> {
    using type = BoundConcurrencyLimit;
};

void bind_concurrency_limit() {
    constructor<&make_concurrency_limit, StoreArgument,
                Options<ConcurrencyOptions, kConcurrencyOptions>>(
        "ConcurrencyLimitBase.__init__", "store " + names_of<kConcurrencyOptions>());
    attributes<BoundConcurrencyLimit, kConcurrencyOptions>("ConcurrencyLimitBase");

    using C = ConcurrencyLimit;
    using Holder = std::string_view;
    method<&C::try_acquire, &C::try_acquire_async, LimiterKey, Holder, Timeout>(
        "ConcurrencyLimit._acquire", "key holder timeout");
    method<&C::renew, &C::renew_async, LimiterKey, Holder, Timeout>("ConcurrencyLimit._renew",
                                                                    "key holder timeout");
    method<&C::release, &C::release_async, LimiterKey, Holder, Timeout>("ConcurrencyLimit._release",
                                                                        "key holder timeout");
    method<&release_later, nullptr, LimiterKey, Holder, Timeout>("ConcurrencyLimit._release_later",
                                                                 "key holder timeout");
}

}  // namespace hotcount::python

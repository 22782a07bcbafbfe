// Reservations: a part of a limit that is held until it is known how much was used.
#include <algorithm>
#include <hotcount/detail/base/check.hpp>

#include "limiter/backends.hpp"

namespace hotcount {
namespace {

constexpr std::size_t kLongestId = 100;

// It stands in the key's state, between separators.
bool is_reservation_id(std::string_view id) {
    const auto fits = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_';
    };
    return !id.empty() && id.size() <= kLongestId && std::ranges::all_of(id, fits);
}

}  // namespace

Result<void> Limiter::check_reservation(std::string_view id, std::int64_t n,
                                        std::int64_t least) const {
    const auto takes_reservations = [](const AlgorithmInfo& one) {
        return one.takes_charge_denied;
    };
    if (!takes_reservations(info_)) {
        return make_error(ErrorCode::config, "reserve is for " + names_of(takes_reservations) +
                                                 ", not for " + std::string{info_.name});
    }
    if (!is_reservation_id(id)) {
        return bad_option("id", "takes 1 to 100 ASCII letters, digits, '-' and '_'");
    }
    // The used units may exceed the limit, as charges of denied hits may, so the rate must be valid
    // with charge_denied.
    LimiterOptions charging = options_;
    charging.charge_denied = true;
    HOTCOUNT_TRY(find_algorithm(charging.algorithm).simulate(charging));
    if (n >= least) return {};
    return make_error(ErrorCode::config, std::string{least == 0 ? "actual" : "n"} + " is " +
                                             std::to_string(n) + "; it takes " +
                                             std::to_string(least) + " or more");
}

Result<Decision> Limiter::reserve(std::string_view key, std::int64_t n, std::string_view id,
                                  Duration lease, Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        reserve_async(key, n, id, lease, std::move(done), backend_->waiting(timeout));
    });
}

Result<Decision> Limiter::commit(std::string_view key, std::string_view id, std::int64_t used,
                                 Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        commit_async(key, id, used, std::move(done), backend_->waiting(timeout));
    });
}

Result<Decision> Limiter::commit_once(std::string_view key, std::string_view id, std::int64_t used,
                                      std::string_view op_id, Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        commit_once_async(key, id, used, op_id, std::move(done), backend_->waiting(timeout));
    });
}

Result<Decision> Limiter::cancel(std::string_view key, std::string_view id, Timeout timeout) {
    return commit(key, id, 0, timeout);
}

void Limiter::reserve_async(std::string_view key, std::int64_t n, std::string_view id,
                            Duration lease, Completion<Decision> done, AsyncCall call) {
    auto fits = check_reservation(id, n, 1);
    if (fits && (lease < std::chrono::milliseconds{1} || lease > Rate::kMaxPeriod)) {
        fits = bad_option("lease", "takes 0.001 seconds to 366 days");
    }
    const auto lease_us = std::chrono::ceil<std::chrono::microseconds>(lease).count();
    run(key, fits, {ReserveRequest{n, id, lease_us}}, call, decided(std::move(done)));
}

void Limiter::commit_async(std::string_view key, std::string_view id, std::int64_t used,
                           Completion<Decision> done, AsyncCall call) {
    run(key, check_reservation(id, used, 0), {CommitRequest{id, used}}, call,
        decided(std::move(done)));
}

void Limiter::commit_once_async(std::string_view key, std::string_view id, std::int64_t used,
                                std::string_view op_id, Completion<Decision> done, AsyncCall call) {
    auto fits = check_once(1, op_id);
    if (fits) fits = check_reservation(id, used, 0);
    const OnceOnly remembered = once(op_id);
    run(key, fits, {CommitRequest{id, used, &remembered}}, call, decided(std::move(done)));
}

void Limiter::cancel_async(std::string_view key, std::string_view id, Completion<Decision> done,
                           AsyncCall call) {
    commit_async(key, id, 0, std::move(done), call);
}

}  // namespace hotcount

#include <atomic>
#include <hotcount/error.hpp>
#include <hotcount/result.hpp>

namespace hotcount {

std::string_view to_string(ErrorCode code) {
    switch (code) {
        case ErrorCode::unavailable:
            return "unavailable";
        case ErrorCode::deadline:
            return "deadline";
        case ErrorCode::outcome_unknown:
            return "outcome_unknown";
        case ErrorCode::wrong_type:
            return "wrong_type";
        case ErrorCode::auth:
            return "auth";
        case ErrorCode::permission_denied:
            return "permission_denied";
        case ErrorCode::capacity:
            return "capacity";
        case ErrorCode::integrity:
            return "integrity";
        case ErrorCode::overflow:
            return "overflow";
        case ErrorCode::config:
            return "config";
        case ErrorCode::database:
            return "database";
        case ErrorCode::reply:
            return "reply";
        case ErrorCode::lease_lost:
            return "lease_lost";
        case ErrorCode::closed:
            return "closed";
    }
    return "unknown";
}

namespace detail {

struct MaybeError::Shared {
    Error error;
    std::atomic<std::size_t> owners{1};
};

MaybeError::MaybeError(Error&& error) : shared_(new Shared{std::move(error)}) {}

const Error& MaybeError::operator*() const { return shared_->error; }

// A sole owner stays the sole one, because only an owner can make a copy.
Error MaybeError::take() && {
    if (shared_->owners.load(std::memory_order_acquire) == 1) return std::move(shared_->error);
    return shared_->error;
}

void MaybeError::keep(Shared& shared) noexcept {
    shared.owners.fetch_add(1, std::memory_order_relaxed);
}

void MaybeError::drop(Shared* shared) noexcept {
    if (shared->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
}

}  // namespace detail

}  // namespace hotcount

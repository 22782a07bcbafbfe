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

MaybeError::MaybeError(Error&& error) : error_(new Error(std::move(error))) {}
Error* MaybeError::copy(const Error& error) { return new Error(error); }
void MaybeError::drop(Error* error) noexcept { delete error; }

}  // namespace detail

}  // namespace hotcount

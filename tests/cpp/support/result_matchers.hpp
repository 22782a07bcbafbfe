// Assertions on Result<T> that print the error.
#pragma once

#include <gtest/gtest.h>

#include <hotcount/result.hpp>

namespace hotcount::testing {

template <class T>
::testing::AssertionResult succeeded(const Result<T>& result) {
    if (result.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << to_string(result.error().code) << ": " << result.error().message;
}

template <class T>
::testing::AssertionResult failed_with(const Result<T>& result, ErrorCode code,
                                       const std::string& naming = "") {
    if (result.ok()) return ::testing::AssertionFailure() << "succeeded";
    if (result.error().code != code) {
        return ::testing::AssertionFailure() << "failed with " << to_string(result.error().code)
                                             << ": " << result.error().message;
    }
    if (result.error().message.find(naming) == std::string::npos) {
        return ::testing::AssertionFailure()
               << "the message does not name " << naming << ": " << result.error().message;
    }
    return ::testing::AssertionSuccess();
}

}  // namespace hotcount::testing

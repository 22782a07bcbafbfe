// What a call that does not wait hands its outcome to.
#pragma once

#include <functional>
#include <hotcount/base/result.hpp>

namespace hotcount {

/// Called exactly once, with the value or what is known. The call says in which thread, and
/// whether it may be called before the call returns. It must not throw.
template <class T>
using Completion = std::function<void(Result<T>)>;

}  // namespace hotcount

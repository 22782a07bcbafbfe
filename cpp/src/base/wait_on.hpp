// The blocking form of an asynchronous member function.
#pragma once

#include <hotcount/detail/base/completion.hpp>
#include <hotcount/result.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

namespace hotcount {

namespace detail {
template <class Start>
struct OutcomeOf;
template <class T>
struct OutcomeOf<Completion<T>> {
    using Type = T;
};
template <class Object, class... Parameters>
struct OutcomeOf<void (Object::*)(Parameters...)> {
    using Done =
        std::tuple_element_t<sizeof...(Parameters) - 2, std::tuple<std::decay_t<Parameters>...>>;
    using Type = typename OutcomeOf<Done>::Type;
};
}  // namespace detail

/// wait_for() of a member function whose last parameters are the completion and the AsyncCall.
template <auto Start, class Object, class Call, class... Arguments>
auto wait_on(Object& object, const Call& call, Arguments&&... arguments) {
    using T = typename detail::OutcomeOf<decltype(Start)>::Type;
    return wait_for<T>([&](Completion<T> done) {
        (object.*Start)(std::forward<Arguments>(arguments)..., std::move(done), call);
    });
}

}  // namespace hotcount

#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace hotcount::testing {

// A coroutine that another coroutine, or the test, waits for.
struct Flow {
    struct promise_type {
        std::coroutine_handle<> then{std::noop_coroutine()};
        Flow get_return_object() {
            return Flow{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() { return {}; }
        struct Last {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(
                std::coroutine_handle<promise_type> self) noexcept {
                return self.promise().then;
            }
            void await_resume() noexcept {}
        };
        Last final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };

    explicit Flow(std::coroutine_handle<promise_type> made) : handle(made) {}
    Flow(Flow&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    Flow(const Flow&) = delete;
    Flow& operator=(const Flow&) = delete;
    Flow& operator=(Flow&&) = delete;
    ~Flow() {
        if (handle) handle.destroy();
    }
    bool await_ready() const { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
        handle.promise().then = caller;
        return handle;
    }
    void await_resume() {}

    std::coroutine_handle<promise_type> handle;
};

}  // namespace hotcount::testing

#include "spawn_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace hotcount {
namespace {

// A thread inherits its maker's mask. Taken back in a destructor: a thread that cannot be started
// is an exception, and would leave its maker deaf to signals.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_{};
};

}  // namespace

Result<void> spawn_background_thread(std::function<void()> work) {
    const SignalsBlocked blocked;
    try {
        std::thread(std::move(work)).detach();
    } catch (const std::system_error& refused) {
        return make_error(ErrorCode::capacity, std::string{"the system starts no more threads ("} +
                                                   refused.code().message() + ")");
    } catch (const std::bad_alloc&) {
        return make_error(ErrorCode::capacity, "the system starts no more threads (out of memory)");
    }
    return {};
}

}  // namespace hotcount

#include "server_faults.hpp"

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <utility>

#include "load/pacer.hpp"

namespace hotcount::loadtest {

ServerFaults::ServerFaults(const TrialSettings& settings, ManagedServer& redis, SteadyTime start)
    : thread_([this, &redis, faults = settings.faults,
               from = start + settings.warmup](const std::stop_token& ended) {
          std::mutex mutex;
          std::condition_variable_any wake;
          std::unique_lock lock(mutex);
          const auto wait_until = [&](SteadyTime due) {
              wake.wait_until(lock, ended, due, [] { return false; });
          };
          for (const Fault& fault : faults) {
              wait_until(from + fault.at);
              if (ended.stop_requested()) return;
              ++done_;
              if (fault.kind == FaultKind::redis_pause) {
                  kill(redis.pid(), SIGSTOP);
                  wait_until(from + fault.at + fault.lasts);
                  kill(redis.pid(), SIGCONT);
                  continue;
              }
              redis.kill9();
              wait_until(from + fault.at + fault.lasts);
              failed_ = redis.restart();
              if (!failed_) return;
          }
      }) {}

Result<std::uint64_t> ServerFaults::stop() {
    thread_ = {};
    HOTCOUNT_TRY(failed_);
    return done_;
}

}  // namespace hotcount::loadtest

#include "server_faults.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "load/pacer.hpp"
#include "server_processes.hpp"

namespace hotcount::loadtest {

ServerFaults::ServerFaults(const TrialSettings& settings, ManagedServer* redis,
                           ManagedServer* database, SteadyTime start)
    : thread_([this, redis, database, start, faults = settings.faults,
               from = start + settings.warmup](const std::stop_token& ended) {
          std::mutex mutex;
          std::condition_variable_any wake;
          std::unique_lock lock(mutex);
          const auto wait_until = [&](SteadyTime due) {
              wake.wait_until(lock, ended, due, [] { return false; });
          };
          for (const Fault& fault : faults) {
              ManagedServer* const server = is_of_database(fault.kind) ? database : redis;
              if (server == nullptr) continue;
              wait_until(from + fault.at);
              if (ended.stop_requested()) return;
              const SteadyTime away = std::chrono::steady_clock::now();
              if (is_kill(fault.kind)) {
                  server->kill9();
                  wait_until(from + fault.at + fault.lasts);
                  failed_ = server->restart();
                  if (!failed_) return;
              } else {
                  const PausedServer paused(server->pid());
                  wait_until(from + fault.at + fault.lasts);
              }
              const SteadyTime back = std::chrono::steady_clock::now();
              done_.push_back({fault, away - start, back - start});
          }
      }) {}

Result<std::vector<Outage>> ServerFaults::stop() {
    thread_ = {};
    HOTCOUNT_TRY(failed_);
    return done_;
}

}  // namespace hotcount::loadtest

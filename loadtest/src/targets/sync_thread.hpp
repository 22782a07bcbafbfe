// A worker beside the load, as it would run in service.
#pragma once

#include <condition_variable>
#include <hotcount/votes.hpp>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace hotcount::loadtest {

/// Runs it until the thread is asked to stop. What it could not save, the audit finds.
inline std::jthread run_in_thread(std::shared_ptr<SyncWorker> worker) {
    return std::jthread([worker = std::move(worker)](const std::stop_token& ended) {
        std::mutex mutex;
        std::condition_variable_any wake;
        (void)worker->run([&](Duration pause) {
            std::unique_lock lock(mutex);
            return wake.wait_for(lock, ended, pause, [] { return false; }) ||
                   ended.stop_requested();
        });
    });
}

}  // namespace hotcount::loadtest

#include "outage.hpp"

#include <charconv>
#include <condition_variable>
#include <csignal>
#include <hotcount/redis.hpp>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

namespace hotcount::loadtest {
namespace {

/// The server's own word for its process.
Result<pid_t> pid_of(const std::string& url) {
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(url));
    HOTCOUNT_TRY_ASSIGN(const auto client, redis::Client::make(std::move(options)));
    constexpr std::string_view kInfo[] = {"INFO", "server"};
    HOTCOUNT_TRY_ASSIGN(const redis::Reply reply, client->execute(kInfo));
    const auto* const info = std::get_if<std::string>(&reply.value);
    constexpr std::string_view kName = "process_id:";
    const std::size_t at = info == nullptr ? std::string::npos : info->find(kName);
    pid_t pid = 0;
    if (at != std::string::npos) {
        std::from_chars(info->data() + at + kName.size(), info->data() + info->size(), pid);
    }
    if (pid > 0) return pid;
    return make_error(ErrorCode::reply, "the server does not say which process it is");
}

}  // namespace

Result<std::unique_ptr<Outage>> Outage::start(const TrialSettings& settings) {
    HOTCOUNT_TRY_ASSIGN(const pid_t pid, pid_of(settings.redis_url));
    std::unique_ptr<Outage> outage{new Outage};
    const Duration begins = settings.warmup + settings.duration / 3;
    outage->thread_ =
        std::jthread([pid, begins, lasts = settings.outage](const std::stop_token& ended) {
            std::mutex mutex;
            std::condition_variable_any wake;
            std::unique_lock lock(mutex);
            wake.wait_for(lock, ended, begins, [] { return false; });
            if (ended.stop_requested()) return;
            kill(pid, SIGSTOP);
            wake.wait_for(lock, ended, lasts, [] { return false; });
            kill(pid, SIGCONT);
        });
    return outage;
}

}  // namespace hotcount::loadtest

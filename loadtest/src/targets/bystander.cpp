#include "bystander.hpp"

#include <string_view>
#include <utility>

#include "load/pacer.hpp"

namespace hotcount::loadtest {
namespace {

constexpr Duration kEvery = std::chrono::milliseconds{1};

}  // namespace

Result<std::unique_ptr<Bystander>> Bystander::start(const TrialSettings& settings) {
    std::unique_ptr<Bystander> bystander{new Bystander};
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(settings.redis_url));
    options.timeout = settings.timeout;
    HOTCOUNT_TRY_ASSIGN(bystander->redis_, redis::Client::make(std::move(options)));
    HOTCOUNT_TRY(bystander->redis_->ping());
    const SteadyTime from = std::chrono::steady_clock::now() + settings.warmup;
    const SteadyTime until = from + settings.duration;
    bystander->thread_ =
        std::jthread([self = bystander.get(), from, until](const std::stop_token& ended) {
            sharpen_timers();
            constexpr std::string_view kAsk[] = {"EXISTS", "hotcount-load:bystander"};
            for (SteadyTime due = from; due < until && !ended.stop_requested(); due += kEvery) {
                sleep_until(due);
                const SteadyTime sent = std::chrono::steady_clock::now();
                if (!self->redis_->execute(kAsk)) continue;
                const SteadyTime done = std::chrono::steady_clock::now();
                self->times_.record(
                    std::chrono::duration_cast<std::chrono::nanoseconds>(done - sent).count());
                due = std::max(due,
                               done);  // Those that it could not ask meanwhile are not made up for.
            }
        });
    return bystander;
}

const Histogram& Bystander::stop() {
    thread_ = {};
    return times_;
}

}  // namespace hotcount::loadtest

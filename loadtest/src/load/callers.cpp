#include "callers.hpp"

namespace hotcount::loadtest {

LoadSettings load_settings(const TrialSettings& settings, UnvoteValue unvote) {
    LoadSettings load;
    load.arrival = settings.arrival;
    load.rate_per_s = settings.rate_per_s;
    load.profile = settings.profile;
    load.workers = settings.workers;
    if (const auto strategy = find_strategy(settings.strategy); strategy && strategy->async) {
        load.in_flight = settings.in_flight;
    }
    if (settings.batch > 0) load.in_flight = settings.workers * settings.batch;
    load.warmup = settings.warmup;
    load.duration = settings.duration;
    load.timeout = settings.timeout;
    load.traffic = settings.traffic;
    load.unvote = unvote;
    return load;
}

Result<Callers> Callers::start(const TrialSettings& settings, Driver& driver) {
    Callers callers(driver);
    if (settings.processes > 0) {
        HOTCOUNT_TRY_ASSIGN(callers.processes_,
                            Processes::start(driver, {settings.processes, settings.workers,
                                                      settings.kill_every, settings.stall}));
        callers.processes_->prepare();
        callers.driver_ = callers.processes_.get();
    }
    if (settings.batch > 0) {
        callers.batches_ =
            std::make_unique<Batches>(*callers.driver_, settings.batch, settings.workers);
        callers.driver_ = callers.batches_.get();
    }
    return callers;
}

Processes::Faults Callers::stop() {
    batches_.reset();
    if (!processes_) return {};
    const Processes::Faults faults = processes_->faults();
    processes_.reset();
    return faults;
}

}  // namespace hotcount::loadtest

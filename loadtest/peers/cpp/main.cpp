// hotcount-peers-cpp: adds of 1 to Redis counters. blocking: WIDTH threads, each calling Counter::add on the
// one client they share. completions: one thread that keeps WIDTH adds under way.
#include <hotcount/counter.hpp>

#include "closed_loop.hpp"

int main(int count, char** words) {
    return peers::run_program(
        count, words, "hotcount-peers-cpp", "blocking", "completions",
        [](const peers::Settings& settings) {
            const auto client = peers::connect(settings);
            const auto counter = peers::value_of(hotcount::Counter::make(client));
            if (settings.mode == "blocking") {
                return peers::by_threads(settings, 1, [&](const std::string& key) {
                    peers::value_of(counter->add(key));
                });
            }
            return peers::by_completions(settings, *client, [&](const std::string& key, auto done) {
                counter->add_async(key, 1, [done](hotcount::Result<std::int64_t> value) {
                    peers::value_of(std::move(value));
                    done();
                });
            });
        });
}

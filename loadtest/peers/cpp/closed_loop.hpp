// Calls in a closed loop, for so long, and the program around them: what the programs of this folder that
// stand beside other languages' clients have in common.
//
//   PROGRAM PORT MODE WIDTH SECONDS KEYS SEED
//
// The keys are drawn uniformly, before the clock starts. loadtest/peers/native.py runs them and reads their
// one line of JSON. Exit code: 0, 1 if a call failed, 2 on bad usage.
#pragma once

#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <hotcount/redis.hpp>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace peers {

using Clock = std::chrono::steady_clock;
using Keys = std::vector<std::string>;

// Calls of each caller before the clock starts: the connection is made, buffers have their size.
inline constexpr int kWarm = 5;
inline constexpr std::size_t kDraws = 10'007;

struct Settings {
    std::uint16_t port{};
    std::string_view mode{};
    int width{};
    double seconds{};
    std::uint32_t keys{};
    std::uint32_t seed{};
};

struct Outcome {
    std::uint64_t calls{};
    std::uint64_t warm_calls{};
    double seconds{};
};

[[noreturn]] inline void fail(std::string_view message) {
    std::cerr << message << '\n';
    std::exit(1);
}

template <class T>
T value_of(hotcount::Result<T> result) {
    if (!result.ok()) fail(result.error().message);
    return std::move(result).value();
}

inline std::shared_ptr<hotcount::redis::Client> connect(const Settings& settings) {
    hotcount::redis::Options options;
    options.port = settings.port;
    options.timeout = std::chrono::seconds{30};
    return value_of(hotcount::redis::Client::make(options));
}

/// The keys of one caller, over and over again.
inline Keys draw(const Settings& settings, std::uint32_t caller) {
    std::mt19937 random(settings.seed * 10'000 + caller);
    std::uniform_int_distribution<std::uint32_t> index(0, settings.keys - 1);
    Keys drawn(kDraws);
    for (std::string& key : drawn) key = "k" + std::to_string(index(random));
    return drawn;
}

inline double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// WIDTH threads that call(key). The clock is looked at once for so many calls.
template <class Call>
Outcome by_threads(const Settings& settings, int at_once, const Call& call) {
    Clock::time_point start;
    std::barrier gate(settings.width, [&start]() noexcept { start = Clock::now(); });
    std::vector<std::uint64_t> calls(settings.width);
    const auto work = [&](int caller) {
        const Keys keys = draw(settings, caller);
        for (int i = 0; i < kWarm; ++i) call(keys[i]);
        gate.arrive_and_wait();
        std::size_t at = 0;
        do {
            for (int i = 0; i < at_once; ++i) {
                call(keys[at]);
                if (++at == kDraws) at = 0;
            }
            calls[caller] += at_once;
        } while (since(start) < settings.seconds);
    };
    {
        std::vector<std::jthread> threads;
        threads.reserve(settings.width);
        for (int caller = 0; caller < settings.width; ++caller) threads.emplace_back(work, caller);
    }
    Outcome outcome{0, std::uint64_t(settings.width) * kWarm, since(start)};
    for (const std::uint64_t one : calls) outcome.calls += one;
    return outcome;
}

/// Keeps so many calls under way: each that completes is followed by another, until told to stop.
/// `start(key, done)` calls done() when it has completed.
template <class Start>
class InFlight {
  public:
    InFlight(const Start& start, const Keys& keys) : start_(start), keys_(keys) {}

    void next() {
        ++under_way_;
        if (++at_ == kDraws) at_ = 0;
        start_(keys_[at_], [this] {
            --under_way_;
            ++done_;
            if (!stopped_) next();
        });
    }
    void stop() { stopped_ = true; }
    int under_way() const { return under_way_; }
    std::uint64_t done() const { return done_; }

  private:
    const Start& start_;
    const Keys& keys_;
    std::size_t at_{0};
    int under_way_{0};
    bool stopped_{false};
    std::uint64_t done_{0};
};

/// One thread that keeps WIDTH calls under way.
template <class Start>
Outcome by_completions(const Settings& settings, hotcount::redis::Client& client,
                       const Start& start_one) {
    const Keys keys = draw(settings, 0);
    const auto wait = std::chrono::seconds{1};
    InFlight calls(start_one, keys);
    for (int i = 0; i < settings.width; ++i) calls.next();
    while (calls.done() < std::uint64_t(settings.width) * kWarm) client.run_once(wait);
    const std::uint64_t warm = calls.done();
    const Clock::time_point start = Clock::now();
    while (since(start) < settings.seconds) client.run_once(wait);
    calls.stop();
    while (calls.under_way() > 0) client.run_once(wait);
    return {calls.done() - warm, warm, since(start)};
}

template <class Number>
bool parse(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

/// main() of a program with two modes: `run(settings)` gives the outcome.
template <class Run>
int run_program(int count, char** words, std::string_view name, std::string_view one,
                std::string_view other, const Run& run) {
    Settings settings;
    const bool good = count == 7 && (words[2] == one || words[2] == other) &&
                      parse(words[1], settings.port) && parse(words[3], settings.width) &&
                      parse(words[4], settings.seconds) && parse(words[5], settings.keys) &&
                      parse(words[6], settings.seed) && settings.width > 0 &&
                      settings.seconds > 0 && settings.keys > 0;
    if (!good) {
        std::cerr << "usage: " << name << " PORT " << one << '|' << other
                  << " WIDTH SECONDS KEYS SEED\n";
        return 2;
    }
    settings.mode = words[2];
    const Outcome outcome = run(settings);
    std::cout << "{\"adds\": " << outcome.calls << ", \"warm_adds\": " << outcome.warm_calls
              << ", \"seconds\": " << outcome.seconds << "}\n";
    return 0;
}

}  // namespace peers

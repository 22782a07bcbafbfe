// hotcount-peers-cpp: calls in a closed loop, to stand beside the clients of other languages.
//
//   hotcount-peers-cpp PORT MODE WIDTH SECONDS KEYS SEED
//
//   blocking        adds of 1 to counters in Redis by WIDTH threads, over one client that they share
//   completions     the same by one thread that keeps WIDTH adds in flight
//   memory-hits     hits of a limiter in memory by WIDTH threads, all of which it admits; PORT is not used
//   redis-hits      hits of a limiter in Redis by one thread that keeps WIDTH hits in flight
//
// Each caller draws its keys uniformly before the clock starts. loadtest/peers/native.py runs the program
// and reads its one line of JSON. Exit code: 0, 1 if a call failed, 2 on bad usage.

#include <algorithm>
#include <array>
#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <hotcount/counter.hpp>
#include <hotcount/limiter.hpp>
#include <hotcount/memory.hpp>
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

namespace {

using hotcount::Counter;
using hotcount::Decision;
using hotcount::Limiter;
using hotcount::Result;

using Clock = std::chrono::steady_clock;
using Keys = std::vector<std::string>;

// Calls of each caller before the clock starts: the connection is made, buffers have their size.
constexpr int kWarm = 5;
constexpr std::size_t kDraws = 10'007;

struct Settings {
    std::uint16_t port{};
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

[[noreturn]] void fail(std::string_view message) {
    std::cerr << message << '\n';
    std::exit(1);
}

template <class T>
T value_of(Result<T> result) {
    if (!result.ok()) fail(result.error().message);
    return std::move(result).value();
}

std::shared_ptr<hotcount::redis::Client> connect(const Settings& settings) {
    hotcount::redis::Options options;
    options.port = settings.port;
    options.timeout = std::chrono::seconds{30};
    return value_of(hotcount::redis::Client::make(options));
}

/// The keys of one caller, over and over again.
Keys draw(const Settings& settings, std::uint32_t caller) {
    std::mt19937 random(settings.seed * 10'000 + caller);
    std::uniform_int_distribution<std::uint32_t> index(0, settings.keys - 1);
    Keys drawn(kDraws);
    for (std::string& key : drawn) key = "k" + std::to_string(index(random));
    return drawn;
}

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// WIDTH threads that call(key). Each reads the clock once for `at_once` calls.
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

/// Keeps a number of calls in flight: each that completes starts another, until told to stop.
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

/// One thread that keeps WIDTH calls in flight.
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

// -- the modes ------------------------------------------------------------------------------------

Outcome blocking(const Settings& settings) {
    const auto counter = value_of(Counter::make(connect(settings)));
    return by_threads(settings, 1, [&](const std::string& key) { value_of(counter->add(key)); });
}

Outcome completions(const Settings& settings) {
    const auto client = connect(settings);
    const auto counter = value_of(Counter::make(client));
    return by_completions(settings, *client, [&](const std::string& key, auto done) {
        counter->add_async(key, 1, [done](Result<std::int64_t> value) {
            value_of(std::move(value));
            done();
        });
    });
}

hotcount::LimiterOptions wide() {
    hotcount::LimiterOptions options;
    options.rates = {value_of(hotcount::Rate::parse("1000000000/minute"))};
    return options;
}

void check(Result<Decision> decision) {
    if (!value_of(std::move(decision)).allowed) fail("a hit was not admitted");
}

Outcome memory_hits(const Settings& settings) {
    // A look at the clock costs as much as a hit in memory.
    constexpr int kAtOnce = 64;
    const auto limiter = value_of(Limiter::make(value_of(hotcount::memory::Store::make()), wide()));
    return by_threads(settings, kAtOnce, [&](const std::string& key) { check(limiter->hit(key)); });
}

Outcome redis_hits(const Settings& settings) {
    const auto client = connect(settings);
    const auto limiter = value_of(Limiter::make(client, wide()));
    return by_completions(settings, *client, [&](const std::string& key, auto done) {
        limiter->hit_async(key, 1, [done](Result<Decision> decision) {
            check(std::move(decision));
            done();
        });
    });
}

struct Mode {
    std::string_view name;
    Outcome (*run)(const Settings& settings);
};
constexpr std::array kModes{Mode{"blocking", blocking}, Mode{"completions", completions},
                            Mode{"memory-hits", memory_hits}, Mode{"redis-hits", redis_hits}};

}  // namespace

int main(int count, char** words) {
    Settings settings;
    const auto* mode = kModes.end();
    if (count == 7) {
        mode = std::find_if(kModes.begin(), kModes.end(),
                            [&](const Mode& each) { return each.name == words[2]; });
    }
    const bool good = mode != kModes.end() && parse(words[1], settings.port) &&
                      parse(words[3], settings.width) && parse(words[4], settings.seconds) &&
                      parse(words[5], settings.keys) && parse(words[6], settings.seed) &&
                      settings.width > 0 && settings.seconds > 0 && settings.keys > 0;
    if (!good) {
        std::cerr << "usage: hotcount-peers-cpp PORT blocking|completions|memory-hits|redis-hits "
                     "WIDTH SECONDS KEYS SEED\n";
        return 2;
    }
    const Outcome outcome = mode->run(settings);
    std::cout << "{\"adds\": " << outcome.calls << ", \"warm_adds\": " << outcome.warm_calls
              << ", \"seconds\": " << outcome.seconds << "}\n";
    return 0;
}

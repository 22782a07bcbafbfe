// Hits of limits from C++, in a closed loop, for so long; prints one line of JSON.
//
//   hotcount-peers-limits PORT memory|redis WIDTH SECONDS KEYS SEED
//
// memory: WIDTH threads that hit one limiter in memory; PORT says nothing. redis: one thread that
// keeps WIDTH hits under way. The keys are drawn uniformly, before the clock starts; every hit is
// admitted. loadtest/peers/native.py runs it. Exit code: 0, 1 if a hit failed, 2 on bad usage.

#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <hotcount/limiter.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using hotcount::Decision;
using hotcount::Limiter;
using hotcount::Result;
using Clock = std::chrono::steady_clock;

constexpr int kWarm = 5;
constexpr std::size_t kDraws = 10'007;
// The clock is looked at once for so many hits in memory: it would cost as much as a hit.
constexpr int kAtOnce = 64;

struct Settings {
    std::uint16_t port{};
    std::string_view mode{};
    int width{};
    double seconds{};
    std::uint32_t keys{};
    std::uint32_t seed{};
};

template <class Number>
bool parse(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

bool parse(int count, char** words, Settings& settings) {
    if (count != 7) return false;
    settings.mode = words[2];
    return (settings.mode == "memory" || settings.mode == "redis") &&
           parse(words[1], settings.port) && parse(words[3], settings.width) &&
           parse(words[4], settings.seconds) && parse(words[5], settings.keys) &&
           parse(words[6], settings.seed) && settings.width > 0 && settings.seconds > 0 &&
           settings.keys > 0;
}

std::vector<std::string> draw(const Settings& settings, std::uint32_t caller) {
    std::mt19937 random(settings.seed * 10'000 + caller);
    std::uniform_int_distribution<std::uint32_t> index(0, settings.keys - 1);
    std::vector<std::string> drawn(kDraws);
    for (std::string& key : drawn) key = "k" + std::to_string(index(random));
    return drawn;
}

[[noreturn]] void fail(std::string_view message) {
    std::cerr << message << '\n';
    std::exit(1);
}

template <class T>
T value_of(Result<T> result) {
    if (!result.ok()) fail(result.error().message);
    return std::move(result).value();
}

void check(const Result<Decision>& decision) {
    if (!decision.ok()) fail(decision.error().message);
    if (!decision->allowed) fail("a hit was not admitted");
}

hotcount::LimiterOptions wide() {
    hotcount::LimiterOptions options;
    options.rates = {value_of(hotcount::Rate::parse("1000000000/minute"))};
    return options;
}

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void print(std::uint64_t hits, std::uint64_t warm_hits, double seconds) {
    std::cout << "{\"adds\": " << hits << ", \"warm_adds\": " << warm_hits
              << ", \"seconds\": " << seconds << "}\n";
}

void in_memory(const Settings& settings) {
    const auto limiter = value_of(Limiter::make(value_of(hotcount::memory::Store::make()), wide()));
    Clock::time_point start;
    std::barrier gate(settings.width, [&start]() noexcept { start = Clock::now(); });
    std::vector<std::uint64_t> hits(settings.width);
    const auto work = [&](int caller) {
        const std::vector<std::string> keys = draw(settings, caller);
        for (int i = 0; i < kWarm; ++i) check(limiter->hit(keys[i]));
        gate.arrive_and_wait();
        const std::chrono::duration<double> length{settings.seconds};
        std::size_t at = 0;
        while (Clock::now() - start < length) {
            for (int i = 0; i < kAtOnce; ++i) {
                check(limiter->hit(keys[at]));
                if (++at == kDraws) at = 0;
            }
            hits[caller] += kAtOnce;
        }
    };
    {
        std::vector<std::jthread> threads;
        threads.reserve(settings.width);
        for (int caller = 0; caller < settings.width; ++caller) threads.emplace_back(work, caller);
    }
    const double seconds = since(start);
    std::uint64_t all = 0;
    for (const std::uint64_t one : hits) all += one;
    print(all, std::uint64_t(settings.width) * kWarm, seconds);
}

/// Keeps so many hits under way: each that is answered is followed by another, until told to stop.
class InFlight {
  public:
    InFlight(Limiter& limiter, const std::vector<std::string>& keys)
        : limiter_(limiter), keys_(keys) {}

    void next() {
        ++under_way_;
        if (++at_ == kDraws) at_ = 0;
        limiter_.hit_async(keys_[at_], 1, [this](const Result<Decision>& decision) {
            check(decision);
            --under_way_;
            ++done_;
            if (!stopped_) next();
        });
    }
    void stop() { stopped_ = true; }
    int under_way() const { return under_way_; }
    std::uint64_t done() const { return done_; }

  private:
    Limiter& limiter_;
    const std::vector<std::string>& keys_;
    std::size_t at_{0};
    int under_way_{0};
    bool stopped_{false};
    std::uint64_t done_{0};
};

void over_redis(const Settings& settings) {
    hotcount::redis::Options options;
    options.port = settings.port;
    options.timeout = std::chrono::seconds{30};
    const auto client = value_of(hotcount::redis::Client::make(options));
    const auto limiter = value_of(Limiter::make(client, wide()));
    const std::vector<std::string> keys = draw(settings, 0);
    const auto wait = std::chrono::seconds{1};
    const std::uint64_t warm = std::uint64_t(settings.width) * kWarm;

    InFlight hits(*limiter, keys);
    for (int i = 0; i < settings.width; ++i) hits.next();
    while (hits.done() < warm) client->run_once(wait);
    const std::uint64_t before = hits.done();
    const Clock::time_point start = Clock::now();
    const std::chrono::duration<double> length{settings.seconds};
    while (Clock::now() - start < length) client->run_once(wait);
    hits.stop();
    while (hits.under_way() > 0) client->run_once(wait);
    print(hits.done() - before, before, since(start));
}

}  // namespace

int main(int count, char** words) {
    Settings settings;
    if (!parse(count, words, settings)) {
        std::cerr << "usage: hotcount-peers-limits PORT memory|redis WIDTH SECONDS KEYS SEED\n";
        return 2;
    }
    if (settings.mode == "memory") {
        in_memory(settings);
    } else {
        over_redis(settings);
    }
    return 0;
}

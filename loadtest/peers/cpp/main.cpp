// Adds of 1 to Redis counters from C++, in a closed loop, for so long; prints one line of JSON.
//
//   hotcount-peers-cpp PORT blocking|completions WIDTH SECONDS KEYS SEED
//
// blocking: WIDTH threads, each calling Counter::add on the one client they share. completions: one
// thread that keeps WIDTH adds under way. The keys are drawn uniformly, before the clock starts.
// loadtest/peers/native.py runs it. Exit code: 0, 1 if an add failed, 2 on bad usage.

#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <hotcount/counter.hpp>
#include <hotcount/redis.hpp>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

using hotcount::Counter;
using hotcount::Error;
using hotcount::Result;
using Clock = std::chrono::steady_clock;

// Adds of each caller before the clock starts: the connection is made, buffers have their size.
constexpr int kWarm = 5;
constexpr std::size_t kDraws = 10'007;

struct Settings {
    std::uint16_t port{};
    std::string_view mode{};
    int width{};
    double seconds{};
    std::uint32_t keys{};
    std::uint32_t seed{};
};

struct Outcome {
    std::uint64_t adds{};
    std::uint64_t warm_adds{};
    double seconds{};
};

template <class Number>
bool parse(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

std::optional<Settings> parse(int count, char** words) {
    Settings settings;
    if (count != 7) return std::nullopt;
    settings.mode = words[2];
    const bool good = parse(words[1], settings.port) && parse(words[3], settings.width) &&
                      parse(words[4], settings.seconds) && parse(words[5], settings.keys) &&
                      parse(words[6], settings.seed) && settings.width > 0 &&
                      settings.seconds > 0 && settings.keys > 0;
    if (!good) return std::nullopt;
    return settings;
}

/// The keys that a caller adds to, over and over again.
std::vector<std::string> draw(const Settings& settings, std::uint32_t caller) {
    std::mt19937 random(settings.seed * 10'000 + caller);
    std::uniform_int_distribution<std::uint32_t> index(0, settings.keys - 1);
    std::vector<std::string> drawn(kDraws);
    for (std::string& key : drawn) key = "k" + std::to_string(index(random));
    return drawn;
}

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

Clock::time_point after(Clock::time_point start, double seconds) {
    return start +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Result<Outcome> blocking(Counter& counter, const Settings& settings) {
    Clock::time_point start;
    std::barrier gate(settings.width, [&start]() noexcept { start = Clock::now(); });
    std::vector<std::uint64_t> adds(settings.width);
    std::vector<std::optional<Error>> errors(settings.width);

    const auto work = [&](int caller) {
        const std::vector<std::string> keys = draw(settings, caller);
        // False if it failed: then this caller is done.
        const auto add = [&](std::size_t at) {
            Result<std::int64_t> value = counter.add(keys[at % kDraws]);
            if (!value.ok()) errors[caller] = value.error();
            return value.ok();
        };
        bool good = true;
        for (int i = 0; good && i < kWarm; ++i) good = add(i);
        gate.arrive_and_wait();
        const Clock::time_point end = after(start, settings.seconds);
        std::uint64_t done = 0;
        while (good && (good = add(done))) {
            ++done;
            if (Clock::now() >= end) break;
        }
        adds[caller] = done;
    };
    {
        std::vector<std::jthread> threads;
        threads.reserve(settings.width);
        for (int caller = 0; caller < settings.width; ++caller) threads.emplace_back(work, caller);
    }
    Outcome outcome{.warm_adds = std::uint64_t(settings.width) * kWarm, .seconds = since(start)};
    for (int caller = 0; caller < settings.width; ++caller) {
        if (errors[caller]) return *errors[caller];
        outcome.adds += adds[caller];
    }
    return outcome;
}

/// Keeps so many adds under way: each that completes is followed by another, until told to stop.
class InFlight {
  public:
    InFlight(Counter& counter, const std::vector<std::string>& keys)
        : counter_(counter), keys_(keys) {}

    void begin(int width) {
        for (int i = 0; i < width; ++i) next();
    }
    void stop() { stopped_ = true; }
    int under_way() const { return under_way_; }
    std::uint64_t done() const { return done_; }
    const std::optional<Error>& error() const { return error_; }

  private:
    void next() {
        ++under_way_;
        if (++at_ == kDraws) at_ = 0;
        counter_.add_async(keys_[at_], 1,
                           [this](Result<std::int64_t> value) { completed(std::move(value)); });
    }
    void completed(Result<std::int64_t> value) {
        --under_way_;
        if (value.ok()) {
            ++done_;
        } else {
            error_ = value.error();
            stopped_ = true;
        }
        if (!stopped_) next();
    }

    Counter& counter_;
    const std::vector<std::string>& keys_;
    std::size_t at_{0};
    int under_way_{0};
    bool stopped_{false};
    std::uint64_t done_{0};
    std::optional<Error> error_{};
};

Result<Outcome> completions(Counter& counter, hotcount::redis::Client& client,
                            const Settings& settings) {
    const std::vector<std::string> keys = draw(settings, 0);
    const auto wait = std::chrono::seconds{1};

    std::uint64_t warm = 0;
    {
        InFlight warming(counter, keys);
        warming.begin(settings.width);
        while (warming.done() < std::uint64_t(settings.width) * kWarm && !warming.error()) {
            client.run_once(wait);
        }
        warming.stop();
        while (warming.under_way() > 0) client.run_once(wait);
        if (warming.error()) return *warming.error();
        warm = warming.done();
    }
    InFlight adds(counter, keys);
    const Clock::time_point start = Clock::now();
    const Clock::time_point end = after(start, settings.seconds);
    adds.begin(settings.width);
    while (adds.under_way() > 0) {
        client.run_once(wait);
        if (Clock::now() >= end) adds.stop();
    }
    if (adds.error()) return *adds.error();
    return Outcome{.adds = adds.done(), .warm_adds = warm, .seconds = since(start)};
}

Result<Outcome> run(Counter& counter, hotcount::redis::Client& client, const Settings& settings) {
    if (settings.mode == "blocking") return blocking(counter, settings);
    return completions(counter, client, settings);
}

Result<Outcome> connect_and_run(const Settings& settings) {
    hotcount::redis::Options options;
    options.port = settings.port;
    options.timeout = std::chrono::seconds{30};
    HOTCOUNT_TRY_ASSIGN(const auto client, hotcount::redis::Client::make(options));
    HOTCOUNT_TRY_ASSIGN(const auto counter, Counter::make(client));
    return run(*counter, *client, settings);
}

}  // namespace

int main(int count, char** words) {
    const std::optional<Settings> settings = parse(count, words);
    if (!settings || (settings->mode != "blocking" && settings->mode != "completions")) {
        std::cerr
            << "usage: hotcount-peers-cpp PORT blocking|completions WIDTH SECONDS KEYS SEED\n";
        return 2;
    }
    const Result<Outcome> outcome = connect_and_run(*settings);
    if (!outcome.ok()) {
        std::cerr << outcome.error().message << '\n';
        return 1;
    }
    std::cout << "{\"adds\": " << outcome.value().adds
              << ", \"warm_adds\": " << outcome.value().warm_adds
              << ", \"seconds\": " << outcome.value().seconds << "}\n";
    return 0;
}

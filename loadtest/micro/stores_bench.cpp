// What needs no server: the memory store with Counter on top of it, and committed votes on SQLite (WAL,
// synchronous=FULL), one hot item, blocking callers. The SQLite file is in the current folder: the disk of
// that folder is measured.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <hotcount/counter.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <vector>

namespace {

using namespace hotcount;

// -- memory ---------------------------------------------------------------------------------------

std::shared_ptr<Counter> shared_counter() {
    static const auto counter = *Counter::make(*memory::Store::make());
    return counter;
}

void add_one_hot_key(benchmark::State& state) {
    const auto counter = shared_counter();
    for (auto _ : state) benchmark::DoNotOptimize(counter->add("hot"));
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(add_one_hot_key)->ThreadRange(1, 8)->UseRealTime();

void add_many_keys(benchmark::State& state) {
    const auto counter = shared_counter();
    std::vector<std::string> keys;
    for (int i = 0; i < 10'000; ++i) keys.push_back("user:" + std::to_string(i));
    Random random{static_cast<std::uint64_t>(state.thread_index()) + 1};
    for (auto _ : state) benchmark::DoNotOptimize(counter->add(keys[random.below(keys.size())]));
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(add_many_keys)->ThreadRange(1, 8)->UseRealTime();

void compose_full_key(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(full_key("app:", "count", "user:12345"));
}
BENCHMARK(compose_full_key);

void encode_a_tuple_key(benchmark::State& state) {
    const std::string_view parts[] = {"api", "user:12345", "/v1/items"};
    for (auto _ : state) benchmark::DoNotOptimize(encode_parts(parts));
}
BENCHMARK(encode_a_tuple_key);

// -- SQLite ---------------------------------------------------------------------------------------

// A database of this benchmark's own; made by thread 0 before the threads start.
class VotesFile {
  public:
    explicit VotesFile(VoteStrategy strategy)
        : path_("hotcount-micro-" + std::to_string(getpid()) + ".db") {
        remove();
        VotesOptions options;
        options.strategy = strategy;
        const auto database = sql::open_database("sqlite:///" + path_);
        if (!database) return;
        votes_ = *Votes::make(*database, options);
        const sql::Id items[] = {std::int64_t{1}};
        if (!votes_->create_tables() || !votes_->add_items(items)) votes_.reset();
    }
    ~VotesFile() {
        votes_.reset();
        remove();
    }
    Votes* votes() const { return votes_.get(); }

  private:
    void remove() const {
        for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
    }
    std::string path_;
    std::shared_ptr<Votes> votes_;
};

void cast(benchmark::State& state, VoteStrategy strategy) {
    static std::unique_ptr<VotesFile> file;
    if (state.thread_index() == 0) file = std::make_unique<VotesFile>(strategy);
    Random random{static_cast<std::uint64_t>(state.thread_index()) + 1};
    for (auto _ : state) {
        const auto user = static_cast<std::int64_t>(random.below(1'000'000));
        if (file->votes() == nullptr || !file->votes()->cast(Ballot{std::int64_t{1}, user})) {
            state.SkipWithError("a vote failed");
            break;
        }
    }
    state.SetItemsProcessed(state.iterations());
    if (state.thread_index() == 0) file.reset();
}
BENCHMARK_CAPTURE(cast, naive, VoteStrategy::naive)->Threads(1)->Threads(64)->UseRealTime();
BENCHMARK_CAPTURE(cast, slotted, VoteStrategy::slotted)->Threads(64)->UseRealTime();
BENCHMARK_CAPTURE(cast, batched, VoteStrategy::batched)
    ->Threads(1)
    ->Threads(16)
    ->Threads(64)
    ->UseRealTime();

void cast_many(benchmark::State& state) {
    const VotesFile file{VoteStrategy::batched};
    Random random{1};
    std::vector<Ballot> ballots(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        for (Ballot& ballot : ballots) {
            ballot = Ballot{std::int64_t{1}, static_cast<std::int64_t>(random.below(1'000'000))};
        }
        benchmark::DoNotOptimize(file.votes()->cast_many(ballots));
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(cast_many)->Arg(16)->Arg(64)->Arg(256)->Arg(1000)->UseRealTime();

}  // namespace

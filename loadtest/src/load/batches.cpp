#include "batches.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace hotcount::loadtest {
namespace {

// Far longer than the answers to a batch take to send its operations' successors.
constexpr std::chrono::milliseconds kPatience{20};

}  // namespace

Batches::Batches(Driver& inner, std::size_t batch, std::uint32_t threads)
    : inner_(inner), batch_(batch) {
    for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Batches::~Batches() {
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Batches::start(const Operation& operation, Done done) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(operation, std::move(done));
    if (waiting_.size() >= batch_) changed_.notify_one();
}

std::vector<Batches::Waiting> Batches::take() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
        const bool full =
            changed_.wait_for(lock, kPatience, [&] { return ended_ || waiting_.size() >= batch_; });
        if (full || !waiting_.empty()) break;
    }
    const auto count = static_cast<std::ptrdiff_t>(std::min(batch_, waiting_.size()));
    std::vector<Waiting> taken(std::make_move_iterator(waiting_.begin()),
                               std::make_move_iterator(waiting_.begin() + count));
    waiting_.erase(waiting_.begin(), waiting_.begin() + count);
    return taken;
}

void Batches::work() {
    while (true) {
        const std::vector<Waiting> taken = take();
        if (taken.empty()) return;  // It has ended.
        std::vector<Operation> operations;
        operations.reserve(taken.size());
        for (const auto& [operation, done] : taken) operations.push_back(operation);
        const std::vector<Answer> answers = inner_.apply_many(operations);
        for (std::size_t i = 0; i < taken.size(); ++i) taken[i].second(answers[i]);
    }
}

}  // namespace hotcount::loadtest

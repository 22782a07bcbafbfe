#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <hotcount/detail/base/random.hpp>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "load/histogram.hpp"
#include "load/workload.hpp"
#include "votes.hpp"

namespace hotcount::peers {

using loadtest::Histogram;
using std::chrono::milliseconds;

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

std::size_t histogram_cells() { return Histogram::cell_of(Histogram::kLargest) + 1; }

Board::Board(std::int64_t items) : items_(static_cast<std::size_t>(items) + 1) {
    const std::size_t numbers = items_ + 2 * histogram_cells();
    size_ = sizeof(State) + numbers * sizeof(Number);
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    state_ = new (memory_) State;
    numbers_ = reinterpret_cast<Number*>(static_cast<char*>(memory_) + sizeof(State));
    for (std::size_t i = 0; i < numbers; ++i) new (numbers_ + i) Number(0);
}
Board::~Board() { munmap(memory_, size_); }

void Board::fail(const std::string& why) const {
    if (state_->failed.exchange(true)) return;  // The first message is kept.
    std::strncpy(state_->error, why.c_str(), sizeof(state_->error) - 1);
    state_->closes_ns.store(0);
}

namespace {

/// The most votes on kAsideItem that a process may have in flight; further ones go to another item.
constexpr std::int64_t kMostAside = 20'000;

class Process {
  public:
    Process(const Settings& settings, const Board& board, int number)
        : settings_(settings), board_(board), number_(number) {}

    void run() {
        while (!board_->tables_made.load() && !board_->failed.load()) pause();
        auto voters = make_voters(settings_);
        if (!voters) return board_.fail(voters.error().message);
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(settings_.callers));
        for (int caller = 0; caller < settings_.callers; ++caller) {
            threads.emplace_back([this, caller, &voters = **voters] { call(voters, caller); });
        }
        board_->ready.fetch_add(1);
        threads.clear();
        // The audit counts answers: all votes on kAsideItem need theirs before the process exits.
        while (aside_under_way_.load() > 0) pause();
    }

  private:
    static void pause() { std::this_thread::sleep_for(milliseconds{1}); }

    void call(Voters& voters, int caller) {
        Random random(loadtest::mix(settings_.seed, static_cast<std::uint64_t>(number_) << 32 |
                                                        static_cast<std::uint64_t>(caller)));
        const auto size = static_cast<std::uint64_t>(settings_.items);
        const loadtest::Zipf zipf(size, settings_.aside ? 0 : settings_.zipf);
        const loadtest::Permutation scrambled(size);
        const auto draw = [&] {
            return 1 + static_cast<std::int64_t>(scrambled.permute(1, zipf.draw(random) - 1));
        };
        std::vector<std::uint32_t> vote_ns(histogram_cells());
        std::vector<std::uint32_t> read_ns(histogram_cells());
        std::uint64_t votes = 0;
        std::uint64_t reads = 0;

        while (!board_->go.load() && !board_->failed.load()) pause();
        for (;;) {
            std::int64_t item = draw();
            const std::int64_t began = now_ns();
            if (began >= board_->closes_ns.load(std::memory_order_relaxed)) break;
            const auto user = static_cast<std::int64_t>(random.next() >> 1);
            if (settings_.aside && item == kAsideItem) {
                if (put_aside(voters, user, began)) continue;
                item = kAsideItem + 1;
            }
            const bool reads_now = settings_.reads > 0 && random.unit() < settings_.reads;
            const bool good = reads_now ? read(voters, item) : vote(voters, item, user);
            if (!good) break;
            const std::int64_t ended = now_ns();
            if (ended < board_->opens_ns.load(std::memory_order_relaxed) ||
                ended >= board_->closes_ns.load(std::memory_order_relaxed)) {
                continue;
            }
            ++(reads_now ? read_ns : vote_ns)[Histogram::cell_of(ended - began)];
            ++(reads_now ? reads : votes);
        }
        board_->votes.fetch_add(votes);
        board_->reads.fetch_add(reads);
        for (std::size_t cell = 0; cell < vote_ns.size(); ++cell) {
            if (vote_ns[cell] > 0) board_.vote_cells()[cell].fetch_add(vote_ns[cell]);
            if (read_ns[cell] > 0) board_.read_cells()[cell].fetch_add(read_ns[cell]);
        }
    }

    bool vote(Voters& voters, std::int64_t item, std::int64_t user) const {
        const auto voted = voters.vote(item, user);
        if (voted) {
            board_.acknowledged(item).fetch_add(1);
        } else {
            board_.fail("a vote failed: " + voted.error().message);
        }
        return voted.ok();
    }

    bool read(Voters& voters, std::int64_t item) const {
        const auto known = static_cast<std::int64_t>(board_.acknowledged(item).load());
        const auto count = voters.count(item);
        if (!count) {
            board_.fail("a read failed: " + count.error().message);
        } else if (*count < known) {
            board_.fail("a read of item " + std::to_string(item) + " gave " +
                        std::to_string(*count) + " when " + std::to_string(known) +
                        " votes had been acknowledged");
        }
        return count && *count >= known;
    }

    /// Returns false if kMostAside votes are in flight.
    bool put_aside(Voters& voters, std::int64_t user, std::int64_t began) {
        if (aside_under_way_.load() >= kMostAside) {
            board_->aside_diverted.fetch_add(1);
            return false;
        }
        aside_under_way_.fetch_add(1);
        board_->aside_sent.fetch_add(1);
        voters.vote_async(kAsideItem, user, [this, began](const Result<Cast>& cast) {
            if (cast) {
                board_.acknowledged(kAsideItem).fetch_add(1);
                board_->aside_landed.fetch_add(1);
                const auto took = static_cast<std::uint64_t>(now_ns() - began);
                std::uint64_t worst = board_->aside_worst_ns.load();
                while (worst < took && !board_->aside_worst_ns.compare_exchange_weak(worst, took)) {
                }
            } else {
                board_.fail("a vote that was put aside failed: " + cast.error().message);
            }
            aside_under_way_.fetch_sub(1);
        });
        return true;
    }

    const Settings& settings_;
    const Board& board_;
    const int number_;
    std::atomic<std::int64_t> aside_under_way_{0};
};

}  // namespace

Children::Children(const Settings& settings, const Board& board) {
    const pid_t parent = getpid();
    for (int number = 0; number < settings.processes; ++number) {
        const pid_t pid = fork();
        if (pid < 0) {
            board.fail("fork failed");
            return;
        }
        if (pid > 0) {
            pids_.push_back(pid);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) Process(settings, board, number).run();
        _exit(0);
    }
}

Children::~Children() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    while (!pids_.empty()) collect(0);
}

void Children::check(const Board& board) {
    const std::size_t before = pids_.size();
    const bool well = collect(WNOHANG);
    if (!well || (pids_.size() < before && now_ns() < board->closes_ns.load())) {
        board.fail("a process of voters ended early");
    }
}

bool Children::collect(int how) {
    bool well = true;
    std::erase_if(pids_, [&](pid_t pid) {
        int status = 0;
        if (waitpid(pid, &status, how) == 0) return false;
        well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        return true;
    });
    return well;
}

}  // namespace hotcount::peers

#include <pthread.h>

#include <hotcount/detail/base/fork.hpp>
#include <mutex>
#include <vector>

namespace hotcount {
namespace {

class ForkHandlers {
  public:
    static ForkHandlers& instance() {
        static auto* const handlers =
            new ForkHandlers;  // Never destroyed: a process may fork while it exits.
        return *handlers;
    }

    std::uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

    void add(ForkAware* object) {
        std::lock_guard lock(mutex_);
        objects_.push_back(object);
    }
    void add_last(ForkAware* object) {
        std::lock_guard lock(mutex_);
        last_.push_back(object);
    }
    void remove(ForkAware* object) {
        std::lock_guard lock(mutex_);
        std::erase(objects_, object);
        std::erase(last_, object);
    }

  private:
    ForkHandlers() {
        pthread_atfork([] { instance().prepare(); }, [] { instance().resume(false); },
                       [] { instance().resume(true); });
    }
    void prepare() {
        mutex_.lock();
        for (ForkAware* object : objects_) object->before_fork();
        for (ForkAware* object : last_) object->before_fork();
    }
    void resume(bool in_child) {
        if (in_child) generation_.fetch_add(1, std::memory_order_relaxed);
        for (ForkAware* object : last_) object->after_fork(in_child);
        for (ForkAware* object : objects_) object->after_fork(in_child);
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::vector<ForkAware*> objects_;
    std::vector<ForkAware*> last_;
    std::atomic<std::uint64_t> generation_{0};
};

}  // namespace

std::uint64_t fork_generation() { return ForkHandlers::instance().generation(); }

void ForkAware::start_watching_forks() { ForkHandlers::instance().add(this); }

void ForkAware::start_watching_forks_last() { ForkHandlers::instance().add_last(this); }

void ForkAware::stop_watching_forks() { ForkHandlers::instance().remove(this); }

}  // namespace hotcount

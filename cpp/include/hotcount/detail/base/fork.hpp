// Connections, queues and locks in a process that forks. An object is one of two kinds:
//
// ForkLocal<T>  per process: a child builds its own T on first use. The parent's T is leaked there
//               on purpose: to close its sockets properly would end the parent's sessions, and a
//               thread that does not exist in the child may hold its mutexes.
// ForkAware     carried over: called before the fork, so that it can come to rest (take its locks,
//               close what the child must not have), and after the fork, in parent and child.
//
// The handlers touch no Python and run once for the whole library.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace hotcount {

/// 0 in the first process, one more in each forked descendant.
std::uint64_t fork_generation();

/// An object that must be at rest while the process forks. Registered while it lives.
class ForkAware {
  public:
    ForkAware(const ForkAware&) = delete;
    ForkAware& operator=(const ForkAware&) = delete;

    /// Comes to rest; may wait for other threads, but never for one that registers a ForkAware.
    virtual void before_fork() = 0;
    /// Undoes before_fork, in the same thread.
    virtual void after_fork(bool in_child) = 0;

  protected:
    ForkAware() = default;
    ~ForkAware() = default;
    /// Called by the most derived class at the end of its constructor and the start of its
    /// destructor: handlers may run in another thread at once.
    void start_watching_forks();
    /// start_watching_forks() for an object whose before_fork() runs last, because the others may
    /// wait for threads that use this object.
    void start_watching_forks_last();
    void stop_watching_forks();
};

/// Holds one T per process. Thread-safe; get() costs two loads of memory.
template <class T>
class ForkLocal {
  public:
    using Factory = std::function<std::unique_ptr<T>()>;

    explicit ForkLocal(Factory factory)
        : factory_(std::move(factory)), node_(new Node{fork_generation(), factory_()}) {}

    ForkLocal(const ForkLocal&) = delete;
    ForkLocal& operator=(const ForkLocal&) = delete;

    ~ForkLocal() {
        Node* node = node_.load(std::memory_order_acquire);
        if (node->generation != fork_generation()) {
            (void)node->value.release();  // The parent's: leaked, see above.
        }
        delete node;
    }

    T& get() {
        Node* node = node_.load(std::memory_order_acquire);
        if (node->generation == fork_generation()) [[likely]]
            return *node->value;
        // Several threads of the child may race here. A lock could have been held at the fork.
        auto* fresh = new Node{fork_generation(), factory_()};
        if (node_.compare_exchange_strong(node, fresh, std::memory_order_acq_rel)) {
            return *fresh->value;
        }
        delete fresh;
        return *node->value;
    }

  private:
    struct Node {
        std::uint64_t generation;
        std::unique_ptr<T> value;
    };
    Factory factory_;
    std::atomic<Node*> node_;
};

}  // namespace hotcount

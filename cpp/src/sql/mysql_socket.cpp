#include "mysql_socket.hpp"

#include <unistd.h>

#include <hotcount/base/fork.hpp>
#include <mutex>
#include <set>

namespace hotcount::sql {
namespace {

class Sockets final : ForkAware {
  public:
    Sockets() { start_watching_forks(); }
    ~Sockets() { stop_watching_forks(); }

    void remember(int socket) {
        std::lock_guard lock(mutex_);
        open_.insert(socket);
    }
    void forget(int socket) {
        std::lock_guard lock(mutex_);
        open_.erase(socket);
    }

  private:
    void before_fork() override { mutex_.lock(); }
    void after_fork(bool in_child) override {
        if (in_child) {
            // Without a word to the server: the session is the parent's.
            for (const int socket : open_) ::close(socket);
            open_.clear();
        }
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::set<int> open_;
};

Sockets& sockets() {
    static auto* const all = new Sockets;
    return *all;
}

}  // namespace

void remember_socket(int socket) { sockets().remember(socket); }
void forget_socket(int socket) { sockets().forget(socket); }

}  // namespace hotcount::sql

// The sockets that a forked child must close: its parent's sessions. While a child holds a copy, the
// server does not notice that the parent died, and keeps its locks.
//
// Closed without a goodbye, which would end the parent's session. Thread-safe.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace hotcount::sql {

class InheritedSockets {
  public:
    void add(int socket) {
        // A program that is started instead of a child's code must not have it either. libmariadb
        // leaves that to its caller, so one that is started in this very moment still gets it.
        ::fcntl(socket, F_SETFD, FD_CLOEXEC);
        std::lock_guard lock(mutex_);
        sockets_.insert(socket);
    }
    /// Before the socket is closed: its number may be another's at once.
    void remove(int socket) {
        std::lock_guard lock(mutex_);
        sockets_.erase(socket);
    }

    void freeze() { mutex_.lock(); }
    void thaw(bool in_child) {
        if (in_child) {
            for (const int socket : sockets_) ::close(socket);
            sockets_.clear();
        }
        mutex_.unlock();
    }

  private:
    std::mutex mutex_;
    std::set<int> sockets_;
};

}  // namespace hotcount::sql

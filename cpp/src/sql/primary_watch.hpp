// Whether the server behind a database's address still takes writes.
//
// A primary that is demoted keeps its connections and refuses every write on them, while the name or
// the balancer before it leads to another server already. So the first session that is refused for
// that reason ends the term of all sessions: each is given up before its next transaction, and the
// address is resolved again. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace hotcount::sql {

class PrimaryWatch {
  public:
    /// A session remembers the term it was opened in, and is of no more use in a later one.
    std::uint64_t term() const { return term_.load(std::memory_order_acquire); }

    /// A session of that term was told that its server only reads.
    void refused_to_write(std::uint64_t term) {
        looking_.store(true, std::memory_order_release);
        // Sessions of an earlier term say nothing new.
        term_.compare_exchange_strong(term, term + 1, std::memory_order_acq_rel);
    }
    /// A session of that term has committed a write.
    void has_written(std::uint64_t term) {
        // One of an earlier term had begun before its server was demoted: the new one is not found.
        if (looking_.load(std::memory_order_relaxed) &&
            term == term_.load(std::memory_order_acquire)) {
            looking_.store(false, std::memory_order_release);
        }
    }
    /// From such a refusal to the next write that is committed. An address that leads nowhere is
    /// worth another attempt then.
    bool is_looking() const { return looking_.load(std::memory_order_acquire); }

  private:
    std::atomic<std::uint64_t> term_{1};
    std::atomic<bool> looking_{false};
};

}  // namespace hotcount::sql

#include "cancel.hpp"

#include <array>
#include <atomic>

#include "base/spawn_thread.hpp"

namespace hotcount::sql {
namespace {

// A server that does not answer holds each until its TCP gives up.
constexpr int kMostThreads = 16;
std::atomic<int> running{0};

}  // namespace

void cancel_in_background(const Libpq& pq, pg_conn* connection) {
    if (running.fetch_add(1) >= kMostThreads) {
        running.fetch_sub(1);
        return;
    }
    pg_cancel* const request = pq.PQgetCancel(connection);
    const auto send = [&pq, request] {
        std::array<char, 256> ignored{};
        pq.PQcancel(request, ignored.data(), static_cast<int>(ignored.size()));
        pq.PQfreeCancel(request);
        running.fetch_sub(1);
    };
    if (!spawn_background_thread(send)) {
        pq.PQfreeCancel(request);
        running.fetch_sub(1);
    }
}

}  // namespace hotcount::sql

// hotcount-load agent: drives parts of loads for coordinators on other machines.
//
// It listens, and forks a process for each connection, which serves that coordinator alone: a load
// that crashes ends that process. One load runs at a time. A load whose coordinator hangs up, or is
// not heard for 5 s, sends nothing more, and its process ends.
#pragma once

#include <atomic>
#include <cstdio>
#include <hotcount/result.hpp>
#include <string>

namespace hotcount::loadtest {

struct AgentSettings {
    std::string listen;  ///< host:port; port 0: any that is free.
    std::string
        token{};  ///< What a coordinator must know; empty: nothing, on a loopback address only.
};

/// Serves until `interrupt`. Where it listens goes to `out`, what it does to `log`.
Result<void> run_agent(const AgentSettings& settings, const std::atomic<bool>& interrupt,
                       std::FILE* out, std::FILE* log);

}  // namespace hotcount::loadtest

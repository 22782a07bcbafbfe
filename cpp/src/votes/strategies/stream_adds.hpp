// How strategy write_behind puts votes into the streams of Redis: the streams that are missing are
// made first, and a call of many votes adds them in portions.
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/portions.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "votes/cache/stream_worker.hpp"

namespace hotcount {

/// Thread-safe; made with make_shared, and held by its calls that do not wait.
class StreamAdds : public std::enable_shared_from_this<StreamAdds> {
  public:
    StreamAdds(std::shared_ptr<WaitingVotes> waiting, const std::string& database);

    std::vector<Result<Cast>> add(std::span<const Ballot> ballots, Deadline deadline);
    void add_async(std::span<const Ballot> ballots, Deadline deadline,
                   std::function<void(std::vector<Result<Cast>>)> done);

  private:
    struct Call;
    struct KeptVotes;
    struct LateCall;
    struct LargeCall;
    struct Late {
        Late(const std::string& name, std::size_t most) : thread(name, 1, most) {}
        std::atomic<std::size_t> calls{0};
        WaitingCalls thread;
    };

    Deadline begin(std::size_t ballots, Deadline deadline);
    void go_on(const std::shared_ptr<LargeCall>& call);
    Error late() const;
    std::vector<Result<Cast>> add_portion(std::span<const Ballot> ballots, Deadline deadline);
    void add_portion_async(std::span<const Ballot> ballots, Deadline deadline,
                           std::function<void(std::vector<Result<Cast>>)> done);
    std::string prepare(Call& call);
    void send(Call& call, std::string_view space, redis::Channel& channel,
              std::function<void()> done);
    void note(const Ballot& ballot, Result<VoteStream::Added> added, Result<Cast>& cast) const;
    void send_async(const std::shared_ptr<LateCall>& call, std::string_view space);
    void send_late(const std::shared_ptr<LateCall>& call);

    const std::shared_ptr<WaitingVotes> waiting_;
    // While other votes are sent it is 100: Redis adds 100 votes in 0.4 ms, for which the others
    // wait. With 250 the p99 of the other votes was 14 times as long as without the large call.
    PortionSize portion_{800};
    ForkLocal<Late> late_;
};

}  // namespace hotcount

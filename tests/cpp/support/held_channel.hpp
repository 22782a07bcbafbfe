// A channel to a Redis that keeps its calls until the test ends them.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <utility>
#include <vector>

namespace hotcount::testing {

class HeldChannel final : public redis::Channel {
  public:
    using Done = Completion<redis::Reply>;

    void submit(redis::Request /*request*/, Deadline /*deadline*/, Done done,
                const redis::Cancelled* /*cancelled*/) override {
        held_.push_back(std::move(done));
    }
    std::size_t held() const { return held_.size(); }
    /// The calls since the last take(), each to be ended once.
    std::vector<Done> take() { return std::exchange(held_, {}); }

  private:
    std::vector<Done> held_{};
};

}  // namespace hotcount::testing

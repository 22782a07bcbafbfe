// A recorded stream of operations, to be sent again at its own times instead of a synthetic one.
//
// A CSV file, a line for each operation, in order of time:
//
//   time,item,user,value      this line may be left out
//   1700000000.25,9001,17,1   user 17 votes for item 9001
//   1700000000.31,9001,17,0   ... and takes the vote back
//   1700000000.40,9001,,      somebody reads the count of item 9001
//
// Times are seconds; the first one is the start of the run. Items are numbered anew from 1, in the
// order in which they come; users keep their ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <vector>

#include "workload.hpp"

namespace hotcount::loadtest {

struct TraceLine {
    std::int64_t at_ns;  ///< From the first line on.
    Operation operation;
};

/// Never changes; may be shared by threads.
class Trace {
  public:
    /// An error names the line. A file of more than `most` lines is refused.
    static Result<std::shared_ptr<const Trace>> read(const std::filesystem::path& path,
                                                     std::uint64_t most);

    const std::filesystem::path& path() const { return path_; }
    const std::vector<TraceLine>& lines() const { return lines_; }
    std::uint64_t items() const { return items_; }
    /// Operations of each kind.
    const Mix& mix() const { return mix_; }
    /// Just after the last line.
    Duration length() const;

  private:
    std::filesystem::path path_;
    std::vector<TraceLine> lines_;
    std::uint64_t items_{0};
    Mix mix_{0, 0, 0};
};

}  // namespace hotcount::loadtest

// The traffic: an endless, repeatable stream of votes, un-votes and reads.
//
//   item   Zipf-distributed; ranks are scrambled, so that hot items do not lie side by side
//   user   the k-th vote on an item comes from user permute(k): unique without any lookup
//
// The stream is a function of the settings and the seed alone: every strategy, on every machine,
// with any number of workers, gets the same operations in the same order.
//
// Not thread-safe: one thread at a time calls next(). It allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {

/// Ranks 1 .. size with P(rank) proportional to rank^-exponent, in constant time and no table.
///
/// Rejection-inversion (Hörmann and Derflinger, 1996): the density is covered by a function whose
/// integral can be inverted; a draw is rejected rarely (under 1 in 5 for every exponent). Exponent 0
/// is uniform, 0.99 is what YCSB uses for "skewed", above 1 a few items get nearly everything.
class Zipf {
  public:
    /// size at least 1, exponent from 0 to 20.
    Zipf(std::uint64_t size, double exponent);

    std::uint64_t draw(Random& random) const;

  private:
    double integral(double x) const;          // Of x^-exponent, with integral(1) = 0.
    double inverse_integral(double y) const;  // integral(inverse_integral(y)) = y.
    double density(double x) const;

    std::uint64_t size_;
    double exponent_;
    double top_;       // integral at size + 1/2: where the draws begin ...
    double bottom_;    // ... and where they end, above rank 1's own share.
    double shortcut_;  // A draw this near to its rank needs no further check.
};

/// A pseudo-random permutation of 0 .. size-1 that needs no table.
///
/// A Feistel network over the next power of two; a result outside of the range is permuted again
/// until it falls inside (cycle walking), on average less than twice. The same size, key and index
/// give the same result everywhere.
///
/// The workload uses it twice: to scramble the ranks of the items, and to let the k-th vote on an
/// item come from user permute(k), so that an item's votes are unique without looking any up.
///
/// size is at least 1.
class Permutation {
  public:
    explicit Permutation(std::uint64_t size);

    std::uint64_t size() const { return size_; }
    /// The place of `index` (below size) in the permutation that `key` names.
    std::uint64_t permute(std::uint64_t key, std::uint64_t index) const;

  private:
    std::uint64_t size_;
    int low_bits_;
    std::uint64_t low_mask_;
    std::uint64_t high_mask_;
};

/// Mixes two words into one, well enough for keys and seeds.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

enum class OperationKind : std::uint8_t { vote, unvote, read };
std::string_view to_string(OperationKind kind);

struct Operation {
    std::int64_t item;  ///< 1 .. items.
    std::int64_t user;  ///< 1 .. users; 0 for a read.
    OperationKind kind;
    bool resent;  ///< A vote that was sent before, on purpose: it must not count again.
    /// The LedgerRecord::value of the operation; the stream itself gives no value.
    std::int32_t value{0};
};

/// Shares of the stream; only their proportions matter.
struct Mix {
    double vote{80};
    double unvote{5};
    double read{15};
};

class Trace;

struct TrafficSettings {
    std::uint64_t items{10'000};
    /// The Zipf exponent: 0 is uniform; higher makes the hot items hotter.
    double zipf{0.99};
    /// How many users vote. An item with more votes than users gets the same users again.
    std::uint64_t users{1'000'000};
    Mix mix{};
    /// Share of the votes that are resent ones.
    double dup{0.01};
    std::uint64_t seed{1};
    /// Instead of all that: a recorded stream.
    std::shared_ptr<const Trace> trace{};
};

class Workload {
  public:
    explicit Workload(const TrafficSettings& settings);

    /// With a trace, at most as often as it has operations.
    Operation next();
    /// Votes whose item had run out of users, so that they repeat an earlier one.
    std::uint64_t repeated() const { return repeated_; }

  private:
    // Votes old enough to be acknowledged, and not so old as to fall out of every cache: un-votes
    // aim at the older three quarters, resent votes at the newest quarter, where retries come from.
    static constexpr std::size_t kRemembered = 4096;
    static constexpr std::size_t kRecent = kRemembered / 4;
    // At a low rate a run ends long before that number: un-votes then aim at the older three quarters of
    // what there is.
    static constexpr std::uint64_t kFewest = 4;

    struct Vote {
        std::int64_t item;
        std::int64_t user;
    };

    Operation fresh_vote();
    const Vote& remembered(std::uint64_t age) const;
    std::uint64_t draw_item();

    Random random_;
    Zipf zipf_;
    Permutation items_;
    Permutation users_;
    std::uint64_t seed_;
    std::shared_ptr<const Trace> trace_;
    std::size_t traced_{0};       // Operations of the trace so far.
    std::uint64_t unvote_below_;  // A draw of 64 bits below this is an unvote, ...
    std::uint64_t read_below_;    // ... else one below this a read, else a vote.
    std::uint64_t dup_below_;     // If a second draw is below this, the vote repeats one.
    std::vector<std::uint32_t> votes_of_item_;
    std::array<Vote, kRemembered> votes_;
    std::uint64_t voted_{0};
    std::uint64_t repeated_{0};
};

// -- a trace instead (trace.cpp) ------------------------------------------------------------------
//
// A recorded stream of operations, to be sent again at its own times instead of a synthetic one.
//
// A CSV file, a line for each operation, in order of time:
//
//   time,item,user,value      this line may be left out
//   1700000000.25,9001,17,1   user 17 votes for item 9001
//   1700000000.31,9001,17,0   ... and takes the vote back
//   1700000000.40,9001,,      a read of the count of item 9001
//
// Times are seconds; the first one is the start of the run. Items are numbered anew from 1, in the
// order in which they come; users keep their ids.

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

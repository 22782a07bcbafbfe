#include "backend.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <memory>
#include <vector>

#include "redis/commands.hpp"
#include "redis/scripts.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;
using redis::ReplyError;

// Elements that are sent at a time, so that a large call does not fill the queue of all calls.
constexpr std::size_t kPortion = 1000;

// The elements of one portion that travel as one command.
struct Group {
    std::string_view key;
    std::int64_t total;
    std::size_t last;  // Of its elements; they are a list, by `before`.
    std::size_t size;
};

// A batch on its way, portion by portion.
class IncrPortions final : public redis::InPortions {
  public:
    IncrPortions(redis::Channel& channel, IncrBatch batch, Deadline deadline,
                 Completion<BatchResult<std::int64_t>> done, const redis::Cancelled* cancelled)
        : InPortions(channel, deadline, cancelled),
          server_(std::move(batch.server)),
          about_(batch.about),
          keys_(std::move(batch.keys)),
          amounts_(std::move(batch.amounts)),
          done_(std::move(done)) {
        result_.values.resize(keys_.size());
    }

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    std::optional<redis::Request> next() override {
        if (begin_ == keys_.size()) return std::nullopt;
        if (groups_.empty()) gather();
        std::string bytes;
        bytes.reserve(groups_.size() * 48);
        for (const Group& group : groups_) redis::encode_add(bytes, group.key, group.total);
        return redis::Request::encoded("INCRBY", std::move(bytes), groups_.size(),
                                       redis::Shape::integer, redis::Repeat::never);
    }
    void end() override { done_(std::move(result_)); }

    // One group for each key, if all amounts of each key have one sign and a sum inside 64 bits.
    // Otherwise each element of the portion is a group.
    void gather() {
        end_ = std::min(begin_ + kPortion, keys_.size());
        const std::size_t size = end_ - begin_;
        before_.assign(size, kNone);
        groups_.clear();
        places_.fill(0);
        for (std::size_t i = 0; i < size; ++i) {
            const std::string_view key = keys_[begin_ + i];
            const std::int64_t n = amounts_[begin_ + i];
            std::uint16_t& place = find(key);
            if (place != 0) {
                Group& group = groups_[place - 1U];
                const auto total = checked_add(group.total, n);
                if (!total || (group.total < 0) != (n < 0)) return gather_singly();
                group.total = *total;
                before_[i] = group.last;
                group.last = i;
                ++group.size;
                continue;
            }
            groups_.push_back({key, n, i, 1});
            place = static_cast<std::uint16_t>(groups_.size());
        }
    }

    // The slot of a key in a table with open addressing, at most half full. A std::unordered_map,
    // which allocates a node for each key, took longer than all else here.
    std::uint16_t& find(std::string_view key) {
        std::size_t at = keyed_hash(key);
        while (true) {
            std::uint16_t& place = places_[at % places_.size()];
            if (place == 0 || groups_[place - 1U].key == key) return place;
            ++at;
        }
    }

    // A sum that is refused is sent again in its parts, and no other add may have overtaken them.
    void gather_singly() {
        groups_.clear();
        for (std::size_t i = begin_; i < end_; ++i) {
            groups_.push_back({keys_[i], amounts_[i], i - begin_, 1});
        }
        before_.assign(end_ - begin_, kNone);
    }

    void take_in(Result<Reply> outcome) override {
        std::vector<std::size_t> again;
        const auto* const replies =
            outcome.ok() ? std::get_if<ReplyArray>(&outcome->value) : nullptr;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            const Group& group = groups_[g];
            if (replies == nullptr) {
                fail(group, outcome.ok() ? strange() : outcome.error());
                continue;
            }
            const auto& value = (*replies)[g].value;
            if (const auto* sum = std::get_if<std::int64_t>(&value)) {
                std::int64_t running = *sum;
                for (std::size_t i = group.last; i != kNone; i = before_[i]) {
                    result_.values[begin_ + i] = running;
                    running -= amounts_[begin_ + i];
                }
                continue;
            }
            const auto* error = std::get_if<ReplyError>(&value);
            if (error == nullptr) {
                fail(group, strange());
            } else if (group.size > 1 && !error->known && too_much(*error, group)) {
                // Nothing was applied: send its elements one by one, for their own answers.
                const std::size_t first = again.size();
                for (std::size_t i = group.last; i != kNone; i = before_[i]) again.push_back(i);
                std::reverse(again.begin() + static_cast<std::ptrdiff_t>(first), again.end());
            } else {
                fail(group, redis::to_error(*error, server_ + ": INCRBY"));
            }
        }
        groups_.clear();
        for (const std::size_t i : again) {
            before_[i] = kNone;
            groups_.push_back({keys_[begin_ + i], amounts_[begin_ + i], i, 1});
        }
        if (again.empty()) begin_ = end_;
    }

    // Whether the server may accept elements of a sum that it refused: they may overflow only
    // together, and an add of 1 goes as INCR, which an ACL may allow.
    bool too_much(const ReplyError& error, const Group& group) const {
        const Error refused = redis::to_error(error, server_);
        if (refused.code == ErrorCode::overflow) return true;
        if (!redis::denies_the_command(refused)) return false;
        for (std::size_t i = group.last; i != kNone; i = before_[i]) {
            if (amounts_[begin_ + i] == 1) return true;
        }
        return false;
    }

    void fail(const Group& group, const Error& error) {
        for (std::size_t i = group.last; i != kNone; i = before_[i]) {
            result_.errors.emplace(begin_ + i, about_(keys_[begin_ + i], error));
        }
    }

    Error strange() const { return redis::strange_reply(server_, "INCRBY"); }

    const std::string server_;
    Error (*const about_)(const std::string& key, const Error& error);
    const std::vector<std::string> keys_;
    const std::vector<std::int64_t> amounts_;
    Completion<BatchResult<std::int64_t>> done_;

    BatchResult<std::int64_t> result_;
    std::size_t begin_{0};  // The first element of the portion.
    std::size_t end_{0};
    std::vector<Group> groups_;
    std::vector<std::size_t> before_;           // The element of the same group before this one.
    std::array<std::uint16_t, 2048> places_{};  // 1 + the group's index, by its key; 0: none.
};

}  // namespace

void submit_incr_batch(redis::Channel& channel, IncrBatch batch, Deadline deadline,
                       Completion<BatchResult<std::int64_t>> done,
                       const redis::Cancelled* cancelled) {
    std::make_shared<IncrPortions>(channel, std::move(batch), deadline, std::move(done), cancelled)
        ->go_on();
}

}  // namespace hotcount

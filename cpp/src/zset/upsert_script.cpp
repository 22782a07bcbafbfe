#include "upsert_script.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory_resource>
#include <mutex>
#include <set>

#include "hotcount_embedded/zset/lua.hpp"
#include "keys.hpp"
#include "redis/scripts.hpp"

namespace hotcount::zset {
namespace {

using redis::Reply;
using redis::ReplyArray;
using Element = LiveSetsBackend::Element;
using Upserts = LiveSetsBackend::Upserts;

// What upsert.lua answers for an element whose set is being built, if the build's keys are not named.
constexpr std::int64_t kIsBeingBuilt = 6;

// Batches of one list that are on their way. With two, another client's 99th percentile beside batches
// of 128 was 1.9 ms instead of 0.6, and on loopback no more was written.
constexpr std::size_t kOnTheWay = 1;

// Which keys beside the set an upsert names, as each makes the script dearer: none if the user may not
// touch them, else the companion and with a version the marker; while the set is built, all.
enum class Helpers : std::uint8_t { none, companion, companion_build };

// What upsert.lua is told of elements. Its views hold as long as it and the elements do. One
// element's words are on the stack.
class UpsertWords {
  public:
    UpsertWords(std::span<const Element* const> elements, Helpers helpers) {
        texts_.reserve(5 * elements.size());
        keys_.reserve(5 * elements.size());
        arguments_.reserve(4 * elements.size());
        const Element* before = nullptr;
        for (const Element* const each : elements) {
            const Element& element = *each;
            arguments_.push_back(element.member);
            arguments_.push_back(texts_.emplace_back(to_text(element.score)));
            const bool same_keys = before != nullptr && before->key == element.key &&
                                   before->version.has_value() == element.version.has_value();
            before = &element;
            const std::size_t others = keys_.size();
            if (!same_keys) {
                keys_.push_back(element.key);
                const bool beside = helpers != Helpers::none && !element.companion.empty();
                if (beside) keys_.push_back(element.companion);
                if (beside && helpers == Helpers::companion_build) {
                    keys_.push_back(texts_.emplace_back(build_key(element.companion)));
                    keys_.push_back(texts_.emplace_back(build_hash_key(element.companion)));
                }
                if (element.version) {
                    keys_.push_back(texts_.emplace_back(marker_key(element.companion)));
                }
            }
            arguments_.push_back(kCounts[keys_.size() - others]);
            if (element.version) {
                arguments_.push_back(texts_.emplace_back(std::to_string(*element.version)));
            }
        }
    }
    std::span<const std::string_view> keys() const { return keys_; }
    std::span<const std::string_view> arguments() const { return arguments_; }

  private:
    static constexpr std::array<std::string_view, 6> kCounts{"0", "1", "2", "3", "4", "5"};

    std::array<std::byte, 512> here_;
    std::pmr::monotonic_buffer_resource memory_{here_.data(), here_.size()};
    std::pmr::vector<std::string> texts_{&memory_};  // Reserved: its elements stay where they are.
    std::pmr::vector<std::string_view> keys_{&memory_};
    std::pmr::vector<std::string_view> arguments_{&memory_};
};

redis::Request to_request(const redis::Script& script, const UpsertLimits& limits,
                          const UpsertWords& words) {
    const std::string_view shared[] = {limits.gate, limits.keep};
    return redis::Request::run(script, words.keys(), shared, words.arguments());
}

// -- one ------------------------------------------------------------------------------------------

void upsert_one(const Sender& send, Limits limits, Element element, Helpers helpers,
                Completion<Upsert> done) {
    static const redis::Script kScript{lua::zset::kUpsertLua, redis::Script::Kind::combinable,
                                       redis::is_integer};
    const Element* const alone = &element;
    auto request = to_request(kScript, *limits, UpsertWords{{&alone, 1}, helpers});
    send(std::move(request), [send, limits = std::move(limits), element = std::move(element),
                              helpers, done = std::move(done)](const Result<Reply>& reply) mutable {
        if (reply) {
            const auto state = integer(*send.server, *reply);
            if (state && *state == kIsBeingBuilt) {
                return upsert_one(send, std::move(limits), std::move(element),
                                  Helpers::companion_build, std::move(done));
            }
            return state ? done(static_cast<Upsert>(*state))
                         : done(about(element.key, state.error()));
        }
        const Error& error = reply.error();
        // A user who may not touch companions needs none without a version.
        if (helpers != Helpers::none && !element.version && !element.companion.empty() &&
            error.code == ErrorCode::permission_denied && redis::concerns_a_key(error)) {
            return upsert_one(send, std::move(limits), std::move(element), Helpers::none,
                              std::move(done));
        }
        done(about(element.key, error));
    });
}

// -- a list, batch by batch -----------------------------------------------------------------------

// Elements that go again (their set is being built, or an ACL denies one of the batch's keys) are sent
// when everything is back that was on its way with them. What of that was sent behind them, is of the
// same set and has no version goes again too, behind them, or the last upsert of a member would not be
// the one that stands. Versions need no order.
class UpsertList : public std::enable_shared_from_this<UpsertList> {
  public:
    UpsertList(Sender send, std::vector<Element> elements, std::size_t batch, Limits limits,
               Completion<Upserts> done)
        : send_(std::move(send)),
          elements_(std::move(elements)),
          limits_(std::move(limits)),
          done_(std::move(done)),
          results_(elements_.size(), Upsert::failed) {
        for (std::size_t begin = 0; begin < elements_.size(); begin += batch) {
            waiting_.push_back({begin, std::min(batch, elements_.size() - begin)});
        }
    }

    // Sends what may be sent now. Answers come in any thread, also before their call was handed in.
    void go_on() {
        std::unique_lock lock(mutex_);
        if (sending_) return;  // Who sends looks again.
        sending_ = true;
        while (may_send()) {
            const auto call = std::make_shared<Call>(Call{std::move(waiting_.front())});
            waiting_.pop_front();
            under_way_.push_back(call);
            lock.unlock();
            send_(request(call->range),
                  [self = shared_from_this(), call](const Result<Reply>& reply) {
                      self->answered(*call, reply);
                      self->go_on();
                  });
            lock.lock();
        }
        sending_ = false;
        if (ended_ || !waiting_.empty() || !under_way_.empty()) return;
        ended_ = true;
        lock.unlock();
        done_(std::move(results_));
    }

  private:
    // The elements of one call: those from `begin`, or, if some come again, those at `picked`.
    struct Range {
        std::size_t begin;
        std::size_t size;
        Helpers helpers{Helpers::companion};
        std::vector<std::size_t> picked{};

        std::size_t at(std::size_t i) const { return picked.empty() ? begin + i : picked[i]; }
    };
    struct Call {
        Range range;
        bool answered{false};
        std::vector<Range> again{};
    };

    bool may_send() const {
        return !waiting_.empty() && under_way_.size() < kOnTheWay &&
               std::all_of(under_way_.begin(), under_way_.end(),
                           [](const auto& call) { return call->again.empty(); });
    }

    void answered(Call& call, const Result<Reply>& reply) {
        const std::lock_guard lock(mutex_);
        take_in(call, reply);
        call.answered = true;
        // Nothing of what was sent before a call that is gone from here goes again.
        while (!under_way_.empty() && under_way_.front()->answered &&
               under_way_.front()->again.empty()) {
            under_way_.pop_front();
        }
        if (std::all_of(under_way_.begin(), under_way_.end(),
                        [](const auto& each) { return each->answered; })) {
            send_again();
        }
    }

    // Everything is answered.
    void send_again() {
        std::vector<Range> again;
        std::set<std::string_view> keys;
        for (const auto& call : under_way_) {
            add_overtakers(*call, keys);
            for (Range& range : call->again) {
                for (std::size_t i = 0; i < range.size; ++i) {
                    keys.insert(elements_[range.at(i)].key);
                }
                again.push_back(std::move(range));
            }
        }
        under_way_.clear();
        waiting_.insert(waiting_.begin(), std::make_move_iterator(again.begin()),
                        std::make_move_iterator(again.end()));
    }

    // Adds the call's elements that have been written to one of these sets to those of it that go
    // again. If it was refused, all of them do, in order, and in more calls than one.
    void add_overtakers(Call& call, const std::set<std::string_view>& keys) const {
        if (keys.empty() || call.again.size() > 1) return;
        std::vector<std::size_t> places;
        for (std::size_t i = 0; i < call.range.size; ++i) {
            const std::size_t place = call.range.at(i);
            const Element& element = elements_[place];
            if (!element.version && keys.contains(element.key)) places.push_back(place);
        }
        if (places.empty()) return;
        Helpers helpers = call.range.helpers;
        for (Range& range : call.again) {
            for (std::size_t i = 0; i < range.size; ++i) places.push_back(range.at(i));
            helpers = range.helpers;
        }
        std::sort(places.begin(), places.end());
        places.erase(std::unique(places.begin(), places.end()), places.end());
        const std::size_t size = places.size();
        call.again.assign(1, Range{0, size, helpers, std::move(places)});
    }

    void take_in(Call& call, const Result<Reply>& reply) {
        const Range& range = call.range;
        const auto settle = [&](const Error& error) {
            for (std::size_t i = 0; i < range.size; ++i) {
                results_[range.at(i)] = about(elements_[range.at(i)].key, error);
            }
        };
        if (!reply) {
            call.again = denied_for_a_key(range, reply.error());
            if (call.again.empty()) settle(reply.error());
            return;
        }
        const auto* const states = std::get_if<ReplyArray>(&reply->value);
        if (states == nullptr || states->size() != range.size) {
            return settle(unknown(*send_.server, "upsert"));
        }
        std::vector<std::size_t> again;
        for (std::size_t i = 0; i < range.size; ++i) {
            const auto state = integer(*send_.server, (*states)[i]);
            const std::size_t at = range.at(i);
            if (state && *state == kIsBeingBuilt) {
                again.push_back(at);
            } else {
                results_[at] = state ? Result{static_cast<Upsert>(*state)}
                                     : Result<Upsert>{about(elements_[at].key, state.error())};
            }
        }
        if (again.empty()) return;
        call.again.push_back({0, again.size(), Helpers::companion_build, std::move(again)});
    }

    // An ACL that denies one key refuses the whole call, and nothing was run: then each key goes by
    // itself. A user who may not touch companions needs none without a version.
    std::vector<Range> denied_for_a_key(const Range& range, const Error& error) const {
        std::vector<Range> again;
        if (range.helpers == Helpers::none || error.code != ErrorCode::permission_denied ||
            !redis::concerns_a_key(error)) {
            return again;
        }
        if (range.size > 1) {
            for (std::size_t i = 0; i < range.size; ++i) {
                again.push_back({range.at(i), 1, range.helpers});
            }
            return again;
        }
        const Element& only = elements_[range.at(0)];
        if (!only.version && !only.companion.empty()) {
            again.push_back({range.at(0), 1, Helpers::none});
        }
        return again;
    }

    redis::Request request(const Range& range) const {
        static const redis::Script kScript{lua::zset::kUpsertLua, redis::Script::Kind::single,
                                           redis::is_some<redis::is_integer>};
        std::vector<const Element*> elements;
        elements.reserve(range.size);
        for (std::size_t i = 0; i < range.size; ++i) elements.push_back(&elements_[range.at(i)]);
        return to_request(kScript, *limits_, UpsertWords{elements, range.helpers});
    }

    const Sender send_;
    const std::vector<Element> elements_;
    const Limits limits_;
    const Completion<Upserts> done_;

    std::mutex mutex_;
    Upserts results_;
    std::deque<Range> waiting_;                    // The next one first.
    std::deque<std::shared_ptr<Call>> under_way_;  // In the order in which they were sent.
    bool sending_{false};
    bool ended_{false};
};

}  // namespace

void upsert_by_script(const Sender& send, Limits limits, Element element, Completion<Upsert> done) {
    upsert_one(send, std::move(limits), std::move(element), Helpers::companion, std::move(done));
}

void upsert_by_script(const Sender& send, Limits limits, std::vector<Element> elements,
                      std::size_t batch, Completion<Upserts> done) {
    std::make_shared<UpsertList>(send, std::move(elements), batch, std::move(limits),
                                 std::move(done))
        ->go_on();
}

}  // namespace hotcount::zset

#include "redis_steps.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <memory_resource>

#include "hotcount_embedded/zset/lua.hpp"
#include "redis/cluster_client.hpp"
#include "redis/scripts.hpp"

namespace hotcount::zset {
namespace {

using redis::Reply;
using redis::ReplyArray;

// The time limit of a sweep without a timeout, as a multiple of the store's timeout: with 1 s,
// 50,000 pages of 500 keys at 2 ms each.
constexpr int kSweepTimeouts = 100;

bool is_set(const redis::Cancelled* cancelled) { return cancelled != nullptr && *cancelled; }

}  // namespace

// -- upserts, batch by batch ----------------------------------------------------------------------

RedisSteps::Upserts RedisSteps::upsert(std::span<const Element> elements, std::size_t batch,
                                       Deadline deadline, const redis::Cancelled* cancelled) const {
    Upserts results;
    const std::size_t size = elements.size();
    results.reserve(size);
    while (!elements.empty() && !is_set(cancelled)) {
        const auto some = elements.first(std::min(batch, elements.size()));
        std::ranges::move(look_then_add(some, deadline, cancelled), std::back_inserter(results));
        elements = elements.subspan(some.size());
    }
    results.resize(size, Upsert::failed);
    return results;
}

// ttl_gate's known race: PTTL and ZADD are two steps, and a set may expire between them.
RedisSteps::Upserts RedisSteps::look_then_add(std::span<const Element> elements, Deadline deadline,
                                              const redis::Cancelled* cancelled) const {
    Commands looks;
    for (const Element& element : elements) looks.push_back({"PTTL", element.key});
    Upserts results;
    std::vector<std::size_t> passed;
    std::vector<std::string> scores;
    scores.reserve(elements.size());
    Commands adds;
    const auto seen = client_->execute_many(looks, deadline.remaining());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const Element& element = elements[i];
        const auto left = seen[i] ? integer(*server_, *seen[i]) : seen[i].error();
        if (!left) {
            results.emplace_back(redis::of_element(element.key, left.error()));
            continue;
        }
        results.emplace_back(state_of(*left));
        if (*results.back() != Upsert::applied) continue;
        passed.push_back(i);
        adds.push_back(
            {"ZADD", element.key, scores.emplace_back(to_text(element.score)), element.member});
    }
    if (adds.empty()) return results;
    // A write of a cancelled call must not come after its caller's next write.
    if (is_set(cancelled)) {
        for (const std::size_t i : passed) results[i] = Upsert::failed;
        return results;
    }
    const auto added = client_->execute_many(adds, deadline.remaining());
    for (std::size_t i = 0; i < passed.size(); ++i) {
        if (!added[i])
            results[passed[i]] = redis::of_element(elements[passed[i]].key, added[i].error());
    }
    return results;
}

Upsert RedisSteps::state_of(std::int64_t pttl) const {
    if (pttl == -2) return Upsert::absent;
    if (pttl < 0) return Upsert::no_ttl;
    return std::chrono::milliseconds{pttl} > gate_ ? Upsert::applied : Upsert::expiring;
}

// The keys without a TTL, as views of `keys`.
Result<std::vector<std::string_view>> RedisSteps::without_ttl(std::span<const std::string> keys,
                                                              Timeout timeout) const {
    Commands looks;
    for (const std::string& key : keys) looks.push_back({"PTTL", key});
    std::vector<std::string_view> found;
    if (keys.empty()) return found;
    const auto replies = client_->execute_many(looks, timeout);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!replies[i]) return replies[i].error();
        HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer(*server_, *replies[i]));
        if (left == -1) found.push_back(keys[i]);
    }
    return found;
}

// -- sweep ----------------------------------------------------------------------------------------

// The deadline ends a sweep even if the server's cursor never returns to 0.
Deadline RedisSteps::sweep_deadline(Timeout timeout) const {
    return Deadline::after(timeout.value_or(kSweepTimeouts * client_->options().timeout));
}

Result<SweepReport> RedisSteps::sweep(const std::string& pattern, bool dry_run, Timeout timeout,
                                      const redis::Cancelled* cancelled) const {
    static const redis::Script kScript{lua::zset::kSweepLua, redis::Script::Kind::single,
                                       redis::is_integer};
    SweepReport report;
    const Deadline deadline = sweep_deadline(timeout);
    const auto left = [&] {
        const Duration rest = deadline.remaining();
        return timeout ? rest : std::min<Duration>(client_->options().timeout, rest);
    };
    redis::ClusterNodes* const nodes = redis::nodes_of(*client_);
    std::vector<std::uint16_t> each{redis::ClusterNodes::kNobody};
    if (nodes != nullptr) {
        HOTCOUNT_TRY_ASSIGN(each, nodes->primaries(left()));
    }
    for (const std::uint16_t node : each) {
        std::string cursor = "0";
        do {
            const std::string_view scan[] = {"SCAN",  cursor, "MATCH", pattern,
                                             "COUNT", "500",  "TYPE",  "zset"};
            auto reply = nodes != nullptr ? nodes->execute_at(node, scan, left())
                                          : client_->execute(scan, left());
            if (!reply) return redis::of_key(pattern, reply.error());
            HOTCOUNT_TRY_ASSIGN(const redis::ScanPage page,
                                redis::to_page(*server_, std::move(*reply)));
            cursor = page.next;
            report.scanned += static_cast<std::int64_t>(page.items.size());
            HOTCOUNT_TRY_ASSIGN(const auto found, without_ttl(page.items, left()));
            report.found += static_cast<std::int64_t>(found.size());
            for (const std::string_view key : found) {
                if (report.keys.size() < SweepReport::kMaxKeys) report.keys.emplace_back(key);
            }
            if (dry_run || found.empty()) continue;
            // The keys of one script are in one slot.
            std::map<std::uint16_t, std::vector<std::string_view>> parts;
            for (const std::string_view key : found) {
                parts[nodes != nullptr ? redis::slot_of(key) : 0].push_back(key);
            }
            std::vector<Result<redis::Reply>> deleted(parts.size(), redis::Reply{});
            std::vector<redis::Channel::Call> calls;
            for (const auto& part : parts) {
                auto& place = deleted[calls.size()];
                calls.push_back({redis::Request::run(kScript, part.second, {}, {}),
                                 [&place](Result<redis::Reply> told) { place = std::move(told); }});
            }
            if (is_set(cancelled)) break;
            client_->waiting().submit_all(std::move(calls), Deadline::after(left()));
            for (const auto& told : deleted) {
                HOTCOUNT_TRY_ASSIGN(const std::int64_t count, integer(*server_, told, pattern));
                report.deleted += count;
            }
        } while (cursor != "0" && !is_set(cancelled));
        if (is_set(cancelled)) break;
    }
    return report;
}

namespace {

using redis::Reply;
using redis::ReplyArray;
using Element = LiveSetsBackend::Element;
using Upserts = LiveSetsBackend::Upserts;

// The answer of upsert.lua for an element whose set is being built, if the call lacks the build's
// keys.
constexpr std::int64_t kIsBeingBuilt = 6;

// The keys that an upsert names beside the set. Each costs time in the script. `companion` adds the
// marker for an element with a version; `companion_build` is for a set that is being built; `none`
// is for a user whose ACL denies the companion.
enum class Helpers : std::uint8_t { none, companion, companion_build };

// The keys and arguments of upsert.lua. The views are valid as long as this object and the elements
// are. The words of one element need no heap.
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

using Failed = Error (*)(std::string_view key, const Error& error);

// `failed`: redis::of_key, or redis::of_element for an upsert that is one of many.
redis::Channel::Call one_upsert(const Sender& send, Limits limits, Element element, Helpers helpers,
                                Failed failed, Completion<Upsert> done);

void upsert_one(const Sender& send, Limits limits, Element element, Helpers helpers, Failed failed,
                Completion<Upsert> done) {
    auto call =
        one_upsert(send, std::move(limits), std::move(element), helpers, failed, std::move(done));
    send(std::move(call.request), std::move(call.done));
}

redis::Channel::Call one_upsert(const Sender& send, Limits limits, Element element, Helpers helpers,
                                Failed failed, Completion<Upsert> done) {
    static const redis::Script kScript{lua::zset::kUpsertLua, redis::Script::Kind::combinable,
                                       redis::is_integer};
    const Element* const alone = &element;
    auto request = to_request(kScript, *limits, UpsertWords{{&alone, 1}, helpers});
    return {std::move(request),
            [send, limits = std::move(limits), element = std::move(element), helpers, failed,
             done = std::move(done)](const Result<Reply>& reply) mutable {
                if (reply) {
                    const auto state = integer(*send.server, *reply);
                    if (state && *state == kIsBeingBuilt) {
                        return upsert_one(send, std::move(limits), std::move(element),
                                          Helpers::companion_build, failed, std::move(done));
                    }
                    return state ? done(static_cast<Upsert>(*state))
                                 : done(failed(element.key, state.error()));
                }
                const Error& error = reply.error();
                // Without a version the companion is optional, so a denied one is left out.
                if (helpers != Helpers::none && !element.version && !element.companion.empty() &&
                    error.code == ErrorCode::permission_denied && redis::concerns_a_key(error)) {
                    return upsert_one(send, std::move(limits), std::move(element), Helpers::none,
                                      failed, std::move(done));
                }
                done(failed(element.key, error));
            }};
}

// In a cluster each element is a call of its own, in order for each key.
void upsert_on_nodes(const Sender& send, const Limits& limits, std::vector<Element> elements,
                     Completion<Upserts> done) {
    struct Open {
        std::atomic<std::size_t> left{0};
        Upserts results{};
        Completion<Upserts> done{};
    };
    const std::size_t size = elements.size();
    if (size == 0) return done(Upserts{});
    const auto open = std::make_shared<Open>();
    open->left = size;
    open->results = Upserts(size, Upsert::failed);
    open->done = std::move(done);
    std::vector<redis::Channel::Call> calls;
    calls.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
        calls.push_back(one_upsert(send, limits, std::move(elements[i]), Helpers::companion,
                                   redis::of_element, [open, i](Result<Upsert> state) {
                                       open->results[i] = std::move(state);
                                       if (open->left.fetch_sub(1, std::memory_order_acq_rel) ==
                                           1) {
                                           open->done(std::move(open->results));
                                       }
                                   }));
    }
    send.channel.submit_all(std::move(calls), send.deadline, send.cancelled);
}

// -- a list, batch by batch -----------------------------------------------------------------------

// The next batch is sent when the previous one is answered, so other calls pass in between.
class UpsertList final : public redis::InPortions {
  public:
    UpsertList(const Sender& send, std::vector<Element> elements, std::size_t batch, Limits limits,
               Completion<Upserts> done)
        : InPortions(send.channel, send.deadline, send.cancelled),
          server_(send.server),
          elements_(std::move(elements)),
          limits_(std::move(limits)),
          done_(std::move(done)),
          results_(elements_.size(), Upsert::failed) {
        for (std::size_t begin = 0; begin < elements_.size(); begin += batch) {
            ranges_.push_back({begin, std::min(batch, elements_.size() - begin)});
        }
        std::reverse(ranges_.begin(), ranges_.end());
    }

  private:
    // The elements of one call: `size` elements from `begin`, or the repeated ones at `picked`.
    struct Range {
        std::size_t begin;
        std::size_t size;
        Helpers helpers{Helpers::companion};
        std::vector<std::size_t> picked{};

        std::size_t at(std::size_t i) const { return picked.empty() ? begin + i : picked[i]; }
    };

    std::optional<redis::Request> next() override {
        static const redis::Script kScript{lua::zset::kUpsertLua, redis::Script::Kind::single,
                                           redis::is_some<redis::is_integer>};
        if (ranges_.empty()) return std::nullopt;
        sent_ = std::move(ranges_.back());
        ranges_.pop_back();
        std::vector<const Element*> elements;
        elements.reserve(sent_.size);
        for (std::size_t i = 0; i < sent_.size; ++i) elements.push_back(&elements_[sent_.at(i)]);
        return to_request(kScript, *limits_, UpsertWords{elements, sent_.helpers});
    }
    void end() override { done_(std::move(results_)); }

    void take_in(Result<Reply> reply) override {
        const Range range = std::move(sent_);
        const auto settle = [&](const Result<Reply>& failed) {
            for (std::size_t i = 0; i < range.size; ++i) {
                const std::size_t at = range.at(i);
                results_[at] = redis::element_failed<Upsert>(elements_[at].key, failed);
            }
        };
        if (!reply) {
            if (!denied_for_a_key(range, reply.error())) settle(reply);
            return;
        }
        const auto* const states = std::get_if<ReplyArray>(&reply->value);
        if (states == nullptr || states->size() != range.size) {
            return settle(unknown(*server_, "upsert"));
        }
        std::vector<std::size_t> again;
        for (std::size_t i = 0; i < range.size; ++i) {
            const auto state = integer(*server_, (*states)[i]);
            const std::size_t at = range.at(i);
            if (state && *state == kIsBeingBuilt) {
                again.push_back(at);
            } else {
                results_[at] =
                    state ? Result{static_cast<Upsert>(*state)}
                          : Result<Upsert>{redis::of_key(elements_[at].key, state.error())};
            }
        }
        if (again.empty()) return;
        ranges_.push_back({0, again.size(), Helpers::companion_build, std::move(again)});
    }

    // An ACL that denies one key refuses the whole call before it runs. Then each element is sent
    // alone; without a version its companion is optional, so a denied one is left out.
    bool denied_for_a_key(const Range& range, const Error& error) {
        if (range.helpers == Helpers::none || error.code != ErrorCode::permission_denied ||
            !redis::concerns_a_key(error)) {
            return false;
        }
        if (range.size > 1) {
            for (std::size_t i = range.size; i-- > 0;) {
                ranges_.push_back({range.at(i), 1, range.helpers});
            }
            return true;
        }
        const Element& only = elements_[range.at(0)];
        if (only.version || only.companion.empty()) return false;
        ranges_.push_back({range.at(0), 1, Helpers::none});
        return true;
    }

    const Server server_;
    const std::vector<Element> elements_;
    const Limits limits_;
    const Completion<Upserts> done_;
    Upserts results_;
    std::vector<Range> ranges_;  // Still to be sent, the next one last.
    Range sent_{};
};

}  // namespace

void upsert_by_script(const Sender& send, Limits limits, Element element, Completion<Upsert> done) {
    upsert_one(send, std::move(limits), std::move(element), Helpers::companion, redis::of_key,
               std::move(done));
}

void upsert_by_script(const Sender& send, Limits limits, std::vector<Element> elements,
                      std::size_t batch, Completion<Upserts> done) {
    if (send.channel.is_cluster()) {
        return upsert_on_nodes(send, limits, std::move(elements), std::move(done));
    }
    std::make_shared<UpsertList>(send, std::move(elements), batch, std::move(limits),
                                 std::move(done))
        ->go_on();
}

}  // namespace hotcount::zset

#include "scripts.hpp"

#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <memory>
#include <span>
#include <utility>

namespace hotcount::redis {
namespace {

// Keys of one portion. The server does nothing else while a script runs.
constexpr std::size_t kMostKeys = 256;

// Parts of a refused portion. One denied key of 256 costs 33 scripts, 256 denied keys cost 273.
constexpr std::size_t kParts = 16;

std::vector<std::string_view> slice(const std::vector<std::string>& texts, std::size_t each,
                                    std::size_t begin, std::size_t size) {
    const auto first = texts.begin() + static_cast<std::ptrdiff_t>(begin * each);
    return {first, first + static_cast<std::ptrdiff_t>(size * each)};
}

class ScriptPortions final : public InPortions {
  public:
    ScriptPortions(Channel& channel, std::string server, ScriptBatch batch, Deadline deadline,
                   std::function<void(std::size_t, Result<Reply>)> settle,
                   std::function<void()> done, const Cancelled* cancelled)
        : InPortions(channel, deadline, cancelled),
          server_(std::move(server)),
          batch_(std::move(batch)),
          shared_(batch_.shared.begin(), batch_.shared.end()),
          keys_each_(batch_.keys.size() / batch_.calls),
          arguments_each_(batch_.arguments.size() / batch_.calls),
          settle_(std::move(settle)),
          done_(std::move(done)) {
        const std::size_t most = std::max<std::size_t>(kMostKeys / keys_each_, 1);
        for (std::size_t begin = 0; begin < batch_.calls; begin += most) {
            ranges_.push_back({begin, std::min(most, batch_.calls - begin)});
        }
        std::reverse(ranges_.begin(), ranges_.end());
    }

  private:
    struct Range {
        std::size_t begin;
        std::size_t size;
    };

    std::optional<Request> next() override {
        if (ranges_.empty()) return std::nullopt;
        sent_ = ranges_.back();
        ranges_.pop_back();
        return Request::run_many(batch_.script, sent_.size,
                                 slice(batch_.keys, keys_each_, sent_.begin, sent_.size), shared_,
                                 slice(batch_.arguments, arguments_each_, sent_.begin, sent_.size),
                                 batch_.repeat);
    }

    void take_in(Result<Reply> outcome) override {
        const Range range = sent_;
        if (!outcome && range.size > 1 && concerns_a_key(outcome.error())) {
            // The script was refused before it ran, perhaps because of a single key.
            const std::size_t size = (range.size + kParts - 1) / kParts;
            std::size_t end = range.begin + range.size;
            while (end > range.begin) {
                const std::size_t last = (end - range.begin - 1) % size + 1;
                ranges_.push_back({end - last, last});
                end -= last;
            }
            return;
        }
        auto* const replies = outcome.ok() ? std::get_if<ReplyArray>(&outcome->value) : nullptr;
        for (std::size_t i = 0; i < range.size; ++i) {
            const std::size_t call = range.begin + i;
            if (!outcome) {
                settle_(call, outcome);
            } else if (replies == nullptr || replies->size() != range.size) {
                settle_(call, strange_reply(server_, "a script"));
            } else if (const auto* error = std::get_if<ReplyError>(&(*replies)[i].value)) {
                settle_(call, to_error(*error, server_ + ": EVALSHA"));
            } else {
                settle_(call, std::move((*replies)[i]));
            }
        }
    }

    void end() override { done_(); }

    const std::string server_;
    const ScriptBatch batch_;
    const std::vector<std::string_view> shared_;
    const std::size_t keys_each_;
    const std::size_t arguments_each_;
    const std::function<void(std::size_t, Result<Reply>)> settle_;
    const std::function<void()> done_;

    std::vector<Range> ranges_;  // Still to be sent, the next one last.
    Range sent_{};
};

// In a cluster most calls have different slots. So each call is a request, and the lane of a node
// combines the calls of one slot.
void submit_to_nodes(Channel& channel, const ScriptBatch& batch, Deadline deadline,
                     const std::function<void(std::size_t, Result<Reply>)>& settle,
                     std::function<void()> done, const Cancelled* cancelled) {
    struct Open {
        std::atomic<std::size_t> left{0};
        std::function<void(std::size_t, Result<Reply>)> settle{};
        std::function<void()> done{};
    };
    const auto open = std::make_shared<Open>();
    open->left = batch.calls;
    open->settle = settle;
    open->done = std::move(done);
    const std::vector<std::string_view> words(batch.shared.begin(), batch.shared.end());
    const SharedArguments shared{words};
    const std::size_t keys_each = batch.keys.size() / batch.calls;
    const std::size_t arguments_each = batch.arguments.size() / batch.calls;
    std::vector<Channel::Call> calls;
    calls.reserve(batch.calls);
    for (std::size_t i = 0; i < batch.calls; ++i) {
        calls.push_back({Request::run(batch.script, slice(batch.keys, keys_each, i, 1), shared,
                                      slice(batch.arguments, arguments_each, i, 1), batch.repeat),
                         [open, i](Result<Reply> reply) {
                             open->settle(i, std::move(reply));
                             if (open->left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                                 open->done();
                             }
                         }});
    }
    channel.submit_all(std::move(calls), deadline, cancelled);
}

}  // namespace

std::string milliseconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

Error of_key(std::string_view key, const Error& error) {
    return make_error(error.code, error.message + " (key " + printable(key) + ")",
                      error.server_code)
        .about(&ErrorFacts::key, key);
}

bool concerns_all_keys(const Error& error) {
    return error.code == ErrorCode::deadline || error.code == ErrorCode::outcome_unknown ||
           error.code == ErrorCode::unavailable || error.code == ErrorCode::capacity ||
           error.code == ErrorCode::closed;
}

Error of_element(std::string_view key, const Error& error) {
    return concerns_all_keys(error) ? error : of_key(key, error);
}

Error strange_reply(const std::string& server, std::string_view who) {
    return make_error(ErrorCode::reply,
                      server + ": " + std::string{who} + " got a reply of another shape");
}

Result<ScanPage> to_page(const std::string& server, Reply reply) {
    auto* const parts = std::get_if<ReplyArray>(&reply.value);
    if (parts == nullptr || parts->size() != 2) return strange_reply(server, "SCAN");
    auto* const next = std::get_if<std::string>(&(*parts)[0].value);
    auto* const items = std::get_if<ReplyArray>(&(*parts)[1].value);
    if (next == nullptr || items == nullptr) return strange_reply(server, "SCAN");
    ScanPage page{std::move(*next), {}};
    page.items.reserve(items->size());
    for (Reply& each : *items) {
        auto* const text = std::get_if<std::string>(&each.value);
        if (text == nullptr) return strange_reply(server, "SCAN");
        page.items.push_back(std::move(*text));
    }
    return page;
}

void submit_script_batch(Channel& channel, std::string server, ScriptBatch batch, Deadline deadline,
                         std::function<void(std::size_t call, Result<Reply>)> settle,
                         std::function<void()> done, const Cancelled* cancelled) {
    if (channel.is_cluster()) {
        return submit_to_nodes(channel, batch, deadline, settle, std::move(done), cancelled);
    }
    std::make_shared<ScriptPortions>(channel, std::move(server), std::move(batch), deadline,
                                     std::move(settle), std::move(done), cancelled)
        ->go_on();
}

}  // namespace hotcount::redis

// What the multiplexer does with hits that INCREX counts: it asks each connection's server whether it
// has the command, and gives each caller its part of what the server took.
//
// A server that has INCREX as of Redis 8.8 and Valkey 9.2 answers [value, taken]; with SATURATE it takes
// as much as there is room for. How much was taken says which callers pass: the first ones. An error
// says that nothing was taken, so those calls go again, by the script. What a server cannot do is never
// guessed from its version: it is asked, over each connection anew, on a key that nobody else has.
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "multiplexer.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

// Of the key that is asked with, if the connection breaks before it is deleted.
constexpr std::int64_t kAskedLifeMs = 60'000;
// Between questions to a server that could not say.
constexpr Duration kAskAgain = 250ms;

void encode_increx(std::string& out, std::string_view key, std::size_t n, const HitWindow& window) {
    const std::string amount = std::to_string(n);
    const std::string limit = std::to_string(window.limit);
    const std::string period = std::to_string(window.period_ms);
    const std::string_view command[] = {"INCREX", key,        "BYINT", amount, "UBOUND",
                                        limit,    "SATURATE", "PX",    period, "ENX"};
    encode_command(out, command);
}

void encode_pttl(std::string& out, std::string_view key) {
    const std::string_view command[] = {"PTTL", key};
    encode_command(out, command);
}

struct Counted {
    std::int64_t value;
    std::int64_t taken;
};

std::optional<Counted> read_counted(const Reply& reply) {
    const auto* const pair = std::get_if<ReplyArray>(&reply.value);
    if (pair == nullptr || pair->size() != 2) return std::nullopt;
    const auto* const value = std::get_if<std::int64_t>(&pair->front().value);
    const auto* const taken = std::get_if<std::int64_t>(&pair->back().value);
    if (value == nullptr || taken == nullptr) return std::nullopt;
    return Counted{*value, *taken};
}

// Whether this refusal says something of the key or the moment, and not of the server.
bool is_of_the_key(const ReplyError& error, const Error& refused) {
    return error_word(error.message) == "WRONGTYPE" ||
           error.message.find("not an integer") != std::string::npos ||
           passes_soon(error_word(error.message)) || concerns_a_key(refused);
}

}  // namespace

// The question that goes before the calls of one send, which still go by the script.
std::optional<Multiplexer::Flight> Multiplexer::ask_for_increx(std::string_view key) {
    increx_ = Increx::absent;
    const auto beside = key_beside(key, "increx." + std::to_string(thread_random().next()));
    if (!beside) return std::nullopt;
    increx_ = Increx::asked;
    // It must take 1, then 1 of 3, and leave the expiry as it is.
    std::string bytes;
    encode_increx(bytes, *beside, 1, {2, kAskedLifeMs});
    encode_increx(bytes, *beside, 3, {2, 2 * kAskedLifeMs});
    encode_pttl(bytes, *beside);
    const std::string_view forget[] = {"DEL", *beside};
    encode_command(bytes, forget);
    Flight flight{std::make_shared<Operation>(
        Request::encoded("INCREX", std::move(bytes), 4, Shape::any, Repeat::never),
        Deadline::at(SteadyTime::max()))};
    flight.first->state_ = Operation::State::abandoned;  // Nobody waits for it.
    flight.asks_for_increx = true;
    return flight;
}

void Multiplexer::learn(const ReplyArray& replies, SteadyTime now) {
    if (const auto* const error = std::get_if<ReplyError>(&replies[0].value)) {
        const bool later = passes_soon(error_word(error->message));
        increx_ = later ? Increx::not_asked : Increx::absent;
        ask_again_at_ = now + kAskAgain;
        return;
    }
    const auto first = read_counted(replies[0]);
    const auto second = read_counted(replies[1]);
    const auto* const life = std::get_if<std::int64_t>(&replies[2].value);
    const bool counts = first && first->value == 1 && first->taken == 1;
    const bool bounds = second && second->value == 2 && second->taken == 1;
    const bool expires = life != nullptr && *life > 0 && *life <= kAskedLifeMs;
    increx_ = counts && bounds && expires ? Increx::there : Increx::absent;
}

void Multiplexer::encode_window(Flight& flight) {
    const Request& request = flight.first->request_;
    const std::size_t before = out_.size();
    encode_increx(out_, request.keys_[0], flight.calls(), *request.window_);
    flight.applied_at = encoded_ + (out_.size() - before);
    encode_pttl(out_, request.keys_[0]);
}

bool Multiplexer::belongs_to_window(const Flight& flight, const Reply& reply) {
    const bool first = !flight.counted;
    if ((first ? flight.applied_at : flight.end) > sent_) {
        return does_not_fit("a reply came before its command, INCREX, was sent");
    }
    if (std::holds_alternative<ReplyError>(reply.value)) return true;
    if (!first) {
        return std::holds_alternative<std::int64_t>(reply.value) ||
               does_not_fit("PTTL got a reply of another shape");
    }
    const auto counted = read_counted(reply);
    const bool fitting = counted && counted->taken <= static_cast<std::int64_t>(flight.calls());
    return fitting || does_not_fit("INCREX got a reply of another shape");
}

// `life`: what PTTL answered; null when the connection broke before. The hits are decided by then.
void Multiplexer::settle_window(const Flight& flight, const Reply* life) {
    if (const auto* const error = std::get_if<ReplyError>(&flight.counted->value)) {
        if (!is_of_the_key(*error, error_of(*error, "INCREX"))) increx_ = Increx::absent;
        Operations again;
        flight.for_each([&](const OperationPtr& member) {
            if (member->state_ != Operation::State::in_flight) return;
            member->by_script_ = true;
            again.push_back(member);
        });
        put_back(again);
        return;
    }
    const Counted counted = *read_counted(*flight.counted);
    const auto* const lives = life == nullptr ? nullptr : std::get_if<std::int64_t>(&life->value);
    // -2: the key has expired since INCREX. -1: it was made to live for ever since.
    std::int64_t left = -1;
    if (lives != nullptr) left = *lives == -2 ? 0 : *lives;
    std::int64_t taken = 0;
    flight.for_each([&](const OperationPtr& member) {
        const bool passes = taken < counted.taken;
        if (passes) ++taken;
        const std::int64_t used = passes ? counted.value - counted.taken + taken : counted.value;
        ReplyArray answer;
        answer.push_back(Reply{used});
        answer.push_back(Reply{std::int64_t{passes}});
        answer.push_back(Reply{left});
        finish(member, Reply{std::move(answer)});
    });
}

}  // namespace hotcount::redis

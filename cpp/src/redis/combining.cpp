#include "combining.hpp"

#include <hotcount/detail/base/check.hpp>
#include <iterator>

#include "commands.hpp"

namespace hotcount::redis {
namespace {

// The maximum number of calls in a combined command. It bounds the server's time for the command,
// and the number of calls to send again after a refusal.
constexpr std::size_t kMaxCombined = 256;
// The maximum number of keys in a combined script: 64 upserts with two keys each, or 128 hits of
// limiters, which occupy the server for 0.5 ms.
constexpr std::size_t kMaxCombinedKeys = 128;

bool same_sign(std::int64_t a, std::int64_t b) { return (a < 0) == (b < 0); }

// The size of the first of several encoded words.
std::size_t end_of_word(std::string_view words) {
    const std::size_t line = words.find('\n') + 1;
    std::size_t size = 0;
    for (std::size_t i = 1; i + 2 < line; ++i) size = 10 * size + (words[i] - '0');
    return line + size + 2;
}

}  // namespace

// -- the calls of a command -----------------------------------------------------------------------

Combining::Touches Combining::touches(const Operation& call) {
    switch (call.kind()) {
        case Operation::Kind::add:
            return Touches::one_key;
        case Operation::Kind::script:
            return Touches::its_keys;
        default:
            return Touches::any_key;
    }
}

bool Combining::takes_other_keys(const Operation& call) {
    return is_combinable(call) && !call.form_.alone;
}

Flight Combining::flight_of(OperationPtr call) {
    Flight flight;
    flight.sum = {call->amount(), call->keys().size(), call->form_.with_text};
    flight.asking = call->route.asking;
    flight.first = std::move(call);
    return flight;
}

bool Combining::may_join(const Flight& flight, const Operation& call) {
    const Operation& first = *flight.first;
    if (first.route.slot != call.route.slot || first.kind() != call.kind() || first.form_.alone ||
        call.form_.alone) {
        return false;
    }
    if (call.kind() == Operation::Kind::add) {
        return flight.calls() < kMaxCombined && same_sign(flight.sum.amount, call.amount()) &&
               checked_add(flight.sum.amount, call.amount()).has_value();
    }
    return first.script() == call.script() &&
           (first.shared() == call.shared() || *first.shared() == *call.shared()) &&
           flight.sum.with_text == call.form_.with_text &&
           flight.sum.keys + call.keys().size() <= kMaxCombinedKeys;
}

void Combining::join(Flight& flight, OperationPtr call) {
    flight.sum.amount += call->amount();
    flight.sum.keys += call->keys().size();
    flight.rest.push_back(std::move(call));
}

void Combining::encode(const Flight& flight, std::string& out) {
    const Operation& first = *flight.first;
    switch (first.kind()) {
        case Operation::Kind::add:
            return encode_add(out, first.key(), flight.sum.amount);
        case Operation::Kind::script:
            return encode_script(flight, out);
        default:
            out += first.bytes();
    }
}

void Combining::encode_script(const Flight& flight, std::string& out) {
    const Script& script = *flight.first->script();
    const auto& shared = *flight.first->shared();
    std::size_t arguments = 0;
    flight.for_each([&](const OperationPtr& call) { arguments += call->arguments(); });
    encode_header(out, 3 + flight.sum.keys + shared.count + arguments);
    encode_word(out, flight.sum.with_text ? "EVAL" : "EVALSHA");
    encode_word(out, flight.sum.with_text ? script.text() : script.sha1());
    encode_word(out, std::to_string(flight.sum.keys));
    flight.for_each([&](const OperationPtr& call) { out += call->keys().encoded(); });
    out += shared.encoded;
    flight.for_each([&](const OperationPtr& call) { out += call->bytes(); });
}

// -- the reply to a command -----------------------------------------------------------------------

bool Combining::fits(const Flight& flight, const Reply& reply) {
    switch (flight.first->kind()) {
        case Operation::Kind::add:
            return redis::fits(Shape::integer, reply);
        case Operation::Kind::script:
            return script_fits(flight, reply);
        default:
            return redis::fits(flight.first->shape(), reply);
    }
}

bool Combining::script_fits(const Flight& flight, const Reply& reply) {
    if (std::holds_alternative<ReplyError>(reply.value)) return true;
    const Script& script = *flight.first->script();
    if (!script.combinable()) return script.fits(reply, flight.first->keys().size());
    const auto* const answers = std::get_if<ReplyArray>(&reply.value);
    if (answers == nullptr) return false;
    if (is_rows(flight, *answers)) return true;
    auto next = answers->begin();
    bool fitting = true;
    flight.for_each([&](const OperationPtr& call) {
        const std::size_t keys_each = call->keys().size() / calls_of(*call);
        for (std::size_t i = 0; i < calls_of(*call) && fitting; ++i) {
            fitting = next != answers->end() && script.fits(*next, keys_each);
            if (fitting) ++next;
        }
    });
    return fitting && next == answers->end();
}

// Whether the reply is one flat array, with a row of script.row() integers for each call.
bool Combining::is_rows(const Flight& flight, const ReplyArray& answers) {
    std::size_t calls = 0;
    flight.for_each([&](const OperationPtr& call) { calls += calls_of(*call); });
    const std::size_t row = flight.first->script()->row();
    return row > 0 && calls > 1 && answers.size() == row * calls &&
           std::ranges::all_of(answers, [](const Reply& number) {
               return std::holds_alternative<std::int64_t>(number.value);
           });
}

Combining::Split::Split(const Flight& flight, Reply& reply) : reply_(reply), left_(flight.calls()) {
    const Operation& first = *flight.first;
    if (first.kind() == Operation::Kind::add) {
        // The value before the combined add.
        const auto* const value = std::get_if<std::int64_t>(&reply_.value);
        if (value == nullptr) return;
        kind_ = Kind::running;
        value_ = *value - flight.sum.amount;
    } else if (is_combinable(first)) {
        const auto* const answers = std::get_if<ReplyArray>(&reply_.value);
        if (answers == nullptr) return;
        kind_ = is_rows(flight, *answers) ? Kind::rows : Kind::elements;
        row_ = first.script()->row();
    }
}

Reply Combining::Split::next(const Operation& call) {
    if (kind_ == Kind::whole) return --left_ == 0 ? std::move(reply_) : reply_;
    if (kind_ == Kind::running) return Reply{value_ += call.amount()};
    if (!is_many(call)) return take_one();
    ReplyArray own;
    own.reserve(call.calls());
    while (own.size() < call.calls()) own.push_back(take_one());
    return Reply{std::move(own)};
}

Reply Combining::Split::take_one() {
    auto& answers = std::get<ReplyArray>(reply_.value);
    if (kind_ == Kind::elements) return std::move(answers[at_++]);
    const auto begin = std::make_move_iterator(answers.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ += row_;
    return Reply{ReplyArray(begin, begin + static_cast<std::ptrdiff_t>(row_))};
}

// -- refusals -------------------------------------------------------------------------------------

// The server may accept single calls of a combined command that it refused. Adds to one key may
// overflow only as a sum. An add of 1 is sent as INCR: an ACL may allow it and deny INCRBY.
Combining::Again Combining::after_refusal(const Flight& flight, const ReplyError& refusal) {
    const bool is_script = flight.first->kind() == Operation::Kind::script;
    if (is_script && !flight.sum.with_text && error_word(refusal.message) == "NOSCRIPT") {
        return Again::with_text;
    }
    if (flight.calls() < 2) return Again::no;
    const Error refused = error_from_reply(refusal.message, "");
    const auto alone = [](bool again) { return again ? Again::alone : Again::no; };
    if (is_script) return alone(concerns_a_key(refused));
    if (refused.code == ErrorCode::overflow) return Again::alone;
    bool some_as_incr = false;
    flight.for_each([&](const OperationPtr& call) { some_as_incr |= call->amount() == 1; });
    return alone(some_as_incr && denies_the_command(refused));
}

void Combining::set_form(Operation& call, Again again) {
    if (again == Again::alone) call.form_.alone = true;
    if (again == Again::with_text) call.form_.with_text = true;
}

void Combining::keep(Operation& many, std::span<const std::size_t> calls) {
    const std::size_t keys_each = many.keys().size() / many.calls();
    const std::size_t arguments_each = many.arguments() / many.calls();
    std::vector<std::string_view> keys;
    std::string arguments;
    std::string_view bytes = many.bytes();
    auto next = calls.begin();
    for (std::size_t i = 0; i < many.calls(); ++i) {
        std::size_t size = 0;
        for (std::size_t k = 0; k < arguments_each; ++k) size += end_of_word(bytes.substr(size));
        if (next != calls.end() && *next == i) {
            for (std::size_t k = 0; k < keys_each; ++k)
                keys.push_back(many.keys()[i * keys_each + k]);
            arguments += bytes.substr(0, size);
            ++next;
        }
        bytes.remove_prefix(size);
    }
    many.replace_calls(calls.size(), keys, std::move(arguments), calls.size() * arguments_each);
}

}  // namespace hotcount::redis

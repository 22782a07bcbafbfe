// One call as a connection takes it: its bytes, what it may be combined with, and whether it may be
// sent twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// What a reply may be: a bit for each alternative of Reply::value. An error may always be.
enum class Shape : std::uint8_t {
    integer = 0b010'0010,
    text_or_nil = 0b011'0001,
    array = 0b110'0000,
    any = 0b111'1111,
};

/// A Lua script of ours, and the name that servers know it by.
class Script {
  public:
    /// single: one call of the script is one EVALSHA. combinable: the script serves many calls in
    /// one EVALSHA and answers with an array, an element for each call, also where there is one:
    ///   KEYS  the keys of the first call, of the second ...; `keys_each` of them each
    ///   ARGV  the shared arguments, then those of the first call, of the second ...
    /// Such a script catches its errors (redis.pcall) and answers a call that fails with the error
    /// table in its element: it never fails as a whole once it has written, because a whole that
    /// was refused is sent again, call by call.
    enum class Kind : std::uint8_t { single, combinable };
    /// Whether the reply can be that of one call with so many keys: an error is not asked about. A
    /// reply that cannot be is another's, and ends the connection.
    using Fits = bool (*)(const Reply& reply, std::size_t keys);

    explicit Script(std::string_view text, Kind kind = Kind::single, Fits fitting = nullptr);
    std::string_view text() const { return text_; }
    const std::string& sha1() const { return sha1_; }
    bool combinable() const { return kind_ == Kind::combinable; }
    bool fits(const Reply& reply, std::size_t keys) const {
        return fits_ == nullptr || std::holds_alternative<ReplyError>(reply.value) ||
               fits_(reply, keys);
    }

  private:
    std::string_view text_;  ///< Embedded in the program: lives as long as it.
    std::string sha1_;       ///< 40 hex digits.
    Kind kind_;
    Fits fits_;
};

/// Whether a call whose reply was lost is sent once more, over a new connection.
enum class Repeat : std::uint8_t {
    never,         ///< Twice would count twice: lost is outcome_unknown.
    reads,         ///< It changes nothing.
    counted_once,  ///< An op_id makes the script count it once. Lost twice is outcome_unknown.
};

/// A config error for a command that changes or holds a connection that others use, such as MULTI,
/// SELECT, CLIENT TRACKING or BLPOP; what execute() refuses. For whoever submits commands of users.
Result<void> check_command(std::span<const std::string_view> command);

class Request {
  public:
    /// Any command. It is never combined, and nothing is moved past it. One that is not known to
    /// answer exactly once is refused by the client's channels, where Client::execute() takes it,
    /// and goes over a second connection of a loop's channel, one at a time.
    static Request command(std::span<const std::string_view> words);
    /// Several commands, answered by an array with a reply each, errors among them. Travels whole.
    static Request commands(std::span<const std::vector<std::string_view>> commands);
    /// Encoded already, with so many commands in it that answer so.
    static Request encoded(std::string name, std::string bytes, std::size_t replies, Shape shape,
                           Repeat repeat);
    /// INCRBY key n. Concurrent ones of a key travel as one; each gets its own value.
    static Request add(std::string key, std::int64_t n);
    /// A call of a script. Calls of one combinable script whose shared arguments are the same
    /// travel as one EVALSHA; the reply is then this call's element. `keys`: every key it touches.
    static Request run(const Script& script, std::span<const std::string_view> keys,
                       std::span<const std::string_view> shared,
                       std::span<const std::string_view> arguments, Repeat repeat = Repeat::never);
    /// So many calls of a combinable script handed in as one: `keys` and `arguments` are those of
    /// the first, of the second ...; the reply is an array with an element for each. At most 256
    /// keys. It travels with others, but is not taken apart: refused as a whole it fails as one.
    static Request run_many(const Script& script, std::size_t calls,
                            std::span<const std::string_view> keys,
                            std::span<const std::string_view> shared,
                            std::span<const std::string_view> arguments,
                            Repeat repeat = Repeat::never);

    const std::string& name() const { return name_; }
    /// Whether it is a command that must not share a connection.
    bool goes_alone() const { return goes_alone_; }
    /// The same command with an ECHO behind it, by whose reply is known that it answered once. An
    /// array of both replies; any other two end the connection.
    Request with_echo() &&;

  private:
    friend class Pipeline;
    friend class Operation;
    enum class Kind : std::uint8_t { command, batch, add, script };

    explicit Request(Kind kind) : kind_(kind) {}

    Kind kind_;
    Repeat repeat_{Repeat::never};
    std::string name_;                // For messages.
    std::string bytes_;               // command, batch: encoded. script: encoded arguments.
    std::size_t replies_{1};          // How many the server gives.
    Shape shape_{Shape::any};         // command, batch: of each reply.
    std::string shapes_;              // batch: of each command by itself, where they differ.
    std::string echo_;                // The last reply is this and no other is.
    bool goes_alone_{false};          // command
    std::string key_;                 // add
    std::int64_t n_{0};               // add
    const Script* script_{nullptr};   // It lives as long as the program.
    std::vector<std::string> keys_;   // script
    std::string shared_;              // script: encoded, the same for all that travel together
    std::size_t shared_count_{0};     // script
    std::size_t arguments_count_{0};  // script
    std::size_t calls_{0};            // script: 0 where it is one that is answered for itself
};

}  // namespace hotcount::redis

// One call as a connection sends it: its bytes, the calls that it may be combined with, and whether
// it may be sent twice. A Request is a value and holds copies of its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// The types that a reply may have: a bit for each alternative of Reply::value. An error is always
/// possible.
enum class Shape : std::uint8_t {
    integer = 0b010'0010,
    text_or_nil = 0b011'0001,
    array = 0b110'0000,
    any = 0b111'1111,
};

/// A Lua script of a concept, and the name that servers know it by.
class Script {
  public:
    /// single: one call of the script is one EVALSHA. combinable: the script serves many calls in
    /// one EVALSHA and answers with an array that has an element for each call, even for one call:
    ///   KEYS  the keys of the first call, of the second ...; `keys_each` of them each
    ///   ARGV  the shared arguments, then those of the first call, of the second ...
    /// Such a script catches its errors (redis.pcall). A call that fails has the error table as its
    /// element. The script must never fail as a whole once it has written, because the calls of a
    /// script that was refused as a whole are sent again, one by one.
    enum class Kind : std::uint8_t { single, combinable };
    /// Whether one call with this many keys can have this reply; not called for an error. A reply
    /// that the call cannot have belongs to another call, and ends the connection.
    using Fits = bool (*)(const Reply& reply, std::size_t keys);

    /// `row`: a combinable script may answer several calls with one flat array of integers, `row`
    /// of them for each call, instead of an array for each call. That saves a third of the server's
    /// time for a hit. 0: the script never does.
    explicit Script(std::string_view text, Kind kind = Kind::single, Fits fitting = nullptr,
                    std::size_t row = 0);
    std::string_view text() const { return text_; }
    const std::string& sha1() const { return sha1_; }
    bool combinable() const { return kind_ == Kind::combinable; }
    std::size_t row() const { return row_; }
    bool fits(const Reply& reply, std::size_t keys) const {
        return fits_ == nullptr || std::holds_alternative<ReplyError>(reply.value) ||
               fits_(reply, keys);
    }

  private:
    std::string_view text_;  ///< Embedded in the program, so it never dangles.
    std::string sha1_;       ///< 40 hex digits.
    Kind kind_;
    Fits fits_;
    std::size_t row_;
};

/// Arguments that many calls of a script have in common, encoded once. Free to copy.
class SharedArguments {
  public:
    explicit SharedArguments(std::span<const std::string_view> words);

  private:
    friend class Request;
    friend class Multiplexer;
    struct Words {
        std::string encoded;
        std::size_t count;
        bool operator==(const Words&) const = default;
    };
    std::shared_ptr<const Words> words_;
};

/// Whether a call whose reply was lost is sent once more, over a new connection.
enum class Repeat : std::uint8_t {
    never,         ///< A call sent twice would count twice. A lost reply is outcome_unknown.
    reads,         ///< The call changes nothing.
    counted_once,  ///< The op_id makes the script count the call once. Lost twice: outcome_unknown.
};

/// A config error for a command that changes or holds a connection that others use, such as MULTI,
/// SELECT, CLIENT TRACKING or BLPOP. execute() calls it. Code that submits commands of users must
/// call it too.
Result<void> check_command(std::span<const std::string_view> command);

class Request {
  public:
    /// Any command. It is never combined, and no call overtakes it. A command that may not return
    /// exactly one reply goes alone: Client::execute() accepts it, the client's channels refuse it,
    /// and a loop's connection sends it over a second connection, one command at a time.
    static Request command(std::span<const std::string_view> words);
    /// Several commands that travel together, answered by an array with a reply or error for each.
    static Request commands(std::span<const std::vector<std::string_view>> commands);
    /// Commands that are encoded already. They have `replies` replies, each of shape `shape`.
    static Request encoded(std::string name, std::string bytes, std::size_t replies, Shape shape,
                           Repeat repeat);
    /// INCRBY key n. Concurrent adds to a key are sent as one INCRBY; each gets its own value.
    static Request add(std::string key, std::int64_t n);
    /// A call of a script. Calls of one combinable script whose shared arguments are the same
    /// travel as one EVALSHA; the reply is this call's element. `keys`: every key that it touches.
    static Request run(const Script& script, std::span<const std::string_view> keys,
                       std::span<const std::string_view> shared,
                       std::span<const std::string_view> arguments, Repeat repeat = Repeat::never);
    static Request run(const Script& script, std::span<const std::string_view> keys,
                       const SharedArguments& shared, std::span<const std::string_view> arguments,
                       Repeat repeat = Repeat::never);
    /// Several calls of a combinable script handed in as one: `keys` and `arguments` hold those of
    /// the first call, of the second ...; the reply is an array with an element for each call. At
    /// most 256 keys. It may share an EVALSHA with other calls. A refusal fails all its calls.
    static Request run_many(const Script& script, std::size_t calls,
                            std::span<const std::string_view> keys,
                            std::span<const std::string_view> shared,
                            std::span<const std::string_view> arguments,
                            Repeat repeat = Repeat::never);

    const std::string& name() const { return name_; }
    /// Whether the request must not share a connection with other calls.
    bool goes_alone() const { return goes_alone_; }
    /// The same command with an ECHO behind it, whose reply shows that the command answered exactly
    /// once. The reply is an array of both; any other two replies end the connection.
    Request with_echo() &&;

    /// The cluster slot of all its keys. A config error if the keys are in two slots (CROSSSLOT),
    /// or if the command names no key. Not for a batch.
    Result<std::uint16_t> slot() const;
    /// Whether this is a batch. Each command of a batch may go to another node: see parts().
    bool is_batch() const { return kind_ == Kind::batch; }
    /// The commands of a batch, each as a batch of one.
    std::vector<Request> parts() &&;

  private:
    friend class Multiplexer;
    friend class Operation;
    enum class Kind : std::uint8_t { command, batch, add, script };

    explicit Request(Kind kind) : kind_(kind) {}

    // Encoded keys in one piece of memory, because run_many() takes up to 256 of them.
    class Keys {
      public:
        Keys() = default;
        explicit Keys(std::span<const std::string_view> keys);
        std::size_t size() const { return size_; }
        std::string_view operator[](std::size_t i) const {
            const Place& place = i == 0 ? first_ : others_[i - 1];
            return std::string_view{encoded_}.substr(place.at, place.size);
        }
        const std::string& encoded() const { return encoded_; }

      private:
        struct Place {
            std::size_t at;
            std::size_t size;
        };
        std::string encoded_;
        std::size_t size_{0};
        Place first_{};  // Most calls have one key.
        std::vector<Place> others_;
    };

    Kind kind_;
    Repeat repeat_{Repeat::never};
    std::string name_;               // For messages.
    std::string bytes_;              // command, batch: encoded. script: encoded arguments.
    std::size_t replies_{1};         // How many the server gives.
    Shape shape_{Shape::any};        // command, batch: of each reply.
    std::string shapes_;             // batch: of each command, if they differ.
    std::string echo_;               // The last reply must be this text, and no other reply may.
    bool goes_alone_{false};         // command
    std::string key_;                // add
    std::int64_t n_{0};              // add
    const Script* script_{nullptr};  // It lives as long as the program.
    Keys keys_;                      // script
    std::shared_ptr<const SharedArguments::Words> shared_{};  // script: the same for all that
                                                              // travel together
    std::size_t arguments_count_{0};                          // script
    std::size_t calls_{0};  // script: 0: one call, whose reply is no array of calls
};

}  // namespace hotcount::redis

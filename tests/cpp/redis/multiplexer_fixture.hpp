// The fixture of the multiplexer's tests: the test is the server, and there is no socket.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redis/multiplexer.hpp"

namespace hotcount::redis {

using Words = std::vector<std::string>;

// The commands in bytes that are whole commands.
inline std::vector<Words> decode(std::string_view bytes) {
    std::vector<Words> commands;
    const auto number = [&] {
        const auto end = bytes.find("\r\n");
        const int value = std::stoi(std::string{bytes.substr(1, end - 1)});
        bytes.remove_prefix(end + 2);
        return static_cast<std::size_t>(value);
    };
    while (!bytes.empty()) {
        Words words(number());
        for (std::string& word : words) {
            const std::size_t size = number();
            word = bytes.substr(0, size);
            bytes.remove_prefix(size + 2);
        }
        commands.push_back(std::move(words));
    }
    return commands;
}

class MultiplexerTest : public ::testing::Test {
  protected:
    OperationPtr push(Request request,
                      Deadline deadline = Deadline::after(std::chrono::seconds{10})) {
        auto operation = std::make_shared<Operation>(std::move(request), deadline);
        multiplexer_.push(operation);
        return operation;
    }
    OperationPtr add(const std::string& key, std::int64_t n = 1) {
        return push(Request::add(key, n));
    }
    OperationPtr run(const Script& script, std::string_view key, std::string_view argument,
                     std::string_view shared = "s", Repeat repeat = Repeat::never) {
        return push(Request::run(script, std::span{&key, 1}, std::span{&shared, 1},
                                 std::span{&argument, 1}, repeat));
    }
    OperationPtr command(std::initializer_list<std::string_view> words) {
        return push(Request::command(std::span{words.begin(), words.size()}));
    }
    std::vector<Words> sent() { return decode(multiplexer_.take()); }
    void reply(Reply reply) {
        EXPECT_TRUE(multiplexer_.settle(std::move(reply), std::chrono::steady_clock::now()))
            << multiplexer_.misfit().message;
    }
    // A reply that the call cannot have, and what a connection does then.
    void misfit(Reply reply) {
        EXPECT_FALSE(multiplexer_.settle(std::move(reply), std::chrono::steady_clock::now()));
        multiplexer_.lost(multiplexer_.misfit(), true);
        multiplexer_.connected();
    }
    void refuse(const std::string& message) { reply(Reply{ReplyError{message}}); }
    static Reply of(std::int64_t value) { return Reply{value}; }
    static std::int64_t value(const OperationPtr& operation) {
        EXPECT_TRUE(operation->is_done());
        return std::get<std::int64_t>(operation->take_outcome()->value);
    }
    static Result<Reply> outcome(const OperationPtr& operation) {
        EXPECT_TRUE(operation->is_done());
        return operation->take_outcome();
    }
    static Error lost() { return make_error(ErrorCode::unavailable, "lost"); }

    Options options_;
    Multiplexer multiplexer_{options_};
};

}  // namespace hotcount::redis

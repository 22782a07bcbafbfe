#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "managed_server.hpp"

namespace hotcount::loadtest {
namespace {

constexpr timeval kSilence{1, 0};

Error not_reached(const std::filesystem::path& socket, std::string_view why) {
    return make_error(ErrorCode::unavailable, fmt::format("{}: {}", socket.string(), why));
}

}  // namespace

Result<std::vector<std::string>> RedisWire::ask(const std::vector<std::string>& words) {
    const auto asked = [&]() -> Result<std::vector<std::string>> {
        HOTCOUNT_TRY(dial());
        std::string command = fmt::format("*{}\r\n", words.size());
        for (const std::string& word : words) {
            command += fmt::format("${}\r\n{}\r\n", word.size(), word);
        }
        for (std::size_t sent = 0; sent < command.size();) {
            const ssize_t more =
                send(fd_, command.data() + sent, command.size() - sent, MSG_NOSIGNAL);
            if (more <= 0) return not_reached(socket_, std::strerror(errno));
            sent += static_cast<std::size_t>(more);
        }
        std::vector<std::string> texts;
        HOTCOUNT_TRY(take(texts));
        return texts;
    };
    auto texts = asked();
    // After an error the connection may stand in the middle of a reply.
    if (!texts) leave();
    return texts;
}

std::string RedisWire::field(const std::vector<std::string>& words, std::string_view name) {
    const auto asked = ask(words);
    if (!asked || asked->empty()) return {};
    const std::string text = "\n" + asked->front();
    const std::string start = fmt::format("\n{}:", name);
    const std::size_t at = text.find(start);
    if (at == std::string::npos) return {};
    const std::size_t from = at + start.size();
    return text.substr(from, text.find_first_of("\r\n", from) - from);
}

Result<void> RedisWire::dial() {
    if (fd_ >= 0) return {};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return not_reached(socket_, std::strerror(errno));
    for (const int limit : {SO_RCVTIMEO, SO_SNDTIMEO}) {
        setsockopt(fd_, SOL_SOCKET, limit, &kSilence, sizeof(kSilence));
    }
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return {};
    return not_reached(socket_, std::strerror(errno));
}

Result<void> RedisWire::receive() {
    char bytes[4096];
    const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
    if (size < 0) return not_reached(socket_, std::strerror(errno));
    if (size == 0) return not_reached(socket_, "the server closed the connection");
    received_.append(bytes, static_cast<std::size_t>(size));
    return {};
}

Result<std::string> RedisWire::line() {
    std::size_t end = 0;
    while ((end = received_.find("\r\n")) == std::string::npos) HOTCOUNT_TRY(receive());
    std::string text = received_.substr(0, end);
    received_.erase(0, end + 2);
    return text;
}

Result<void> RedisWire::take(std::vector<std::string>& texts) {
    HOTCOUNT_TRY_ASSIGN(const std::string text, line());
    const char kind = text.empty() ? '\0' : text.front();
    const std::string rest = text.empty() ? "" : text.substr(1);
    if (kind == '-') return not_reached(socket_, rest);
    if (kind != '$' && kind != '*') {
        texts.push_back(rest);
        return {};
    }
    int size = -1;
    std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (size < 0) {
        texts.emplace_back();
        return {};
    }
    if (kind == '*') {
        for (int i = 0; i < size; ++i) HOTCOUNT_TRY(take(texts));
        return {};
    }
    const auto bytes = static_cast<std::size_t>(size);
    while (received_.size() < bytes + 2) HOTCOUNT_TRY(receive());
    texts.push_back(received_.substr(0, bytes));
    received_.erase(0, bytes + 2);
    return {};
}

void RedisWire::leave() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    received_.clear();
}

}  // namespace hotcount::loadtest

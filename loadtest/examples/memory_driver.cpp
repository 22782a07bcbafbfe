// Votes in a hash map, for `hotcount-load run -s exec:`: what is left is the cost of the protocol, the
// ceiling of every driver. It needs a C++ compiler and nothing else, and docs/reference/load-drivers.md has the
// protocol:
//
//     c++ -O2 -std=c++20 loadtest/examples/memory_driver.cpp -o memory_driver
//     hotcount-load run -s exec:./memory_driver -w 32 -d 3s
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

namespace {

enum Type : std::uint8_t {
    kSetUp = 1,
    kCast = 2,
    kRead = 3,
    kRows = 4,
    kCounts = 5,
    kBye = 6,
    kHello = 129,
    kReady = 130,
    kAnswer = 131,
    kRowPage = 132,
    kCountPage = 133,
};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kCallsAtOnce = 1024;
constexpr std::uint8_t kOk = 0;
constexpr std::uint8_t kToldCount = 1;
constexpr std::uint8_t kToldCast = 2;
constexpr std::uint8_t kChanged = 4;
constexpr std::size_t kPage = 1000;

[[noreturn]] void give_up(const char* what) {
    std::perror(what);
    std::exit(1);
}

// A frame's body is written number by number, as the protocol has them on this machine.
class Outbox {
  public:
    void begin(Type type) {
        start_ = bytes_.size();
        put(std::uint32_t{0}), put(type);
    }
    template <class Number>
    void put(Number number) {
        bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    void put_text(const std::string& text) {
        put(static_cast<std::uint16_t>(text.size()));
        bytes_ += text;
    }
    std::size_t begun() const { return bytes_.size() - start_; }
    void end() {
        const auto length = static_cast<std::uint32_t>(begun() - sizeof(std::uint32_t));
        std::memcpy(bytes_.data() + start_, &length, sizeof(length));
    }
    void send_to(int line) {
        for (std::size_t sent = 0; sent < bytes_.size();) {
            const auto some = send(line, bytes_.data() + sent, bytes_.size() - sent, MSG_NOSIGNAL);
            if (some < 0) give_up("send");
            sent += static_cast<std::size_t>(some);
        }
        bytes_.clear();
    }

  private:
    std::string bytes_;
    std::size_t start_{0};
};

template <class Number>
Number take(const char*& at) {
    Number number;
    std::memcpy(&number, at, sizeof(number));
    at += sizeof(number);
    return number;
}

class Votes {
  public:
    // The vote before it.
    std::int64_t cast(std::int64_t item, std::int64_t user, std::int64_t value) {
        Item& its = items_[item];
        const auto [vote, fresh] = its.votes.try_emplace(user, 0);
        const std::int64_t before = vote->second;
        vote->second = value;
        its.count += value - before;
        return before;
    }
    std::int64_t count(std::int64_t item) const {
        const auto found = items_.find(item);
        return found == items_.end() ? 0 : found->second.count;
    }
    template <class See>
    void each(std::int64_t first, std::int64_t last, const See& see) const {
        for (const auto& [item, its] : items_) {
            if (item >= first && item <= last) see(item, its.count, its.votes);
        }
    }

  private:
    struct Item {
        std::unordered_map<std::int64_t, std::int64_t> votes;  // By user.
        std::int64_t count{0};
    };
    std::unordered_map<std::int64_t, Item> items_;
};

class Driver {
  public:
    explicit Driver(int line) : line_(line) {
        out_.begin(kHello);
        out_.put(kVersion), out_.put(std::uint32_t{1}), out_.put(kCallsAtOnce);
        out_.put(std::uint8_t{1});
        out_.end(), out_.send_to(line_);
    }

    void serve() {
        std::string inbox;
        char room[1 << 16];
        for (;;) {
            const auto got = recv(line_, room, sizeof(room), 0);
            if (got < 0) give_up("recv");
            if (got == 0) return;
            inbox.append(room, static_cast<std::size_t>(got));
            const char* at = inbox.data();
            const char* const end = at + inbox.size();
            while (end - at >= 4) {
                const char* body = at;
                const auto length = take<std::uint32_t>(body);
                if (end - body < static_cast<std::ptrdiff_t>(length)) break;
                at = body + length;
                if (!answer(static_cast<std::uint8_t>(*body), body + 1)) return;
            }
            inbox.erase(0, static_cast<std::size_t>(at - inbox.data()));
            // The answers to all calls that came together are one send.
            out_.send_to(line_);
        }
    }

  private:
    bool answer(std::uint8_t type, const char* body) {
        if (type == kCast) {
            const auto id = take<std::uint64_t>(body);
            const auto item = take<std::int64_t>(body);
            const auto user = take<std::int64_t>(body);
            const auto value = take<std::int64_t>(body);
            const std::int64_t before = votes_.cast(item, user, value);
            const bool changed = before != value;
            tell(id, changed ? kToldCast | kChanged : kToldCast, value, before);
        } else if (type == kRead) {
            const auto id = take<std::uint64_t>(body);
            tell(id, kToldCount, votes_.count(take<std::int64_t>(body)), 0);
        } else if (type == kSetUp) {
            out_.begin(kReady);
            out_.put(std::uint8_t{2});  // Exact, but not durable.
            out_.put_text("in this program's memory");
            out_.put_text("everything, when it ends");
            out_.put_text("a hash map");
            out_.end();
        } else if (type == kRows || type == kCounts) {
            const auto first = take<std::int64_t>(body);
            tell_all(type == kRows ? kRowPage : kCountPage, first, take<std::int64_t>(body));
        }
        return type != kBye;
    }

    void tell(std::uint64_t id, int told, std::int64_t value, std::int64_t previous) {
        out_.begin(kAnswer);
        out_.put(id), out_.put(kOk), out_.put(static_cast<std::uint8_t>(told));
        out_.put(value), out_.put(previous);
        out_.end();
    }

    void tell_all(Type page, std::int64_t first, std::int64_t last) {
        begin_page(page, 0);
        votes_.each(first, last, [&](std::int64_t item, std::int64_t count, const auto& votes) {
            if (page == kCountPage) return tell_row(page, item, count);
            for (const auto& [user, value] : votes) tell_row(page, item, user, value);
        });
        out_.end();
        begin_page(page, 1);
        out_.end();
    }
    void begin_page(Type page, std::uint8_t last) {
        out_.begin(page);
        out_.put(last);
    }
    template <class... Numbers>
    void tell_row(Type page, Numbers... numbers) {
        (out_.put(numbers), ...);
        if (out_.begun() < kPage * sizeof...(numbers) * sizeof(std::int64_t)) return;
        out_.end();
        begin_page(page, 0);
    }

    int line_;
    Outbox out_;
    Votes votes_;
};

}  // namespace

int main() {
    const char* const path = std::getenv("HOTCOUNT_LOAD_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path == nullptr || std::strlen(path) >= sizeof(address.sun_path)) {
        std::fputs("start this by hotcount-load run -s exec:./memory_driver\n", stderr);
        return 2;
    }
    std::strcpy(address.sun_path, path);
    const int line = socket(AF_UNIX, SOCK_STREAM, 0);
    if (line < 0 || connect(line, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
        give_up("connect");
    }
    Driver(line).serve();
    close(line);
    return 0;
}

// How a session begins: the program is started, connects, and sets itself up.
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "driver_session.hpp"
#include "load/run_folder.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSocketName = "socket";
constexpr std::chrono::milliseconds kListenLook{20};
constexpr std::uint8_t kSaysDurable = 1;
constexpr std::uint8_t kSaysExact = 2;

/// A socket's path has 108 bytes: what TMPDIR names may be longer.
Result<OwnedFolder> make_socket_folder() {
    constexpr std::string_view kPrefix = "hotcount-driver-";
    const fs::path parent = temporary_parent();
    const fs::path longest = parent / (std::string{kPrefix} + "XXXXXX") / kSocketName;
    const bool fits = longest.string().size() < sizeof(sockaddr_un::sun_path);
    return OwnedFolder::make(fits ? parent : fs::path{"/tmp"}, kPrefix);
}

}  // namespace

Result<std::unique_ptr<DriverSession>> DriverSession::start(DriverSettings settings) {
    std::unique_ptr<DriverSession> session(new DriverSession(std::move(settings)));
    HOTCOUNT_TRY(session->begin());
    return session;
}

Result<void> DriverSession::begin() {
    HOTCOUNT_TRY_ASSIGN(OwnedFolder folder, make_socket_folder());
    folder_.emplace(std::move(folder));
    HOTCOUNT_TRY_ASSIGN(const int listener, listen_in(folder_->path()));
    auto started =
        DriverProgram::start(settings_.command,
                             {{"HOTCOUNT_LOAD_SOCKET", (folder_->path() / kSocketName).string()},
                              {"HOTCOUNT_LOAD_FOLDER", settings_.folder.string()},
                              {"HOTCOUNT_LOAD_DB", settings_.database_url}},
                             settings_.folder / kDriverLog);
    Result<void> greeted{};
    if (started) {
        program_ = std::move(started).value();
        greeted = greet(listener);
    } else {
        greeted = started.error();
    }
    close(listener);
    HOTCOUNT_TRY(greeted);
    for (auto& connection : connections_) {
        connection->reader = std::thread([this, taken = connection.get()] { listen_to(*taken); });
    }
    return {};
}

Result<int> DriverSession::listen_in(const fs::path& folder) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder / kSocketName;
    std::copy(path.begin(), path.end(), address.sun_path);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0 &&
        bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
        listen(listener, static_cast<int>(kMostConnections)) == 0) {
        return listener;
    }
    const int error = errno;
    if (listener >= 0) close(listener);
    return make_error(ErrorCode::config,
                      fmt::format("cannot listen at {}: {}", path, std::strerror(error)));
}

Result<int> DriverSession::accept_before(int listener, SteadyTime until) {
    for (;;) {
        const int taken = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (taken >= 0) return taken;
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            return about_program(
                ErrorCode::capacity,
                fmt::format("its connection was not taken: {}", std::strerror(errno)));
        }
        if (program_->wait(Duration{0})) {
            return about_program(ErrorCode::unavailable,
                                 control_ == nullptr ? "it ended before it was ready"
                                                     : "it ended before all of its connections "
                                                       "were there");
        }
        if (std::chrono::steady_clock::now() >= until) {
            return about_program(
                ErrorCode::unavailable,
                fmt::format("{} of its connections came within {:g} s of its start (it connects to "
                            "the socket that HOTCOUNT_LOAD_SOCKET names)",
                            connections_.empty() ? "none" : "not all",
                            std::chrono::duration<double>(settings_.bounds.connect).count()));
        }
        pollfd look{listener, POLLIN, 0};
        (void)poll(&look, 1, static_cast<int>(kListenLook.count()));
    }
}

Result<DriverSession::Hello> DriverSession::take_hello(Connection& connection, SteadyTime until) {
    auto frame = connection.source.next(until);
    if (!frame) return about_program(ErrorCode::unavailable, "no hello: " + frame.error().message);
    if (!*frame) {
        (void)program_->wait(kDeath);
        return about_program(ErrorCode::unavailable, "it connected, and left without a hello");
    }
    FrameReader body((*frame)->body);
    const auto version = body.take<std::uint32_t>();
    Hello hello{body.take<std::uint32_t>(), body.take<std::uint32_t>(),
                body.take<std::uint8_t>() != 0};
    if ((*frame)->type != FrameType::hello || !body.complete()) {
        return about_program(ErrorCode::reply, "its first frame is no hello");
    }
    if (version != kDriverProtocol) {
        return about_program(ErrorCode::reply,
                             fmt::format("it speaks version {} of the protocol, this program {}",
                                         version, kDriverProtocol));
    }
    if (hello.connections < 1 || hello.connections > kMostConnections ||
        hello.in_flight > kMostAtOnce) {
        return about_program(
            ErrorCode::reply,
            fmt::format("it announced {} connections with {} requests at once; it takes 1 to {} "
                        "and 0 to {}",
                        hello.connections, hello.in_flight, kMostConnections, kMostAtOnce));
    }
    return hello;
}

Result<void> DriverSession::greet(int listener) {
    const auto until = std::chrono::steady_clock::now() + settings_.bounds.connect;
    std::vector<std::uint32_t> in_flight;
    std::optional<std::uint32_t> expected;
    while (!expected || connections_.size() < *expected) {
        HOTCOUNT_TRY_ASSIGN(const int taken, accept_before(listener, until));
        Connection& connection = *connections_.emplace_back(std::make_unique<Connection>(taken));
        HOTCOUNT_TRY_ASSIGN(const Hello hello, take_hello(connection, until));
        in_flight.push_back(hello.in_flight);
        if (!hello.control) continue;
        if (control_ != nullptr) {
            return about_program(ErrorCode::reply, "two of its connections are for control");
        }
        control_ = &connection;
        expected = hello.connections;
        HOTCOUNT_TRY(set_up(connection));
    }
    // Round robin, so that the calls spread over the connections.
    for (std::uint32_t turn = 0; turn < kMostAtOnce; ++turn) {
        for (std::size_t at = 0; at < connections_.size(); ++at) {
            if (turn >= in_flight[at]) continue;
            free_.push_back(static_cast<std::uint32_t>(places_.size()));
            places_.emplace_back().connection = connections_[at].get();
        }
    }
    if (!places_.empty()) return {};
    return about_program(ErrorCode::reply, "it takes no requests: 0 at once on each connection");
}

Result<void> DriverSession::set_up(Connection& control) {
    const auto until = std::chrono::steady_clock::now() + settings_.bounds.set_up;
    FrameWriter request(FrameType::set_up);
    request.put<std::uint8_t>(settings_.fresh ? 1 : 0)
        .put(settings_.items)
        .put<std::uint64_t>(static_cast<std::uint64_t>(settings_.timeout.count()));
    if (try_send(control, request.finish()) != Sent::yes) {
        (void)program_->wait(kDeath);
        return about_program(ErrorCode::unavailable, "it went away before its set-up");
    }
    auto frame = control.source.next(until);
    if (!frame || !*frame) {
        (void)program_->wait(kDeath);
        return about_program(ErrorCode::unavailable, frame
                                                         ? "it closed its connection in its set-up"
                                                         : "its set-up: " + frame.error().message);
    }
    if ((*frame)->type == FrameType::error) {
        return about_program(ErrorCode::config, "its set-up failed: " + (*frame)->body);
    }
    FrameReader body((*frame)->body);
    const auto flags = body.take<std::uint8_t>();
    contract_ = {"exec:" + settings_.command, body.take_text(), body.take_text(),
                 (flags & kSaysDurable) != 0, (flags & kSaysExact) != 0};
    place_ = body.take_text();
    if ((*frame)->type != FrameType::ready || !body.complete()) {
        return about_program(ErrorCode::reply, "its answer to the set-up is not ready: frame " +
                                                   name_of((*frame)->type));
    }
    return {};
}

}  // namespace hotcount::loadtest

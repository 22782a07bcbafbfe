#include "targets/driver_session.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "temporary_folder.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class DriverSessionTest : public ::testing::Test {
  protected:
    DriverSettings settings(std::string command) {
        DriverSettings made;
        made.command = std::move(command);
        made.folder = folder_.path();
        return made;
    }
    std::string why_not(const DriverSettings& settings) {
        const auto session = DriverSession::start(settings);
        EXPECT_FALSE(session.ok());
        return session.ok() ? "" : session.error().message;
    }

    TemporaryFolder folder_;
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(DriverSessionTest, MissingProgramIsNamed) {
    const std::string why = why_not(settings("./no-such-driver --fast"));
    EXPECT_TRUE(has(why, "./no-such-driver cannot be started: No such file")) << why;
}

TEST_F(DriverSessionTest, EmptyCommandIsRefused) {
    EXPECT_TRUE(has(why_not(settings("  ")), "exec: names no program"));
}

TEST_F(DriverSessionTest, ProgramThatEndsAtOnceIsQuoted) {
    const std::string why = why_not(settings("ls /no/such/folder"));
    EXPECT_TRUE(has(why, "it ended before it was ready; it ended with exit code 2; it wrote: ls: "))
        << why;
}

TEST_F(DriverSessionTest, ProgramThatNeverConnectsIsEnded) {
    DriverSettings hangs = settings("sleep 1000");
    hangs.bounds.connect = milliseconds{50};
    const auto before = std::chrono::steady_clock::now();
    const std::string why = why_not(hangs);
    EXPECT_TRUE(has(why, "none of its connections came within 0.05 s")) << why;
    EXPECT_TRUE(has(why, "it still runs; it wrote nothing")) << why;
    EXPECT_LT(std::chrono::steady_clock::now() - before, seconds{30});
}

/// Has a row for whoever asks, again and again.
constexpr const char* kEndless = R"(
import os, socket, struct, time
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["HOTCOUNT_LOAD_SOCKET"])
def send(kind, body):
    line.sendall(struct.pack("<IB", 1 + len(body), kind) + body)
send(129, struct.pack("<IIIB", 1, 1, 1, 1))
while True:
    length, kind = struct.unpack("<IB", line.recv(5, socket.MSG_WAITALL))
    line.recv(length - 1, socket.MSG_WAITALL)
    if kind == 1:
        send(130, bytes(7))
    while kind == 4:
        send(132, b"\0" + struct.pack("<qqq", 1, 1, 1))
        time.sleep(0.005)
)";

TEST_F(DriverSessionTest, ProgramWhoseRowsHaveNoEndIsLeft) {
    const auto script = folder_.path() / "endless.py";
    std::ofstream(script) << kEndless;
    DriverSettings endless = settings("python3 " + script.string());
    endless.bounds.pages = milliseconds{200};
    endless.bounds.end = milliseconds{50};
    const auto session = DriverSession::start(endless);
    ASSERT_TRUE(session.ok()) << session.error().message;
    const auto rows = (*session)->rows(1, 1);
    ASSERT_FALSE(rows.ok());
    EXPECT_TRUE(has(rows.error().message, "it did not give the last of its rows within 0.2 s"))
        << rows.error().message;
}

TEST_F(DriverSessionTest, ProgramThatIgnoresTheSignalIsKilledWithItsChildren) {
    const auto script = folder_.path() / "stubborn";
    std::ofstream(script) << "trap '' TERM\nsleep 1000 &\necho $! >&2\nwait\n";
    auto program = DriverProgram::start("sh " + script.string(), {}, folder_.path() / "log");
    ASSERT_TRUE(program.ok()) << program.error().message;
    // The shell ignores the signal once it has said so.
    std::string child;
    while (child.find('\n') == std::string::npos) {
        std::ifstream log(folder_.path() / "log");
        child.assign(std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>());
    }
    (*program)->end(milliseconds{50});
    EXPECT_TRUE(has((*program)->describe(), "it was killed by signal 9")) << (*program)->describe();
    const std::filesystem::path gone = "/proc/" + child.substr(0, child.find('\n')) + "/exe";
    std::error_code ignored;
    // A zombie until somebody reaps it, it runs no program any more.
    while (std::filesystem::exists(std::filesystem::read_symlink(gone, ignored))) {
    }
}

TEST(DriverFrames, ANumberThatIsMissingMakesTheBodyBad) {
    FrameReader body(std::string_view("\1\0\0", 3));
    EXPECT_EQ(body.take<std::uint8_t>(), 1);
    EXPECT_EQ(body.take<std::uint64_t>(), 0U);
    EXPECT_FALSE(body.complete());
}

}  // namespace
}  // namespace hotcount::loadtest

#include "driver_session.hpp"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kPlaces =
    std::uint64_t{DriverSession::kMostConnections} * DriverSession::kMostAtOnce;
constexpr std::size_t kMostControlFrames = 16;
// Rows or counts in one answer; an audit asks for those of 4 million attempts at most.
constexpr std::size_t kMostItemsTold = 64'000'000;
// Consecutive empty pages of an answer.
constexpr int kMostEmptyPages = 100;
// A full socket is tried again so soon.
constexpr milliseconds kSocketPause{1};
// The calls of a broken session wait as long: the load has time to notice and stop.
constexpr milliseconds kBrokenPause{50};

// As the program says them.
constexpr std::uint8_t kSaysOk = 0;
constexpr std::uint8_t kSaysFailed = 1;
constexpr std::uint8_t kSaysUnknown = 2;
constexpr std::uint8_t kToldCount = 1;
constexpr std::uint8_t kToldCast = 2;
constexpr std::uint8_t kToldChanged = 4;

}  // namespace

Error DriverSession::about_program(ErrorCode code, const std::string& what) const {
    return make_error(
        code, fmt::format("exec:{}: {}; {}", settings_.command, what, program_->describe()));
}

DriverSession::~DriverSession() {
    bool broken = false;
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        broken = broken_.has_value();
    }
    control_changed_.notify_all();
    if (program_) {
        bool asked = control_ != nullptr && !broken && !hangs_;
        const std::string bye = FrameWriter(FrameType::bye).finish();
        for (const auto& connection : connections_) {
            asked = asked && try_send(*connection, bye) == Sent::yes;
        }
        if (!asked || !program_->wait(settings_.bounds.end)) program_->end(settings_.bounds.end);
    }
    for (const auto& connection : connections_) {
        shutdown(connection->socket, SHUT_RDWR);
        if (connection->reader.joinable()) connection->reader.join();
        close(connection->socket);
    }
}

std::optional<Error> DriverSession::broken() const {
    std::string why;
    {
        const std::lock_guard lock(mutex_);
        if (!broken_) return std::nullopt;
        why = *broken_;
    }
    (void)program_->wait(kDeath);
    return about_program(ErrorCode::unavailable, why);
}

void DriverSession::fail(std::string why) {
    const std::lock_guard lock(mutex_);
    if (broken_ || ending_) return;
    broken_ = std::move(why);
    for (Place& place : places_) {
        if (place.state != PlaceState::waiting) continue;
        place.answer = {Outcome::unknown, ErrorCode::outcome_unknown};
        place.state = PlaceState::answered;
        place.answered.notify_one();
    }
    place_free_.notify_all();
    control_changed_.notify_all();
}

/// mutex_ is held.
void DriverSession::release(std::uint32_t place) {
    places_[place].state = PlaceState::free;
    free_.push_back(place);
    place_free_.notify_one();
}

/// All of the frame or nothing: it is smaller than the least that a socket takes at once.
DriverSession::Sent DriverSession::try_send(Connection& connection, const std::string& frame) {
    const std::lock_guard lock(connection.sending);
    ssize_t sent = 0;
    do {
        sent = send(connection.socket, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(frame.size())) return Sent::yes;
    return sent < 0 && (errno == EAGAIN || errno == ENOBUFS) ? Sent::not_yet : Sent::no;
}

Answer DriverSession::apply(const Operation& operation) {
    const auto until = std::chrono::steady_clock::now() + settings_.timeout;
    std::unique_lock lock(mutex_);
    const bool changed =
        place_free_.wait_until(lock, until, [&] { return broken_ || !free_.empty(); });
    if (broken_) {
        lock.unlock();
        std::this_thread::sleep_for(kBrokenPause);
        return {Outcome::failed, ErrorCode::unavailable};
    }
    if (!changed) return {Outcome::failed, ErrorCode::deadline};
    const std::uint32_t index = free_.front();
    free_.pop_front();
    Place& place = places_[index];
    place.state = PlaceState::waiting;
    place.id = sent_++ * kPlaces + index;
    const bool reads = operation.kind == OperationKind::read;
    place.reads = reads;
    FrameWriter request(reads ? FrameType::read : FrameType::cast);
    request.put(place.id).put(operation.item);
    if (!reads) {
        request.put(operation.user)
            .put<std::int64_t>(operation.kind == OperationKind::vote ? 1 : 0);
    }
    const std::string frame = request.finish();
    Sent sent = Sent::not_yet;
    while (sent == Sent::not_yet && !broken_ && std::chrono::steady_clock::now() < until) {
        lock.unlock();
        sent = try_send(*place.connection, frame);
        if (sent == Sent::not_yet) std::this_thread::sleep_for(kSocketPause);
        lock.lock();
    }
    if (sent != Sent::yes) {
        release(index);
        return {Outcome::failed,
                broken_ || sent == Sent::no ? ErrorCode::unavailable : ErrorCode::deadline};
    }
    place.answered.wait_until(lock, until, [&] { return place.state == PlaceState::answered; });
    if (place.state != PlaceState::answered) {
        place.state = PlaceState::abandoned;
        return {Outcome::unknown, ErrorCode::outcome_unknown};
    }
    const Answer answer = place.answer;
    release(index);
    return answer;
}

void DriverSession::listen_to(Connection& connection) {
    for (;;) {
        auto frame = connection.source.next({});
        if (!frame) return fail(frame.error().message);
        if (!*frame) return fail("it closed a connection in the middle of the run");
        if ((*frame)->type == FrameType::answer) {
            if (const auto taken = take_answer(connection, **frame); !taken) {
                return fail(taken.error().message);
            }
            continue;
        }
        if (&connection != control_) {
            return fail(fmt::format("it sent frame {} on a connection that is not for control",
                                    name_of((*frame)->type)));
        }
        std::unique_lock lock(mutex_);
        // A program that sends more than it was asked for waits.
        control_changed_.wait(lock, [&] {
            return ending_ || broken_ || control_frames_.size() < kMostControlFrames;
        });
        if (ending_ || broken_) return;
        control_frames_.push_back(std::move(**frame));
        control_changed_.notify_all();
    }
}

Result<void> DriverSession::take_answer(const Connection& connection, const Frame& frame) {
    FrameReader body(frame.body);
    const auto id = body.take<std::uint64_t>();
    const auto outcome = body.take<std::uint8_t>();
    const auto told = body.take<std::uint8_t>();
    const auto value = body.take<std::int64_t>();
    const auto previous = body.take<std::int64_t>();
    if (!body.complete() || outcome > kSaysUnknown) {
        return make_error(ErrorCode::reply,
                          "it sent an answer that is none: bad length or outcome");
    }
    std::unique_lock lock(mutex_);
    const std::uint64_t index = id % kPlaces;
    if (index >= places_.size() || places_[index].id != id ||
        places_[index].connection != &connection ||
        (places_[index].state != PlaceState::waiting &&
         places_[index].state != PlaceState::abandoned)) {
        return make_error(ErrorCode::reply,
                          fmt::format("it answered request {}, which it was not asked", id));
    }
    Place& place = places_[index];
    if (place.state == PlaceState::abandoned) {
        release(static_cast<std::uint32_t>(index));
        return {};
    }
    place.answer = outcome == kSaysFailed    ? Answer{Outcome::failed, ErrorCode::reply}
                   : outcome == kSaysUnknown ? Answer{Outcome::unknown, ErrorCode::outcome_unknown}
                                             : Answer{};
    if (outcome == kSaysOk && place.reads && (told & kToldCount) != 0) {
        place.answer.tell(value);
        if (contract_.exact) place.answer.said |= said::kExact;
    }
    if (outcome == kSaysOk && !place.reads && (told & kToldCast) != 0) {
        place.answer.tell_cast(previous, value, (told & kToldChanged) != 0, value != 0);
    }
    place.state = PlaceState::answered;
    // The woken caller needs the lock at once. Places live as long as the session.
    lock.unlock();
    place.answered.notify_one();
    return {};
}

bool DriverSession::drain(Duration patience) {
    std::unique_lock lock(mutex_);
    place_free_.wait_for(lock, patience, [&] { return broken_ || free_.size() == places_.size(); });
    hangs_ = !broken_ && free_.size() < places_.size();
    return !broken_ && !hangs_;
}

Result<Frame> DriverSession::control_frame(FrameType wanted) {
    std::optional<Frame> frame;
    {
        std::unique_lock lock(mutex_);
        control_changed_.wait_for(lock, settings_.bounds.page,
                                  [&] { return broken_ || !control_frames_.empty(); });
        if (!control_frames_.empty()) {
            frame = std::move(control_frames_.front());
            control_frames_.pop_front();
            control_changed_.notify_all();
        }
    }
    if (!frame) {
        if (auto why = broken()) return std::move(*why);
        return about_program(
            ErrorCode::unavailable,
            fmt::format("it did not give its {} within {:g} s",
                        wanted == FrameType::row_page ? "rows" : "counts",
                        std::chrono::duration<double>(settings_.bounds.page).count()));
    }
    if (frame->type == FrameType::error) {
        return about_program(
            ErrorCode::reply,
            fmt::format("its {} cannot be read: {}",
                        wanted == FrameType::row_page ? "rows" : "counts", frame->body));
    }
    if (frame->type != wanted) {
        return about_program(ErrorCode::reply, fmt::format("it sent frame {} where {} belongs",
                                                           name_of(frame->type), name_of(wanted)));
    }
    return std::move(*frame);
}

template <class Item, class Read>
Result<std::vector<Item>> DriverSession::pages(FrameType request, FrameType page,
                                               std::int64_t first, std::int64_t last,
                                               std::size_t bytes, const Read& read) {
    const std::string asked = FrameWriter(request).put(first).put(last).finish();
    if (try_send(*control_, asked) != Sent::yes) {
        if (auto why = broken()) return std::move(*why);
        return about_program(ErrorCode::unavailable, "it takes no requests any more");
    }
    std::vector<Item> items;
    int empty = 0;
    const auto until = std::chrono::steady_clock::now() + settings_.bounds.pages;
    for (bool ended = false; !ended;) {
        if (std::chrono::steady_clock::now() >= until) {
            return about_program(
                ErrorCode::unavailable,
                fmt::format("it did not give the last of its {} within {:g} s",
                            page == FrameType::row_page ? "rows" : "counts",
                            std::chrono::duration<double>(settings_.bounds.pages).count()));
        }
        HOTCOUNT_TRY_ASSIGN(const Frame frame, control_frame(page));
        FrameReader body(frame.body);
        ended = body.take<std::uint8_t>() != 0;
        // A program that goes on with such pages has nothing to give.
        empty = body.left() == 0 ? empty + 1 : 0;
        if (!ended && empty >= kMostEmptyPages) {
            return about_program(
                ErrorCode::reply,
                fmt::format("it sent {} empty pages one after another, and none was its last",
                            kMostEmptyPages));
        }
        while (body.left() >= bytes) {
            Item item = read(body);
            if (item.item < first || item.item > last) {
                return about_program(ErrorCode::reply,
                                     fmt::format("it gave item {}; it was asked for {} to {}",
                                                 item.item, first, last));
            }
            items.push_back(item);
        }
        if (items.size() > kMostItemsTold) {
            return about_program(ErrorCode::reply,
                                 fmt::format("it gives more than {} rows", kMostItemsTold));
        }
        if (!body.complete()) {
            return about_program(ErrorCode::reply, "it sent a page with a part of a row in it");
        }
    }
    return items;
}

Result<std::vector<VoteRow>> DriverSession::rows(std::int64_t first, std::int64_t last) {
    return pages<VoteRow>(FrameType::rows, FrameType::row_page, first, last,
                          3 * sizeof(std::int64_t), [](FrameReader& body) {
                              return VoteRow{body.take<std::int64_t>(), body.take<std::int64_t>(),
                                             body.take<std::int64_t>()};
                          });
}

Result<std::vector<ItemCount>> DriverSession::counts(std::int64_t first, std::int64_t last) {
    return pages<ItemCount>(FrameType::counts, FrameType::count_page, first, last,
                            2 * sizeof(std::int64_t), [](FrameReader& body) {
                                const auto item = body.take<std::int64_t>();
                                return ItemCount{item, body.take<std::int64_t>(), {}};
                            });
}

}  // namespace hotcount::loadtest

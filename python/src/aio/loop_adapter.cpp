#include "loop_adapter.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/fork.hpp>

#include "pending.hpp"
#include "values/convert.hpp"
#include "values/errors.hpp"
#include "values/gil.hpp"

namespace hotcount::python {
namespace {

bool is_interrupt(const py::error_already_set& error) {
    return error.matches(PyExc_KeyboardInterrupt) || error.matches(PyExc_SystemExit);
}

// A C function bound to a pointer, which it owns.
template <class Pointer>
py::object bind_to(PyMethodDef& definition, Pointer pointer) {
    const py::capsule held(new Pointer(std::move(pointer)),
                           [](void* kept) { delete static_cast<Pointer*>(kept); });
    auto bound = py::reinterpret_steal<py::object>(PyCFunction_New(&definition, held.ptr()));
    if (!bound) throw py::error_already_set();
    return bound;
}

template <class Pointer>
Pointer& bound_pointer(PyObject* capsule) {
    return *static_cast<Pointer*>(PyCapsule_GetPointer(capsule, nullptr));
}

bool no_task_runs(py::handle loop) {
    const auto task = py::reinterpret_steal<py::object>(
        PyObject_CallOneArg(asyncio_names().current_task, loop.ptr()));
    if (!task) PyErr_Clear();
    return task && task.is_none();
}

// join() calls it first, because the first call may release the GIL, and then another thread may end a
// binding that only its mailbox knows.
const py::str& wake_name() {
    return made_once<py::str>([] { return py::str("call_soon_threadsafe"); });
}

}  // namespace

// The functions that the loop calls. Each holds the binding, which so lives as long as the loop may
// call.
struct LoopBinding::Callbacks {
    using Held = std::shared_ptr<LoopBinding>;

    template <class F>
    static PyObject* call(PyObject* capsule, F&& f) {
        const Held binding = bound_pointer<Held>(capsule);
        return guarded([&]() -> py::object {
            if (!binding->ended_) f(*binding);
            return py::none();
        });
    }

    static PyObject* readable(PyObject* capsule, PyObject* argument) {
        const long fd = PyLong_AsLong(argument);
        if (fd == -1 && PyErr_Occurred() != nullptr) return nullptr;
        return call(capsule, [&](LoopBinding& binding) {
            binding.turn([&] { binding.loop_connection_->on_readable(static_cast<int>(fd)); });
        });
    }
    static PyObject* writable(PyObject* capsule, PyObject*) {
        return call(capsule, [](LoopBinding& binding) {
            binding.turn([&] { binding.loop_connection_->on_writable(); });
        });
    }
    static PyObject* tick(PyObject* capsule, PyObject*) {
        return call(capsule, [](LoopBinding& binding) {
            binding.timer_ = py::object();
            binding.turn([&] { binding.loop_connection_->on_tick(); });
        });
    }
    static PyObject* flush(PyObject* capsule, PyObject*) {
        return call(capsule, [](LoopBinding& binding) {
            binding.turn([&] {
                if (binding.loop_connection_ != nullptr) binding.loop_connection_->on_flush();
            });
        });
    }
    // The argument of one callback that reads the mail. A loop that closes destroys it unread.
    struct MailCall {
        Held binding;

        explicit MailCall(Held called) : binding(std::move(called)) {}
        MailCall(MailCall&&) = default;
        ~MailCall() {
            if (binding == nullptr) return;
            // This may be a thread of the library, or the midst of the loop's close().
            auto* const lost = binding.get();
            drop_in_python(Owner(lost, [kept = std::move(binding)](auto*) { kept->lose_mail(); }));
        }
    };
    static PyObject* mail(PyObject* capsule, PyObject*) {
        const Held binding = std::move(bound_pointer<MailCall>(capsule).binding);
        return guarded([&]() -> py::object {
            if (binding != nullptr) binding->open_mail();
            return py::none();
        });
    }
    static PyObject* end(PyObject* capsule, PyObject*) {
        return call(capsule, [](LoopBinding& binding) { binding.end(); });
    }
    static PyObject* loop_gone(PyObject* capsule, PyObject*) {
        if (const Held binding = bound_pointer<std::weak_ptr<LoopBinding>>(capsule).lock()) {
            binding->loop_ = nullptr;
            binding->end();
            binding->mailbox_->open();
            binding->mailbox_->retire();
            binding->until_answered_.reset();
        }
        Py_RETURN_NONE;
    }

    static inline PyMethodDef kReadable{"hotcount_readable", readable, METH_O, nullptr};
    static inline PyMethodDef kWritable{"hotcount_writable", writable, METH_NOARGS, nullptr};
    static inline PyMethodDef kTick{"hotcount_tick", tick, METH_NOARGS, nullptr};
    static inline PyMethodDef kFlush{"hotcount_flush", flush, METH_NOARGS, nullptr};
    static inline PyMethodDef kMail{"hotcount_mail", mail, METH_NOARGS, nullptr};
    static inline PyMethodDef kEnd{"hotcount_end", end, METH_NOARGS, nullptr};
    static inline PyMethodDef kLoopGone{"hotcount_loop_gone", loop_gone, METH_O, nullptr};
};

void drop_in_python(Owner owner) {
    // Without a lock: a fork may come at any time.
    struct Left {
        Owner owner;
        Left* next;
    };
    static constinit std::atomic<Left*> all{nullptr};
    static constinit std::atomic<bool> refused{false};
    auto* const last = new Left{std::move(owner), nullptr};
    Left* before = all.load();
    do {
        last->next = before;
    } while (!all.compare_exchange_weak(before, last));
    // Python keeps at most 32 such calls, so one serves all bindings. Python refuses it if others
    // have registered as many, or if the interpreter has ended: the next owner asks again.
    const bool again = refused.exchange(false);
    if (before != nullptr && !again) return;
    const auto drop = [](void*) {
        for (Left* each = all.exchange(nullptr); each != nullptr;) {
            const std::unique_ptr<Left> going(each);
            each = going->next;
        }
        return 0;
    };
    if (Py_AddPendingCall(drop, nullptr) != 0) refused = true;
}

// -- Mailbox ----------------------------------------------------------------

Mailbox::Mailbox(LoopBinding* binding) : fork_generation_(fork_generation()), binding_(binding) {}

void Mailbox::post(Letter letter) {
    {
        const std::lock_guard lock(mutex_);
        letters_.push_back(std::move(letter));
        // One thread wakes the loop for all letters; none while some wait for the next turn.
        if (std::exchange(woken_, true)) return;
    }
    after_completions([kept = shared_from_this()]() mutable {
        const WithGil gil;
        if (!gil) {
            (void)new std::shared_ptr<Mailbox>(std::move(kept));  // Python has ended: never freed.
            return;
        }
        kept->wake();
        kept.reset();  // With the GIL, which what is in letters needs.
    });
}

void Mailbox::wake() {
    if (binding_ != nullptr) {
        binding_->wake_from_elsewhere();
        // Nobody takes an exception from a completion.
        if (PyErr_Occurred() == nullptr) return;
        if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
            PyErr_Clear();
            PyErr_SetInterrupt();  // The main thread raises it again.
        } else {
            PyErr_WriteUnraisable(nullptr);
        }
    } else {
        open();
    }
}

void Mailbox::wake_next_time() {
    const std::lock_guard lock(mutex_);
    woken_ = false;
}

bool Mailbox::open(std::size_t most) {
    if (fork_generation_ != fork_generation()) return false;
    std::vector<Letter> letters;
    bool more = false;
    {
        const std::lock_guard lock(mutex_);
        if (opened_ == 0 && letters_.size() <= most) {
            letters.swap(letters_);
        } else {
            const std::size_t end = opened_ + std::min(most, letters_.size() - opened_);
            for (; opened_ < end; ++opened_) letters.push_back(std::move(letters_[opened_]));
        }
        more = opened_ < letters_.size();
        if (!more) {
            letters_.clear();
            opened_ = 0;
            woken_ = false;
        }
    }
    for (const Letter& letter : letters) letter(binding_);
    return more;
}

// -- LoopBinding: beginning and end --------------------------------------------

LoopBinding::LoopBinding(LoopBindings& all, std::shared_ptr<redis::Client> client)
    : client_(std::move(client)),
      all_(&all),
      fork_generation_(fork_generation()),
      mailbox_(std::make_shared<Mailbox>(this)),
      deferred_releases_(std::make_shared<DeferredReleases>()) {}

std::shared_ptr<LoopBinding> LoopBinding::make(LoopBindings& all, const py::object& loop,
                                               std::shared_ptr<redis::Client> client) {
    std::shared_ptr<LoopBinding> binding(new LoopBinding(all, std::move(client)));
    binding->join(loop);
    return binding;
}

void LoopBinding::join(const py::object& loop) {
    (void)wake_name();
    const py::object gone = bind_to(Callbacks::kLoopGone, weak_from_this());
    loop_reference_ = py::reinterpret_steal<py::object>(PyWeakref_NewRef(loop.ptr(), gone.ptr()));
    if (!loop_reference_) {
        // A loop that takes no weak references is held until it is closed.
        PyErr_Clear();
        loop_reference_ = loop;
    }
    loop_ = loop.ptr();
    context_ = py::reinterpret_steal<py::object>(PyContext_New());
    if (!context_) throw py::error_already_set();
    // In debug mode the loop times callbacks, and is to time each task by itself.
    steps_ = !py::bool_(loop.attr("get_debug")());
    if (client_ != nullptr && has_readers()) {
        loop_connection_ = client_->make_loop_connection(*this);
    }
    // asyncio's own loop on Linux. Others go to sleep as they please.
    try {
        const py::object descriptor = loop.attr("_selector").attr("fileno")();
        poll_descriptor_ = py::cast<int>(descriptor);
        ready_queue_ = loop.attr("_ready");
        if (PyObject_Size(ready_queue_.ptr()) < 0) throw py::error_already_set();
    } catch (const py::error_already_set&) {
        ready_queue_ = py::object();
    } catch (const py::cast_error&) {
        ready_queue_ = py::object();
    }
}

// Found out by trying, because a loop does not say it.
bool LoopBinding::has_readers() const {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return true;  // Out of descriptors: connecting will say so.
    bool has = true;
    try {
        const py::handle loop(loop_);
        loop.attr("add_reader")(fd, import_module("builtins").attr("id"), 0);
        loop.attr("remove_reader")(fd);
    } catch (py::error_already_set& error) {
        has = false;
        if (!error.matches(PyExc_NotImplementedError)) {
            close(fd);
            throw;
        }
    }
    close(fd);
    return has;
}

LoopBinding::~LoopBinding() {
    if (ended_) return;
    // The loop is closed or gone, because it held the callback that was to end this. Nobody asks it
    // here: code of Python could release the GIL, and a letter would wake an object that is half gone.
    deaf_ = true;
    mailbox_->retire();
    shut();
}

bool LoopBinding::usable() const {
    if (refuses_ || fork_generation_ != fork_generation()) return false;
    return loop_connection_ == nullptr || loop_connection_->usable();
}

// A loop that does not run may be garbage already. The lookup of a method makes an object, which may
// start the garbage collector, and that frees such a loop before its method is called. loop_ is not a
// source of a reference: a dying loop may run other code before it reports its death to kLoopGone.
py::object LoopBinding::hold_loop() const {
    PyObject* const reference = loop_reference_.ptr();
    if (loop_ == nullptr) return {};
    if (!PyWeakref_Check(reference)) return loop_reference_;
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* loop = nullptr;
    (void)PyWeakref_GetRef(reference, &loop);
    return py::reinterpret_steal<py::object>(loop);
#else
    PyObject* const loop = PyWeakref_GetObject(reference);
    return loop == Py_None ? py::object() : py::reinterpret_borrow<py::object>(loop);
#endif
}

bool LoopBinding::loop_is_closed() const {
    const py::object loop = hold_loop();
    return !loop || py::bool_(loop.attr("is_closed")());
}

bool LoopBinding::runs_elsewhere(py::handle loop) {
    if (!loop || !py::bool_(loop.attr("is_running")())) return false;
    const auto running = py::reinterpret_steal<py::object>(
        PyObject_CallNoArgs(asyncio_names().running_loop_or_none));
    return running.ptr() != loop.ptr();
}

void LoopBinding::end() {
    refuses_ = true;
    if (ended_) return;
    const auto self = shared_from_this();
    if (deferred_releases_->in_connection()) {
        end_later_ = true;
        return;
    }
    try {
        const py::object loop = hold_loop();
        if (fork_generation_ == fork_generation() && runs_elsewhere(loop)) {
            loop.attr("call_soon_threadsafe")(bind_to(Callbacks::kEnd, self));
            return;
        }
    } catch (py::error_already_set&) {
        // It was closed meanwhile.
    }
    shut();
    if (all_ != nullptr) all_->forget(*this);
}

void LoopBinding::shut() {
    ended_ = true;
    refuses_ = true;
    const bool forked = fork_generation_ != fork_generation();
    const py::object held = hold_loop();  // The connection asks it for the end of its watches.
    try {
        // The parent's loop, as a child has it, shares its epoll descriptor with the parent.
        deaf_ = deaf_ || forked || loop_is_closed();
        if (!deaf_) cancel_timer();
    } catch (py::error_already_set&) {
        deaf_ = true;
    }
    if (loop_connection_ != nullptr) {
        deferred_releases_->enter();
        if (!forked) loop_connection_->close();
        loop_connection_.reset();
        deferred_releases_->leave();
    }
    // Without a connection of the loop the client still answers what is under way.
    if (!deaf_ && mailbox_.use_count() > 1) until_answered_ = weak_from_this().lock();
    if (until_answered_ == nullptr) {
        // No thread can post any more. The loop was woken for the letters here and has not run
        // since.
        if (!deaf_) mailbox_->open();
        mailbox_->retire();
    }
    timer_ = py::object();
}

// -- LoopBinding: turns --------------------------------------------------------

redis::Channel* LoopBinding::channel() const {
    if (loop_connection_ != nullptr) return loop_connection_.get();
    return client_ == nullptr ? nullptr : &client_->without_waiting();
}

void LoopBinding::ended(py::object pending) {
    if (!pending) return;
    if (in_turn_) {
        ready_.push_back(std::move(pending));
    } else {
        Pending::of(pending)->call_waiters();
    }
}

// A callback of the loop. A loop that would sleep until a single reply comes polls for it first.
void LoopBinding::turn(const std::function<void()>& work) {
    const auto self = shared_from_this();
    take_turn(work);
    for (int spins = 0; spins < kMaxSpins && !in_turn_; ++spins) {
        const int fd = spin();
        // Another thread may have ended the connection while spin() was without the GIL.
        if (fd < 0 || ended_) break;
        take_turn([&] { loop_connection_->on_readable(fd); });
    }
}

int LoopBinding::spin() {
    if (!ready_queue_ || loop_connection_ == nullptr || ended_) return -1;
    if (PyObject_Size(ready_queue_.ptr()) != 0) return -1;
    const ConnectionScope scope(*this);
    const WithoutGil released;
    return loop_connection_->spin(poll_descriptor_);
}

// One turn: the work of the connection, then the steps of the tasks, then the calls that these
// made.
void LoopBinding::take_turn(const std::function<void()>& work) {
    const bool nested = std::exchange(in_turn_, true);
    {
        const ConnectionScope scope(*this);
        work();
    }
    // If a loop runs inside of a task's step, there is a task whose step is not over.
    if (nested) {
        for (const py::object& pending : std::exchange(ready_, {})) {
            Pending::of(pending)->call_waiters();
        }
        flush();
        return;
    }
    std::exception_ptr interrupt;
    try {
        step_all();
    } catch (...) {
        interrupt = std::current_exception();
    }
    in_turn_ = false;
    flush();
    if (interrupt) std::rethrow_exception(interrupt);
}

void LoopBinding::step_all() {
    bool direct = steps_ && !ready_.empty() && no_task_runs(loop_);
    std::exception_ptr interrupt;
    // By index: a step may end more calls, by a send that fails.
    for (std::size_t i = 0; i < ready_.size(); ++i) {
        const py::object pending = std::move(ready_[i]);
        if (i == kMaxSteps) direct = false;
        bool stepped = false;
        try {
            stepping_loop_ = loop_;
            stepped = direct && Pending::of(pending)->step();
            stepping_loop_ = nullptr;
        } catch (py::error_already_set& error) {
            stepping_loop_ = nullptr;
            stepped = true;
            if (is_interrupt(error)) {
                interrupt = std::current_exception();
                direct = false;
            } else {
                report(error);
            }
        }
        if (!stepped) Pending::of(pending)->call_waiters();
    }
    ready_.clear();
    if (interrupt) std::rethrow_exception(interrupt);
}

// As the loop does if a callback raises.
void LoopBinding::report(py::error_already_set& error) const {
    try {
        py::dict context;
        context["message"] = "Exception in a callback of a hotcount.aio call";
        context["exception"] = error.value();
        py::handle(loop_).attr("call_exception_handler")(context);
    } catch (py::error_already_set& other) {
        other.discard_as_unraisable("hotcount.aio");
    }
}

void LoopBinding::flush() {
    if (loop_connection_ != nullptr) {
        const ConnectionScope scope(*this);
        loop_connection_->flush();
    }
}

void LoopBinding::open_mail() {
    std::exception_ptr interrupt;
    // The rest has the next turn, so that the loop's other work is not held up.
    turn([&] {
        if (!mailbox_->open(kMaxSteps)) return;
        wake_from_elsewhere();
        if (PyErr_Occurred() != nullptr) {
            interrupt = std::make_exception_ptr(py::error_already_set());
        }
    });
    if (ended_ && mailbox_.use_count() == 1) {
        mailbox_->open();  // The letters posted while others were read.
        mailbox_->retire();
        until_answered_.reset();
    }
    if (interrupt) std::rethrow_exception(interrupt);
}

void LoopBinding::wake_from_elsewhere() {
    auto self = shared_from_this();
    // Held by no object of C++: this may be a thread of the library.
    PyObject* const callback = bind_to(Callbacks::kMail, Callbacks::MailCall(self)).release().ptr();
    // Only now: a new object may start the garbage collector, and that may end the loop.
    PyObject* const loop = deaf_ ? nullptr : hold_loop().release().ptr();
    const bool in_python = WithGil::in_python();
    const bool woken = call_or_hang([loop, callback, in_python] {
        if (loop == nullptr) return false;
        PyObject* made = PyObject_CallMethodOneArg(loop, wake_name().ptr(), callback);
        PyObject* type = nullptr;
        PyObject* value = nullptr;
        PyObject* traceback = nullptr;
        if (made == nullptr) {
            // Once more: the loop may have failed at a signal, or for want of memory.
            PyErr_Fetch(&type, &value, &traceback);
            made = PyObject_CallMethodOneArg(loop, wake_name().ptr(), callback);
            if (made == nullptr) PyErr_Clear();
        }
        const bool done = made != nullptr;
        Py_XDECREF(made);
        Py_DECREF(loop);  // Perhaps the last reference: Python code may run.
        if (in_python && type != nullptr &&
            (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt) != 0 ||
             PyErr_GivenExceptionMatches(type, PyExc_SystemExit) != 0)) {
            PyErr_Restore(type, value, traceback);
        } else {
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
        }
        return done;
    });
    if (!woken) mailbox_->wake_next_time();
    Py_DECREF(callback);
    // The loop may have read the mail already, and ended the rest. A thread of the library must not
    // destroy the binding: Python code may run, and the client may wait for that thread.
    if (!in_python && self.use_count() == 1) drop_in_python(std::move(self));
}

// The loop has dropped the callback that was to read the mail. A closed loop never reads it, and the
// letters would keep the loop alive, and the store that owns this binding.
void LoopBinding::lose_mail() {
    try {
        if (!loop_is_closed()) return;
    } catch (py::error_already_set& error) {
        error.discard_as_unraisable("hotcount.aio");
        return;
    }
    deaf_ = true;
    mailbox_->retire();
    until_answered_.reset();
}

// -- LoopBinding: what the connection asks for ---------------------------------

template <class Call>
void LoopBinding::ask_loop(Call&& call) {
    if (deaf_ || loop_ == nullptr) return;
    try {
        // A callback runs in a copy of the context in which it is registered.
        const bool entered = PyContext_Enter(context_.ptr()) == 0;
        if (!entered) PyErr_Clear();
        try {
            call(py::handle(loop_));
        } catch (...) {
            if (entered) PyContext_Exit(context_.ptr());
            throw;
        }
        if (entered && PyContext_Exit(context_.ptr()) != 0) throw py::error_already_set();
    } catch (py::error_already_set& error) {
        error.discard_as_unraisable("hotcount.aio");
    }
}

void LoopBinding::watch(int fd, Interest interest) {
    const auto found = watched_.find(fd);
    const Interest before = found == watched_.end() ? Interest::none : found->second;
    if (interest == before) return;
    if (interest == Interest::none) {
        watched_.erase(found);
    } else {
        watched_[fd] = interest;
    }
    ask_loop([&](py::handle loop) {
        if (before == Interest::none) {
            loop.attr("add_reader")(fd, bind_to(Callbacks::kReadable, shared_from_this()), fd);
        }
        if (interest == Interest::read_and_write) {
            loop.attr("add_writer")(fd, bind_to(Callbacks::kWritable, shared_from_this()));
        } else if (before == Interest::read_and_write) {
            loop.attr("remove_writer")(fd);
        }
        if (interest == Interest::none) loop.attr("remove_reader")(fd);
    });
}

void LoopBinding::flush_soon() {
    if (in_turn_) return;  // Which ends with a flush.
    ask_loop([&](py::handle loop) {
        loop.attr("call_soon")(bind_to(Callbacks::kFlush, shared_from_this()));
    });
}

void LoopBinding::tick_in(Duration delay) {
    const SteadyTime due = std::chrono::steady_clock::now() + delay;
    if (timer_ && timer_due_ <= due) return;
    ask_loop([&](py::handle loop) {
        cancel_timer();
        timer_due_ = due;
        const py::object timer = loop.attr("call_later")(
            to_seconds(delay), bind_to(Callbacks::kTick, shared_from_this()));
        timer_ = py::reinterpret_steal<py::object>(PyWeakref_NewRef(timer.ptr(), nullptr));
        if (!timer_) {
            PyErr_Clear();
            timer_ = timer;
        }
    });
}

void LoopBinding::cancel_timer() {
    if (!timer_) return;
    const py::object timer = PyWeakref_Check(timer_.ptr()) ? timer_() : timer_;
    if (!timer.is_none()) timer.attr("cancel")();
}

// -- LoopBindings --------------------------------------------------------------

std::shared_ptr<LoopBinding> LoopBindings::here(const std::shared_ptr<redis::Client>& client) {
    if (last_ != nullptr && last_->loop_ == LoopBinding::stepping_loop() &&
        last_->loop_ != nullptr && last_->usable()) {
        return last_;
    }
    const py::object loop = running_loop();
    if (last_ != nullptr && last_->loop().ptr() == loop.ptr() && last_->usable()) return last_;
    return find(loop, client);
}

std::shared_ptr<LoopBinding> LoopBindings::find(const py::object& loop,
                                                const std::shared_ptr<redis::Client>& client) {
    const auto found = bindings_.find(loop.ptr());
    if (found != bindings_.end() && found->second->usable()) return last_ = found->second;
    // Loops that were closed without being collected hold a connection each.
    std::vector<std::shared_ptr<LoopBinding>> over;
    // Of a copy: is_closed() of a loop is code of Python, so other threads may come here meanwhile.
    for (const auto& [_, binding] : std::unordered_map{bindings_}) {
        if (!binding->usable() || binding->loop_is_closed()) over.push_back(binding);
    }
    for (const auto& binding : over) {
        forget(*binding);
        binding->end();
    }
    const auto made = LoopBinding::make(*this, loop, client);
    last_ = made;
    bindings_[loop.ptr()] = made;
    return made;
}

void LoopBindings::forget(LoopBinding& binding) {
    binding.all_ = nullptr;
    if (last_.get() == &binding) last_.reset();
    std::erase_if(bindings_, [&](const auto& item) { return item.second.get() == &binding; });
}

void LoopBindings::end() {
    last_.reset();
    for (const auto& [_, binding] : std::exchange(bindings_, {})) {
        binding->all_ = nullptr;
        binding->end();
    }
}

}  // namespace hotcount::python

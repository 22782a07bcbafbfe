// The bodies of declared functions (native.hpp): a line for each, by the C++ types of its
// parameters.
#pragma once

#include <array>
#include <functional>
#include <hotcount/detail/votes/votes_stats.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aio/async_call.hpp"
#include "aio/pending.hpp"
#include "native.hpp"
#include "values/gil.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

/// For Start: Now is called in a thread of the concept's own (its run_async), with what is left of
/// Bound::deadline(timeout). Nothing of Python may be among the arguments.
struct InThread {};

/// The store or database that a constructor takes. A text that is no URL is refused before the
/// arguments behind it are read. Otherwise, if somebody swapped the two, the error would quote the
/// other one: a URL with its password.
struct StoreArgument {
    py::handle value;
    operator py::handle() const { return value; }
};
template <>
struct From<StoreArgument> {
    static StoreArgument read(const Argument& argument) {
        if (PyUnicode_Check(argument.value) != 0) {
            (void)kind_of_url(to_text(argument.value, argument.name));
        }
        return {argument.value};
    }
};

/// Among the types of a method's parameters, and of none itself: Self::count() gets each value too.
struct Counted {};
template <>
struct From<Counted> {
    static constexpr std::size_t kTakes = 0;
    template <class Self>
    static Counted read(const Argument*, Self&) {
        return {};
    }
    static std::tuple<> pass(const Counted&) { return {}; }
};

namespace detail {

/// The members that a From may have beside read() (table.hpp), with their defaults.
struct Traits {
    std::size_t takes{1};
    bool gathers{false};
    bool is_batch{false};
    bool releases_gil{false};  // In memory too.
};
template <class T>
constexpr Traits traits_of() {
    Traits traits;
    if constexpr (requires { From<T>::kTakes; }) traits.takes = From<T>::kTakes;
    if constexpr (requires { From<T>::kGathers; }) traits.gathers = From<T>::kGathers;
    if constexpr (requires { From<T>::kIsBatch; }) {
        traits.is_batch = traits.releases_gil = From<T>::kIsBatch;
    }
    if constexpr (requires { From<T>::kReleasesGil; }) traits.releases_gil = From<T>::kReleasesGil;
    return traits;
}
template <class T>
constexpr Traits kTraits = traits_of<T>();

template <class T>
auto passed(const T& held) {
    if constexpr (requires { From<T>::pass(held); }) {
        return From<T>::pass(held);
    } else {
        return std::tuple<const T&>(held);
    }
}

/// Parameters of the C++ types P, in this order.
template <class... P>
struct Parameters {
    static constexpr std::size_t kCount = sizeof...(P);
    static constexpr std::size_t kSize = (kTraits<P>.takes + ... + std::size_t{0});
    static constexpr bool kIsBatch = (kTraits<P>.is_batch || ...);
    static constexpr bool kReleasesGil = (kTraits<P>.releases_gil || ...);
    static constexpr bool kGathers = (kTraits<P>.gathers || ...);  // The first of them, then.
    using Held = std::tuple<P...>;
    using Slots = std::array<PyObject*, kSize == 0 ? 1 : kSize>;
    template <std::size_t I>
    using Type = std::tuple_element_t<I, Held>;

    static constexpr std::size_t offset(std::size_t index) {
        constexpr std::array<std::size_t, kCount + 1> kTaken{kTraits<P>.takes..., 0};
        std::size_t sum = 0;
        for (std::size_t i = 0; i < index; ++i) sum += kTaken[i];
        return sum;
    }

    /// In the order of the parameters, so an error names the first one that does not fit.
    template <class... Self>
    static Held read(const NativeFunction& function, const Slots& slots, Self&... self) {
        return read(std::make_index_sequence<kCount>{}, function, slots, self...);
    }

    /// The arguments of the core's function for the first `Count` parameters.
    template <std::size_t Count = kCount>
    static auto pass(const Held& held) {
        return pass(held, std::make_index_sequence<Count>{});
    }

    /// Raises ImportError for a declared default that C++ cannot read.
    static void check(const NativeFunction& function) {
        check(function, std::make_index_sequence<kCount>{});
    }

    template <template <class> class Is>
    static constexpr std::size_t find() {
        std::size_t index = 0;
        (void)((Is<P>::value ? true : (++index, false)) || ...);
        return index;
    }

  private:
    template <std::size_t... I, class... Self>
    static Held read(std::index_sequence<I...>, [[maybe_unused]] const NativeFunction& function,
                     [[maybe_unused]] const Slots& slots, [[maybe_unused]] Self&... self) {
        return Held{read_one<I>(function, slots, self...)...};
    }
    template <std::size_t I, class... Self>
    static Type<I> read_one(const NativeFunction& function, const Slots& slots, Self&... self) {
        if constexpr (kTraits<Type<I>>.takes == 1) {
            return read_as<Type<I>>(function.argument(slots.data(), offset(I)), self...);
        } else {
            std::array<Argument, kTraits<Type<I>>.takes> arguments;
            for (std::size_t i = 0; i < arguments.size(); ++i) {
                arguments[i] = function.argument(slots.data(), offset(I) + i);
            }
            const Argument* const first = arguments.data();
            return read_as<Type<I>>(first, self...);
        }
    }
    template <std::size_t... I>
    static auto pass([[maybe_unused]] const Held& held, std::index_sequence<I...>) {
        return std::tuple_cat(passed(std::get<I>(held))...);
    }
    template <std::size_t... I>
    static void check([[maybe_unused]] const NativeFunction& function, std::index_sequence<I...>) {
        (check_one<I>(function), ...);
    }
    template <std::size_t I>
    static void check_one(const NativeFunction& function) {
        const Slots nothing{};
        if constexpr (requires { From<Type<I>>::check(nullptr, std::string{}); }) {
            std::array<Argument, kTraits<Type<I>>.takes> arguments;
            for (std::size_t i = 0; i < arguments.size(); ++i) {
                arguments[i] = function.argument(nothing.data(), offset(I) + i);
            }
            From<Type<I>>::check(arguments.data(), function.name());
        } else {
            for (std::size_t i = 0; i < kTraits<Type<I>>.takes; ++i) {
                if (!function.has_default(offset(I) + i)) return;
            }
            // None for what is then left out, as the batches' numbers; and what depends on an object
            // can be read with one alone.
            if constexpr (kTraits<Type<I>>.takes == 1 && Readable<Type<I>, Argument>) {
                (void)read_one<I>(function, nothing);
            }
        }
    }
};

/// The parameters of a call, as read from a vector call's arguments after self.
template <class Each, class... Self>
typename Each::Held read_arguments(const NativeFunction& function, PyObject* const* values,
                                   Py_ssize_t positional, PyObject* keyword_names, Self&... self) {
    typename Each::Slots slots{};
    py::object gathered;
    if constexpr (Each::kGathers) {
        gathered = py::tuple(static_cast<std::size_t>(positional));
        for (Py_ssize_t i = 0; i < positional; ++i) {
            PyTuple_SET_ITEM(gathered.ptr(), i, Py_NewRef(values[i]));
        }
        slots[0] = gathered.ptr();
        values += positional;
        positional = 0;
    }
    function.bind(slots.data(), values, positional, keyword_names);
    return Each::read(function, slots, self...);
}

/// The value of a core function that returns R: T if R is a Result<T>, else R itself.
template <class R>
struct OutcomeType {
    using type = R;
    static R unwrapped(R outcome) { return outcome; }
};
template <class T>
struct OutcomeType<Result<T>> {
    using type = T;
    static T unwrapped(Result<T> outcome) { return unwrap(std::move(outcome)); }
};

template <class Function>
struct MemberOf;
template <class R, class C, class... A>
struct MemberOf<R (C::*)(A...)> {
    using Class = C;
};
template <class R, class C, class... A>
struct MemberOf<R (C::*)(A...) const> {
    using Class = C;
};
/// A free function whose first parameter is the concept.
template <class R, class C, class... A>
struct MemberOf<R (*)(C&, A...)> {
    using Class = C;
};

template <class T>
struct IsBatch : std::bool_constant<kTraits<T>.is_batch> {};
template <class T>
struct IsCounted : std::is_same<T, Counted> {};
template <class T>
struct IsOnErrors : std::is_same<T, OnErrors> {};
template <class T>
    struct IsInstead : std::bool_constant < requires(const T& held) {
    From<T>::instead(held);
} > {};

/// Calls the core and waits.
template <auto Now, class Each, class Concept>
auto run_now(Concept& core, const typename Each::Held& held) {
    return std::apply([&](const auto&... all) { return std::invoke(Now, core, all...); },
                      Each::pass(held));
}

/// Calls `add_facts` with the error of each failed element of a batch, once for equal errors.
template <class T, class AddFacts>
void add_facts_to_each(std::vector<Result<T>>& results, const AddFacts& add_facts) {
    MadeOfErrors<Result<T>> made;
    for (auto& result : results) {
        if (result.ok()) [[likely]]
            continue;
        result = made.find_or_make(result.error(), [&](Error error) {
            add_facts(error);
            return Result<T>{std::move(error)};
        });
    }
}
template <class T, class AddFacts>
void add_facts_to_each(hotcount::BatchResult<T>& column, const AddFacts& add_facts) {
    MadeOfErrors<Error> made;
    for (auto& [index, failed] : column.errors) {
        failed = made.find_or_make(failed, [&](Error error) {
            add_facts(error);
            return error;
        });
    }
}

/// A Bound that makes the batch of a call's results itself.
template <class Self, class Results>
concept HasToBatch = requires(Self& self, Results results, const Refusals& refusals) {
    self.to_batch(std::move(results), refusals, OnErrors::raise);
};

/// A call for statistics is not one of the calls that they count.
template <class T>
inline constexpr bool kIsStatistics = false;
template <>
inline constexpr bool kIsStatistics<memory::Store::Stats> = true;
template <>
inline constexpr bool kIsStatistics<sql::Database::Stats> = true;
template <>
inline constexpr bool kIsStatistics<VotesStats> = true;
/// The converter of a call's value into the Python object. It also counts the call for the statistics and
/// adds the store's facts to an error. A batch counts the call in its own converter, by its elements.
template <class Self, bool kIsStats, bool kIsBatch, class Convert>
struct Answer : Convert {
    Self* self;
    Timeout timeout;

    void answered() const {
        if constexpr (!kIsStats && !kIsBatch) self->count_call({});
    }
    Error failed(Error error) const {
        if constexpr (!kIsStats) self->count_call(error.code);
        self->add_facts(error, timeout);
        return error;
    }
};

/// One method of a concept: Now waits, Start (nullptr: there is none) does not.
template <auto Now, auto Start, class... P>
struct Method {
    using Concept = typename MemberOf<decltype(Now)>::Class;
    using Self = typename BoundOf<Concept>::type;
    using Each = Parameters<P...>;
    using Held = typename Each::Held;

    // A timeout stands last: the core's waiting functions take it so, the others in AsyncCall.
    static constexpr bool is_timed() {
        if constexpr (sizeof...(P) == 0) {
            return false;
        } else {
            return std::is_same_v<std::tuple_element_t<sizeof...(P) - 1, Held>, Timeout>;
        }
    }
    static constexpr bool kHasStart = !std::is_same_v<decltype(Start), std::nullptr_t>;
    static constexpr bool kInThread =
        std::is_same_v<std::remove_const_t<decltype(Start)>, InThread>;
    static constexpr bool starts_with_self() {
        if constexpr (kHasStart && !kInThread) {
            return std::is_same_v<typename MemberOf<decltype(Start)>::Class, Self>;
        } else {
            return false;
        }
    }

    using Outcome =
        decltype(run_now<Now, Each>(std::declval<Concept&>(), std::declval<const Held&>()));
    using Value = typename OutcomeType<Outcome>::type;

    static Outcome run(Concept& core, const Held& held) { return run_now<Now, Each>(core, held); }

    /// The converter of a Value into its Python object. It may be moved in another thread, so it holds no
    /// Python object; the call holds the object that it points to.
    static auto converter(Self& self, Held& held) {
        return Answer<Self, kIsStatistics<Value>, Each::kIsBatch,
                      decltype(bare_converter(self, held))>{bare_converter(self, held), &self,
                                                            timeout(held)};
    }
    static auto bare_converter(Self& self, Held& held) {
        [[maybe_unused]] Self* const me = &self;
        if constexpr (Each::kIsBatch) {
            constexpr std::size_t kErrors = Each::template find<IsOnErrors>();
            static_assert(kErrors < sizeof...(P), "a batch takes OnErrors");
            auto& batch = std::get<Each::template find<IsBatch>()>(held);
            constexpr bool kIsSettled = std::is_same_v<Value, std::vector<Result<void>>>;
            using Results =
                std::conditional_t<kIsSettled, std::vector<Result<std::int64_t>>, Value>;
            auto finished = [me, refusals = std::move(batch.refusals),
                             on_errors = std::get<kErrors>(held),
                             left = timeout(held)](Results results) -> py::object {
                std::optional<ErrorCode> failed;
                add_facts_to_each(results, [&](Error& error) {
                    if (!failed) failed = error.code;
                    me->add_facts(error, left);
                });
                me->count_call(failed);
                if constexpr (HasToBatch<Self, Results>) {
                    return me->to_batch(std::move(results), refusals, on_errors);
                } else {
                    return to_batch(std::move(results), refusals, on_errors);
                }
            };
            if constexpr (kIsSettled) {
                return [finished = std::move(finished), amounts = batch.amounts()](Value settled) {
                    return finished(settled_amounts(amounts, std::move(settled)));
                };
            } else {
                return finished;
            }
        } else if constexpr (std::is_void_v<Value>) {
            return [] { return py::object(py::none()); };
        } else if constexpr (requires { self.to_python(std::declval<Value>()); }) {
            // No copy: one that is read in words, just written field by field, stalls the processor.
            return [me](Value&& value) -> py::object {
                if constexpr (Each::template find<IsCounted>() < sizeof...(P)) me->count(value);
                return me->to_python(std::move(value));
            };
        } else {
            return [](Value value) -> py::object { return To<Value>::make(std::move(value)); };
        }
    }

    /// The time that a batch was given runs from the call on: a million elements take a fifth of a
    /// second to read.
    class ReadingTime {
      public:
        void take_from([[maybe_unused]] Held& held) const {
            if constexpr (kCounts) {
                Timeout& left = std::get<sizeof...(P) - 1>(held);
                if (left) left = std::max(Duration{0}, *left - (now() - begun_));
            }
        }

      private:
        static constexpr bool kCounts = Each::kIsBatch && is_timed();
        static SteadyTime now() {
            return kCounts ? std::chrono::steady_clock::now() : SteadyTime{};
        }
        const SteadyTime begun_{now()};
    };

    static PyObject* blocking(PyObject* callable, PyObject* const* values, std::size_t flagged,
                              PyObject* keyword_names) {
        return guarded([&]() -> py::object {
            const NativeFunction& function = NativeFunction::of(callable);
            const Py_ssize_t given = PyVectorcall_NARGS(flagged);
            Self& named = function.self<Self>(values, given);
            const ReadingTime reading;
            Held held = read_arguments<Each>(function, values + 1, given - 1, keyword_names, named);
            named.check_open();
            const auto instead = find_instead(held);
            Self& self = instead ? static_cast<Self&>(*instead) : named;
            const auto& core = self.held();
            const auto convert = converter(self, held);
            reading.take_from(held);
            if (!Each::kReleasesGil && self.in_memory) return answer(run(*core, held), convert);
            return answer(without_gil([&] { return run(*core, held); }), convert);
        });
    }

    static PyObject* awaited(PyObject* callable, PyObject* const* values, std::size_t flagged,
                             PyObject* keyword_names) {
        return guarded([&]() -> py::object {
            const NativeFunction& function = NativeFunction::of(callable);
            const Py_ssize_t given = PyVectorcall_NARGS(flagged);
            Self& named = function.self<Self>(values, given);
            const ReadingTime reading;
            Held held = read_arguments<Each>(function, values + 1, given - 1, keyword_names, named);
            named.check_open();
            const auto instead = find_instead(held);
            Self& self = instead ? static_cast<Self&>(*instead) : named;
            const auto& core = self.held();
            const auto convert = converter(self, held);
            reading.take_from(held);
            // Memory answers at once, in less time than a turn of the loop takes.
            if (self.in_memory) {
                const py::object loop = running_loop();
                if constexpr (Each::kReleasesGil) {
                    return settled_call<Value>(
                        loop, Result<Value>(without_gil([&] { return run(*core, held); })),
                        convert);
                } else {
                    return settled_call<Value>(loop, run(*core, held), convert);
                }
            }
            // The last reference to the object may be the call's, and that to what a store holds.
            Owner owner = instead ? instead : BoundObject::of(values[0])->bound;
            if constexpr (!std::is_reference_v<decltype(self.held())>) {
                owner = std::make_shared<const std::pair<Owner, Owner>>(std::move(owner), core);
            }
            return start_call<Value>(
                self.loop_binding(), std::move(owner), timeout(held),
                [&](Completion<Value> done, AsyncCall call) {
                    start(self, core, held, std::move(done), call);
                },
                convert, ends_elsewhere(self));
        });
    }

    static bool ends_elsewhere([[maybe_unused]] const Self& self) {
        if constexpr (requires { self.ends_elsewhere(); }) {
            return self.ends_elsewhere();
        } else {
            return Self::kEndsElsewhere;
        }
    }

    /// The object that takes the call instead of the bound object; null: none.
    static std::shared_ptr<BoundBase> find_instead([[maybe_unused]] const Held& held) {
        constexpr std::size_t kInstead = Each::template find<IsInstead>();
        if constexpr (kInstead < sizeof...(P)) {
            return From<typename Each::template Type<kInstead>>::instead(std::get<kInstead>(held));
        } else {
            return nullptr;
        }
    }

    static vectorcallfunc awaited_or_null() {
        if constexpr (kHasStart) {
            return &awaited;
        } else {
            return nullptr;
        }
    }

  private:
    static void start([[maybe_unused]] Self& self, const std::shared_ptr<Concept>& core, Held& held,
                      Completion<Value> done, [[maybe_unused]] AsyncCall call) {
        if constexpr (kInThread) {
            // The time runs from now on, not from when a thread is free.
            const Deadline deadline = self.deadline(timeout(held));
            core->run_async(
                deadline,
                [held = std::move(held), deadline, done](Concept& own) mutable {
                    std::get<sizeof...(P) - 1>(held) = deadline.remaining();
                    done(run_now<Now, Each>(own, held));
                },
                [done](Error error) { done(std::move(error)); });
        } else {
            std::apply(
                [&](const auto&... all) {
                    if constexpr (starts_with_self()) {
                        std::invoke(Start, self, all..., std::move(done), call);
                    } else if constexpr (std::is_invocable_v<decltype(Start), Concept&,
                                                             decltype(all)..., Completion<Value>,
                                                             AsyncCall>) {
                        std::invoke(Start, *core, all..., std::move(done), call);
                    } else {  // No call of a loop's connection.
                        std::invoke(Start, *core, all..., std::move(done), call.timeout);
                    }
                },
                Each::template pass<sizeof...(P) - (is_timed() ? 1 : 0)>(held));
        }
    }
    static Timeout timeout(const Held& held) {
        if constexpr (is_timed()) {
            return std::get<sizeof...(P) - 1>(held);
        } else {
            return {};
        }
    }
    template <class Convert>
    static py::object answer(Outcome&& outcome, const Convert& convert) {
        constexpr bool kMayFail = requires { outcome.error(); };
        if constexpr (kMayFail) {
            if (!outcome.ok()) raise(convert.failed(std::move(outcome).error()));
        }
        convert.answered();
        if constexpr (std::is_void_v<Value>) {
            return convert();
        } else if constexpr (kMayFail) {
            return convert(std::move(outcome).value());
        } else {
            return convert(std::move(outcome));
        }
    }
};

/// A function, static method or method of a result: all its parameters are converted, self too.
template <auto F, class... P>
struct Function {
    using Each = Parameters<P...>;

    static PyObject* call(PyObject* callable, PyObject* const* values, std::size_t flagged,
                          PyObject* keyword_names) {
        return guarded([&]() -> py::object {
            const auto held = read_arguments<Each>(NativeFunction::of(callable), values,
                                                   PyVectorcall_NARGS(flagged), keyword_names);
            auto outcome =
                std::apply([](const auto&... all) { return F(all...); }, Each::pass(held));
            using Outcome = OutcomeType<decltype(outcome)>;
            return To<typename Outcome::type>::make(Outcome::unwrapped(std::move(outcome)));
        });
    }
};

/// A method that is no call of the core: F gets the object itself too.
template <auto F, class Self, class... P>
struct ObjectMethod {
    using Each = Parameters<P...>;

    static PyObject* call(PyObject* callable, PyObject* const* values, std::size_t flagged,
                          PyObject* keyword_names) {
        return guarded([&]() -> py::object {
            const NativeFunction& function = NativeFunction::of(callable);
            const Py_ssize_t given = PyVectorcall_NARGS(flagged);
            Self& self = function.self<Self>(values, given);
            const auto held =
                read_arguments<Each>(function, values + 1, given - 1, keyword_names, self);
            return std::apply(
                [&](const auto&... all) { return F(py::handle(values[0]), self, all...); },
                Each::pass(held));
        });
    }
};

/// A constructor: Make gets the class's title and the arguments, and returns what the object holds.
template <auto Make, class... P>
struct Init {
    using Each = Parameters<P...>;

    static PyObject* call(PyObject* callable, PyObject* const* values, std::size_t flagged,
                          PyObject* keyword_names) {
        return guarded([&]() -> py::object {
            const NativeFunction& function = NativeFunction::of(callable);
            const Py_ssize_t given = PyVectorcall_NARGS(flagged);
            if (given < 1 || !BoundObject::check(values[0])) function.refuse_self(values, given);
            BoundObject* const self = BoundObject::of(values[0]);
            const auto refuse_second = [&] {
                if (self->bound == nullptr) return;
                raise_type(class_title(Py_TYPE(values[0])) +
                           ".__init__() was called already: an object is made once");
            };
            refuse_second();
            const auto held = read_arguments<Each>(function, values + 1, given - 1, keyword_names);
            const std::string title = class_title(Py_TYPE(values[0]));
            std::shared_ptr<BoundBase> made = std::apply(
                [&](const auto&... all) { return Make(title, all...); }, Each::pass(held));
            refuse_second();  // Opening a store may have run Python.
            self->bound = std::move(made);
            return py::none();
        });
    }
};

}  // namespace detail

/// A method of a concept, for `def` and, where Start is not nullptr, `async def`. Start: the core's
/// function that does not wait (a free function may take the Bound in place of the concept), or
/// InThread{}. P: the C++ type of each parameter that `names` names; a type that takes two of them
/// stands once.
template <auto Now, auto Start, class... P>
void method(const char* name, std::string_view names) {
    using Entry = detail::Method<Now, Start, P...>;
    add_native({name, split_names(names), true, &Entry::blocking, Entry::awaited_or_null(),
                &Entry::Each::check});
}

/// A method that is no call of the core: F(py::handle object, Self&, P...) returns what Python
/// gets; for `async def` something awaited.
template <auto F, class Self, class... P>
void object_method(const char* name, std::string_view names, bool is_async = false) {
    using Entry = detail::ObjectMethod<F, Self, P...>;
    add_native({name, split_names(names), true, is_async ? nullptr : &Entry::call,
                is_async ? &Entry::call : nullptr, &Entry::Each::check});
}

/// A function, a static method, or a method of a result (whose `self` is a parameter like others).
template <auto F, class... P>
void function(const char* name, std::string_view names) {
    using Entry = detail::Function<F, P...>;
    add_native({name, split_names(names), false, &Entry::call, nullptr, &Entry::Each::check});
}

template <auto Make, class... P>
void constructor(const char* name, std::string_view names) {
    using Entry = detail::Init<Make, P...>;
    add_native({name, split_names(names), true, &Entry::call, nullptr, &Entry::Each::check});
}

}  // namespace hotcount::python

// Options, a row each: from one row come the conversion of the constructor's argument, the check of
// its default, the attribute of that name and its place in repr.
//
//   constexpr std::array kOptions{
//       always_shown(option<&LimiterOptions::algorithm>()),
//       option<&LimiterOptions::align>(), ...};
//
//   constructor<&make_limiter, py::handle, Options<LimiterOptions, kOptions>>(
//       "LimiterBase.__init__", "store " + names_of(kOptions));
//   attributes<BoundLimiter, kOptions>("LimiterBase");
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

#include "native.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

enum class Shown : std::uint8_t {
    changed,  ///< In repr if it is not the default.
    always,
    as_text,  ///< Always, as its str().
    hidden,   ///< In repr as *** if it is not the default.
};

template <class O>
struct OptionRow {
    const char* name;
    void (*read)(O& options, const Argument& argument);
    py::object (*get)(const O& options);
    Shown shown;
    bool none_is_default{false};
    bool none_is_kept{false};
};

/// `As`: another type of the table than the field's own, such as KeyText. `name`: if it is not the
/// field's.
template <auto Member, class As = typename FieldOf<Member>::Type>
constexpr auto option(const char* name = kMemberName<Member>) {
    using Struct = typename FieldOf<Member>::Owner;
    return OptionRow<Struct>{
        name,
        [](Struct& options, const Argument& argument) {
            options.*Member = From<As>::read(argument);
        },
        [](const Struct& options) -> py::object { return To<As>::make(options.*Member); },
        Shown::changed};
}

/// An option whose field is in a struct inside the options:
/// option_in<&VotesOptions::commit, &GroupCommitOptions::workers>.
template <auto Outer, auto Member, class As = typename FieldOf<Member>::Type>
constexpr auto option_in(const char* name = kMemberName<Member>) {
    using Struct = typename FieldOf<Outer>::Owner;
    return OptionRow<Struct>{
        name,
        [](Struct& options, const Argument& argument) {
            options.*Outer.*Member = From<As>::read(argument);
        },
        [](const Struct& options) -> py::object { return To<As>::make(options.*Outer.*Member); },
        Shown::changed};
}

/// The row of an option that repr shows even if it has the default.
template <class O>
constexpr OptionRow<O> always_shown(OptionRow<O> row) {
    row.shown = Shown::always;
    return row;
}

/// An option that Python declares with the default None. None leaves the core's default.
template <auto Member>
constexpr auto option_or_none() {
    using Struct = typename FieldOf<Member>::Owner;
    using Type = typename FieldOf<Member>::Type;
    auto row = option<Member>();
    row.read = [](Struct& options, const Argument& argument) {
        if (argument.value != Py_None) options.*Member = From<Type>::read(argument);
    };
    row.none_is_default = true;
    return row;
}

/// The row of an option whose value may hold a secret: repr shows ***.
template <class O>
constexpr OptionRow<O> hidden(OptionRow<O> row) {
    row.shown = Shown::hidden;
    return row;
}

/// The row of an option for which None leaves the field as it is: the core's default, or the value from
/// a URL.
template <class O>
constexpr OptionRow<O> or_none(OptionRow<O> row) {
    row.none_is_kept = true;
    return row;
}

/// A parameter for each row, in their order, as the core's struct.
template <class O, const auto& kRows>
struct Options {
    O values{};
};

template <class O, const auto& kRows>
struct From<Options<O, kRows>> {
    static constexpr std::size_t kTakes = kRows.size();

    static Options<O, kRows> read(const Argument* first) {
        Options<O, kRows> options;
        for (const auto& row : kRows) row.read(options.values, *first++);
        return options;
    }
    static auto pass(const Options<O, kRows>& options) {
        return std::tuple<const O&>(options.values);
    }

    /// Raises ImportError if a declared default differs from the core's in type or value (True is not
    /// 1).
    static void check(const Argument* first, const std::string& function) {
        const O defaults{};
        for (const auto& row : kRows) {
            const py::handle declared = (first++)->value;
            if (!declared) continue;
            const py::object ours = row.none_is_default ? py::none() : row.get(defaults);
            if (py::type::of(ours).is(py::type::of(declared)) && ours.equal(declared)) continue;
            raise_import(function + " declares " + row.name + "=" +
                         std::string(py::repr(declared)) + " where C++ has " +
                         std::string(py::repr(ours)));
        }
    }
};

/// A parameter for each row. apply() assigns only the arguments that the caller gave; the other fields
/// of the struct keep their values.
template <class O, const auto& kRows>
struct Given {
    std::array<Argument, kRows.size()> arguments{};

    void apply(O& options) const {
        for (std::size_t i = 0; i < kRows.size(); ++i) {
            const Argument& argument = arguments[i];
            if (!argument.given || (kRows[i].none_is_kept && argument.value == Py_None)) continue;
            kRows[i].read(options, argument);
        }
    }
};

template <class O, const auto& kRows>
struct From<Given<O, kRows>> {
    static constexpr std::size_t kTakes = kRows.size();

    static Given<O, kRows> read(const Argument* first) {
        Given<O, kRows> given;
        std::copy_n(first, kTakes, given.arguments.begin());
        return given;
    }
    static void check(const Argument* first, const std::string& function) {
        From<Options<O, kRows>>::check(first, function);
    }
};

template <const auto& kRows>
std::string names_of() {
    std::string names;
    for (const auto& row : kRows) names += std::string{row.name} + " ";
    return names;
}

/// ", rate='5/minute', algorithm='gcra'": what repr shows of options.
template <class O, const auto& kRows>
std::string shown_options(const O& options) {
    const O defaults{};
    std::string text;
    for (const auto& row : kRows) {
        const py::object value = row.get(options);
        const bool always = row.shown == Shown::always || row.shown == Shown::as_text;
        if (!always && value.equal(row.get(defaults))) continue;
        text += std::string{", "} + row.name + "=" +
                (row.shown == Shown::hidden
                     ? "***"
                     : quoted(row.shown == Shown::as_text ? py::object(py::str(value)) : value));
    }
    return text;
}

/// An attribute. `tag` is that of the class whose objects `get` takes.
struct OptionGetter {
    std::string owner;
    std::string name;
    std::function<py::object(BoundBase&)> get;
    const void* tag;
};
void add_getter(OptionGetter getter);

/// Adds an attribute whose value `get` computes from the bound object.
template <class Self, class Get>
void attribute(const char* class_name, const char* name, const Get& get) {
    add_getter({class_name, name,
                [get](BoundBase& bound) -> py::object { return get(static_cast<Self&>(bound)); },
                &kTag<Self>});
}

/// Adds an attribute for each row to the class, except for the row named `but`: the class has a method
/// of that name (Counter.ttl).
template <class Self, const auto& kRows>
void attributes(const char* class_name, std::string_view but = "") {
    for (const auto& row : kRows) {
        if (row.name == but) continue;
        attribute<Self>(class_name, row.name,
                        [get = row.get](const Self& self) { return get(self.options()); });
    }
}

}  // namespace hotcount::python

// Results: frozen dataclasses with slots, declared in hotcount/results.py and filled from here by
// the offset of each slot (calling the class costs eight times as much).
//
//   template <>
//   inline ResultRow<&TryAdd::applied, &TryAdd::value> kResultRow<TryAdd>{"TryAdd"};
//
// or, where it is no struct of C++,
//
//   inline ResultClass drift_class{"Drift", std::array{"item", "counted"}};
//   ... return drift_class.make(item, std::int64_t{5});
//
// `@result` joins the two by the class's name: a field that is missing, has another name or another
// place is an ImportError that names it.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "table.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// The C++ part that `@result` joins to a class of Python.
class DeclaredClass {
  public:
    explicit DeclaredClass(const char* name);
    DeclaredClass(const DeclaredClass&) = delete;
    DeclaredClass& operator=(const DeclaredClass&) = delete;

    /// Takes the declared class; ImportError if it does not fit. Returns the class: if the module
    /// that declares it is run again, the first one, so that results stay equal.
    virtual py::object join(const py::object& declared) = 0;
    virtual bool joined() const = 0;
    const char* name() const { return name_; }

  protected:
    ~DeclaredClass() = default;

    const char* name_;
};

/// An enumeration: its members are those of a core's enum, numbered from 0.
///
///   EnumClass upsert_class{"Upsert", {"FAILED", "APPLIED"}};
///   ... return upsert_class.make(1);
class EnumClass final : public DeclaredClass {
  public:
    EnumClass(const char* name, std::initializer_list<const char*> members)
        : DeclaredClass(name), names_(members) {}

    py::object join(const py::object& declared) override;
    bool joined() const override { return !members_.empty(); }
    py::object make(std::size_t number) const {
        return py::reinterpret_borrow<py::object>(members_.at(number));
    }
    /// The number of a member; none for anything else.
    std::optional<std::size_t> find(py::handle value) const;

  private:
    std::vector<const char*> names_;
    std::vector<PyObject*> members_;  // Held for ever.
};

class ResultClassBase : public DeclaredClass {
  public:
    using DeclaredClass::DeclaredClass;

    py::object join(const py::object& declared) override;
    bool joined() const override { return type_ != nullptr; }
    const char* field_name(std::size_t index) const { return fields_[index]; }
    bool is(py::handle object) const {
        return type_ != nullptr && PyObject_TypeCheck(object.ptr(), type_) != 0;
    }

  protected:
    ~ResultClassBase() = default;
    void attach(const char* const* fields, Py_ssize_t* offsets, std::size_t size) {
        fields_ = fields;
        offsets_ = offsets;
        size_ = size;
    }
    /// A new object whose slots are empty; it may be dropped as it is.
    py::object allocate() const;
    /// A field of an object of this class, to be read as an argument. TypeError if it is empty.
    Argument field(py::handle object, std::size_t index) const;

    static void put(PyObject* object, Py_ssize_t offset, py::object value) {
        *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset) =
            value.release().ptr();
    }

  private:
    const char* const* fields_{nullptr};
    Py_ssize_t* offsets_{nullptr};
    std::size_t size_{0};
    PyTypeObject* type_{nullptr};  // Held for ever.
};

template <std::size_t N>
class ResultClass : public ResultClassBase {
  public:
    ResultClass(const char* name, const std::array<const char*, N>& fields)
        : ResultClassBase(name), fields_(fields) {
        attach(fields_.data(), offsets_.data(), N);
    }

    template <class... T>
    py::object make(const T&... values) const {
        static_assert(sizeof...(T) == N, "a value for each field");
        py::object made = allocate();
        std::size_t index = 0;
        (put(made.ptr(), offsets_[index++], To<T>::make(values)), ...);
        return made;
    }
    template <class T>
    T get(py::handle object, std::size_t index) const {
        return From<T>::read(field(object, index));
    }

  private:
    std::array<const char*, N> fields_;
    std::array<Py_ssize_t, N> offsets_{};
};
template <std::size_t N>
ResultClass(const char*, const std::array<const char*, N>&) -> ResultClass<N>;

/// A result that is a struct of C++, member for member, under the members' names.
template <auto First, auto... Rest>
class ResultRow : public ResultClass<1 + sizeof...(Rest)> {
  public:
    using Row = typename FieldOf<First>::Owner;
    explicit ResultRow(const char* name)
        : ResultClass<1 + sizeof...(Rest)>(name, {kMemberName<First>, kMemberName<Rest>...}) {}

    py::object make_row(const Row& row) const { return this->make(row.*First, row.*Rest...); }
    Row read(const Argument& argument) const {
        if (!this->is(argument.value)) {
            raise_wrong_type(argument.name, this->name(), argument.value);
        }
        return read(argument.value, std::make_index_sequence<sizeof...(Rest)>{});
    }

  private:
    template <std::size_t... I>
    Row read(py::handle object, std::index_sequence<I...>) const {
        return {this->template get<typename FieldOf<First>::Type>(object, 0),
                this->template get<typename FieldOf<Rest>::Type>(object, I + 1)...};
    }
};

/// The ResultRow of a struct, from which its To and From are made.
template <class Row>
inline std::nullptr_t kResultRow{};
template <class Row>
concept HasResultRow = !std::is_same_v<decltype(kResultRow<Row>), std::nullptr_t>;

template <HasResultRow Row>
struct To<Row> {
    static py::object make(const Row& row) { return kResultRow<Row>.make_row(row); }
};
template <HasResultRow Row>
struct From<Row> {
    static Row read(const Argument& argument) { return kResultRow<Row>.read(argument); }
};

/// The function behind `result` in _native.py: takes a class, and returns the class to use from then on.
py::object join_result(const py::object& declared);
/// The names of results to which no class was joined.
std::vector<std::string> undeclared_results();

}  // namespace hotcount::python

#include "native.hpp"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <new>

#include "native_calls.hpp"
#include "options.hpp"
#include "result.hpp"

namespace hotcount::python {

// -- objects --------------------------------------------------------------------------------------

PyTypeObject BoundObject::type{};

namespace {

PyObject* new_handle(PyTypeObject* type, PyObject*, PyObject*) {
    // As `object` does it: an abstract class is refused.
    static PyObject* const nothing = PyTuple_New(0);
    PyObject* const made = PyBaseObject_Type.tp_new(type, nothing, nullptr);
    if (made != nullptr) new (&BoundObject::of(made)->bound) std::shared_ptr<BoundBase>();
    return made;
}

void drop_handle(PyObject* self) {
    {
        const py::error_scope kept;  // The end of a store may run Python.
        std::destroy_at(&BoundObject::of(self)->bound);
    }
    Py_TYPE(self)->tp_free(self);
}

BoundBase& bound_of(PyObject* self) {
    if (BoundObject::of(self)->bound == nullptr) raise_unfinished(self);
    return *BoundObject::of(self)->bound;
}

PyObject* show_handle(PyObject* self) {
    return guarded(
        [&]() -> py::object { return py::str(bound_of(self).repr(class_title(Py_TYPE(self)))); });
}

PyObject* refuse_pickle(PyObject* self, PyObject*) {
    return guarded([&]() -> py::object {
        (void)bound_of(self);
        raise_type("hotcount." + class_title(Py_TYPE(self)) +
                   " cannot be pickled: it stands for connections of this process. Pickle its "
                   "URL, and open it again on the other side");
    });
}

PyMethodDef handle_methods[] = {
    {"__reduce__", refuse_pickle, METH_NOARGS, "Raises: it stands for connections."},
    {nullptr, nullptr, 0, nullptr},
};

void make_handle_type() {
    PyTypeObject& type = BoundObject::type;
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
    type.tp_name = "hotcount._core.Handle";
    type.tp_doc = "What all counters, limiters and sets are in C++.";
    type.tp_basicsize = sizeof(BoundObject);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
    type.tp_new = &new_handle;
    type.tp_dealloc = &drop_handle;
    type.tp_repr = &show_handle;
    type.tp_methods = handle_methods;
    if (PyType_Ready(&type) != 0) throw py::error_already_set();
}

}  // namespace

std::string text_attribute(py::handle object, const char* name) {
    return py::cast<std::string>(py::object(object.attr(name)));
}

std::string class_title(PyTypeObject* type) {
    for (const py::handle base : py::reinterpret_borrow<py::tuple>(type->tp_mro)) {
        // Its own entry: what a derived class or its metaclass calls a module may be anything.
        const auto* const cls = reinterpret_cast<PyTypeObject*>(base.ptr());
        const std::string_view name = cls->tp_name;
        if (name.starts_with("hotcount._core.")) {  // Of C++: a static type has no entry.
            return std::string{name.substr(name.rfind('.') + 1)};
        }
        const py::handle entry = PyDict_GetItemString(cls->tp_dict, "__module__");
        if (!entry || !py::isinstance<py::str>(entry)) continue;
        const auto module = py::cast<std::string>(entry);
        if (module != "hotcount" && !module.starts_with("hotcount.")) continue;
        return (module.starts_with("hotcount.aio") ? "aio." : "") + std::string{name};
    }
    return type->tp_name;
}

void raise_unfinished(PyObject* self) {
    std::string title = class_title(Py_TYPE(self));
    raise_type(title +
               ".__init__() of this object was never called, or it failed: the object cannot be "
               "used");
}

// -- what C++ has ---------------------------------------------------------------------------------

namespace {

// Never released: declarations point into it while the interpreter shuts down.
std::map<std::string, Native>& natives() {
    static auto* const all = new std::map<std::string, Native>;
    return *all;
}

std::vector<OptionGetter*>& getters() {
    static auto* const all = new std::vector<OptionGetter*>;
    return *all;
}

}  // namespace

void raise_import(const std::string& message) {
    PyErr_SetString(PyExc_ImportError, ("hotcount: " + message).c_str());
    throw py::error_already_set();
}

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
    return "(" + text + ")";
}

std::vector<std::string> split_names(std::string_view names) {
    std::vector<std::string> all;
    while (!names.empty()) {
        const auto end = std::min(names.find(' '), names.size());
        if (end > 0) all.emplace_back(names.substr(0, end));
        names.remove_prefix(std::min(end + 1, names.size()));
    }
    return all;
}

void add_native(Native native) {
    std::string name = native.name;
    if (!natives().emplace(name, std::move(native)).second) {
        raise_import("C++ has " + name + " twice");
    }
}

void refuse_keywords(const char* function, std::string_view names, std::string_view why) {
    Native& native = natives().at(function);
    for (const std::string& name : split_names(names)) native.refused.emplace(name, why);
}

void add_getter(OptionGetter getter) { getters().push_back(new OptionGetter(std::move(getter))); }

// -- results ----------------------------------------------------------------------------------------

namespace {

std::vector<DeclaredClass*>& result_classes() {
    static auto* const all = new std::vector<DeclaredClass*>;
    return *all;
}

}  // namespace

DeclaredClass::DeclaredClass(const char* name) : name_(name) { result_classes().push_back(this); }

py::object EnumClass::join(const py::object& declared) {
    std::vector<std::string> names;
    std::vector<PyObject*> members;
    for (const py::handle member : declared) {
        names.push_back(text_attribute(member, "name"));
        if (PyLong_AsSize_t(member.attr("value").ptr()) != members.size()) {
            PyErr_Clear();
            raise_import(std::string{name_} + "." + names.back() + " is not " +
                         std::to_string(members.size()));
        }
        members.push_back(member.ptr());
    }
    const std::vector<std::string> ours(names_.begin(), names_.end());
    if (names != ours) {
        raise_import(std::string{name_} + " is declared with the members " + listed(names) +
                     " where C++ has " + listed(ours));
    }
    if (members_.empty()) {
        for (PyObject* const member : members) Py_INCREF(member);
        members_ = std::move(members);
    }
    return py::type::of(members_.front());
}

std::optional<std::size_t> EnumClass::find(py::handle value) const {
    const auto found = std::find(members_.begin(), members_.end(), value.ptr());
    if (found == members_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - members_.begin());
}

py::object ResultClassBase::join(const py::object& declared) {
    std::vector<std::string> names;
    for (const py::handle field :
         import_module("dataclasses").attr("fields")(declared).cast<py::tuple>()) {
        names.push_back(text_attribute(field, "name"));
    }
    const std::vector<std::string> ours(fields_, fields_ + size_);
    if (names != ours) {
        raise_import(std::string{name_} + " is declared with the fields " + listed(names) +
                     " where C++ has " + listed(ours));
    }
    std::vector<Py_ssize_t> offsets(size_);
    for (std::size_t i = 0; i < size_; ++i) {
        const py::object slot = py::getattr(declared, fields_[i], py::none());
        if (!Py_IS_TYPE(slot.ptr(), &PyMemberDescr_Type)) {
            raise_import(std::string{name_} + "." + fields_[i] +
                         " has no slot: @dataclass needs "
                         "slots=True");
        }
        offsets[i] = reinterpret_cast<PyMemberDescrObject*>(slot.ptr())->d_member->offset;
    }
    if (type_ == nullptr) {
        std::copy(offsets.begin(), offsets.end(), offsets_);
        type_ = reinterpret_cast<PyTypeObject*>(py::object(declared).release().ptr());
    }
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(type_));
}

py::object ResultClassBase::allocate() const {
    if (type_ == nullptr) {
        PyErr_Format(PyExc_RuntimeError, "hotcount.%s is not declared yet", name_);
        throw py::error_already_set();
    }
    auto made = py::reinterpret_steal<py::object>(type_->tp_alloc(type_, 0));
    if (!made) throw py::error_already_set();
    return made;
}

Argument ResultClassBase::field(py::handle object, std::size_t index) const {
    PyObject* const value =
        *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + offsets_[index]);
    if (value == nullptr) {
        raise_type(std::string{name_} +
                   ".__init__() of this object was never called, or it failed: the object cannot "
                   "be used");
    }
    return {value, fields_[index], true};
}

py::object join_result(const py::object& declared) {
    const std::string name = text_attribute(declared, "__name__");
    for (DeclaredClass* const known : result_classes()) {
        if (name == known->name()) return known->join(declared);
    }
    raise_import("Python declares the result " + name + ", which C++ does not have");
}

std::vector<std::string> undeclared_results() {
    std::vector<std::string> names;
    for (const DeclaredClass* const result : result_classes()) {
        if (!result->joined()) names.emplace_back(result->name());
    }
    return names;
}

// -- declared functions ---------------------------------------------------------------------------

namespace {

PyTypeObject function_type{};

// In quotes; a keyword may be no UTF-8.
std::string quoted(PyObject* name) { return std::string(py::repr(py::handle(name))); }

PyObject* bind_to_object(PyObject* function, PyObject* object, PyObject*) {
    if (object == nullptr || object == Py_None) {
        Py_INCREF(function);
        return function;
    }
    return PyMethod_New(function, object);
}

}  // namespace

struct NativeType {
    static NativeFunction* of(PyObject* object) {
        return reinterpret_cast<NativeFunction*>(object);
    }

    // Frameworks, inspect, typing and help() read the attributes of the declaration.
    // There is no __wrapped__: whoever unwraps would call the declaration, which does nothing.
    static PyObject* forward(PyObject* self, void* name) {
        return PyObject_GetAttrString(of(self)->declaration_, static_cast<const char*>(name));
    }

    static PyObject* show(PyObject* self) {
        return PyUnicode_FromFormat("<function hotcount.%s>", of(self)->native_->name.c_str());
    }

    // As Python's functions: by the name that it is found under.
    static PyObject* reduce(PyObject* self, PyObject*) {
        return PyObject_GetAttrString(of(self)->declaration_, "__qualname__");
    }

    // isinstance() takes it for a function, as inspect.isfunction and unittest.mock ask. Otherwise
    // create_autospec accepts any arguments.
    static PyObject* claim_class(PyObject*, void*) {
        return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&PyFunction_Type))
            .release()
            .ptr();
    }

    static void drop(PyObject* self) {
        NativeFunction* const function = of(self);
        if (function->weak_references_ != nullptr) PyObject_ClearWeakRefs(self);
        for (Py_ssize_t i = 0; i < function->size_; ++i) {
            Py_XDECREF(function->parameters_[i].name);
            Py_XDECREF(function->parameters_[i].default_value);
        }
        delete[] function->parameters_;
        Py_XDECREF(function->declaration_);
        Py_TYPE(self)->tp_free(self);
    }

    static void make_type() {
        static PyMethodDef methods[] = {
            {"__reduce__", &reduce, METH_NOARGS, "The name that it is found under."},
            {nullptr, nullptr, 0, nullptr},
        };
        static std::vector<PyGetSetDef> attributes;
        for (const char* name :
             {"__code__", "__defaults__", "__kwdefaults__", "__annotations__", "__doc__",
              "__name__", "__qualname__", "__module__", "__globals__", "__closure__",
              "__builtins__", "__type_params__", "__annotate__"}) {
            attributes.push_back(
                {name, &forward, nullptr, "The declaration's.", const_cast<char*>(name)});
        }
        attributes.push_back({"__class__", &claim_class, nullptr, "As of a function.", nullptr});
        attributes.push_back({nullptr, nullptr, nullptr, nullptr, nullptr});
        Py_SET_REFCNT(reinterpret_cast<PyObject*>(&function_type), 1);
        function_type.tp_name = "hotcount._core.NativeFunction";
        function_type.tp_basicsize = sizeof(NativeFunction);
        function_type.tp_flags =
            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
        function_type.tp_vectorcall_offset = offsetof(NativeFunction, call_);
        function_type.tp_weaklistoffset = offsetof(NativeFunction, weak_references_);
        function_type.tp_call = &PyVectorcall_Call;
        function_type.tp_descr_get = &bind_to_object;
        function_type.tp_dealloc = &drop;
        function_type.tp_repr = &show;
        function_type.tp_methods = methods;
        function_type.tp_getset = attributes.data();
        if (PyType_Ready(&function_type) != 0) throw py::error_already_set();
        function_type.tp_new = nullptr;  // Made by `native` alone.
    }

    // Reads a Python function's parameters, holds them against C++'s, and joins the two.
    static py::object declare(const py::object& declaration) {
        if (PyFunction_Check(declaration.ptr()) == 0) raise_type("native takes a function");
        std::string name = text_attribute(declaration, "__qualname__");
        // For a class that a function declares, as in tests.
        if (const auto local = name.rfind("<locals>."); local != std::string::npos) {
            name.erase(0, local + std::string_view{"<locals>."}.size());
        }
        const auto found = natives().find(name);
        if (found == natives().end()) {
            raise_import("Python declares " + name + ", which C++ does not have");
        }
        Native& native = found->second;

        const py::object code = declaration.attr("__code__");
        const auto number = [&](const char* attribute) {
            return py::cast<Py_ssize_t>(py::object(code.attr(attribute)));
        };
        const Py_ssize_t flags = number("co_flags");
        if ((flags & CO_VARKEYWORDS) != 0) raise_import(name + " declares **kwargs");
        const bool is_async = (flags & CO_COROUTINE) != 0;
        const vectorcallfunc call = is_async ? native.awaited : native.blocking;
        if (call == nullptr) {
            raise_import(name + " is declared with " + (is_async ? "async def" : "def") +
                         ", which C++ does not have");
        }
        const Py_ssize_t first = native.takes_self ? 1 : 0;
        const Py_ssize_t positional = number("co_argcount") - first;
        Py_ssize_t size = positional + number("co_kwonlyargcount");
        const auto variables = py::cast<py::tuple>(py::object(code.attr("co_varnames")));
        std::vector<std::string> names;
        for (Py_ssize_t i = 0; i < size; ++i) {
            names.push_back(py::cast<std::string>(py::object(variables[i + first])));
        }
        // *name comes before the others, which are then given by keyword: read_arguments().
        const bool gathers = (flags & CO_VARARGS) != 0;
        if (gathers) {
            if (positional > 0) raise_import(name + " declares others before *args");
            names.insert(names.begin(),
                         "*" + py::cast<std::string>(py::object(variables[size + first])));
            ++size;
        }
        if (names != native.parameters) {
            raise_import(name + " is declared with the parameters " + listed(names) +
                         " where C++ has " + listed(native.parameters));
        }

        auto made = py::reinterpret_steal<py::object>(function_type.tp_alloc(&function_type, 0));
        if (!made) throw py::error_already_set();
        NativeFunction& function = *of(made.ptr());
        function.call_ = call;
        function.native_ = &native;
        function.declaration_ = py::object(declaration).release().ptr();
        function.parameters_ = new NativeFunction::Parameter[static_cast<std::size_t>(size)]{};
        function.size_ = size;
        function.positional_ = positional;
        const py::object defaults = declaration.attr("__defaults__");
        const py::object keyword_defaults = declaration.attr("__kwdefaults__");
        const Py_ssize_t defaulted =
            defaults.is_none() ? 0 : static_cast<Py_ssize_t>(py::len(defaults));
        function.required_ = positional - defaulted;
        for (Py_ssize_t i = 0; i < size; ++i) {
            NativeFunction::Parameter& parameter = function.parameters_[i];
            parameter.text = native.parameters[static_cast<std::size_t>(i)].c_str();
            parameter.name = PyUnicode_InternFromString(parameter.text);
            if (parameter.name == nullptr) throw py::error_already_set();
            py::object value;
            if (i == 0 && gathers) {
                value = py::tuple();
            } else if (i < positional) {
                if (i >= positional - defaulted) {
                    value = py::object(defaults[py::int_(i - positional + defaulted)]);
                }
            } else if (!keyword_defaults.is_none() &&
                       py::cast<py::dict>(keyword_defaults).contains(parameter.text)) {
                value = py::object(keyword_defaults[parameter.text]);
            } else {
                function.required_ = size + 1;
            }
            parameter.default_value = value.release().ptr();
        }
        try {
            native.check(function);
        } catch (py::error_already_set& error) {
            if (error.matches(PyExc_ImportError)) throw;
            raise_import(name + " declares a default that C++ cannot read: " +
                         std::string(py::str(error.value())));
        }
        native.declared = true;
        return made;
    }
};

std::string NativeFunction::shown_name() const {
    const std::string& name = native_->name;
    const auto dot = name.rfind('.');
    if (dot == std::string::npos) return name;
    if (name.substr(dot) != ".__init__") return name.substr(dot + 1);
    std::string title = name.substr(0, dot);
    if (title.ends_with("Base")) title.resize(title.size() - 4);
    return title;
}

void NativeFunction::bind_slowly(PyObject** slots, PyObject* const* values, Py_ssize_t positional,
                                 PyObject* keyword_names) const {
    if (positional > positional_) {
        raise_type(shown_name() + "() takes at most " + std::to_string(positional_) +
                   " positional arguments (" + std::to_string(positional) + " given)");
    }
    for (Py_ssize_t i = 0; i < positional; ++i) slots[i] = values[i];
    const Py_ssize_t keywords = keyword_names == nullptr ? 0 : PyTuple_GET_SIZE(keyword_names);
    for (Py_ssize_t i = 0; i < keywords; ++i) {
        PyObject* const keyword = PyTuple_GET_ITEM(keyword_names, i);
        Py_ssize_t index = 0;
        while (index < size_ && parameters_[index].name != keyword) ++index;
        if (index == size_) {
            // A keyword made at run time need not be interned.
            index = 0;
            while (index < size_ && PyUnicode_Compare(parameters_[index].name, keyword) != 0) {
                ++index;
            }
        }
        if (index == size_) {
            for (const auto& [refused, why] : native_->refused) {
                if (PyUnicode_CompareWithASCIIString(keyword, refused.c_str()) != 0) continue;
                raise_config(refused + " is no option: " + why);
            }
            raise_type(shown_name() + "() got an unexpected keyword argument " + quoted(keyword));
        }
        if (slots[index] != nullptr) {
            raise_type(shown_name() + "() got multiple values for argument " + quoted(keyword));
        }
        slots[index] = values[positional + i];
    }
    for (Py_ssize_t i = 0; i < size_; ++i) {
        if (slots[i] == nullptr && parameters_[i].default_value == nullptr) {
            raise_type(shown_name() + "() missing required argument '" +
                       std::string{parameters_[i].text} + "'");
        }
    }
}

void NativeFunction::refuse_self(PyObject* const* values, Py_ssize_t given) const {
    const auto dot = native_->name.rfind('.');
    std::string owner = native_->name.substr(0, dot);
    if (owner.ends_with("Base")) owner.resize(owner.size() - 4);
    const std::string descriptor =
        "descriptor '" + native_->name.substr(dot + 1) + "' of 'hotcount." + owner + "' objects ";
    if (given < 1) raise_type(descriptor + "needs an argument");
    raise_type(descriptor + "does not apply to a '" + type_name(values[0]) + "' object");
}

// -- what hotcount/_native.py takes from here -----------------------------------------------------

namespace {

py::object declare(py::handle declaration) {
    return NativeType::declare(py::reinterpret_borrow<py::object>(declaration));
}

py::object join(py::handle cls) { return join_result(py::reinterpret_borrow<py::object>(cls)); }

py::object join_class(py::handle cls) {
    return join_batch(py::reinterpret_borrow<py::object>(cls));
}

// fget of an option's property: a PyCFunction over a capsule of its row.
PyObject* get_option(PyObject* capsule, PyObject* self) {
    return guarded([&]() -> py::object {
        const auto& getter = *static_cast<OptionGetter*>(PyCapsule_GetPointer(capsule, nullptr));
        BoundBase* const bound =
            BoundObject::check(self) ? BoundObject::of(self)->bound.get() : nullptr;
        if (BoundObject::check(self) && bound == nullptr) raise_unfinished(self);
        if (bound == nullptr || bound->tag() != getter.tag) {
            raise_type("descriptor '" + getter.name + "' does not apply to a '" + type_name(self) +
                       "' object");
        }
        return getter.get(*bound);
    });
}
PyMethodDef option_definition{"option", &get_option, METH_O, nullptr};

py::object get_options(py::handle name) {
    const std::string owner = to_text(name, "name");
    py::dict all;
    for (OptionGetter* const getter : getters()) {
        if (getter->owner != owner) continue;
        const py::capsule capsule(static_cast<void*>(getter));
        auto made =
            py::reinterpret_steal<py::object>(PyCFunction_New(&option_definition, capsule.ptr()));
        if (!made) throw py::error_already_set();
        all[py::str(getter->name)] = made;
    }
    return all;
}

py::object undeclared(py::handle) {
    py::list names;
    for (const auto& [name, native] : natives()) {
        if (!native.declared) names.append(name);
    }
    for (const std::string& name : undeclared_results()) names.append(name);
    for (const std::string& name : undeclared_batches()) names.append(name);
    return names;
}

}  // namespace

template <py::object (*F)(py::handle)>
PyObject* called(PyObject*, PyObject* argument) {
    return guarded([&] { return F(argument); });
}
PyMethodDef functions[] = {
    {"native", &called<&declare>, METH_O, "The C++ body of a declared function."},
    {"result", &called<&join>, METH_O, "Has C++ fill a declared result."},
    {"batch", &called<&join_class>, METH_O, "Has C++ make objects of a declared batch."},
    {"options", &called<&get_options>, METH_O, "What reads each option of a class, by its name."},
    {"undeclared", &called<&undeclared>, METH_NOARGS, "What C++ has and nothing declares."},
    {nullptr, nullptr, 0, nullptr},
};

void bind_native(const py::object& module) {
    make_handle_type();
    NativeType::make_type();
    module.attr("Handle") =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&BoundObject::type));
    module.attr("NativeFunction") =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&function_type));
    if (PyModule_AddFunctions(module.ptr(), functions) != 0) throw py::error_already_set();
}

}  // namespace hotcount::python

"""The public surface as text, one line for each name: what callers rely on, in Python, C++ and the
commands. `make surface` writes it into tests/codebase/surface; `--options` counts the options.

Python is read from its sources, so that integrations whose libraries are not installed are there
too. The errors of a function are those that its docstring names. C++ is what Doxygen finds in the
headers outside of detail/. The commands are what they say of their own options.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from hotcount import _load_cli
from hotcount.cli import STUDIES, parser

from tests.support.load_generator import program

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "codebase" / "surface"
SOURCES = ROOT / "python"
MODULES = (
    "hotcount",
    "hotcount.aio",
    "hotcount.load",
    "hotcount.report",
    *(
        f"hotcount.integrations.{name}"
        for name in (
            *("asgi", "django", "django.admin", "django.models", "fastapi", "flask", "limits"),
            *("locust", "opentelemetry", "prometheus", "rest_framework", "sqlalchemy"),
        )
    ),
)
ERROR = re.compile(r"\b(?:[A-Z]\w*Error|LimitExceeded)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


# -- Python -------------------------------------------------------------------


@dataclass
class Module:
    """The statements that bind each name; two or more for an overloaded function."""

    name: str
    bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)

    def read(self, statements: Iterable[ast.stmt]) -> None:
        for each in statements:
            if isinstance(each, Function | ast.ClassDef):
                self.bound.setdefault(each.name, []).append(each)
            elif isinstance(each, (ast.Assign, ast.AnnAssign)):
                for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                    if isinstance(target, ast.Name):
                        self.bound.setdefault(target.id, []).append(each)
            elif isinstance(each, ast.ImportFrom) and each.module:
                for alias in each.names:
                    self.imported[alias.asname or alias.name] = each.module, alias.name
            elif isinstance(each, ast.If):  # if TYPE_CHECKING
                self.read(each.body + each.orelse)


class Package:
    """Lines of the public names, and of the aliases and classes that their types refer to."""

    def __init__(self) -> None:
        self._modules: dict[str, Module | None] = {}
        self._callers: set[tuple[str, str]] = set()  # Names that callers have.
        self._listed: set[tuple[str, str]] = set()
        self.lines: set[str] = set()

    def _module(self, name: str) -> Module | None:
        """None: it is not of this package."""
        if name not in self._modules:
            path = SOURCES.joinpath(*name.split("."))
            files = [path.with_suffix(".py"), path / "__init__.py", path.with_suffix(".pyi")]
            file = next((file for file in files if file.is_file()), None)
            module = self._modules[name] = Module(name) if file else None
            if module and file:
                module.read(ast.parse(file.read_text(encoding="utf-8")).body)
        return self._modules[name]

    def _find(self, module: Module, name: str) -> tuple[Module, list[ast.stmt]] | None:
        """What binds a name, through imports from this package."""
        if name in module.bound:
            return module, module.bound[name]
        where, original = module.imported.get(name, ("", ""))
        other = self._module(where) if where else None
        return self._find(other, original) if other else None

    def list_modules(self, names: Iterable[str]) -> None:
        """Marks the public names first: where a type refers to one, it is not listed again."""
        public = [each for name in names for each in self._public(name)]
        self._callers = {(module.name, name.split(".")[-1]) for name, module, _ in public}
        for each in public:
            self._list(*each)

    def _public(self, name: str) -> Iterator[tuple[str, Module, list[ast.stmt]]]:
        module = self._module(name)
        assert module, f"{name} is gone"
        if "__all__" in module.bound:
            (statement,) = module.bound["__all__"]
            assert isinstance(statement, ast.Assign)
            names = ast.literal_eval(statement.value)
        else:
            names = [each for each in module.bound if not each.startswith("_")]
        for each in names:
            found = self._find(module, each)
            assert found, f"{name} has no {each}"
            yield f"{name}.{each}", *found

    def _list(self, name: str, module: Module, statements: list[ast.stmt]) -> None:
        for each in statements:
            if isinstance(each, ast.ClassDef):
                self._list_class(name, module, each)
            elif isinstance(each, Function):
                self._list_function(name, module, each)
            elif isinstance(each, ast.AnnAssign):
                value = f" = {ast.unparse(each.value)}" if each.value else ""
                self._line(f"{name}: {ast.unparse(each.annotation)}{value}", module, each)
            elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
                self._list_call(name, module, each, each.value)
            elif isinstance(each, ast.Assign):
                self._line(f"{name} = {ast.unparse(each.value)}", module, each)

    def _list_call(self, name: str, module: Module, made: ast.Assign, call: ast.Call) -> None:
        """As another value; _soon(A.b) of integrations.limits is A.b as an async method."""
        found = None
        if ast.unparse(call.func) == "_soon":
            owner, _, method = ast.unparse(call.args[0]).rpartition(".")
            found = self._find(module, owner)
        if found is None:
            return self._line(f"{name} = {ast.unparse(call)}", module, made)
        body = [each for cls in found[1] for each in getattr(cls, "body", [])]
        function = next(each for each in body if getattr(each, "name", "") == method)
        self._list_function(name, module, ast.AsyncFunctionDef(**vars(function)))

    def _list_function(self, name: str, module: Module, function: Function) -> None:
        whole = signature(function)
        if (
            len(as_sync(f"{name}: {whole}")) > 122
        ):  # A line for each option, so that a change of it shows.
            for each, default in parameters(function):
                value = f" = {ast.unparse(default)}" if default else ""
                self.lines.add(f"{name}({each.arg}): {annotation(each)}{value}")
            whole = re.sub(r"(?s)def\(.*\)(?= -> |$)", f"def({names_only(function)})", whole)
        self._line(f"{name}: {whole}", module, function)

    def _list_class(self, name: str, module: Module, cls: ast.ClassDef) -> None:
        bases, members = self._members(module, cls)
        decorators = [
            ast.unparse(each) for each in cls.decorator_list if "dataclass" in ast.unparse(each)
        ]
        made = "class" + (f"({', '.join(bases)})" if bases else "")
        if decorators:  # Its constructor takes the fields in this order.
            fields = [each for each in members if isinstance(members[each][1][0], ast.AnnAssign)]
            made = f"{decorators[0]} {made} of {', '.join(fields)}"
        self.lines.add(f"{name}: {made}")
        for each, (where, statements) in members.items():
            special = re.match("__(?!init_subclass|get_pydantic)", each)
            if not each.startswith("_") or (special and isinstance(statements[0], Function)):
                self._list(f"{name}.{each}", where, statements)

    def _members(
        self, module: Module, cls: ast.ClassDef
    ) -> tuple[list[str], dict[str, tuple[Module, list[ast.stmt]]]]:
        """Names of the bases that users see, and the members, with those of the other bases."""
        bases, order = [], [(module, cls)]
        for where, each in order:  # It grows meanwhile.
            for base in each.bases:
                name = ast.unparse(base).split("[")[0]
                found = self._find(where, name)
                if found is None or (found[0].name, name) in self._callers:
                    bases.append(ast.unparse(base))
                elif isinstance(found[1][0], ast.ClassDef):
                    order.append((found[0], found[1][0]))
        members = {}
        for where, each in reversed(order):  # Bases of bases first: the others replace theirs.
            inside = Module(where.name)
            inside.read(one for one in each.body if not isinstance(one, ast.If))
            members.update({name: (where, bound) for name, bound in inside.bound.items()})
        return [base for base in bases if not base.startswith("Generic[")], members

    def _line(self, line: str, module: Module, statement: ast.stmt) -> None:
        said = ast.get_docstring(statement) if isinstance(statement, Function) else None
        errors = sorted(set(ERROR.findall(said or "")))
        self.lines.add(line + (f"  raises {', '.join(errors)}" if errors else ""))
        for name in sorted(names_of(statement)):
            found = self._find(module, name)
            if found and (found[0].name, name) not in self._listed | self._callers:
                self._listed.add((found[0].name, name))
                if not is_inside(name, found[1]):
                    self._list(name, *found)


def is_inside(name: str, statements: list[ast.stmt]) -> bool:
    """A base that two classes share, whose members they have themselves, what _soon() awaits, or a
    type variable."""
    made = statements[0]
    return name.endswith(("Base", "Handle", "Steps")) or (
        isinstance(made, ast.Assign) and ast.unparse(made.value).startswith("TypeVar(")
    )


def names_of(statement: ast.stmt) -> set[str]:
    """Names in types: of parameters, results and attributes, or all of an alias."""
    types: list[ast.AST | None]
    if isinstance(statement, Function):
        every = [each for each in ast.walk(statement.args) if isinstance(each, ast.arg)]
        types = [statement.returns, *(each.annotation for each in every)]
    elif isinstance(statement, ast.AnnAssign):
        types = [statement.annotation]
    else:
        types = [statement]
    return {
        name.id
        for each in types
        if each is not None
        for name in ast.walk(each)
        if isinstance(name, ast.Name)
    }


def annotation(parameter: ast.arg) -> str:
    return ast.unparse(parameter.annotation) if parameter.annotation else "Any"


def parameters(function: Function) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters that have a type, with their defaults."""
    taken = function.args
    places = [*taken.posonlyargs, *taken.args]
    defaults = [None] * (len(places) - len(taken.defaults)) + taken.defaults
    every = [*zip(places, defaults), *zip(taken.kwonlyargs, taken.kw_defaults)]
    return (each for each in every if each[0].annotation)


def names_only(function: Function) -> str:
    taken = copy.deepcopy(function.args)
    for each in ast.walk(taken):
        if isinstance(each, ast.arg):
            each.annotation = None
    taken.defaults, taken.kw_defaults = [], [None] * len(taken.kwonlyargs)
    return ast.unparse(taken)


def signature(function: Function) -> str:
    decorators = [ast.unparse(each) for each in function.decorator_list]
    kinds = ("property", "staticmethod", "classmethod", "overload")
    words = [each for each in decorators if each in kinds or each.endswith(".setter")]
    words.append("async def" if isinstance(function, ast.AsyncFunctionDef) else "def")
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    result = re.sub(r"\bSteps\[(.*)\]$", r"\1", result)  # What _now() and _soon() return.
    return f"{' '.join(words)}({ast.unparse(function.args)}){result}"


def as_sync(line: str) -> str:
    """A line of hotcount.aio as hotcount has it, without the errors, which its docstrings name."""
    line = line.replace("hotcount.aio.", "hotcount.", 1).replace("async def(", "def(", 1)
    line = re.sub(r"__a(enter|exit)__", r"__\1__", line).replace(".aclose:", ".close:")
    return line.split("  raises ")[0]


def name_of(line: str) -> str:
    return re.split("[:(]", line, maxsplit=1)[0]


def of_python() -> list[str]:
    """A member of a class of hotcount.aio stands here if hotcount's differs, or if it lacks it."""
    package = Package()
    package.list_modules(MODULES)
    aio = {line for line in package.lines if re.match(r"hotcount\.aio\.\w+\.", line)}
    others = package.lines - aio
    ours = {as_sync(line) for line in others}
    theirs = {as_sync(line) for line in aio}
    classes = {line.rpartition(".")[0] for line in map(name_of, theirs)}
    lacking = {
        f"hotcount.aio lacks {line}"
        for line in ours - theirs
        if name_of(line).rpartition(".")[0] in classes
    }
    return sorted(others | {line for line in aio if as_sync(line) not in ours} | lacking)


def list_options() -> None:
    """Prints the attributes that nobody can set, each with its owner: options of constructors, and
    columns of batches. Those of hotcount.aio are the same."""
    found = [
        re.match(r"hotcount\.([A-Z]\w*\.\w+): ReadOnly\[(.*)\]$", line) for line in of_python()
    ]
    columns = {match[1]: match[2].startswith("Column[") for match in found if match}
    for name, is_column in columns.items():
        print(f"{'column' if is_column else 'option'} {name}")
    print(f"{len(columns) - sum(columns.values())} options, {sum(columns.values())} columns")


# -- C++ ----------------------------------------------------------------------


def text_of(element: ElementTree.Element | None) -> str:
    """As it is declared, with one space where Doxygen may have any number."""
    text = " ".join("".join(element.itertext()).split()) if element is not None else ""
    return re.sub(r"(?<=[<(]) | (?=[>)])", "", text)


def is_public(element: ElementTree.Element) -> bool:
    location = element.find("location")
    file = location.get("file", "") if location is not None else ""
    name = f"{element.findtext('compoundname')}{element.findtext('qualifiedname')}"
    return (
        element.get("prot", "public") == "public"
        and element.get("kind") != "friend"
        and "/detail/" not in file
        and "::detail::" not in name
    )


def template_of(element: ElementTree.Element) -> str:
    parameters = element.find("templateparamlist")
    if parameters is None:
        return ""
    made = [
        " ".join(filter(None, (text_of(each.find("type")), text_of(each.find("declname")))))
        + (f" = {text_of(each.find('defval'))}" if each.find("defval") is not None else "")
        for each in parameters.iter("param")
    ]
    return f"template <{', '.join(made)}> "


def declaration(member: ElementTree.Element) -> str:
    kind = member.get("kind")
    name = text_of(member.find("qualifiedname")) or text_of(member.find("name"))
    if kind == "define":
        parameters = [text_of(each) for each in member.iter("defname")]
        return f"#define {name}({', '.join(parameters)})"
    if kind == "enum":
        values = [
            f"{text_of(each.find('name'))} {text_of(each.find('initializer'))}".strip()
            for each in member.iter("enumvalue")
        ]
        word = "enum class" if member.get("strong") == "yes" else "enum"
        base = f" : {text_of(member.find('type'))}" if text_of(member.find("type")) else ""
        return f"{word} {name}{base} {{ {', '.join(values)} }}"
    made = text_of(member.find("definition")) + text_of(member.find("argsstring"))
    value = text_of(member.find("initializer"))
    return template_of(member) + made + (f" {value}" if value else "")


def of_headers() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="hotcount-surface-") as folder:
        settings = (ROOT / "docs/reference/Doxyfile").read_text(encoding="utf-8")
        settings += f"\nOUTPUT_DIRECTORY = {folder}\nWARNINGS = NO\nWARN_AS_ERROR = NO\n"
        subprocess.run(["doxygen", "-"], input=settings, cwd=ROOT, text=True, check=True)
        trees = [ElementTree.parse(file) for file in Path(folder, "xml").glob("*.xml")]
    lines = set()
    for compound in (each for tree in trees for each in tree.iter("compounddef")):
        name = text_of(compound.find("compoundname"))
        kind = str(compound.get("kind"))
        if kind == "file" and is_public(compound):
            lines.add((name, f"#include <hotcount/{name}>"))
        if kind in ("class", "struct", "union") and is_public(compound):
            bases = [
                f"{each.get('prot')} {text_of(each)}" for each in compound.iter("basecompoundref")
            ]
            made = f"{template_of(compound)}{kind} {name}"
            lines.add((name, made + (f" : {', '.join(bases)}" if bases else "")))
        if kind in ("class", "struct", "union", "namespace", "file"):
            for member in compound.iter("memberdef"):
                if is_public(member) and (kind != "file" or member.get("kind") == "define"):
                    line = declaration(member)
                    named = text_of(member.find("qualifiedname")) or text_of(member.find("name"))
                    lines.add((named, line))
    return [line for _, line in sorted(lines)]


# -- commands -----------------------------------------------------------------


def of_parser(made: argparse.ArgumentParser, name: str) -> Iterator[str]:
    for each in made._actions:
        if isinstance(each, argparse._SubParsersAction):
            for word, further in each.choices.items():
                yield f"{name} {word}"
                yield from of_parser(further, f"{name} {word}")
            continue
        if isinstance(each, argparse._HelpAction):
            continue
        facts = {
            "": each.metavar or (each.dest if each.nargs != 0 else None),
            "nargs": each.nargs or None,
            "choices": each.choices and "|".join(map(str, each.choices)),
            "required": (each.required and bool(each.option_strings)) or None,
            "default": None if each.default in (False, argparse.SUPPRESS) else each.default,
        }
        said = [f"{fact}={value}".lstrip("=") for fact, value in facts.items() if value is not None]
        yield " ".join(filter(None, [name, ",".join(each.option_strings), *said]))


def of_help(command: list[str], name: str) -> Iterator[str]:
    """What the help of a program that is not ours to read lists; a default stands in brackets."""
    done = subprocess.run(
        [*command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "1000"},
    )
    section = ""
    for line in done.stdout.splitlines():
        if match := re.match(r"(\w+):$", line):
            section = match[1].lower()
        elif match := re.match(r" {2}(\S.*?)(?: {2,}(.*))?$", line):
            listed, says = match[1], match[2] or ""
            if section == "strategies":
                yield from (f"{name.split()[0]} strategy {each}" for each in says.split())
            elif listed.startswith("-h"):
                continue
            elif section == "subcommands":
                yield f"{name} {listed}"
                yield from of_help([*command, listed], f"{name} {listed}")
            else:
                default = re.search(r" \[[^\]]*\]$", says)
                yield f"{name} {listed}" + (default[0] if default else "")


def of_commands() -> list[str]:
    ours = of_parser(parser(), "hotcount")
    load = of_help([program()], "hotcount-load")
    studies = {
        line
        for each in STUDIES
        for name in [f"hotcount load {each}"]
        for line in [name, *of_parser(_load_cli.parser(each), name)]
    }
    merge = [sys.executable, "-m", "hotcount.load", "merge"]
    return sorted({*ours, *load, *studies, *of_help(merge, "python -m hotcount.load merge")})


# -----------------------------------------------------------------------------

PARTS = {"python.txt": of_python, "cpp.txt": of_headers, "commands.txt": of_commands}


def main() -> int:
    if sys.argv[1:] == ["--options"]:
        list_options()
        return 0
    FOLDER.mkdir(exist_ok=True)
    for name, lines in PARTS.items():
        (FOLDER / name).write_text("\n".join(lines()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

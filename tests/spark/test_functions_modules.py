"""Which of the user's modules and installed packages are part of a Python function, and how they count."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider.spark.identity.functions import FunctionIdentity, FunctionReader
from tests.spark.function_cases import command, identity

pytestmark = pytest.mark.usefixtures("own_tests")


def write(module_folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = module_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


_SCRIPT = "def f(x):\n import own_helper\n return own_helper.g(x)"

REACHED: dict[str, tuple[str, dict[str, str], str, str]] = {
    "import in the body": (_SCRIPT, {"own_helper.py": "g = lambda x: 1"}, "own_helper.py", "g = lambda x: 2"),
    "by reference": (
        "from own_helper import g\nf = g",
        {"own_helper.py": "def g(x):\n return 1"},
        "own_helper.py",
        "def g(x):\n return 2",
    ),
    "module as a global": (
        "import own_helper\nf = lambda x: own_helper.g(x)",
        {"own_helper.py": "def g(x):\n return 1"},
        "own_helper.py",
        "def g(x):\n return 2",
    ),
    "a helper's helper": (
        _SCRIPT,
        {"own_helper.py": "from own_deep import g", "own_deep.py": "g = lambda x: 1"},
        "own_deep.py",
        "g = lambda x: 2",
    ),
    "import a.b as c": (
        _SCRIPT,
        {"own_helper.py": "import own_p.deep as c\ng = c.g", "own_p/__init__.py": "", "own_p/deep.py": "g = len"},
        "own_p/deep.py",
        "g = max",
    ),
    "from a import b": (
        _SCRIPT,
        {"own_helper.py": "from own_p import deep\ng = deep.g", "own_p/__init__.py": "", "own_p/deep.py": "g = len"},
        "own_p/deep.py",
        "g = max",
    ),
    "a package's own module": (
        _SCRIPT,
        {"own_helper.py": "import own_p.deep as c\ng = c.g", "own_p/__init__.py": "", "own_p/deep.py": "g = len"},
        "own_p/__init__.py",
        "import builtins; builtins.len = max",
    ),
    "relative import": (
        "from own_p.a import g\nf = g",
        {"own_p/__init__.py": "", "own_p/a.py": "from .b import k\ndef g(x): return k", "own_p/b.py": "k = 1"},
        "own_p/b.py",
        "k = 2",
    ),
    "relative import of a module": (
        "from own_p.q.a import g\nf = g",
        {
            "own_p/__init__.py": "",
            "own_p/q/__init__.py": "",
            "own_p/q/a.py": "from .. import b\ndef g(x): return b.k",
            "own_p/b.py": "k = 1",
        },
        "own_p/b.py",
        "k = 2",
    ),
    "import in a function of a helper": (
        _SCRIPT,
        {"own_helper.py": "def g(x):\n from own_deep import k\n return k", "own_deep.py": "k = 1"},
        "own_deep.py",
        "k = 2",
    ),
    "name space without __init__": (
        _SCRIPT,
        {"own_helper.py": "from own_space.deep import k\ng = lambda x: k", "own_space/deep.py": "k = 1"},
        "own_space/deep.py",
        "k = 2",
    ),
    "import_module of a literal": (
        "import importlib\ndef f(x):\n return importlib.import_module('own_deep').k",
        {"own_deep.py": "k = 1"},
        "own_deep.py",
        "k = 2",
    ),
    "__import__ of a literal": (
        "def f(x):\n return __import__('own_deep').k",
        {"own_deep.py": "k = 1"},
        "own_deep.py",
        "k = 2",
    ),
    "import_module in a helper": (
        _SCRIPT,
        {
            "own_helper.py": "import importlib\ng = lambda x: importlib.import_module('own_deep').k",
            "own_deep.py": "k = 1",
        },
        "own_deep.py",
        "k = 2",
    ),
    "import of a name that only a run can tell": (
        "import importlib, own_deep\ndef f(x):\n return importlib.import_module(x).k",
        {"own_deep.py": "k = 1"},
        "own_deep.py",
        "k = 2",
    ),
    "import of such a name in a helper": (
        "import own_deep\n" + _SCRIPT,
        {"own_helper.py": "import importlib as i\ng = lambda x: i.import_module(x).k", "own_deep.py": "k = 1"},
        "own_deep.py",
        "k = 2",
    ),
    "star import of listed modules": (
        _SCRIPT,
        {
            "own_helper.py": "from own_p import *\ng = lambda x: deep.k",
            "own_p/__init__.py": "__all__ = ['deep']",
            "own_p/deep.py": "k = 1",
        },
        "own_p/deep.py",
        "k = 2",
    ),
    "a module that a package imports by a name that only a run can tell": (
        "def f(x):\n import own_p\n return own_p.load('deep').k",
        {
            "own_p/__init__.py": "import importlib\ndef load(n): return importlib.import_module(f'{__name__}.{n}')",
            "own_p/deep.py": "k = 1",
        },
        "own_p/deep.py",
        "k = 2",
    ),
    "a module that its package imports when it is asked for": (
        "def f(x):\n from own_p import k\n return k",
        {"own_p/__init__.py": "def __getattr__(name):\n from own_p import deep", "own_p/deep.py": "k = 1"},
        "own_p/deep.py",
        "k = 2",
    ),
    "a module that is asked for as an attribute": (
        "def f(x):\n import own_p\n return own_p.deep.k",
        {"own_p/__init__.py": "import own_other", "own_other.py": "import own_p.deep", "own_p/deep.py": "k = 1"},
        "own_p/deep.py",
        "k = 2",
    ),
    "a module beside one that computes its imports": (
        "import own_helper\n" + _SCRIPT,
        {"own_helper.py": "from pydoc import locate\ng = lambda x: locate('own_deep').k", "own_deep.py": "k = 1"},
        "own_deep.py",
        "k = 2",
    ),
    "class of an instance": (
        "from own_helper import C\nc = C()\nf = lambda x: c.m()",
        {"own_helper.py": "class C:\n def m(self): return 1"},
        "own_helper.py",
        "class C:\n def m(self): return 2",
    ),
    "annotation of a field": (
        "from own_helper import C\nc = C()\nf = lambda x: c.k",
        {"own_helper.py": "from dataclasses import dataclass\n@dataclass\nclass C:\n k: int = 1"},
        "own_helper.py",
        "from dataclasses import dataclass\nfrom typing import ClassVar\n@dataclass\nclass C:\n k: ClassVar[int] = 1",
    ),
    "docstring that its module reads": (
        _SCRIPT,
        {"own_helper.py": "def g(x):\n 'a'\n return g.__doc__"},
        "own_helper.py",
        "def g(x):\n 'b'\n return g.__doc__",
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_the_users_modules_count_by_their_source(name: str, module_folder: Path) -> None:
    """A change in a module of the user's that the function reaches changes its digest and is told by its name."""
    script, files, changed, text = REACHED[name]
    write(module_folder, files)
    shipped = command(script)
    reader = FunctionReader({})
    before = reader.read(shipped)
    write(module_folder, {changed: text})
    after = reader.read(shipped)
    assert before.opaque == after.opaque == ()
    assert before.digest != after.digest
    module = changed.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert {name for name in before.modules if before.modules[name] != after.modules[name]} >= {module}


def test_how_a_module_is_written_does_not_count(module_folder: Path) -> None:
    """Comments, docstrings, annotations that nothing reads and moved lines in a module keep the digest."""
    write(module_folder, {"own_helper.py": "def g(x):\n k = 'a'\n return k"})
    shipped = command(_SCRIPT)
    before = FunctionReader({}).read(shipped)
    text = (
        '"""A module."""\n\n# a comment\n\n\ndef g(x: int) -> str:\n    """Doc."""\n    k: str = ("a")\n    return k\n'
    )
    write(module_folder, {"own_helper.py": text})
    assert FunctionReader({}).read(shipped) == before


def test_modules_that_are_not_reached_do_not_count(module_folder: Path) -> None:
    """A module beside the one that is imported has no part in the identity."""
    write(module_folder, {"own_helper.py": "g = len", "own_other.py": "k = 1"})
    __import__("own_other")
    found = FunctionReader({}).read(command(_SCRIPT))
    assert found.modules.keys() == {"own_helper"}


def test_nothing_is_imported_in_order_to_look(module_folder: Path) -> None:
    """Modules that only executors will import are read, not run."""
    write(module_folder, {"own_p/__init__.py": "raise SystemExit", "own_p/a.py": "k = 1"})
    found = FunctionReader({}).read(command("def f(x):\n from own_p.a import k\n return k"))
    assert found.opaque == ()
    assert found.modules.keys() == {"own_p", "own_p.a"}
    assert "own_p" not in sys.modules


def test_modules_in_an_archive_count(module_folder: Path) -> None:
    """A module that was shipped in a zip counts by its source like any other."""

    def archived(text: str) -> FunctionIdentity:
        with zipfile.ZipFile(module_folder / "lib.zip", "w") as archive:
            archive.writestr("own_zipped.py", text)
        sys.path_importer_cache.clear()
        return FunctionReader({}).read(command("def f(x):\n import own_zipped\n return own_zipped.k"))

    sys.path.insert(0, str(module_folder / "lib.zip"))
    try:
        one, same, other = archived("k = 1"), archived("k = 1  # one"), archived("k = 2")
    finally:
        sys.path.remove(str(module_folder / "lib.zip"))
    assert one.modules.keys() == {"own_zipped"}
    assert one == same
    assert one.digest != other.digest


def test_modules_without_source_count_by_their_bytes(module_folder: Path) -> None:
    """Of a module that comes as bytecode alone the bytes count."""

    def compiled(text: str) -> FunctionIdentity:
        write(module_folder, {"text.py": text})
        py_compile.compile(
            str(module_folder / "text.py"), str(module_folder / "own_compiled.pyc"), invalidation_mode=unchecked
        )
        return FunctionReader({}).read(command("def f(x):\n import own_compiled\n return own_compiled.k"))

    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    one, other = compiled("k = 1"), compiled("k = 2")
    assert one.modules.keys() == {"own_compiled"}
    assert one.digest != other.digest


def test_installed_packages_count_by_version() -> None:
    """An installed package is told by its distribution and version, whatever its modules are called."""
    from importlib.metadata import version

    found = identity("import yaml, numpy as np\nf = lambda x: (yaml, np)")
    assert found.modules == {}
    assert {name: found.packages[name] for name in ("PyYAML", "numpy")} == {
        "PyYAML": version("PyYAML"),
        "numpy": version("numpy"),
    }


@pytest.mark.integration
def test_what_an_installed_package_needs_counts_by_version(module_folder: Path) -> None:
    """A function that calls one package, which calls another one: after an upgrade of that one its digest differs."""
    packages = module_folder / "site-packages"

    def install(name: str, version: str, *needs: str) -> None:
        module, info = name.replace("-", "_"), f"{name.replace('-', '_')}.dist-info"
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
        record = f"{module}.py,,\n"
        write(packages, {f"{module}.py": "k = 1", f"{info}/METADATA": "\n".join(lines), f"{info}/RECORD": record})

    def run() -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *sys.path])}
        probe = (
            "from tests.spark.function_cases import identity; "
            "found = identity('def f(x):\\n import own_front\\n return own_front'); print(found.packages, found.digest)"
        )
        command = [sys.executable, "-c", probe]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    install("own-front", "1.0", "Own_Middle (>=1); python_version > '3'", "own-absent; extra == 'more'")
    install("own-middle", "1.0", "own-deep[fast]~=1.0", "own-front")
    install("own-deep", "1.0")
    install("own-other", "1.0")
    before = run()
    install("own-other", "1.1")
    assert run() == before
    install("own-deep", "1.1")
    assert run() != before


def test_an_installed_package_of_another_version_differs(module_folder: Path) -> None:
    """After an upgrade of a package that a function uses, its digest differs although no source was looked at."""
    packages = module_folder / "site-packages"
    write(packages, {"own_dist.py": "k = 1", "own_dist-1.0.dist-info/METADATA": "Name: own-dist\nVersion: 1.0\n"})
    write(packages, {"own_dist-1.0.dist-info/RECORD": "own_dist.py,,\n"})
    probe = (
        "import sys; from tests.spark.function_cases import command, FunctionReader; "
        "found = FunctionReader({}).read(command('def f(x):\\n import own_dist\\n return own_dist')); "
        "print(found.packages['own-dist'], found.digest)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *sys.path])}

    def run() -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", probe], env=environment, check=True, capture_output=True, text=True
        ).stdout.split()

    before = run()
    (packages / "own_dist-1.0.dist-info").rename(packages / "own_dist-1.1.dist-info")
    write(packages, {"own_dist-1.1.dist-info/METADATA": "Name: own-dist\nVersion: 1.1\n"})
    after = run()
    assert (before[0], after[0]) == ("1.0", "1.1")
    assert before[1] != after[1]

"""Which sources of chance a Python function is found to reach. No JVM is needed: PySpark's pickles do."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.spark.identity.functions import FunctionReader
from airflow_provider.spark.identity.functions.chance import ALL_BUT, DRAWING, SEEDED
from tests.spark.function_cases import command, shipped

pytestmark = pytest.mark.usefixtures("own_tests")

DRAWS: dict[str, tuple[str, str]] = {
    "module": ("import uuid\nf = lambda x: str(uuid.uuid4())", "uuid.uuid4"),
    "another name of a module": ("import uuid as u\nf = lambda x: u.uuid1().hex", "uuid.uuid1"),
    "from": ("from uuid import uuid4 as new\nf = lambda x: str(new())", "uuid.uuid4"),
    "imported inside": ("def f(x):\n import uuid\n return uuid.uuid4().hex", "uuid.uuid4"),
    "imported from inside": ("def f(x):\n from uuid import uuid4\n return uuid4().hex", "uuid.uuid4"),
    "imported outside of an inner function": (
        "def f(x):\n import uuid\n return [uuid.uuid4() for _ in range(x)]",
        "uuid.uuid4",
    ),
    "the function itself": ("from uuid import uuid4 as f", "uuid.uuid4"),
    "random": ("import random\nf = lambda x: random.random()", "random.random"),
    "a method of random": ("import random\nf = lambda x: random.choice([1, 2])", "random.choice"),
    "random, seeded for all": ("import random\ndef f(x):\n random.seed(1)\n return random.random()", "random.random"),
    "from random": ("from random import random\nf = lambda x: random()", "random.Random"),
    "from random, a method": ("from random import randint\nf = lambda x: randint(1, 6)", "random.Random"),
    "a generator without a seed": ("import random\nf = lambda x: random.Random().random()", "random.Random"),
    "a generator with None": ("import random\nf = lambda x: random.Random(None).random()", "random.Random"),
    "a generator whose seed may be None": (
        "import random\ndef f(x, seed=None):\n return random.Random(seed).random()",
        "random.Random",
    ),
    "a generator whose seed is None": (
        "import random\nSEED = None\nf = lambda x: random.Random(SEED).random()",
        "random.Random",
    ),
    "a generator with arguments that cannot be seen": (
        "import random\nf = lambda x: random.Random(*x).random()",
        "random.Random",
    ),
    "a generator that is held": ("import random\nR = random.Random(1)\nf = lambda x: R.random()", "random.Random"),
    "a generator under another name": (
        "import random\ndef f(x):\n R = random.Random\n return R().random()",
        "random.Random",
    ),
    "a generator handed on": ("import random\nf = lambda x: list(map(random.Random, x))", "random.Random"),
    "the system's generator": ("import random\nf = lambda x: random.SystemRandom().random()", "random.SystemRandom"),
    "numpy": ("import numpy as np\nf = lambda x: np.random.rand()", "numpy.random.rand"),
    "numpy.random": ("import numpy.random as r\nf = lambda x: r.normal()", "numpy.random.normal"),
    "from numpy": ("from numpy.random import rand\nf = lambda x: rand()", "all of numpy.random"),
    "default_rng": ("import numpy as np\nf = lambda x: np.random.default_rng().random()", "numpy.random.default_rng"),
    "default_rng with None": (
        "from numpy.random import default_rng\nf = lambda x: default_rng(seed=None).random()",
        "numpy.random.default_rng",
    ),
    "a bit generator": (
        "from numpy.random import Generator, PCG64\nf = lambda x: Generator(PCG64()).random()",
        "numpy.random.PCG64",
    ),
    "a generator of numpy that is held": (
        "import numpy as np\nR = np.random.default_rng(1)\nf = lambda x: R.random()",
        "all of numpy.random",
    ),
    "secrets": ("import secrets\nf = lambda x: secrets.token_hex()", "secrets.token_hex"),
    "urandom": ("import os\nf = lambda x: os.urandom(8)", "os.urandom"),
    "from os": ("from os import urandom\nf = lambda x: urandom(8)", "os.urandom"),
    "time": ("import time\nf = lambda x: time.time()", "time.time"),
    "from time": ("from time import time\nf = lambda x: time()", "time.time"),
    "now": ("import datetime\nf = lambda x: datetime.datetime.now()", "datetime.datetime.now"),
    "from datetime": ("from datetime import datetime as dt\nf = lambda x: dt.utcnow()", "datetime.datetime.utcnow"),
    "today": ("from datetime import date\nf = lambda x: date.today().isoformat()", "datetime.date.today"),
    "a method that is held": ("from datetime import date\nt = date.today\nf = lambda x: t()", "datetime.date.today"),
    "a class under another name": (
        "from datetime import datetime\ndef f(x):\n D = datetime\n return D.now()",
        "datetime.datetime.now",
    ),
    "pandas": ("import pandas as pd\nf = lambda x: pd.Timestamp.now()", "pandas.Timestamp.now"),
    "getattr": ("import random\nf = lambda x: getattr(random, x)()", "all of random"),
    "import by a call": ("import importlib\nf = lambda x: importlib.import_module('random').random()", "all of random"),
    "eval": ("f = lambda x: eval(x)", "code that only a run can tell (eval, exec or a computed import)"),
    "a helper": ("import uuid\ndef g():\n return uuid.uuid4()\nf = lambda x: g()", "uuid.uuid4"),
    "a closure": ("import uuid\ndef make(new):\n return lambda x: new()\nf = make(uuid.uuid4)", "uuid.uuid4"),
    "a default": ("import uuid\ndef f(x, new=uuid.uuid4):\n return new()", "uuid.uuid4"),
    "a partial": ("import functools, time\nf = functools.partial(max, key=time.ctime)", "time.ctime"),
    "a generator in a partial": (
        "import functools, random\ng = functools.partial(random.Random, None)\nf = lambda x: g().random()",
        "random.Random",
    ),
    "a method of the script's class": (
        "import uuid\nclass C:\n def m(self): return uuid.uuid4()\nf = lambda x: C().m()",
        "uuid.uuid4",
    ),
    "a table of functions": ("import uuid\nT = {'new': uuid.uuid4}\nf = lambda x: T[x]()", "uuid.uuid4"),
    "a subclass": ("import random\nclass R(random.Random): pass\nf = lambda x: R().random()", "random.Random"),
    "a seed that is an attribute": (
        "import random\nclass S:\n seed = None\nf = lambda x: random.Random(S.seed).random()",
        "random.Random",
    ),
    "a seed that is an item": (
        "import random\nP = {'seed': None}\nf = lambda x: random.Random(P['seed']).random()",
        "random.Random",
    ),
    "a seed that a function returns": (
        "import numpy as np\nP = {}\nf = lambda x: np.random.default_rng(P.get('seed')).random()",
        "numpy.random.default_rng",
    ),
    "a seed that is a local variable": (
        "import random\ndef f(x):\n seed = 42 if x else None\n return random.Random(seed).random()",
        "random.Random",
    ),
    "the day in a text": ("import pandas as pd\nf = lambda x: pd.to_datetime('today')", "pandas.to_datetime.'today'"),
    "the time in a text": ("import pandas as pd\nf = lambda x: pd.Timestamp('now')", "pandas.Timestamp.'now'"),
    "NumPy's time in a text": (
        "from numpy import datetime64\nf = lambda x: datetime64('now')",
        "numpy.datetime64.'now'",
    ),
    "the task": (
        "from pyspark import TaskContext\nf = lambda x: TaskContext.get().taskAttemptId()",
        "pyspark.TaskContext.get.taskAttemptId",
    ),
}
"""Name → a script's function ``f``, and what it reaches."""

SAME: dict[str, str] = {
    "arithmetic": "f = lambda x: x + 1",
    "other parts of the modules": (
        "import os, time, uuid, numpy as np\n"
        "def f(x):\n time.sleep(0)\n return uuid.uuid5(uuid.NAMESPACE_DNS, x), os.path.join(x, 'a'), np.sqrt(2)"
    ),
    "dates": (
        "from datetime import date, datetime, timezone\n"
        "def f(x):\n return isinstance(x, date), datetime(2026, 1, 1, tzinfo=timezone.utc), datetime.strptime(x, '%Y')"
    ),
    "values of dates": "from datetime import datetime\nD = datetime(2026, 1, 1)\nf = lambda x: x > D",
    "a seeded generator": "import random\nf = lambda x: random.Random(42).random()",
    "a generator seeded by the row": "import random\nf = lambda x: random.Random(x).random()",
    "a generator seeded by an expression": "import random\nf = lambda x: random.Random(hash(str(x)) % 2**32).random()",
    "a generator seeded by a constant": "import random\nSEED = 42\nf = lambda x: random.Random(SEED).random()",
    "a generator whose seed has a default": "import random\ndef f(x, seed=7):\n return random.Random(seed).random()",
    "from random": "from random import Random\nf = lambda x: Random(42).choice([1, 2])",
    "a generator seeded by a local variable": (
        "import random\ndef f(x):\n seed = int(x) % 7\n return random.Random(seed).random()"
    ),
    "a generator seeded by a loop": "import random\nf = lambda x: [random.Random(i).random() for i in range(x)]",
    "a generator seeded by a sum of bytes": (
        "import random, zlib\nf = lambda x: random.Random(zlib.crc32(x.encode())).random()"
    ),
    "days in texts": "import pandas as pd\nf = lambda x: pd.to_datetime('2026-01-01')",
    "the partition": "from pyspark import TaskContext\nf = lambda x: TaskContext.get().partitionId()",
    "a text alone": "f = lambda x: x == 'today'",
    "numpy": "import numpy as np\nf = lambda x: np.random.RandomState(0).rand()",
    "default_rng": "import numpy as np\nf = lambda x: np.random.default_rng(42).random()",
    "default_rng by name": "from numpy.random import default_rng\nf = lambda x: default_rng(seed=[1, x]).random()",
    "a bit generator": "from numpy.random import Generator, PCG64\nf = lambda x: Generator(PCG64(1)).random()",
    "a check of types": "import numpy as np\nf = lambda x: isinstance(x, np.random.Generator)",
    "names of other things": "class C:\n random = now = 1\nf = lambda x: (C.random, C.now, x.today, x.uuid4)",
    "imported and not used": "import random, uuid, time\nf = lambda x: x",
}
"""Name → a script's function ``f`` that reaches no source of chance."""


def draws(source: str) -> tuple[str, ...]:
    return FunctionReader({}).read(command(source)).draws


@pytest.mark.parametrize("name", DRAWS)
def test_a_source_of_chance_is_found(name: str) -> None:
    """Under whatever name the function's code or what it holds has it."""
    source, reached = DRAWS[name]
    assert reached in draws(source)


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_in_each_run_is_none(name: str) -> None:
    """Neither other parts of such modules nor a generator with a seed are."""
    assert draws(SAME[name]) == ()


HELPERS = """
import logging, random, uuid
from datetime import datetime
from random import Random as R

def plain(x):
    return x + 1

def new(x):
    return uuid.uuid4().hex

def through(x):
    return plain(new(x))

def logged(x):
    logging.info("at %s", datetime.now())
    return x

def seeded(x):
    return R(x).random()

def perhaps_seeded(x, seed=None):
    return R(seed).random()

class Maker:
    def make(self):
        return random.random()

class Other:
    def make(self):
        return 1
"""
REGISTRY = """
import functools, uuid
from pyspark.sql.functions import udf

KNOWN = {}

def known(name):
    def note(function):
        KNOWN[name] = function
        return function
    return note

@known("new")
def new(x):
    return uuid.uuid4().hex

def apply(name, x):
    return KNOWN[name](x)

@functools.lru_cache
def cached(x):
    return x
"""
IN_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "by reference": ("from drawing_helpers import new as f", ("uuid.uuid4 in drawing_helpers.new",)),
    "module": (
        "import drawing_helpers\nf = lambda x: drawing_helpers.new(x)",
        ("uuid.uuid4 in drawing_helpers.new",),
    ),
    "imported inside": (
        "def f(x):\n from drawing_helpers import through\n return through(x)",
        ("uuid.uuid4 in drawing_helpers.new",),
    ),
    "logged": (
        "from drawing_helpers import logged\nf = lambda x: logged(x)",
        ("datetime.datetime.now in drawing_helpers.logged",),
    ),
    "an instance": (
        "from drawing_helpers import Maker\nM = Maker()\nf = lambda x: M.make()",
        ("random.random in drawing_helpers.Maker",),
    ),
    "through another module": (
        "from drawing_more import f as g\nf = lambda x: g(x)",
        ("uuid.uuid4 in drawing_helpers.new",),
    ),
    "exported by another module": (
        "import drawing_more\nf = lambda x: drawing_more.new(x)",
        ("uuid.uuid4 in drawing_helpers.new",),
    ),
    "exported with all others": (
        "import drawing_all\nf = lambda x: drawing_all.new(x)",
        ("uuid.uuid4 in drawing_helpers.new",),
    ),
    "when it is imported": ("from drawing_now import NOW\nf = lambda x: __import__('drawing_now').NOW", ("time.time",)),
    "one that a decorator has put into a list": (
        "import drawing_known\nf = lambda x: drawing_known.apply('new', x)",
        ("uuid.uuid4 in drawing_known.new",),
    ),
    "one that a base class has put into a list": (
        "from drawing_kinds import kinds\nf = lambda x: kinds()[0]().make()",
        ("uuid.uuid4 in drawing_kinds.New",),
    ),
    "one that is looked for by a computed name": (
        "from drawing_named import apply as f",
        ("uuid.uuid4 in drawing_named._new",),
    ),
    "imported for what it does": ("from drawing_effects import plain as f", ("uuid.uuid4 in drawing_seed",)),
    "beside one that is cached": ("from drawing_cached import plain as f", ()),
    "a seed that may be None": (
        "from drawing_helpers import perhaps_seeded as f",
        ("random.Random in drawing_helpers.perhaps_seeded",),
    ),
    "plain": ("from drawing_helpers import plain as f", ()),
    "seeded": ("from drawing_helpers import seeded as f", ()),
    "another class": ("from drawing_helpers import Other\nf = lambda x: Other().make()", ()),
}


@pytest.mark.parametrize("name", IN_MODULES)
def test_functions_of_own_modules_are_followed(module_folder: Path, name: str) -> None:
    """What a function reaches in the user's own modules counts, and what else stands there does not."""
    (module_folder / "drawing_helpers.py").write_text(HELPERS)
    (module_folder / "drawing_more.py").write_text("from drawing_helpers import new\ndef f(x):\n return new(x)")
    (module_folder / "drawing_all.py").write_text("from drawing_helpers import *")
    (module_folder / "drawing_now.py").write_text("import time\nNOW = time.time()")
    (module_folder / "drawing_known.py").write_text(REGISTRY)
    (module_folder / "drawing_kinds.py").write_text(
        "import uuid\nclass Kind: pass\nclass New(Kind):\n def make(self): return uuid.uuid4()\n"
        "def kinds(): return Kind.__subclasses__()"
    )
    (module_folder / "drawing_named.py").write_text(
        "import uuid\ndef _new(x): return uuid.uuid4()\ndef apply(x): return globals()['_' + x](x)"
    )
    (module_folder / "drawing_effects.py").write_text("import drawing_seed\ndef plain(x): return x")
    (module_folder / "drawing_seed.py").write_text("import uuid\nID = uuid.uuid4()")
    (module_folder / "drawing_cached.py").write_text(
        "import functools, uuid\n@functools.lru_cache\ndef new(x): return uuid.uuid4()\ndef plain(x): return x"
    )
    source, reached = IN_MODULES[name]
    found = draws(source)
    assert len(found) == len(reached)
    assert all(one.startswith(wanted) for one, wanted in zip(found, reached, strict=True))


def test_a_generator_in_a_broadcast_variable_is_found() -> None:
    """Its value is looked at as executors get it."""

    class Variable:
        value = random.Random(1)

    def f(x: int) -> float:
        return x * variable.value.random()  # type: ignore[name-defined, no-any-return]  # noqa: F821

    from pyspark.broadcast import _from_id  # type: ignore[import-not-found]

    class Held:
        def __reduce__(self) -> Any:
            return _from_id, (7,)

    f.__globals__["variable"] = Held()
    try:
        assert FunctionReader({7: Variable()}).read(shipped(f)).draws == ("random.Random",)
    finally:
        del f.__globals__["variable"]


def test_the_documentation_lists_all_of_them() -> None:
    """docs/reuse.md has one line for each module and class of the list, with what of it draws or does not."""
    text = (Path(__file__).parents[2] / "docs" / "reuse.md").read_text()
    rows = dict(re.findall(r"^\| ([\w.]+) \| (.*) \|$", text, re.MULTILINE))
    for owner, names in DRAWING.items():
        assert rows[owner] == ", ".join(f"`{name}`" for name in sorted(names))
    for owner, names in ALL_BUT.items():
        others = ", ".join(f"`{name}`" for name in sorted(names))
        made = ", ".join(f"`{name}`" for name in sorted(SEEDED.get(owner, ())))
        expected = f"all but {others}" if others else "all"
        assert rows[owner] == (f"{expected}; not with a seed: {made}" if made else expected)

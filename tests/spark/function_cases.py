"""Pairs of scripts whose function ``f`` does the same, or can do different things; and how PySpark ships it."""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import LongType

from airflow_provider.spark.identity.functions import FunctionIdentity, FunctionReader


def shipped(function: Any, return_type: Any = None) -> bytes:
    """What PySpark ships for *function*, as a UDF."""
    return CloudPickleSerializer().dumps((function, return_type or LongType()))  # type: ignore[no-any-return]


def command(source: str, return_type: Any = None) -> bytes:
    """What PySpark ships for the function ``f`` of a script."""
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "/jobs/script.py", "exec"), script)
    return shipped(script["f"], return_type)


def identity(source: str) -> FunctionIdentity:
    found = FunctionReader({}).read(command(source))
    assert found.opaque == ()
    return found


SAME: dict[str, tuple[str, str]] = {
    "comment": ("def f(x):\n return x + 1", "# why\ndef f(x):\n # because\n return x + 1  # so"),
    "white space": (
        "def f(x):\n return g(x,1)\ndef g(a,b):\n return a",
        "def f(x):\n\n    return g(x, 1)\ndef g(a, b): return a",
    ),
    "moved down": ("def f(x):\n return x + 1", "a = 1\nb = 2\n\n\n\n\n\n\n\n\n\n\ndef f(x):\n return x + 1"),
    "local variable renamed": ("def f(x):\n y = x * 2\n return y", "def f(x):\n doubled = x * 2\n return doubled"),
    "captured local variable renamed": (
        "def f(x):\n k = x * 2\n return [k + i for i in range(3)], (lambda: k)()",
        "def f(x):\n m = x * 2\n return [m + i for i in range(3)], (lambda: m)()",
    ),
    "loop variable renamed": ("def f(x):\n for i in x: print(i)", "def f(x):\n for row in x: print(row)"),
    "comprehension variable renamed": ("f = lambda x: [i * 2 for i in x]", "f = lambda x: [j * 2 for j in x]"),
    "closure variable renamed": (
        "def make(k):\n return lambda x: x + k\nf = make(3)",
        "def make(offset):\n return lambda x: x + offset\nf = make(3)",
    ),
    "docstring added": ("def f(x):\n return x + 1", 'def f(x):\n "Adds one."\n return x + 1'),
    "docstring of a function that returns nothing": ("def f(x):\n print(x)", 'def f(x):\n """Prints."""\n print(x)'),
    "docstring changed": ('def f(x):\n "Adds."\n return x + 1', 'def f(x):\n "Adds one."\n return x + 1'),
    "docstring of a helper": (
        "def g(x):\n return x\ndef f(x):\n return g(x)",
        'def g(x):\n "The same."\n return x\ndef f(x):\n return g(x)',
    ),
    "docstring of a class": (
        "class C:\n def m(self): return 1\ndef f(x):\n return C().m()",
        'class C:\n "A class."\n def m(self):\n  "One."\n  return 1\ndef f(x):\n return C().m()',
    ),
    "docstring of a class inside the function": (
        "def f(x):\n class C:\n  'a'\n  y = 1\n return C.y",
        "def f(x):\n\n class C:\n  'b'\n  y = 1\n return C.y",
    ),
    "docstring of a property": (
        "class C:\n @property\n def m(self): return 1\ndef f(x):\n return C().m",
        'class C:\n @property\n def m(self):\n  "One."\n  return 1\ndef f(x):\n return C().m',
    ),
    "annotations": ("def f(x):\n y = x\n return y", "def f(x: int) -> int:\n y: int = x\n return y"),
    "annotations of the future": ("def f(x): return x", "from __future__ import annotations\ndef f(x: int): return x"),
    "function renamed": ("def f(x):\n return x + 1", "def add_one(x):\n return x + 1\nf = add_one"),
    "lambda or def": ("f = lambda x: x + 1", "def f(x):\n return x + 1"),
    "unused global changed": ("K = 1\ndef f(x):\n return x", "K = 2\ndef f(x):\n return x"),
    "unused import added": ("def f(x):\n return x", "import json\ndef f(x):\n return x"),
    "order of a set": ("S = {'a', 'b', 'c'}\nf = lambda x: x in S", "S = {'c', 'b', 'a'}\nf = lambda x: x in S"),
    "order of a set of tuples": (
        "S = {('a', 1), ('b', 2)}\nf = lambda x: x in S",
        "S = {('b', 2), ('a', 1)}\nf = lambda x: x in S",
    ),
    "order of a constant set": ("f = lambda x: x in {'a', 'b'}", "f = lambda x: x in {'b', 'a'}"),
    "order of frozen sets in a set": (
        "S = {frozenset('ab'), frozenset('cd')}\nf = lambda x: x in S",
        "S = {frozenset('dc'), frozenset('ba')}\nf = lambda x: x in S",
    ),
    "number spelt otherwise": ("f = lambda x: x + 1000", "f = lambda x: x + 0x3E8"),
    "text spelt otherwise": ("f = lambda x: x + 'ab'", 'f = lambda x: x + "a" "b"'),
    "constant folded": ("f = lambda x: x + 86400", "f = lambda x: x + 24 * 60 * 60"),
    "order of methods": (
        "class C:\n def a(self): return 1\n def b(self): return 2\nf = lambda x: C().a()",
        "class C:\n def b(self): return 2\n def a(self): return 1\nf = lambda x: C().a()",
    ),
    "class moved and commented": (
        "class C:\n def m(self): return 1\nf = lambda x: C().m()",
        "\n\n\nclass C:\n # one\n\n def m(self):\n  return 1\nf = lambda x: C().m()",
    ),
    "equal pattern": ("import re\nP = re.compile('a+')\nf = P.match", "import re\nf = re.compile('a' + '+').match"),
    "import spelt on two lines": (
        "def f(x):\n import json, math\n return json, math",
        "def f(x):\n import json\n import math\n return json, math",
    ),
    "two ways to the same closure value": ("K = 2 + 1\nf = lambda x: x + K", "K = 3\nf = lambda x: x + K"),
}

DIFFERENT: dict[str, tuple[str, str]] = {
    "constant": ("f = lambda x: x + 1", "f = lambda x: x + 2"),
    "operator": ("f = lambda x: x + 1", "f = lambda x: x - 1"),
    "comparison": ("f = lambda x: x < 1", "f = lambda x: x <= 1"),
    "1 and 1.0": ("f = lambda x: 1", "f = lambda x: 1.0"),
    "1 and True": ("f = lambda x: 1", "f = lambda x: True"),
    "0.0 and -0.0": ("f = lambda x: 0.0", "f = lambda x: -0.0"),
    "nan and None": ("K = float('nan')\nf = lambda x: K", "K = None\nf = lambda x: K"),
    "nan and infinity": ("K = float('nan')\nf = lambda x: K", "K = float('inf')\nf = lambda x: K"),
    "text and bytes": ("f = lambda x: 'a'", "f = lambda x: b'a'"),
    "bytes and bytearray": ("K = b'a'\nf = lambda x: K", "K = bytearray(b'a')\nf = lambda x: K"),
    "tuple and list": ("K = (1, 2)\nf = lambda x: K", "K = [1, 2]\nf = lambda x: K"),
    "set and frozenset": ("K = {1, 2}\nf = lambda x: K", "K = frozenset({1, 2})\nf = lambda x: K"),
    "nested otherwise": ("K = [[1], 2]\nf = lambda x: K", "K = [[1, 2]]\nf = lambda x: K"),
    "empty containers": ("K = []\nf = lambda x: K", "K = {}\nf = lambda x: K"),
    "order of a list": ("K = [1, 2]\nf = lambda x: K", "K = [2, 1]\nf = lambda x: K"),
    "order of a dictionary": ("K = {1: 0, 2: 0}\nf = lambda x: [*K]", "K = {2: 0, 1: 0}\nf = lambda x: [*K]"),
    "one list or two equal ones": (
        "a = [0]\nK = [a, a]\nf = lambda x: K[0].append(x)",
        "K = [[0], [0]]\nf = lambda x: K[0].append(x)",
    ),
    "element of a long list": (
        "K = list(range(100))\nf = lambda x: K[x]",
        "K = list(range(99)) + [98]\nf = lambda x: K[x]",
    ),
    "type inside a long list": ("K = [0] * 100\nf = lambda x: K[x]", "K = [0] * 99 + [0.0]\nf = lambda x: K[x]"),
    "value in a long dictionary": (
        "K = {i: i for i in range(100)}\nf = lambda x: K[x]",
        "K = {i: -i for i in range(100)}\nf = lambda x: K[x]",
    ),
    "default": ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
    "keyword-only default": ("def f(x, *, y=1): return x + y", "def f(x, *, y=2): return x + y"),
    "keyword-only or not": ("def f(x, y=1): return x + y", "def f(x, *, y=1): return x + y"),
    "order of arguments": ("def f(a, b): return a - b", "def f(b, a): return a - b"),
    "name of an argument": ("def f(a, b): return a - b", "def f(a, c): return a - c"),
    "variable arguments": ("def f(*a): return a", "def f(a): return a"),
    "generator": ("def f(x):\n yield x", "def f(x):\n return x"),
    "coroutine": ("async def f(x): return x", "def f(x): return x"),
    "global constant": ("K = 1\nf = lambda x: x + K", "K = 2\nf = lambda x: x + K"),
    "global taken instead of another": ("A = 1\nB = 1\nf = lambda x: A", "A = 1\nB = 2\nf = lambda x: B"),
    "builtin shadowed": ("f = lambda x: max(x)", "max = min\nf = lambda x: max(x)"),
    "closure value": (
        "def make(k):\n return lambda x: x + k\nf = make(3)",
        "def make(k):\n return lambda x: x + k\nf = make(4)",
    ),
    "closure values swapped": (
        "def make(a, b):\n return lambda x: a - b\nf = make(1, 2)",
        "def make(a, b):\n return lambda x: a - b\nf = make(2, 1)",
    ),
    "nested lambda": ("f = lambda x: (lambda y: y + 1)(x)", "f = lambda x: (lambda y: y + 2)(x)"),
    "helper": ("g = lambda x: x + 1\nf = lambda x: g(x)", "g = lambda x: x + 2\nf = lambda x: g(x)"),
    "helper's helper": (
        "h = lambda x: x + 1\ng = lambda x: h(x)\nf = lambda x: g(x)",
        "h = lambda x: x + 2\ng = lambda x: h(x)\nf = lambda x: g(x)",
    ),
    "recursive function": (
        "def f(x): return 1 if x < 2 else x * f(x - 1)",
        "def f(x): return 1 if x < 2 else x + f(x - 1)",
    ),
    "decorator": (
        "def twice(g): return lambda x: g(g(x))\n@twice\ndef f(x): return x + 1",
        "def twice(g): return lambda x: g(x)\n@twice\ndef f(x): return x + 1",
    ),
    "decorator added": (
        "def same(g): return lambda x: g(x)\ndef f(x): return x + 1",
        "def same(g): return lambda x: g(x)\n@same\ndef f(x): return x + 1",
    ),
    "function attribute": (
        "def f(x): return f.k\nf.k = 1",
        "def f(x): return f.k\nf.k = 2",
    ),
    "attribute's name": ("f = lambda x: x.lower()", "f = lambda x: x.upper()"),
    "caught exception": (
        "def f(x):\n try: return int(x)\n except ValueError: return 0",
        "def f(x):\n try: return int(x)\n except TypeError: return 0",
    ),
    "reach of a handler": (
        "def f(x):\n try:\n  y = x + 1\n except Exception: y = 0\n z = y + 1\n return z",
        "def f(x):\n try:\n  y = x + 1\n  z = y + 1\n except Exception: z = 0\n return z",
    ),
    "finally": (
        "def f(x):\n try: return x()\n finally: print(1)",
        "def f(x):\n try: return x()\n finally: print(2)",
    ),
    "with": (
        "import contextlib\ndef f(x):\n with contextlib.suppress(ValueError): return int(x)",
        "import contextlib\ndef f(x):\n with contextlib.suppress(TypeError): return int(x)",
    ),
    "format": ("f = lambda x: f'{x:.2f}'", "f = lambda x: f'{x:.3f}'"),
    "conversion of a format": ("f = lambda x: f'{x!r}'", "f = lambda x: f'{x!s}'"),
    "slice": ("f = lambda x: x[1:]", "f = lambda x: x[:1]"),
    "default of a nested function": (
        "def f(x):\n def g(y=1): return y\n return g()",
        "def f(x):\n def g(y=2): return y\n return g()",
    ),
    "element of a constant set": ("f = lambda x: x in {1, 2}", "f = lambda x: x in {1, 3}"),
    "element of a set": ("S = {'a', 'b'}\nf = lambda x: x in S", "S = {'a', 'c'}\nf = lambda x: x in S"),
    "class attribute": (
        "class C:\n k = 1\nf = lambda x: C.k",
        "class C:\n k = 2\nf = lambda x: C.k",
    ),
    "method": (
        "class C:\n def m(self): return 1\nf = lambda x: C().m()",
        "class C:\n def m(self): return 2\nf = lambda x: C().m()",
    ),
    "static or class method": (
        "class C:\n @staticmethod\n def m(*a): return a\nf = lambda x: C.m()",
        "class C:\n @classmethod\n def m(*a): return a\nf = lambda x: C.m()",
    ),
    "property": (
        "class C:\n @property\n def m(self): return 1\nf = lambda x: C().m",
        "class C:\n @property\n def m(self): return 2\nf = lambda x: C().m",
    ),
    "base class": (
        "class A: k = 1\nclass B: k = 1\nclass C(A): pass\nf = lambda x: C().k",
        "class A: k = 1\nclass B: k = 1\nclass C(B): pass\nf = lambda x: C().k",
    ),
    "base class's method": (
        "class A:\n def m(self): return 1\nclass C(A):\n def m(self): return super().m()\nf = lambda x: C().m()",
        "class A:\n def m(self): return 2\nclass C(A):\n def m(self): return super().m()\nf = lambda x: C().m()",
    ),
    "slots": (
        "class C: __slots__ = ('a',)\nf = lambda x: C()",
        "class C: __slots__ = ('b',)\nf = lambda x: C()",
    ),
    "instance": (
        "class C:\n def __init__(self, k): self.k = k\nc = C(1)\nf = lambda x: c.k",
        "class C:\n def __init__(self, k): self.k = k\nc = C(2)\nf = lambda x: c.k",
    ),
    "bound method's instance": (
        "class C:\n def __init__(self, k): self.k = k\n def m(self, x): return self.k\nf = C(1).m",
        "class C:\n def __init__(self, k): self.k = k\n def m(self, x): return self.k\nf = C(2).m",
    ),
    "dataclass default": (
        "from dataclasses import dataclass\n@dataclass\nclass D:\n a: int = 1\nf = lambda x: D().a",
        "from dataclasses import dataclass\n@dataclass\nclass D:\n a: int = 2\nf = lambda x: D().a",
    ),
    "dataclass frozen": (
        "from dataclasses import dataclass\n@dataclass\nclass D:\n a: int = 1\nf = lambda x: D().a",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass D:\n a: int = 1\nf = lambda x: D().a",
    ),
    "member of an enumeration": (
        "from enum import Enum\nE = Enum('E', 'A B')\nK = E.A\nf = lambda x: x == K",
        "from enum import Enum\nE = Enum('E', 'A B')\nK = E.B\nf = lambda x: x == K",
    ),
    "value in an enumeration": (
        "from enum import Enum\nclass E(Enum):\n A = 1\nf = lambda x: E.A.value",
        "from enum import Enum\nclass E(Enum):\n A = 2\nf = lambda x: E.A.value",
    ),
    "pattern": ("import re\nP = re.compile('a')\nf = lambda x: P", "import re\nP = re.compile('b')\nf = lambda x: P"),
    "flag of a pattern": (
        "import re\nP = re.compile('a')\nf = lambda x: P.match(x)",
        "import re\nP = re.compile('a', re.I)\nf = lambda x: P.match(x)",
    ),
    "partial": (
        "from functools import partial\ndef g(a, b): return a - b\nf = partial(g, 1)",
        "from functools import partial\ndef g(a, b): return a - b\nf = partial(g, 2)",
    ),
    "builtin": ("K = len\nf = lambda x: K(x)", "K = max\nf = lambda x: K(x)"),
    "module": ("import math as m\nf = lambda x: m.pi", "import cmath as m\nf = lambda x: m.pi"),
    "function of a module": (
        "from math import floor as g\nf = lambda x: g(x)",
        "from math import ceil as g\nf = lambda x: g(x)",
    ),
    "decimal": (
        "from decimal import Decimal\nK = Decimal('1.1')\nf = lambda x: K",
        "from decimal import Decimal\nK = Decimal('1.10')\nf = lambda x: K",
    ),
    "date": (
        "import datetime\nK = datetime.date(2026, 1, 1)\nf = lambda x: K",
        "import datetime\nK = datetime.date(2026, 1, 2)\nf = lambda x: K",
    ),
    "time zone": (
        "import datetime as d\nK = d.datetime(2026, 1, 1)\nf = lambda x: K",
        "import datetime as d\nK = d.datetime(2026, 1, 1, tzinfo=d.UTC)\nf = lambda x: K",
    ),
    "array": (
        "import numpy as np\nK = np.arange(9)\nf = lambda x: K[x]",
        "import numpy as np\nK = np.arange(9) + 1\nf = lambda x: K[x]",
    ),
    "type of an array": (
        "import numpy as np\nK = np.zeros(8, 'i8')\nf = lambda x: K[x]",
        "import numpy as np\nK = np.zeros(8, 'f8')\nf = lambda x: K[x]",
    ),
    "shape of an array": (
        "import numpy as np\nK = np.zeros((2, 3))\nf = lambda x: K[x]",
        "import numpy as np\nK = np.zeros((3, 2))\nf = lambda x: K[x]",
    ),
    "data frame": (
        "import pandas as pd\nK = pd.DataFrame({'a': [1, 2]})\nf = lambda x: K",
        "import pandas as pd\nK = pd.DataFrame({'a': [1, 3]})\nf = lambda x: K",
    ),
    "column of a data frame": (
        "import pandas as pd\nK = pd.DataFrame({'a': [1, 2]})\nf = lambda x: K",
        "import pandas as pd\nK = pd.DataFrame({'b': [1, 2]})\nf = lambda x: K",
    ),
    "Arrow table": (
        "import pyarrow as pa\nK = pa.table({'a': [1, 2]})\nf = lambda x: K",
        "import pyarrow as pa\nK = pa.table({'a': [1, 3]})\nf = lambda x: K",
    ),
    "default dictionary": (
        "from collections import defaultdict\nK = defaultdict(list)\nf = lambda x: K[x]",
        "from collections import defaultdict\nK = defaultdict(set)\nf = lambda x: K[x]",
    ),
    "items of an ordered dictionary": (
        "from collections import OrderedDict\nK = OrderedDict(a=1)\nf = lambda x: K[x]",
        "from collections import OrderedDict\nK = OrderedDict(a=2)\nf = lambda x: K[x]",
    ),
    "items of a subclass of list": (
        "class L(list): pass\nK = L([1])\nf = lambda x: K",
        "class L(list): pass\nK = L([2])\nf = lambda x: K",
    ),
    "row": (
        "from pyspark.sql import Row\nK = Row(a=1)\nf = lambda x: K.a",
        "from pyspark.sql import Row\nK = Row(a=2)\nf = lambda x: K.a",
    ),
    "type of Spark's": (
        "from pyspark.sql.types import DecimalType\nK = DecimalType(10, 2)\nf = lambda x: K",
        "from pyspark.sql.types import DecimalType\nK = DecimalType(10, 3)\nf = lambda x: K",
    ),
    "docstring that is read": (
        'def g(x):\n "a"\ndef f(x): return g.__doc__',
        'def g(x):\n "b"\ndef f(x): return g.__doc__',
    ),
    "docstring that is read by its name": (
        'def f(x):\n "a"\n return getattr(f, "__doc__")',
        'def f(x):\n "b"\n return getattr(f, "__doc__")',
    ),
    "annotation that is read": (
        "def g(x: int): pass\ndef f(x): return g.__annotations__",
        "def g(x: str): pass\ndef f(x): return g.__annotations__",
    ),
    "local variables that are read": (
        "def f(x):\n a = 1\n return locals()",
        "def f(x):\n b = 1\n return locals()",
    ),
    "local variables that pandas reads": (
        "def f(df):\n a = 1\n b = 2\n return df.query('x > @a')",
        "def f(df):\n b = 1\n a = 2\n return df.query('x > @a')",
    ),
    "name that is read": (
        "def f(x):\n def g(): pass\n return g.__name__",
        "def f(x):\n def h(): pass\n return h.__name__",
    ),
    "name that pandas shows": (
        "import pandas as pd\ndef f(df):\n def g(s): return s.max()\n return pd.DataFrame(df).agg([g])",
        "import pandas as pd\ndef f(df):\n def h(s): return s.max()\n return pd.DataFrame(df).agg([h])",
    ),
    "lines that are read": (
        "import traceback\ndef f(x):\n return traceback.format_exc()",
        "import traceback\n\ndef f(x):\n return traceback.format_exc()",
    ),
    "name of a class": (
        "class A: pass\nf = lambda x, A=A: repr(A())",
        "class B: pass\nf = lambda x, A=B: repr(A())",
    ),
    "import": ("def f(x):\n import math as m\n return m.pi", "def f(x):\n import cmath as m\n return m.pi"),
}

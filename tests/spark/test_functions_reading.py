"""What a Python function is found to read by itself. No JVM is needed: PySpark's pickles do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider.spark.identity.functions import FunctionReader
from airflow_provider.spark.identity.functions.files_and_services import ALL_READING, METHODS, METHODS_OF, READING
from tests.spark.function_cases import command

READS: dict[str, tuple[str, str]] = {
    "open": ("def f(x):\n with open('rates') as file:\n  return int(file.read())", "open"),
    "open in a mode": ("f = lambda x: len(open('rates', 'rb').read())", "open"),
    "open a file called like a mode": ("f = lambda x: len(open('a').read())", "open"),
    "open to write and to read": ("f = lambda x: open('rates', 'w+').tell()", "open"),
    "open in a mode that only a run can tell": ("M = 'a'\nf = lambda x: open('rates', M).tell()", "open"),
    "open under another name": ("o = open\nf = lambda x: o('rates').read()", "io.open"),
    "open handed on": ("f = lambda x: [file.read() for file in map(open, x)]", "open"),
    "open among arguments": ("f = lambda x: len(open('/'.join(x) if x else 'rates').read())", "open"),
    "open of another module": ("import gzip\nf = lambda x: gzip.open('rates').read()", "open"),
    "open of another module under another name": (
        "def f(x):\n from gzip import open as unpacked\n return unpacked('rates').read()",
        "open",
    ),
    "one to write, one to read": (
        "def f(x):\n open('log', 'a').write('x')\n return len(open('rates').read())",
        "open",
    ),
    "a path": ("from pathlib import Path\nf = lambda x: Path('rates').open().read()", "open"),
    "a path's text": ("from pathlib import Path\nf = lambda x: int(Path('rates').read_text())", "read_text"),
    "what was added to the application": (
        "from pyspark import SparkFiles\nf = lambda x: SparkFiles.get('rates')",
        "pyspark.SparkFiles",
    ),
    "the same, imported inside": (
        "def f(x):\n from pyspark import SparkFiles\n return SparkFiles.get('rates')",
        "pyspark.SparkFiles",
    ),
    "the same by its module": ("import pyspark\nf = lambda x: pyspark.SparkFiles.get('rates')", "pyspark.SparkFiles"),
    "pandas": ("import pandas as pd\nf = lambda x: len(pd.read_csv('rates'))", "pandas.read_csv"),
    "from pandas": ("from pandas import read_parquet\nf = lambda x: len(read_parquet('rates'))", "pandas.read_parquet"),
    "numpy": ("import numpy as np\nf = lambda x: np.load('rates').sum()", "numpy.load"),
    "a module under another name": (
        "def f(x):\n import numpy\n n = numpy\n return n.loadtxt('rates').sum()",
        "numpy.loadtxt",
    ),
    "a model": ("def f(x):\n import joblib\n return joblib.load('model').predict(x)", "joblib.load"),
    "a model of any library": ("def f(x):\n import keras\n return keras.models.load_model('m')(x)", "load_model"),
    "a lazy frame": ("def f(x):\n import polars as pl\n return pl.scan_parquet('rates')", "polars.scan_parquet"),
    "a packed file": ("def f(x):\n from gzip import GzipFile\n return GzipFile('rates').read()", "gzip.GzipFile"),
    "settings": (
        "import configparser\ndef f(x):\n c = configparser.ConfigParser()\n c.read('rates')\n return c['a']['b']",
        "configparser.read",
    ),
    "XML": (
        "import xml.etree.ElementTree as ET\nf = lambda x: ET.parse('rates').getroot().tag",
        "xml.etree.ElementTree.parse",
    ),
    "another XML": ("from xml.dom import minidom\nf = lambda x: minidom.parse('rates')", "xml.dom.minidom.parse"),
    "a method of a service": (
        "import xmlrpc.client\nf = lambda x: xmlrpc.client.ServerProxy('http://rates').get(x)",
        "xmlrpc.client",
    ),
    "a sparse matrix": ("def f(x):\n import scipy.sparse as s\n return s.load_npz('rates')", "scipy.sparse.load_npz"),
    "a picture": ("def f(x):\n import cv2\n return cv2.imread('rates').mean()", "cv2.imread"),
    "a service": ("import requests\nf = lambda x: requests.get('http://rates').text", "requests"),
    "a service, imported inside": (
        "def f(x):\n from urllib.request import urlopen\n return urlopen('http://rates').read()",
        "urllib.request",
    ),
    "a client that is held": ("import requests\nS = requests.Session\nf = lambda x: S().get('rates')", "requests"),
    "a module that is held": ("import sqlite3\nD = [sqlite3]\nf = lambda x: D[0].connect('rates')", "sqlite3"),
    "another program": ("import subprocess\nf = lambda x: subprocess.run(['rates'])", "subprocess"),
    "a helper": ("def g():\n return open('rates').read()\ndef f(x):\n return g()", "open"),
    "a method": (
        "class Rates:\n def get(self):\n  return open('rates').read()\nR = Rates()\nf = lambda x: R.get()",
        "open",
    ),
    "a default": ("def f(x, read=open):\n return read('rates').read()", "io.open"),
}
"""Name → a script with the function ``f``, and what that reads."""

NONE: dict[str, str] = {
    "nothing": "f = lambda x: x + 1",
    "append": "def f(x):\n with open('log', 'a') as file:\n  file.write('x')",
    "write": "f = lambda x: open('/'.join(['log', str(x)]), mode='wb', buffering=0).write(b'x')",
    "create": "f = lambda x: open('log', encoding='utf-8', mode='xt').write('x')",
    "append to a path": "from pathlib import Path\nf = lambda x: Path('log').open('a').write('x')",
    "a path's parts": "from pathlib import Path\nf = lambda x: Path(x).name",
    "whether there is a file": "import os\nf = lambda x: os.path.exists(x)",
    "whether there is a path": "from pathlib import Path\nf = lambda x: Path(x).exists()",
    "a method called open": "class Gate:\n def open(self): pass\nf = lambda x: Gate()",
    "pandas": "import pandas as pd\nf = lambda x: pd.DataFrame({'a': [x]}).a.sum()",
    "numpy": "import numpy as np\nf = lambda x: np.log(x)",
    "urllib.parse": "from urllib.parse import urlparse\nf = lambda x: urlparse(x).path",
    "text": "import json\nf = lambda x: json.loads(x)['open']",
    "bytes": "import pickle\nf = lambda x: pickle.loads(x)",
    "settings of the driver": "import configparser\nC = configparser.ConfigParser()\nf = lambda x: C['a']['b']",
    "XML": "import xml.etree.ElementTree as ET\nf = lambda x: ET.fromstring(x).tag",
    "stop": "import time\nf = lambda x: time.sleep(1)",
}


def reads(source: str) -> tuple[str, ...]:
    return FunctionReader({}).read(command(source)).reads


@pytest.mark.parametrize("name", READS)
def test_what_a_function_reads_is_found(name: str) -> None:
    """However it comes by it."""
    source, expected = READS[name]
    assert expected in reads(source)


@pytest.mark.parametrize("name", NONE)
def test_what_reads_nothing_is_none(name: str) -> None:
    """What only writes, looks for a file, or works on what it is given."""
    assert reads(NONE[name]) == ()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from reading_helpers import rate as f", ("open in reading_helpers.rate",)),
        (
            "import reading_helpers\nf = lambda x: reading_helpers.Rates().get(x)",
            ("read_text in reading_helpers.Rates",),
        ),
        ("from reading_helpers import plain as f", ()),
        ("from reading_now import rate as f", ("open in reading_now",)),
    ],
)
def test_functions_of_own_modules_are_followed(module_folder: Path, source: str, expected: tuple[str, ...]) -> None:
    """What a function reaches in the user's own modules counts, with what these read when they are imported."""
    (module_folder / "reading_helpers.py").write_text(
        "from pathlib import Path\n"
        "def rate(x):\n return open('rates').read()\n"
        "class Rates:\n def get(self, x):\n  return Path('rates').read_text()\n"
        "def plain(x):\n return x + 1\n"
    )
    (module_folder / "reading_now.py").write_text(
        "RATE = 1\nif RATE:\n  RATE += len(open('/dev/null').read())\ndef rate(x):\n return x * RATE\n"
    )
    assert reads(source) == expected


def test_the_documentation_lists_all_of_them() -> None:
    """docs/reuse.md names all that reads."""
    text = (Path(__file__).parents[2] / "docs" / "reuse.md").read_text()
    rows = dict(re.findall(r"^\| ([\w.]+) \| (.*) \|$", text, re.MULTILINE))
    for owner, names in READING.items():
        assert rows[owner] == ", ".join(f"`{name}`" for name in sorted(names))
    listed = ", ".join(f"`{module}`" for module in sorted(ALL_READING))
    assert f"all of {listed}" in text
    methods = ", ".join(f"`{name}`" for name in sorted(METHODS))
    assert f"any method called {methods}" in text
    for owner, names in METHODS_OF.items():
        assert f"{', '.join(f'`{name}`' for name in sorted(names))} of what `{owner}` makes" in text

"""Whatever the schema and the rows, what comes back is what went in."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.spark.attempts import Attempts
from tests.spark.kept_types import assert_kept, conf

pytestmark = pytest.mark.spark

_LONGS = st.one_of(st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]), st.integers(-(2**63), 2**63 - 1))
_INTS = st.one_of(st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]), st.integers(-(2**31), 2**31 - 1))
_FLOATS = st.one_of(
    st.sampled_from(["-0.0", "NaN", "Infinity", "-Infinity", "4.9E-324", "1.4E-45"]), st.floats().map(repr)
)
_BYTES = st.binary(max_size=12).map(lambda value: f"X'{value.hex()}'")
_JSON = st.sampled_from(["null", "1", "-1.5e300", '"ü"', "[]", "{}", '[1,{"a":null,"b":[true,"x"]}]'])
_WORDS = st.tuples(_INTS, _INTS, st.integers(-(2**63) + 1, 2**63 - 1))


def _cast(values: st.SearchStrategy[str], data_type: str) -> st.SearchStrategy[str]:
    return values.map(lambda value: f"CAST({value} AS {data_type})")


@dataclass(frozen=True)
class Shape:
    """A type, by its name in SQL, and expressions for its values."""

    name: str
    values: st.SearchStrategy[str]

    def value(self, *, nulls: bool) -> st.SearchStrategy[str]:
        return st.one_of(self.values, st.just(f"CAST(NULL AS {self.name})")) if nulls else self.values


def _decimal(precision: int, scale: int) -> Shape:
    name = f"DECIMAL({precision},{scale})"
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return Shape(name, unscaled.map(lambda value: f"CAST('{value}E-{scale}' AS {name})"))


_DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: _decimal(p, s)))
_KEYS = [
    Shape("BIGINT", _LONGS.map(lambda value: f"BIGINT('{value}')")),
    Shape("STRING", _cast(_BYTES, "STRING")),
    Shape("BINARY", _BYTES),
    Shape("DATE", _INTS.map(lambda value: f"date_from_unix_date({value})")),
    Shape("INTERVAL YEAR TO MONTH", _INTS.map(lambda value: f"make_ym_interval(0, {value})")),
    Shape("INTERVAL DAY TO SECOND", st.integers(-(10**8), 10**8).map(lambda value: f"make_dt_interval({value})")),
    Shape("TIME(6)", st.integers(0, 59).map(lambda value: f"make_time(23, {value}, 0.00000{value % 10})")),
]
_LEAVES = st.one_of(
    st.sampled_from(_KEYS),
    _DECIMALS,
    st.sampled_from(
        [
            Shape("BOOLEAN", st.sampled_from(["TRUE", "FALSE"])),
            Shape("TINYINT", _cast(st.integers(-128, 127).map(str), "TINYINT")),
            Shape("SMALLINT", _cast(st.integers(-32768, 32767).map(str), "SMALLINT")),
            Shape("INT", _cast(_INTS.map(str), "INT")),
            Shape("FLOAT", _cast(_FLOATS.map(lambda value: f"'{value}'"), "FLOAT")),
            Shape("DOUBLE", _cast(_FLOATS.map(lambda value: f"'{value}'"), "DOUBLE")),
            Shape("STRING COLLATE UNICODE_CI", _BYTES.map(lambda value: f"CAST({value} AS STRING) COLLATE UNICODE_CI")),
            Shape("TIMESTAMP", _LONGS.map(lambda value: f"timestamp_micros(BIGINT('{value}'))")),
            Shape("TIMESTAMP_NTZ", _INTS.map(lambda value: f"CAST(timestamp_micros({value}000L) AS TIMESTAMP_NTZ)")),
            Shape("INTERVAL YEAR", _INTS.map(lambda value: f"CAST(make_ym_interval({value} DIV 12) AS INTERVAL YEAR)")),
            Shape(
                "INTERVAL", _WORDS.map(lambda v: f"CAST('{v[0]} months {v[1]} days {v[2]} microseconds' AS INTERVAL)")
            ),
            Shape("VARIANT", _JSON.map(lambda value: f"parse_json('{value}')")),
            Shape("VOID", st.just("NULL")),
        ]
    ),
)


def _array(element: Shape) -> st.SearchStrategy[Shape]:
    name = f"ARRAY<{element.name}>"

    def values(nulls: bool) -> st.SearchStrategy[str]:
        filled = st.lists(element.value(nulls=nulls), min_size=1, max_size=3)
        return st.one_of(st.just(f"CAST(array() AS {name})"), filled.map(lambda some: f"array({', '.join(some)})"))

    return st.booleans().map(lambda nulls: Shape(name, values(nulls)))


def _map(key: Shape, value: Shape) -> st.SearchStrategy[Shape]:
    name = f"MAP<{key.name}, {value.name}>"

    def values(nulls: bool) -> st.SearchStrategy[str]:
        entry = st.tuples(key.values, value.value(nulls=nulls)).map(lambda pair: f"map({pair[0]}, {pair[1]})")
        return st.one_of(st.just(f"CAST(map() AS {name})"), entry)

    return st.booleans().map(lambda nulls: Shape(name, values(nulls)))


def _struct(fields: list[tuple[str, Shape]]) -> st.SearchStrategy[Shape]:
    name = f"STRUCT<{', '.join(f'`{name}`: {shape.name}' for name, shape in fields)}>"

    def values(nulls: bool) -> st.SearchStrategy[str]:
        parts = [shape.value(nulls=nulls).map(f"'{name}', {{}}".format) for name, shape in fields]
        return st.tuples(*parts).map(lambda some: f"named_struct({', '.join(some)})")

    return st.booleans().map(lambda nulls: Shape(name, values(nulls)))


def _nested(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    names = st.sampled_from(["a", "A", "b", "x.y", "ü", "value", "element"])
    return st.one_of(
        inner.flatmap(_array),
        st.tuples(st.sampled_from(_KEYS), inner).flatmap(lambda pair: _map(*pair)),
        st.lists(st.tuples(names, inner), min_size=1, max_size=3).flatmap(_struct),
    )


_SHAPES = st.one_of(_LEAVES, _nested(_LEAVES), _nested(_nested(_LEAVES)), _nested(_nested(_nested(_LEAVES))))


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query of one to four columns of random types and one to three rows."""
    columns = draw(st.lists(st.tuples(_SHAPES, st.booleans()), min_size=1, max_size=4))
    rows = draw(st.integers(1, 3))
    selects = [
        "SELECT " + ", ".join(f"{draw(shape.value(nulls=nulls))} AS x{i}" for i, (shape, nulls) in enumerate(columns))
        for _ in range(rows)
    ]
    return " UNION ALL ".join(selects)


@pytest.mark.integration
@settings(max_examples=15, deadline=None, phases=(Phase.reuse, Phase.generate))  # to shrink through Spark takes minutes
@given(query=queries())
def test_random_rows_of_random_types_survive(spark: SparkSession, query: str) -> None:
    """Rows and schemas, nested up to three deep, come back bit for bit, natively and through Arrow."""
    with (
        tempfile.TemporaryDirectory() as folder,
        conf(spark, timeType__enabled="true"),
        Attempts(Path(folder)).attempt() as context,
        pytest.MonkeyPatch.context() as patch,
    ):
        df = spark.sql(query)
        assert_kept(context, df)
        patch.setattr("airflow_provider.spark.points.reading.readable_by_jvm", lambda spark, path: False)
        assert_kept(context, df)

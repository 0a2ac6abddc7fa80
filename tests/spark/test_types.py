"""What comes back from a recovery point is what went in, bit for bit; else it is not stored and the log says why."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from airflow_provider.spark import checkpoint
from airflow_provider.spark.types import bare, refusal
from tests.spark.attempts import Attempts, vertices
from tests.spark.kept_types import assert_kept, conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


_DECIMALS = ", ".join(
    f"CAST('{sign}{'9' * (p - s)}.{'9' * s}' AS DECIMAL({p},{s})) AS d{p}_{s}_{i}"
    for p in range(1, 39)
    for i, (s, sign) in enumerate({(0, "-"), (p // 2, "-"), (p, "")})
)
_VALUES = {
    "numbers": """
        SELECT * FROM VALUES
            (TRUE, -128Y, -32768S, INT(-2147483648), BIGINT('-9223372036854775808'), FLOAT('-0.0'), DOUBLE('-0.0')),
            (FALSE, 127Y, 32767S, 2147483647, 9223372036854775807, FLOAT('1.4E-45'), DOUBLE('4.9E-324')),
            (NULL, NULL, NULL, NULL, NULL, FLOAT('NaN'), DOUBLE('NaN')),
            (NULL, NULL, NULL, NULL, NULL, FLOAT('-Infinity'), DOUBLE('Infinity')),
            (NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
    "decimals": f"SELECT {_DECIMALS}, CAST(NULL AS DECIMAL(38,18)) AS d, CAST(NULL AS DECIMAL(9,2)) AS e",
    "text": """
        SELECT * FROM VALUES
            ('', X'', 'A' COLLATE UNICODE_CI, array('B' COLLATE UTF8_LCASE)),
            ('\\0 a \\0', X'0000', '' COLLATE UNICODE_CI, array()),
            (CAST(X'FF00FEC0' AS STRING), X'00FF', 'ü' COLLATE UNICODE_CI, NULL),
            ('\\U0001F600', NULL, NULL, array(CAST(NULL AS STRING COLLATE UTF8_LCASE)))""",
    "dates": """
        SELECT date_from_unix_date(d) AS d, timestamp_micros(t) AS t, CAST(timestamp_micros(n) AS TIMESTAMP_NTZ) AS n,
            array(map(date_from_unix_date(coalesce(d, 7)), timestamp_micros(t))) AS nested
        FROM VALUES
            (INT(-2147483648), BIGINT('-9223372036854775808'), BIGINT('-9223372036854775808')),
            (2147483647, 9223372036854775807, 9223372036854775807 - 86400000000),
            (-719528, -62135596800000000, -62135596800000001), (-141428, -12219292800000001, -12219292800000001),
            (0, -1, 0), (NULL, NULL, NULL) AS v(d, t, n)""",
    "time of day": """
        SELECT TIME'23:59:59.999999' AS t, TIME'00:00:00' AS z, CAST(TIME'12:34:56' AS TIME(0)) AS s,
            CAST(NULL AS TIME(3)) AS n, map(TIME'01:00:00', array(TIME'02:00:00', NULL)) AS m""",
    "intervals": """
        SELECT make_ym_interval(0, n) AS ym, CAST(make_ym_interval(0, n) AS INTERVAL YEAR) AS y,
            CAST(make_ym_interval(0, n) AS INTERVAL MONTH) AS m, make_dt_interval(d, 0, 0, s) AS ds,
            CAST(make_dt_interval(d) AS INTERVAL DAY) AS d, CAST(make_dt_interval(d) AS INTERVAL DAY TO HOUR) AS dh,
            CAST(make_dt_interval(0, 0, 0, s) AS INTERVAL HOUR TO SECOND) AS hs,
            map(make_ym_interval(0, n), struct(array(make_dt_interval(d), NULL), make_ym_interval(1, 0))) AS nested
        FROM VALUES (INT(-2147483648), -106751991, -14454.775808), (2147483647, 106751991, 14454.775807),
            (0, 0, 0.000001), (-1, -1, -0.000001) AS v(n, d, s)""",
    "void": """
        SELECT NULL, array() AS a, array(NULL, NULL) AS b, map() AS m, struct(NULL AS x, array(NULL) AS y) AS s,
            if(id = 1, NULL, map('k', NULL)) AS maybe, id FROM range(3)""",
    "variants": """
        SELECT parse_json(j) AS v, array(parse_json(j), NULL) AS a, map('k', parse_json(j)) AS m,
            if(id = 1, NULL, struct(parse_json(j) AS v, id)) AS s, struct(X'01' AS value, X'02' AS metadata) AS not_one
        FROM VALUES (1, '1'), (2, '{"a": [1, 2.5, "x", null, true, 1e300], "b": {"c": ""}}'), (3, NULL), (4, 'null')
            AS v(id, j)""",
    "nested": """
        SELECT if(id = 1, NULL, named_struct('n', id, 's', if(id = 2, NULL, named_struct('x', id)))) AS null_struct,
            array(named_struct('x', id)) AS never_null, if(id = 1, array(), array(array(), NULL, array(id))) AS arrays,
            map(id, map('k', array(map('j', id)))) AS maps, if(id = 1, map(), map('k', NULL)) AS empty,
            map(DOUBLE('NaN'), 1, 0.0D, 2) AS by_double, map(struct(id), named_struct('v', NULL)) AS by_struct,
            named_struct('a', 1, 'a', '2', 'A', 3D) AS same_names, named_struct('', 1, 'x.y', 2, 'ü\\0"`', 3) AS odd,
            array(named_struct('value', 1, 'element', 2, 'list', array(3), 'key', 4)) AS words
        FROM range(4)""",
    "nothing but a name": "SELECT id AS `a``b.\\0` FROM range(2)",
}


@pytest.mark.parametrize("name", _VALUES)
def test_values_and_schema_survive_exactly(spark: SparkSession, attempts: Attempts, reading: str, name: str) -> None:
    """Edge values of every type, at any depth, come back bit for bit, under an equal schema."""
    with attempts.attempt() as context, conf(spark, timeType__enabled="true"):
        assert_kept(context, spark.sql(_VALUES[name]))


def test_calendar_intervals_survive_exactly(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Months, days and microseconds keep their values and signs, to the ends of their ranges."""
    months, days = (-(2**31), -13, -1, 0, 1, 11, 2**31 - 1), (-(2**31), -1, 0, 2**31 - 1)
    micros = (-(2**63) + 1, -3_600_000_000, -1_000_001, -1, 0, 1, 999_999, 60_000_000, 2**63 - 1)
    words = "CAST(CONCAT(m, ' months ', d, ' days ', s, ' microseconds') AS INTERVAL)"
    with attempts.attempt() as context:
        df = spark.range(1)
        for name, values in (("m", months), ("d", days), ("s", micros)):
            df = df.selectExpr("*", f"explode(array({', '.join(f'BIGINT({value})' for value in values)})) AS {name}")
        half = f"CAST('{-(2**62)} microseconds' AS INTERVAL)"
        df = df.selectExpr(
            f"if(m = 0 AND d = 0 AND s = 0, {half} + {half}, {words}) AS i", f"array({words}, NULL) AS a",
            f"struct(m, map('k', {words}) AS by_name) AS s", "if(m = 0, NULL, make_interval(1)) AS n",
            "make_interval(0, -1, 0, 1, 0, 0, -0.5) AS never_null", "array(make_interval(0, 1)) AS all_there",
        )  # fmt: skip
        kept = assert_kept(context, df)
        assert kept.filter("i IS NULL").count() == 0


def test_char_and_varchar_survive_exactly(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Their lengths stay in the schema where Spark keeps them there, and nothing is padded or cut."""
    with attempts.attempt() as context, conf(spark, preserveCharVarcharTypeInfo="true"):
        df = spark.sql(
            "SELECT CAST('ab' AS CHAR(5)) AS c, CAST('ab ' AS VARCHAR(7)) AS v, array(CAST('q' AS CHAR(3))) AS a, "
            "map(CAST('k' AS VARCHAR(2)), CAST(NULL AS CHAR(2))) AS m"
        )
        assert "char(5)" in df._jdf.schema().json()
        assert_kept(context, df)


class Both(T.UserDefinedType):
    """A type that only Python knows: two numbers and a text."""

    @classmethod
    def sqlType(cls) -> T.DataType:  # noqa: N802
        return T.StructType([T.StructField("n", T.ArrayType(T.IntegerType(), False), False)])

    @classmethod
    def module(cls) -> str:
        return __name__

    def serialize(self, obj: Any) -> Any:
        return (list(obj),)

    def deserialize(self, datum: Any) -> Any:
        return tuple(datum[0])


def test_user_defined_types_survive_exactly(
    spark: SparkSession, attempts: Attempts, reading: str, tmp_path: Path
) -> None:
    """Spark's vectors and matrices, and a type that only Python knows, come back as such, also inside others."""
    from pyspark.ml.linalg import Matrices, MatrixUDT, Vectors, VectorUDT

    schema = T.StructType(
        [
            T.StructField("v", VectorUDT()),
            T.StructField("m", MatrixUDT(), metadata={"ml_attr": {"num_attrs": 2}}),
            T.StructField("p", Both()),
            T.StructField("a", T.ArrayType(VectorUDT())),
            T.StructField(
                "s", T.StructType([T.StructField("v", T.MapType(T.StringType(), Both()), metadata={"x": 1})])
            ),
        ]
    )
    dense, sparse = Vectors.dense([1.0, -0.0]), Vectors.sparse(5, [1, 4], [2.0, float("inf")])
    rows = [
        (dense, Matrices.dense(2, 1, [1, 2]), (1, 2), [sparse, None], ({"k": (3, 4), "none": None},)),
        (sparse, Matrices.sparse(2, 2, [0, 1, 1], [1], [7]), (), [], ({},)),
        (None, None, None, None, None),
    ]
    source = str(tmp_path / "source")
    spark.createDataFrame(rows, schema, verifySchema=False).write.parquet(source)
    with attempts.attempt() as context:
        kept = assert_kept(context, spark.read.parquet(source))
        assert isinstance(kept.schema["v"].dataType, VectorUDT)
        assert kept.schema["m"].metadata == {"ml_attr": {"num_attrs": 2}}
        assert {row.p for row in kept.collect()} == {(1, 2), (), None}


def test_a_retry_reads_what_an_earlier_attempt_stored(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Types that are stored as others are reused by the next attempt, and are equal to what it would compute."""
    query = (
        "SELECT id, make_ym_interval(0, INT(id)) AS ym, make_interval(0, 0, 0, 0, 0, 0, id) AS i, TIME'01:00:00' AS t, "
        "parse_json(CAST(id AS STRING)) AS v, NULL AS n FROM range(8)"
    )
    with attempts.attempt(), conf(spark, timeType__enabled="true"):
        checkpoint(spark.sql(query), "types")
    with attempts.attempt() as context, conf(spark, timeType__enabled="true"):
        assert_kept(context, spark.sql(query))
        assert vertices(context)["types"].computed == 0


def test_a_restored_column_works_as_before(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Restored values compare, group and join with computed ones, and columns taken before still resolve."""
    df = spark.sql("SELECT id, make_ym_interval(0, INT(id % 3)) AS ym, array(NULL) AS n FROM range(12)")
    with attempts.attempt():
        kept = checkpoint(df, "types")
        assert kept.filter("ym = INTERVAL '0-1' YEAR TO MONTH").count() == 4
        assert kept.groupBy(df["ym"]).count().count() == 3
        assert kept.union(df).distinct().count() == 12
        assert kept.join(df.alias("other"), "ym").count() == 48


def test_the_schema_is_kept_exactly(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Names (duplicate, odd, empty), types, nullability at every depth and column metadata stay."""
    from pyspark.sql import functions as F

    inner = T.StructType([T.StructField("x", T.LongType(), False, {"deep": [1]}), T.StructField("y", T.StringType())])
    with attempts.attempt() as context:
        df = (
            spark.sql(
                "SELECT id, id AS ID2, id AS `a.b`, id AS `ü b\"'`, id AS ``, id, id AS never, "
                "array(struct(id AS x, CAST(NULL AS STRING) AS y)) AS nested, map('k', id) AS m FROM range(3)"
            )
            .withColumn("noted", F.col("nested").alias("noted", metadata={"comment": "kept"}))
            .withColumn("deep", F.struct(F.col("never").alias("x"), F.lit("").alias("y")).cast(inner))
        )
        kept = assert_kept(context, df)
        assert [field.metadata for field in kept.schema] == [field.metadata for field in df.schema]
        assert sorted(map(str, kept.collect())) == sorted(map(str, df.collect()))


def test_a_frame_without_columns_keeps_its_rows(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of rows of each partition is all it has, and all of it stays."""
    monkeypatch.setattr("airflow_provider.spark.points.reading.readable_by_jvm", lambda spark, path: False)
    df = spark.range(0, 100, 1, 4).filter("id < 60").select()
    with attempts.attempt() as context:
        kept = assert_kept(context, df)
        sizes = [len(part) for part in df.rdd.glom().collect()]
        assert [len(part) for part in kept.rdd.glom().collect()] == sizes == [25, 25, 10, 0]


def test_large_arrow_types_change_nothing(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """A session that lets Arrow use 64-bit offsets stores and reads the same rows."""
    query = "SELECT 'x' AS s, X'00' AS b, array('y') AS a, map('k', struct('v' AS v)) AS m, parse_json('[1]') AS v"
    with attempts.attempt() as context, conf(spark, execution__arrow__useLargeVarTypes="true"):
        assert_kept(context, spark.sql(query))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "settings", [("ansi__enabled", "true"), ("caseSensitive", "true"), ("legacy__interval__enabled", "true")]
)
def test_no_setting_changes_what_is_kept(
    spark: SparkSession, attempts: Attempts, reading: str, settings: tuple[str, str]
) -> None:
    """ANSI casts, case-sensitive names and legacy intervals do not alter the way there and back."""
    with attempts.attempt() as context, conf(spark, **dict([settings])):
        assert_kept(
            context,
            spark.sql(
                "SELECT named_struct('a', 1, 'A', '2') AS s, array(make_interval(0, -1, 0, 1, 0, 0, 0.1)) AS i, "
                "CAST(X'FF' AS STRING) AS t, make_ym_interval(0, 5) AS ym, X'80' AS b"
            ),
        )


@pytest.mark.integration
def test_a_frame_may_be_wide(spark: SparkSession, attempts: Attempts) -> None:
    """Hundreds of columns, each to be put on another type and back, come out in their order."""
    columns = [f"make_ym_interval(0, {i}) AS c{i}" if i % 2 else f"id + {i} AS c{i}" for i in range(300)]
    with attempts.attempt() as context:
        assert_kept(context, spark.range(2).selectExpr(*columns))


def test_what_cannot_be_stored_is_named_and_the_job_goes_on(spark: SparkSession, attempts: Attempts) -> None:
    """A column that cannot be stored exactly is named with its type and the remedy; the rows are right."""
    df = spark.sql("SELECT id, named_struct('inner', array(struct())) AS odd FROM range(3)")
    with attempts.attempt() as context:
        assert checkpoint(df, "odd").count() == 3
        (skip,) = context.master.graph.newest.skipped  # type: ignore[union-attr]
        assert "'odd'" in skip.reason
        assert "struct<>" in skip.reason
        assert "cast" in skip.reason


def _refusal(data_type: Any) -> str:
    return refusal({"type": "struct", "fields": [{"name": "c", "type": data_type, "nullable": True, "metadata": {}}]})


@pytest.mark.parametrize(
    "name", ["geometry(4326)", "geography(any)", "timestamp_nanos", "decimal(5,-2)", "object", "string collate a b"]
)
def test_an_unknown_type_is_refused_by_name(name: str) -> None:
    """What is not proven to survive is refused at any depth, never assumed; so are types that Spark lacks as yet."""
    assert f"'c' holds the type {name}," in _refusal(name)
    array = {"type": "array", "elementType": name, "containsNull": True}
    assert f"holds the type {name}," in _refusal(
        {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    )
    assert f"holds the type {name}," in _refusal({"type": "udt", "pyClass": "a.B", "sqlType": array})


def test_maps_keyed_by_calendar_intervals_are_refused() -> None:
    """Spark casts no text to an interval where NULL is not allowed, so such a map has no way back."""
    key = {"type": "array", "elementType": "interval", "containsNull": True}
    assert "map keyed by calendar intervals" in _refusal(
        {"type": "map", "keyType": key, "valueType": "long", "valueContainsNull": True}
    )


def test_a_class_of_the_users_is_never_loaded() -> None:
    """A type that only Python knows is looked at by its storage type; its pickled class is left alone."""
    pickled = base64.b64encode(b"not a pickle").decode()
    stored = {"type": "array", "elementType": "double", "containsNull": False}
    assert bare({"type": "udt", "pyClass": "__main__.X", "serializedClass": pickled, "sqlType": stored}) == stored

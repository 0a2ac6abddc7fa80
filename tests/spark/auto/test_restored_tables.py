"""``saveAsTable`` of a retry starts from what survived, and leaves the table that plain Spark leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, configured
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TABLES = ("restored_plain", "restored_retry")


@pytest.fixture(autouse=True)
def _no_tables(spark: SparkSession) -> Iterator[None]:
    yield
    for table in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {table}")


def totals(spark: SparkSession, orders: Path) -> DataFrame:
    from pyspark.sql import functions as F

    df = spark.read.parquet(str(orders)).groupBy("customer").agg(F.sum("amount").alias("total"))
    return df.withColumn("part", F.col("customer") % 3)


def keep(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """An attempt that keeps what the rows are made of."""
    with auto_attempt(attempts, spark) as first:
        df = totals(spark, orders)
        df.collect()
        assert first.keep(df) == ["shuffle(customer)"]


Setting = Callable[[Any, Path], Any]
SETTINGS: dict[str, Setting] = {
    "plain": lambda writer, target: writer,
    "partitions": lambda writer, target: writer.partitionBy("part"),
    "buckets": lambda writer, target: writer.bucketBy(2, "customer").sortBy("total"),
    "a format": lambda writer, target: writer.format("json"),
    "a place": lambda writer, target: writer.option("path", str(target)),
}


def files(spark: SparkSession, table: str) -> list[tuple[str, int]]:
    """Folders and sizes of a table's files."""
    (location,) = (
        row.data_type for row in spark.sql(f"DESCRIBE FORMATTED {table}").collect() if row.col_name == "Location"
    )
    root = Path(location.removeprefix("file:"))
    return sorted(
        (str(path.parent.relative_to(root)), path.stat().st_size)
        for path in root.rglob("part-*")
        if not path.name.startswith(".")
    )


def described(spark: SparkSession, table: str) -> list[tuple[str, str]]:
    """What the catalog says of a table, but for its name, its place and times."""
    own = {"Table", "Location", "Created Time", "Last Access", "Statistics"}
    rows = spark.sql(f"DESCRIBE FORMATTED {table}").collect()
    return [(row.col_name, row.data_type) for row in rows if row.col_name not in own]


def assert_equal_tables(spark: SparkSession) -> None:
    """Plain Spark's table and the retry's have the same rows, files and entry in the catalog."""
    rows, again = (sorted(map(tuple, spark.table(table).collect())) for table in TABLES)
    assert rows == again
    assert files(spark, TABLES[0]) == files(spark, TABLES[1])
    assert described(spark, TABLES[0]) == described(spark, TABLES[1])


@pytest.mark.few(2)
@each_value(setting=SETTINGS, mode=["error", "overwrite", "append"])
def test_a_table_is_written_from_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, setting: Setting, mode: str
) -> None:
    """Rows, files and the catalog's entry are those of plain Spark, new or over an older table."""
    keep(spark, orders, attempts)

    def write(table: str) -> None:
        writer = setting(totals(spark, orders).write, tmp_path / table)
        if mode != "error":
            setting(totals(spark, orders).where("part = 1").write, tmp_path / table).saveAsTable(table)
        writer.mode(mode).saveAsTable(table)

    write(TABLES[0])
    with auto_attempt(attempts, spark) as second:
        write(TABLES[1])
        assert second.put_back() == {"shuffle(customer)": 2}
    assert_equal_tables(spark)


def test_a_table_is_not_overwritten_by_what_is_read_from_it(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Spark refuses that, in a retry as well, before it drops the table."""

    def query() -> DataFrame:
        return spark.table(TABLES[1]).groupBy("part").count()

    totals(spark, orders).write.saveAsTable(TABLES[1])
    before = spark.table(TABLES[1]).count()
    with auto_attempt(attempts, spark) as first:
        df = query()
        df.collect()
        assert first.keep(df) == ["shuffle(part)"]
    with auto_attempt(attempts, spark), pytest.raises(Exception, match=r"(?i)cannot overwrite|read from"):
        query().write.mode("overwrite").saveAsTable(TABLES[1])
    assert spark.table(TABLES[1]).count() == before


@pytest.mark.few(1)
@each_value(mode=["error", "ignore"])
def test_nothing_runs_for_a_table_that_stays(spark: SparkSession, orders: Path, attempts: Attempts, mode: str) -> None:
    """It is there already: Spark refuses, or writes nothing."""
    with auto_attempt(attempts, spark) as first:
        df = totals(spark, orders)
        df.collect()
        first.keep(df)
    spark.range(3).write.saveAsTable(TABLES[1])
    with auto_attempt(attempts, spark) as second:
        writer = totals(spark, orders).write.mode(mode)
        if mode == "error":
            with pytest.raises(Exception, match="already exists"):
                writer.saveAsTable(TABLES[1])
        else:
            writer.saveAsTable(TABLES[1])
        assert second.put_back() == {}
    assert spark.table(TABLES[1]).count() == 3


def test_rows_in_order_keep_it_in_the_files_of_each_folder(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Spark sorts rows by folders if it does not know that they are; so such rows are left to it."""

    def query() -> DataFrame:
        return totals(spark, orders).orderBy("part", "total", "customer")

    def of_files(table: str) -> list[Any]:
        return [list(map(tuple, spark.table(table).where(f"part = {part}").collect())) for part in range(3)]

    with auto_attempt(attempts, spark) as first:
        df = query()
        df.collect()
        assert "shuffle(customer)" in first.keep(df)
    query().write.partitionBy("part").saveAsTable(TABLES[0])
    with auto_attempt(attempts, spark) as second:
        query().write.partitionBy("part").saveAsTable(TABLES[1])
        assert second.put_back() == {}
    assert of_files(TABLES[0]) == of_files(TABLES[1])


def test_without_adaptive_execution_a_table_is_written_as_ever(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Its plan cannot be made in advance there."""
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        with auto_attempt(attempts, spark) as first:
            df = totals(spark, orders)
            rows = sorted(df.collect())
            first.keep(df)
        with auto_attempt(attempts, spark) as second:
            totals(spark, orders).write.saveAsTable(TABLES[1])
            assert (second.wanted != set(), second.put_back()) == (True, {})
    assert sorted(spark.table(TABLES[1]).collect()) == rows


WRITES: dict[str, Callable[[SparkSession, DataFrame, str], Any]] = {
    "CREATE": lambda spark, df, table: spark.sql(f"CREATE TABLE {table} USING parquet AS SELECT * FROM made"),
    "CREATE, partitions": lambda spark, df, table: spark.sql(
        f"CREATE TABLE {table} USING parquet PARTITIONED BY (part) AS SELECT * FROM made"
    ),
    "CREATE, buckets": lambda spark, df, table: spark.sql(
        f"CREATE TABLE {table} USING orc CLUSTERED BY (customer) INTO 2 BUCKETS COMMENT 'made' AS SELECT * FROM made"
    ),
    "CREATE, common tables": lambda spark, df, table: spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} USING json AS WITH all AS (SELECT * FROM made) SELECT * FROM all"
    ),
    "CREATE, parameters": lambda spark, df, table: spark.sql(
        f"CREATE TABLE {table} USING parquet AS SELECT * FROM made WHERE total >= :low", args={"low": 0}
    ),
    "writeTo, create": lambda spark, df, table: df.writeTo(table).using("parquet").partitionedBy("part").create(),
    "insertInto": lambda spark, df, table: df.write.insertInto(existing(spark, table)),
    "insertInto, overwriting": lambda spark, df, table: df.write.insertInto(existing(spark, table), overwrite=True),
    "INSERT": lambda spark, df, table: spark.sql(f"INSERT INTO {existing(spark, table)} SELECT * FROM made"),
    "INSERT, parameters": lambda spark, df, table: spark.sql(
        f"INSERT INTO {existing(spark, table)} SELECT * FROM made WHERE total >= ?", args=[0]
    ),
}


def existing(spark: SparkSession, table: str) -> str:
    spark.sql(f"CREATE TABLE {table} (customer BIGINT, total DOUBLE, part BIGINT) USING parquet PARTITIONED BY (part)")
    spark.sql(f"INSERT INTO {table} VALUES (-1, 1.5, 7)")
    return table


@pytest.mark.few(2)
@each_value(write=WRITES)
def test_every_way_to_fill_a_table_starts_from_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, write: Callable[[SparkSession, DataFrame, str], Any]
) -> None:
    """In SQL as with a writer, into a new table as into an existing one."""

    def run(table: str) -> Any:
        df = totals(spark, orders)
        df.createOrReplaceTempView("made")
        return write(spark, df, table)

    keep(spark, orders, attempts)
    plain = run(TABLES[0])
    with auto_attempt(attempts, spark) as second:
        retry = run(TABLES[1])
        assert second.put_back() == {"shuffle(customer)": 2}
    assert (plain is None and retry is None) or (plain.columns, plain.count()) == (retry.columns, retry.count())
    assert_equal_tables(spark)


DATABASE = {
    "spark.sql.catalog.derby": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.derby.url": "jdbc:derby:memory:restored;create=true",
    "spark.sql.catalog.derby.driver": "org.apache.derby.jdbc.EmbeddedDriver",
}


def test_rows_for_a_catalog_of_a_database_are_added_once(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """It writes what a query of its own gives, which stays Spark's business in a retry."""
    with configured(spark, DATABASE):
        with auto_attempt(attempts, spark) as first:
            df = totals(spark, orders)
            rows = sorted(map(tuple, df.collect()))
            assert first.keep(df) == ["shuffle(customer)"]
        with auto_attempt(attempts, spark):
            totals(spark, orders).writeTo("derby.app.sums").create()
            totals(spark, orders).writeTo("derby.app.sums").append()
        found = sorted(map(tuple, spark.table("derby.app.sums").collect()))
        spark.sql("DROP TABLE derby.app.sums")
    assert found == sorted([*rows, *rows])


@pytest.mark.few(1)
@each_value(way=["jdbc", "format"], mode=["error", "append", "overwrite"])
def test_a_database_gets_rows_from_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, way: str, mode: str
) -> None:
    """With ``df.write.jdbc`` as with its format: the last step of many jobs."""
    url, driver = f"jdbc:derby:memory:{way}_{mode};create=true", "org.apache.derby.jdbc.EmbeddedDriver"

    def write(df: DataFrame, table: str, mode: str) -> None:
        if way == "jdbc":
            df.write.jdbc(url, table, mode, {"driver": driver})
        else:
            df.write.format("jdbc").options(url=url, dbtable=table, driver=driver).mode(mode).save()

    keep(spark, orders, attempts)
    for table in ("plain", "again"):
        if mode != "error":
            write(totals(spark, orders).where("part = 1"), table, "error")
    write(totals(spark, orders), "plain", mode)
    with auto_attempt(attempts, spark) as second:
        write(totals(spark, orders), "again", mode)
        assert second.put_back() == {"shuffle(customer)": 2}
    plain, again = (
        sorted(map(tuple, spark.read.jdbc(url, table, properties={"driver": driver}).collect()))
        for table in ("plain", "again")
    )
    assert plain
    assert again == plain


@pytest.mark.few(1)
@each_value(write={"CREATE": WRITES["CREATE"], "saveAsTable": lambda _, df, table: df.write.saveAsTable(table)})
def test_what_fails_above_what_survived_fails_as_ever(
    spark: SparkSession, orders: Path, attempts: Attempts, write: Callable[[SparkSession, DataFrame, str], Any]
) -> None:
    """A shuffle above it runs before the write begins; the script gets the error that it would get without that."""
    from pyspark.sql import functions as F

    attempts.options = {"restart_strategy": "none"}

    def run(table: str) -> str:
        wrong = F.expr("IF(total > 0, raise_error('as ever'), 0)")
        df = totals(spark, orders).groupBy("part").agg(F.max(wrong).alias("most"))
        df.createOrReplaceTempView("made")
        with pytest.raises(Exception, match="as ever") as error:
            write(spark, df, table)
        return type(error.value).__name__

    keep(spark, orders, attempts)
    plain = run(TABLES[0])
    with auto_attempt(attempts, spark) as second:
        assert run(TABLES[1]) == plain
        assert second.put_back() == {"shuffle(customer)": 2}

"""Every way of writing asks first whether this attempt owns the job; reading asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from airflow_provider.core.errors import OwnershipUnconfirmed
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.fence import confirmed, confirmed_commits
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def refuse() -> None:
    raise OwnershipUnconfirmed("not ours")


def stream(spark: SparkSession, path: str) -> DataStreamWriter:
    """A stream that ends."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    return rows.writeStream.option("checkpointLocation", f"{path}-checkpoint").trigger(availableNow=True)


def binarizer() -> Any:
    from pyspark.ml.feature import Binarizer

    return Binarizer(threshold=0.5, inputCol="a", outputCol="b")


def save_pipeline(path: str) -> None:
    from pyspark.ml import Pipeline

    Pipeline(stages=[binarizer()]).save(path)


def save_validator(path: str) -> None:
    """Its parts are in Python: its writer is, too."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.evaluation import BinaryClassificationEvaluator
    from pyspark.ml.tuning import CrossValidator

    estimator, evaluator = LogisticRegression(), BinaryClassificationEvaluator()
    CrossValidator(estimator=estimator, estimatorParamMaps=[{}], evaluator=evaluator).save(path)


def save_weights(spark: SparkSession, path: str) -> None:
    from pyspark.mllib.regression import LinearRegressionModel

    LinearRegressionModel([1.0], 0.0).save(spark.sparkContext, path)  # type: ignore[arg-type]


@contextmanager
def table(spark: SparkSession, folder: Path) -> Iterator[None]:
    spark.sql(f"CREATE TABLE guarded (id BIGINT) USING parquet LOCATION 'file:{folder}/guarded'")
    try:
        yield
    finally:
        spark.sql("DROP TABLE guarded")


WRITES: list[Callable[[SparkSession, str], object]] = [
    lambda spark, path: spark.range(3).write.parquet(path),
    lambda spark, path: spark.range(3).write.insertInto("guarded"),
    lambda spark, path: spark.range(3).writeTo("guarded").append(),
    lambda spark, path: spark.sparkContext.parallelize(["a"], 1).saveAsTextFile(path),
    lambda spark, path: spark.sql("INSERT INTO guarded VALUES (1)"),
    lambda spark, path: spark.sql("INSERT INTO guarded VALUES (:n)", args={"n": 1}),
    lambda spark, path: spark.sql("INSERT INTO guarded SELECT * FROM {rows}", rows=spark.range(3)),
    lambda spark, path: spark.sql("WITH a AS (SELECT 1L AS id) INSERT INTO guarded SELECT * FROM a"),
    lambda spark, path: spark.sql(f"CREATE TABLE made USING parquet LOCATION 'file:{path}' AS SELECT 1 AS id"),
    lambda spark, path: spark.sql(f"INSERT OVERWRITE DIRECTORY '{path}' USING parquet SELECT 1"),
    lambda spark, path: stream(spark, path).start(path),
    lambda spark, path: stream(spark, path).toTable("made"),
    lambda spark, path: stream(spark, path).foreachBatch(lambda frame, _: frame.write.parquet(path)).start(),
    lambda spark, path: binarizer().save(path),
    lambda spark, path: binarizer().write().overwrite().save(path),
    lambda spark, path: save_pipeline(path),
    lambda spark, path: save_validator(path),
    save_weights,
    lambda spark, path: spark.range(3).pandas_api().to_parquet(path),
    lambda spark, path: spark.catalog.createTable("made", path=path, source="parquet", schema=spark.range(1).schema),
    lambda spark, path: spark.catalog.dropTable("guarded"),
    lambda spark, path: spark.catalog.truncateTable("guarded"),
    lambda spark, path: spark.catalog.createDatabase("made"),
    lambda spark, path: spark.range(3).foreachPartition(lambda _: Path(path).mkdir()),
    lambda spark, path: spark.sparkContext.parallelize([1]).foreach(lambda _: Path(path).mkdir()),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_is_not_confirmed_does_not_happen(
    spark: SparkSession, tmp_path: Path, write: Callable[[SparkSession, str], object]
) -> None:
    """Of the DataFrame API, SQL, streams, MLlib and the catalog, and of functions that run for what they do."""
    with table(spark, tmp_path):
        with intercepted(confirmed(refuse)), pytest.raises(OwnershipUnconfirmed):
            write(spark, str(tmp_path / "out"))
        assert not spark.streams.active
        assert spark.table("guarded").count() == 0
        assert not (tmp_path / "out").exists()
        assert not spark.catalog.tableExists("made")
        assert not spark.catalog.databaseExists("made")


def test_a_batch_of_a_stream_that_is_not_confirmed_is_not_written(spark: SparkSession, tmp_path: Path) -> None:
    """Its query has started when the attempt still owned its job; what ``foreachBatch`` writes asks again."""
    asked = 0

    def once() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            refuse()

    path = str(tmp_path / "out")
    with intercepted(confirmed(once)):
        query = stream(spark, path).foreachBatch(lambda frame, _: frame.write.parquet(path)).start()
        with pytest.raises(StreamingQueryException, match="not ours"):
            query.awaitTermination(60)
    assert asked == 2
    assert not (tmp_path / "out").exists()


def test_a_saved_model_is_not_removed_by_one_that_is_not_confirmed(spark: SparkSession, tmp_path: Path) -> None:
    """A writer of MLlib that is in Python removes what is there before it writes."""
    from pyspark.ml import Pipeline

    class Mine(Pipeline):
        """Not known to the JVM."""

    path = str(tmp_path / "model")
    Mine(stages=[]).save(path)
    before = sorted(tmp_path.rglob("*"))
    with intercepted(confirmed(refuse)), pytest.raises(OwnershipUnconfirmed):
        Mine(stages=[]).write().overwrite().save(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_script_whose_driver_was_replaced_in_a_write_does_not_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """What a write raises when it has returned is what the script gets; reading asks nothing."""
    asked: list[str] = []

    def after() -> None:
        asked.append("after")
        refuse()

    with intercepted(confirmed(lambda: asked.append("before"), after)):
        assert spark.sql("SELECT 1").count() == 1
        with pytest.raises(OwnershipUnconfirmed):
            spark.range(3).write.parquet(str(tmp_path / "out"))
    assert asked == ["before", "after"]


@pytest.mark.parametrize("kind", ["path", "insertInto", "SQL", "directory"])
def test_a_write_that_is_overtaken_does_not_commit(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Also one that nobody remembers, as with ``sinks=repeat``: while its tasks ran, a newer attempt has taken over."""
    target = str(tmp_path / "out")
    spark.sql(f"CREATE TABLE overtaken (id BIGINT) USING parquet LOCATION '{target}'")
    writes: dict[str, Callable[[], object]] = {
        "path": lambda: spark.range(3).write.mode("append").parquet(target),
        "insertInto": lambda: spark.range(3).write.insertInto("overtaken"),
        "SQL": lambda: spark.sql("INSERT INTO overtaken SELECT id FROM {rows}", rows=spark.range(3)),
        "directory": lambda: spark.sql(f"INSERT OVERWRITE DIRECTORY '{target}' USING parquet SELECT 1L AS id"),
    }
    try:
        with attempts.attempt() as context:
            monkeypatch.setattr(context.master, "check_now", refuse)
            with intercepted(confirmed_commits(context)), pytest.raises(OwnershipUnconfirmed):
                writes[kind]()
        assert not list(tmp_path.rglob("part-*"))
    finally:
        spark.sql("DROP TABLE overtaken")


@pytest.mark.few(1)
@pytest.mark.parametrize("allowed", [0, 1])
def test_what_is_left_of_a_statement_is_confirmed(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """Of a statement of three inserts one is written already: each of the others asks before it runs and commits."""
    names = ("one_of_three", "two_of_three", "three_of_three")
    text = f"FROM range(7) {' '.join(f'INSERT INTO {name} SELECT id' for name in names)}"
    asked = 0

    def check_now() -> None:
        nonlocal asked
        asked += 1
        if asked > 2 * allowed:
            refuse()

    for name in names:
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING parquet")
    try:
        with attempts.attempt() as context, intercepted(SinksOnce(context, OutputAttempt(context.master)).stages()):
            spark.sql(text)
        for name in names[1:]:
            spark.sql(f"TRUNCATE TABLE {name}")
        with attempts.attempt() as context:
            monkeypatch.setattr(context.master, "check_now", check_now)
            sinks = SinksOnce(context, OutputAttempt(context.master))
            with intercepted(sinks.stages(), confirmed(check_now)), pytest.raises(OwnershipUnconfirmed):
                spark.sql(text)
        assert [spark.table(name).count() for name in names] == [7, 7 * allowed, 0]
    finally:
        for name in names:
            spark.sql(f"DROP TABLE {name}")


def test_reading_asks_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Queries, views and settings."""
    with table(spark, tmp_path), intercepted(confirmed(refuse)):
        assert spark.sql("SELECT count(*) FROM guarded").collect()[0][0] == 0
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM guarded")
        spark.sql("SET spark.sql.shuffle.partitions")
        assert spark.sql("SELECT {n} AS n", n=5).first() == (5,)

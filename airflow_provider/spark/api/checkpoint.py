"""``checkpoint(df, name)`` makes a DataFrame a recovery point. Cheap to import: the work is done elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.spark.context import active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def checkpoint(df: DataFrame, name: str, *, version: str = "", deterministic: bool | None = None) -> DataFrame:
    """Make *df* a recovery point called *name*; also ``df.transform(checkpoint, "sessions")``.

    Returns a DataFrame with the same rows, schema and column identities (``df["id"]`` still resolves). Runs the plan
    when called, like ``DataFrame.checkpoint(eager=True)``. Without a recovery context (a notebook, a unit test, a plain
    ``spark-submit``) it returns *df* itself and costs nothing.

    :param name: a name for people and for the report; another DataFrame may use the same name
    :param version: states the version of a source that has none of its own (JDBC, an RDD): a retry reuses what was
        stored only under the same text. Without it such a DataFrame is computed again
    :param deterministic: ``False``: reuse it whole or not at all, because a function in it returns different results
        each time in a way that cannot be detected; ``True``: reuse single partitions although the plan seems to depend
        on the order of rows (``row_number`` over a unique key, say)
    :raises ConfigurationError: the name is empty, or *df* is no DataFrame of a classic Spark session
    :raises Fenced: a newer attempt owns the job
    """
    context = active()
    if context is None:
        return df
    from airflow_provider.spark.points.recover import recover

    return recover(context, df, name, version, deterministic)

"""A Spark job as a decorated function: its body runs on a driver, its result goes to the next task."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag, task


@dag(schedule=None, catchup=False, doc_md=__doc__, tags=["example", "spark-recovery"])
def taskflow_totals() -> None:
    @task.spark_recovery(conn_id="spark_default", retries=2, retry_delay=timedelta(seconds=5), multiple_outputs=False)
    def totals(spark: Any, products: int, ds: str | None = None) -> dict[str, Any]:
        """Only this function's source is shipped to the driver, so it imports what it needs."""
        from pyspark.sql import functions as F

        from airflow_provider.spark import checkpoint

        sales = spark.range(10_000).select((F.col("id") % products).alias("product"), F.col("id").alias("amount"))
        revenue = checkpoint(sales.groupBy("product").agg(F.sum("amount").alias("revenue")), "revenue")
        best = revenue.orderBy(F.desc("revenue")).first()
        return {"day": ds, "best": best["product"], "revenue": best["revenue"]}

    @task
    def announce(result: dict[str, Any]) -> str:
        return f"{result['day']}: product {result['best']} with {result['revenue']}"

    announce(totals(products=7))


taskflow_totals()

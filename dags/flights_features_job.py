"""Delay features per carrier and hour, from the flights that left New York in 2013 with their weather and planes.

An ordinary PySpark script: ``spark-submit flights_features_job.py INPUT_DIR OUTPUT_DIR``. The ``checkpoint`` lines are
its recovery points. Under ``SparkRecoveryOperator`` a retry resumes from them; elsewhere they do nothing.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

FLIGHTS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, hour INT, minute INT, time_hour STRING"
)
WEATHER = (
    "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT, "
    "wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour STRING"
)
PLANES = (
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed STRING, "
    "engine STRING"
)

MEMORIES = range(60, 361, 60)
"""Candidates, in minutes, for how long a late departure is still felt."""
CALM = 60
"""Weight, in minutes, of the assumption that flights leave on time."""


def read(spark: SparkSession, path: str, schema: str) -> DataFrame:
    return spark.read.csv(path, schema=schema, header=True, nullValue="NA", mode="FAILFAST")


def clean(flights: DataFrame) -> DataFrame:
    """Flights that departed, with the date and the minute of that day when they did (beyond 1440 if past midnight)."""
    return flights.where("dep_delay IS NOT NULL").select(
        F.make_date("year", "month", "day").alias("date"),
        "time_hour",
        "hour",
        (F.col("hour") * 60 + F.col("minute") + F.col("dep_delay")).alias("left_at"),
        "dep_delay",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "distance",
    )


def join(flights: DataFrame, weather: DataFrame, planes: DataFrame) -> DataFrame:
    """Every flight with its plane and the weather at its origin in its hour, where known."""
    rough = F.expr("visib < 3 OR precip > 0 OR wind_speed > 25")
    return (
        flights.join(
            weather.select("origin", "time_hour", "visib", rough.alias("rough")), ["origin", "time_hour"], "left"
        )
        .join(planes.select("tailnum", F.col("year").alias("built"), "seats"), "tailnum", "left")
        .drop("time_hour")
    )


def knock_on(day: pd.DataFrame) -> pd.DataFrame:
    """How late a carrier runs at an airport when each of its flights of one day leaves, in 1/100 minutes.

    A mean over earlier departures whose weight fades linearly with time, with the memory out of ``MEMORIES`` that would
    have forecast the day best. Uses integers throughout, so that the result does not depend on the order of the rows.
    """
    left_at = day["left_at"].to_numpy(np.int64)
    delay = day["dep_delay"].to_numpy(np.int64)
    age = left_at[:, None] - left_at[None, :]

    def forecast(memory: int) -> npt.NDArray[np.int64]:
        weight = np.where((age > 0) & (age < memory), memory - age, 0)
        return 100 * (weight @ delay) // (weight.sum(axis=1) + CALM)

    def error(memory: int) -> int:
        return int(np.abs(100 * delay - forecast(memory)).sum())

    memory = min(MEMORIES, key=error)
    return day.assign(memory=np.int32(memory), knock_on=forecast(memory))


def score(flights: DataFrame) -> DataFrame:
    """Add ``memory`` and ``knock_on``, one group per carrier, airport and day."""
    groups = ["origin", "carrier", "date"]
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in flights.schema)
    return (
        flights.repartition(12, *groups)
        .groupBy(*groups)
        .applyInPandas(knock_on, f"{schema}, memory INT, knock_on BIGINT")
    )


def features(flights: DataFrame) -> DataFrame:
    """One row per carrier and hour."""
    return flights.groupBy("carrier", "hour").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_delay") >= 15).alias("late_flights"),
        F.sum("dep_delay").alias("delay_minutes"),
        F.sum("knock_on").alias("knock_on"),
        F.max("knock_on").alias("worst_knock_on"),
        F.sum("memory").alias("memory_minutes"),
        F.count_if("rough").alias("rough_weather_flights"),
        F.min("visib").alias("worst_visibility"),
        F.sum("seats").alias("seats"),
        F.min("built").alias("oldest_plane"),
        F.countDistinct("tailnum").alias("planes"),
        (F.sum("distance") / F.count("*")).alias("mean_distance"),
    )


def main(input_dir: str, output_dir: str) -> None:
    spark = SparkSession.builder.appName("flights_features").getOrCreate()
    weather = read(spark, f"{input_dir}/weather.csv", WEATHER)
    planes = read(spark, f"{input_dir}/planes.csv", PLANES)

    cleaned = checkpoint(clean(read(spark, f"{input_dir}/flights.csv", FLIGHTS)), "clean")
    joined = checkpoint(join(cleaned, weather, planes), "joined")
    scored = checkpoint(score(joined), "scored")
    result = checkpoint(features(scored), "features")

    result.coalesce(1).sortWithinPartitions("carrier", "hour").write.mode("overwrite").parquet(output_dir)
    print(f"The features are in {output_dir}")


if __name__ == "__main__":
    main(*sys.argv[1:])

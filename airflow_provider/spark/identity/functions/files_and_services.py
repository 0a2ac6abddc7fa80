"""What a Python function may read by itself while it runs: files, services, the output of other programs. A fixed list.

Spark does not see it, and nobody can tell in which state it was. docs/reuse.md shows the list; a test keeps the two
equal.
"""

from __future__ import annotations

from collections.abc import Set

READING: dict[str, frozenset[str]] = {
    "importlib.resources": frozenset({"contents", "files", "open_binary", "open_text", "path"}),
    "io": frozenset({"FileIO", "open", "open_code"}),
    "joblib": frozenset({"load"}),
    "numpy": frozenset({"fromfile", "genfromtxt", "load", "loadtxt", "memmap"}),
    "pandas": frozenset(
        {
            "ExcelFile", "HDFStore", "read_clipboard", "read_csv", "read_excel", "read_feather", "read_fwf", "read_gbq",
            "read_hdf", "read_html", "read_json", "read_orc", "read_parquet", "read_pickle", "read_sas", "read_spss",
            "read_sql", "read_sql_query", "read_sql_table", "read_stata", "read_table", "read_xml",
        }
    ),
    "pkgutil": frozenset({"get_data"}),
    "pyarrow": frozenset({"OSFile", "memory_map"}),
    "spacy": frozenset({"load"}),
    "tarfile": frozenset({"TarFile"}),
    "torch": frozenset({"hub", "load"}),
    "zipfile": frozenset({"Path", "ZipFile"}),
}  # fmt: skip
"""Module → what of it, or of a module inside it, reads."""
ALL_READING: frozenset[str] = frozenset(
    {
        "MySQLdb", "adlfs", "aiohttp", "azure", "boto3", "botocore", "cassandra", "clickhouse_connect", "dbm", "duckdb",
        "elasticsearch", "fsspec", "ftplib", "gcsfs", "geoip2", "google.cloud", "grpc", "http.client", "httpx", "kafka",
        "maxminddb", "mlflow", "onnxruntime", "openai", "oracledb", "os.popen", "paramiko", "psycopg", "psycopg2",
        "pyarrow.csv", "pyarrow.dataset", "pyarrow.feather", "pyarrow.fs", "pyarrow.json", "pyarrow.orc",
        "pyarrow.parquet", "pymongo", "pymysql", "pyodbc", "redis", "requests", "s3fs", "sentence_transformers",
        "shelve", "snowflake", "socket", "sqlalchemy", "sqlite3", "subprocess", "transformers", "urllib.request",
        "urllib3",
    }
)  # fmt: skip
"""Modules of which everything reads, and functions that stand alone."""
METHODS = frozenset({"from_pretrained", "load_model", "read_bytes", "read_text"})
"""Of whatever object; ``open`` is another one, unless it is called with a mode that only writes."""
SPARK_FILES = "SparkFiles"


def reading(path: str, attributes: Set[str] = frozenset()) -> str:
    """Return what code may read by itself where it loads *path*; empty text if that is nothing.

    :param path: a module, or a name in one, with dots
    :param attributes: all that the code asks anything for: a module may have got another name
    """
    names = path.removeprefix("_").split(".")  # _io.open is what a pickle calls open
    if names[0] == "pyspark" and SPARK_FILES in names:
        return f"pyspark.{SPARK_FILES}"
    for end in range(1, len(names) + 1):
        owner = ".".join(names[:end])
        if owner in ALL_READING:
            return owner
        asked = READING.get(owner, frozenset()) & (attributes if end == len(names) else set(names[end:]))
        if asked:
            return f"{owner}.{min(asked)}"
    return ""


def reading_method(attributes: Set[str]) -> str:
    """Return the method that reads, of all that code asks anything for; empty text if there is none."""
    return min(attributes & METHODS, default="")

"""What a Python function may read by itself while it runs: files, services, the output of other programs. A fixed list.

Spark does not see it, and nobody can tell in which state it was. docs/reuse.md shows the list; a test keeps the two
equal.
"""

from __future__ import annotations

from collections.abc import Set

READING: dict[str, frozenset[str]] = {
    "bz2": frozenset({"BZ2File"}),
    "cv2": frozenset({"VideoCapture", "dnn", "imread", "imreadmulti"}),
    "faiss": frozenset({"read_index"}),
    "gensim": frozenset({"downloader"}),
    "geopandas": frozenset({"read_feather", "read_file", "read_parquet", "read_postgis"}),
    "gzip": frozenset({"GzipFile"}),
    "imageio": frozenset({"get_reader", "imread", "mimread", "volread"}),
    "importlib.resources": frozenset({"contents", "files", "open_binary", "open_text", "path"}),
    "io": frozenset({"FileIO", "open", "open_code"}),
    "joblib": frozenset({"load"}),
    "librosa": frozenset({"load"}),
    "lzma": frozenset({"LZMAFile"}),
    "nibabel": frozenset({"load"}),
    "nltk": frozenset({"corpus", "data"}),
    "numpy": frozenset({"fromfile", "genfromtxt", "load", "loadtxt", "memmap"}),
    "openpyxl": frozenset({"load_workbook"}),
    "pandas": frozenset(
        {
            "ExcelFile", "HDFStore", "read_clipboard", "read_csv", "read_excel", "read_feather", "read_fwf", "read_gbq",
            "read_hdf", "read_html", "read_json", "read_orc", "read_parquet", "read_pickle", "read_sas", "read_spss",
            "read_sql", "read_sql_query", "read_sql_table", "read_stata", "read_table", "read_xml",
        }
    ),
    "pkgutil": frozenset({"get_data"}),
    "polars": frozenset(
        {
            "read_avro", "read_csv", "read_database", "read_database_uri", "read_delta", "read_excel", "read_ipc",
            "read_json", "read_ndjson", "read_parquet", "scan_csv", "scan_delta", "scan_iceberg", "scan_ipc",
            "scan_ndjson", "scan_parquet",
        }
    ),
    "pyarrow": frozenset({"OSFile", "memory_map"}),
    "pydicom": frozenset({"dcmread"}),
    "safetensors": frozenset({"load_file", "safe_open"}),
    "scipy.io": frozenset({"loadmat", "mmread", "netcdf_file"}),
    "skimage.io": frozenset({"imread", "imread_collection"}),
    "soundfile": frozenset({"SoundFile", "info", "read"}),
    "spacy": frozenset({"load"}),
    "tarfile": frozenset({"TarFile"}),
    "tensorflow": frozenset({"gfile", "saved_model"}),
    "torch": frozenset({"hub", "load"}),
    "torchaudio": frozenset({"load"}),
    "torchvision": frozenset({"io"}),
    "xarray": frozenset(
        {
            "load_dataarray", "load_dataset", "open_dataarray", "open_dataset", "open_mfdataset", "open_zarr",
        }
    ),
    "zipfile": frozenset({"Path", "ZipFile"}),
}  # fmt: skip
"""Module → what of it, or of a module inside it, reads."""
ALL_READING: frozenset[str] = frozenset(
    {
        "MySQLdb", "adlfs", "aiohttp", "anthropic", "asyncpg", "asyncssh", "azure", "boto3", "botocore", "cassandra",
        "chromadb", "clickhouse_connect", "cohere", "databricks", "dbm", "duckdb", "elasticsearch", "feast",
        "fileinput", "fsspec", "ftplib", "gcsfs", "geoip2", "geopy", "google.cloud", "google.generativeai", "grpc",
        "h5py", "happybase", "hazelcast", "hdfs", "http.client", "httpx", "hvac", "impala", "influxdb_client", "kafka",
        "langchain", "ldap3", "linecache", "litellm", "maxminddb", "mlflow", "neo4j", "netCDF4", "onnxruntime",
        "openai", "opensearchpy", "oracledb", "os.popen", "paramiko", "pinecone", "psycopg", "psycopg2", "pyarrow.csv",
        "pyarrow.dataset", "pyarrow.feather", "pyarrow.fs", "pyarrow.json", "pyarrow.orc", "pyarrow.parquet",
        "pyathena", "pyhive", "pymongo", "pymssql", "pymysql", "pyodbc", "pysftp", "qdrant_client", "redis",
        "requests", "s3fs", "sentence_transformers", "shelve", "smbclient", "snowflake", "socket", "sqlalchemy",
        "sqlite3", "subprocess", "transformers", "trino", "tritonclient", "urllib.request", "urllib3", "vllm",
        "weaviate", "zarr",
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

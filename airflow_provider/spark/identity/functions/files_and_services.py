"""What a Python function may read by itself while it runs: files, services, output of other programs. A fixed list.

Spark does not see such reads, and the state that was read is unknown. docs/reuse.md shows the list; a test keeps the
two equal.
"""

from __future__ import annotations

from collections.abc import Set

READING: dict[str, frozenset[str]] = {
    "asyncio": frozenset({"create_subprocess_exec", "create_subprocess_shell", "open_connection"}),
    "bz2": frozenset({"BZ2File"}),
    "cv2": frozenset({"VideoCapture", "dnn", "imread", "imreadmulti"}),
    "faiss": frozenset({"read_index"}),
    "gensim": frozenset({"downloader", "load", "load_word2vec_format"}),
    "geopandas": frozenset({"read_feather", "read_file", "read_parquet", "read_postgis"}),
    "gzip": frozenset({"GzipFile"}),
    "imageio": frozenset({"get_reader", "imread", "mimread", "volread"}),
    "importlib.resources": frozenset({"contents", "files", "open_binary", "open_text", "path"}),
    "io": frozenset({"FileIO", "open", "open_code"}),
    "joblib": frozenset({"load"}),
    "librosa": frozenset({"load"}),
    "lxml.etree": frozenset({"iterparse", "parse"}),
    "lxml.html": frozenset({"parse"}),
    "lzma": frozenset({"LZMAFile"}),
    "nibabel": frozenset({"load"}),
    "nltk": frozenset({"corpus", "data"}),
    "numpy": frozenset({"fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "open_memmap"}),
    "onnx": frozenset({"load"}),
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
    "scipy.io": frozenset({"FortranFile", "hb_read", "loadarff", "loadmat", "mmread", "netcdf_file", "readsav"}),
    "scipy.sparse": frozenset({"load_npz"}),
    "skimage.io": frozenset({"imread", "imread_collection"}),
    "soundfile": frozenset({"SoundFile", "info", "read"}),
    "spacy": frozenset({"load"}),
    "tarfile": frozenset({"TarFile"}),
    "tensorflow": frozenset({"gfile", "saved_model"}),
    "toml": frozenset({"load"}),
    "torch": frozenset({"hub", "load"}),
    "torchaudio": frozenset({"load"}),
    "torchvision": frozenset({"io"}),
    "xarray": frozenset(
        {
            "load_dataarray", "load_dataset", "open_dataarray", "open_dataset", "open_mfdataset", "open_zarr",
        }
    ),
    "xml.dom.minidom": frozenset({"parse"}),
    "xml.dom.pulldom": frozenset({"parse"}),
    "xml.etree.ElementTree": frozenset({"iterparse", "parse"}),
    "xml.sax": frozenset({"parse"}),
    "zipfile": frozenset({"Path", "ZipFile"}),
}  # fmt: skip
"""Module → its members, or those of modules inside it, that read."""
ALL_READING: frozenset[str] = frozenset(
    {
        "MySQLdb", "adlfs", "aiohttp", "aiomysql", "aiopg", "anthropic", "asyncpg", "asyncssh", "azure", "boto3",
        "botocore", "cassandra", "chromadb", "clickhouse_connect", "cohere", "couchbase", "cx_Oracle", "databricks",
        "dbm", "dotenv", "duckdb", "elasticsearch", "feast", "fileinput", "fsspec", "ftplib", "gcsfs", "geoip2",
        "geopy", "google.cloud", "google.generativeai", "googleapiclient", "grpc", "gspread", "h5py", "happybase",
        "hazelcast", "hdbcli", "hdfs", "http.client", "httplib2", "httpx", "hvac", "ibm_db", "imaplib", "impala",
        "influxdb_client", "jaydebeapi", "kafka", "langchain", "ldap3", "linecache", "litellm", "maxminddb", "memcache",
        "minio", "mlflow", "multiprocessing.connection", "mysql.connector", "neo4j", "netCDF4", "netrc", "onnxruntime",
        "openai", "opensearchpy", "oracledb", "os.popen", "paramiko", "pg8000", "pika", "pinecone", "poplib", "psycopg",
        "psycopg2", "pyarrow.csv", "pyarrow.dataset", "pyarrow.feather", "pyarrow.fs", "pyarrow.json", "pyarrow.orc",
        "pyarrow.parquet", "pyathena", "pycurl", "pyhive", "pymemcache", "pymongo", "pymssql", "pymysql", "pyodbc",
        "pysftp", "qdrant_client", "redis", "requests", "s3fs", "sentence_transformers", "shelve", "simple_salesforce",
        "smbclient", "snowflake", "socket", "sqlalchemy", "sqlite3", "subprocess", "teradatasql", "transformers",
        "trino", "tritonclient", "urllib.request", "urllib3", "vertica_python", "vllm", "weaviate", "websocket",
        "websockets", "xmlrpc.client", "zarr", "zeep",
    }
)  # fmt: skip
"""Modules in which everything reads, and single functions."""
METHODS = frozenset({"from_file", "from_pretrained", "load_model", "read_bytes", "read_text"})
"""Methods of any object; ``open`` is another one, unless it is called with a mode that only writes."""
METHODS_OF: dict[str, frozenset[str]] = {"configparser": frozenset({"read"})}
"""Module → reading methods of its objects; they count if the code names something of that module and such a method."""
SPARK_FILES = "SparkFiles"


def reading(path: str, attributes: Set[str] = frozenset()) -> str:
    """Return what code may read by itself when it loads *path*; empty if nothing.

    :param path: a module, or a name in one, with dots
    :param attributes: every attribute that the code uses on anything: a module may have another name there
    """
    names = path.removeprefix("_").split(".")  # _io.open is what a pickle calls open
    if names[0] == "pyspark" and SPARK_FILES in names:
        return f"pyspark.{SPARK_FILES}"
    asked = METHODS_OF.get(names[0], frozenset()) & attributes
    if asked:
        return f"{names[0]}.{min(asked)}"
    for end in range(1, len(names) + 1):
        owner = ".".join(names[:end])
        if owner in ALL_READING:
            return owner
        asked = READING.get(owner, frozenset()) & (attributes if end == len(names) else set(names[end:]))
        if asked:
            return f"{owner}.{min(asked)}"
    return ""


def reading_method(attributes: Set[str]) -> str:
    """Return a reading method among the attributes that code uses; empty if there is none."""
    return min(attributes & METHODS, default="")

"""Takes jars that only tests need out of packages from the package index; ``tools/setup.sh s3a iceberg`` calls it.

    python tools/jars.py s3a PACKAGE FOLDER
    python tools/jars.py iceberg PACKAGE FOLDER SPARK_JARS

PACKAGE is what pip has downloaded, FOLDER where the jars go, SPARK_JARS the folder ``jars`` of PySpark 3.5.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

S3A = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
"""For Hadoop 3.3, which Spark 3.5 has; from the sdist of ``sagemaker-pyspark``."""
ICEBERG = "iceberg-spark-runtime-3.5_2.12-1.10.2.jar"
"""From a wheel, ``snowpark-connect-deps-iceberg``, which leaves out the Jackson that belongs in it."""
JACKSON = ("jackson-core-2*.jar", "jackson-databind-*.jar", "jackson-annotations-*.jar")
PACKAGE, SHADED = "com/fasterxml/jackson", "org/apache/iceberg/shaded/com/fasterxml/jackson"

_UTF8, _TWO_PLACES = 1, (5, 6)
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Of the other constants of a class file, by tag: https://docs.oracle.com/javase/specs/jvms/se17/html/jvms-4.html#jvms-4.4"""


def s3a(package: Path, folder: Path) -> None:
    """Take Hadoop's S3A and its SDK out of an sdist."""
    found = set()
    with tarfile.open(package) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            content = archive.extractfile(member) if name in S3A else None
            if content is not None:
                with content, (folder / name).open("wb") as target:
                    shutil.copyfileobj(content, target)
                found.add(name)
    if found != set(S3A):
        sys.exit(f"jars: {package.name} does not hold {', '.join(sorted(set(S3A) - found))}")


def iceberg(package: Path, folder: Path, spark_jars: Path) -> None:
    """Take Iceberg's runtime out of a wheel, and put Spark's own Jackson beside it under the name that it asks for."""
    with zipfile.ZipFile(package) as wheel:
        name = next((name for name in wheel.namelist() if PurePosixPath(name).name == ICEBERG), None)
        if name is None:
            sys.exit(f"jars: {package.name} does not hold {ICEBERG}")
        with wheel.open(name) as content, (folder / ICEBERG).open("wb") as target:
            shutil.copyfileobj(content, target)
    with zipfile.ZipFile(folder / "jackson-for-iceberg.jar", "w", zipfile.ZIP_DEFLATED) as shaded:
        for pattern in JACKSON:
            (jar,) = spark_jars.glob(pattern)
            with zipfile.ZipFile(jar) as source:
                for name in source.namelist():
                    if name.startswith(f"{PACKAGE}/") and name.endswith(".class"):
                        shaded.writestr(SHADED + name.removeprefix(PACKAGE), renamed(source.read(name)))


def renamed(data: bytes) -> bytes:
    """Return a class file with Jackson's package renamed in its constants."""
    out, at, index = [data[:10]], 10, 1
    (count,) = struct.unpack(">H", data[8:10])
    while index < count:
        tag = data[at]
        if tag == _UTF8:
            (length,) = struct.unpack(">H", data[at + 1 : at + 3])
            text = data[at + 3 : at + 3 + length]
            for old, new in ((PACKAGE, SHADED), (PACKAGE.replace("/", "."), SHADED.replace("/", "."))):
                text = text.replace(old.encode(), new.encode())
            out.append(b"\x01" + struct.pack(">H", len(text)) + text)
            at += 3 + length
        else:
            out.append(data[at : at + 1 + _SIZES[tag]])
            at += 1 + _SIZES[tag]
            index += tag in _TWO_PLACES
        index += 1
    return b"".join([*out, data[at:]])


def main(kind: str, package: str, folder: str, *spark_jars: str) -> None:
    """Fill *folder*."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if kind == "s3a":
        s3a(Path(package), target)
    else:
        iceberg(Path(package), target, Path(*spark_jars))


if __name__ == "__main__":
    main(*sys.argv[1:])

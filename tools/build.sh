#!/usr/bin/env bash
# Builds wheel and sdist into dist/, installs each into an empty environment, and runs a job by the operator from there.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=$(realpath "$(command -v "${UV:-uv}")")
checkout=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$UV" build --quiet --clear
# The versions that the tests have run with.
"$UV" export --quiet --frozen --no-dev --extra airflow --extra spark --no-emit-project --no-hashes \
    --output-file "$folder/constraints.txt"
for file in dist/*.whl dist/*.tar.gz; do
    "$UV" venv --quiet --clear "$folder/venv"
    "$UV" pip install --quiet --python "$folder/venv" --constraints "$folder/constraints.txt" \
        "airflow-provider-spark-recovery[airflow,spark] @ file://$checkout/$file"
    (cd "$folder" && PATH="$folder/venv/bin:$PATH" venv/bin/python "$checkout/tools/try_operator.py")
    echo "build: $file works in an empty environment"
done

#!/bin/sh
# Installs LUCIUS from its wheel into a new environment: install.sh FOLDER EXTRAS PREFIX
# FOLDER has the wheel and requirements.txt of `make wheel`; every dependency must match its hash there.
set -eu
wheel=$(ls "$1"/lucius-*.whl)
uv venv --quiet "$3"
uv pip install --quiet --python "$3/bin/python" --compile-bytecode --verify-hashes \
  --constraint "$1/requirements.txt" "lucius[$2] @ file://$wheel"

# Sourced by the other scripts: goes to the project's folder and makes .venv with the locked versions, unless it is
# there already. PYTHON names another interpreter than python3.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
wanted="$PWD $(cat pyproject.toml setup.py constraints.txt | cksum)"

if [ "$(cat .venv/installed 2>/dev/null)" != "$wanted" ]; then
    python=${PYTHON:-python3}
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        found=$("$python" --version 2>/dev/null || echo "not there")
        echo "tfcli needs Python 3.10 or newer, and $python is $found; name one that is: PYTHON=python3.12 $0" >&2
        exit 1
    fi
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --clear .venv
    fi
    echo "Installing tfcli and what it needs into .venv (once; a few minutes, most of it PyTorch)" >&2
    .venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[test]' >&2
    echo "$wanted" >.venv/installed
fi
export PATH="$PWD/.venv/bin:$PATH"

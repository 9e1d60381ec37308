
# An environment of its own, unless one is active already.
if [ -z "${VIRTUAL_ENV:-}" ]; then
  [ -x .venv/bin/python3 ] || run python3 -m venv .venv
  printf '*\n' >.venv/.gitignore
  export VIRTUAL_ENV="$PWD/.venv"
fi
export PATH="$VIRTUAL_ENV/bin:$PATH"

# Installs a distribution whose module cannot be imported yet.
need() {
  python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$2" ||
    run python3 -m pip install "$1"
}

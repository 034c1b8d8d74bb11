# Runs python3 with these arguments, which the Makefile's targets do. It is the one thing that is needed to say in Python
# what else is missing: so this says it, or installs it where root asks.
packages="binutils ca-certificates clang-19 gdb git make python3"  # as tools/setup/system_packages.py has them
if ! command -v python3 > /dev/null && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  echo "Installing python3, which the lab's tools are written in ..."
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q > /dev/null && apt-get install -y -q --no-install-recommends python3 > /dev/null
fi
if ! command -v python3 > /dev/null; then
  how="Ask an administrator to run:"
  [ "$(id -u)" != 0 ] || how="To install:"
  [ "$(id -u)" = 0 ] || ! command -v sudo > /dev/null || how="To install: sudo"
  echo "There is no python3, which the lab's tools are written in." >&2
  echo "$how apt-get install --no-install-recommends $packages" >&2
  exit 1
fi
exec python3 "$@"

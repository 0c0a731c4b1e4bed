#!/bin/sh
# Builds the engine of Google Research Football from source for mdp=football mdp.engine=gfootball: gfootball 2.10.2,
# without the packages that its own environments need, since evorl speaks to the engine itself.
#
#     scripts/football.sh [PYTHON]    # .venv/bin/python if there is none; JOBS=1 compiles one file at a time
#
# What the system must have is installed by root on Debian and Ubuntu, and named to others. Boost.Python is built for one
# version of Python, that of the system, so PYTHON must have the same version (3.11 on Debian 12).
set -eu

version=2.10.2
packages="cmake g++ make libgl-dev libegl-dev libsdl2-dev libsdl2-image-dev libsdl2-ttf-dev libsdl2-gfx-dev
    libboost-python-dev libboost-thread-dev libboost-filesystem-dev libboost-system-dev python3-dev"
python=${1:-.venv/bin/python}
[ -x "$python" ] || { echo "there is no $python: make setup, or name a Python" >&2 && exit 2; }
if "$python" -P -c 'import gfootball_engine' 2> /dev/null; then
    echo "the engine of football is there"
    exit
fi

missing() {
    for package in $packages; do
        [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null)" = installed ] || echo "$package"
    done
}
if command -v dpkg-query > /dev/null; then
    if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ]; then
        # shellcheck disable=SC2046 # a word is a package
        { apt-get install -y --no-install-recommends $(missing) || {
            apt-get update && apt-get install -y --no-install-recommends $(missing)
        }; } > /dev/null || true
    fi
    if [ -n "$(missing)" ]; then
        # shellcheck disable=SC2046
        echo "the engine of football needs packages of the system; as root: apt-get install" $(missing) >&2
        exit 1
    fi
else
    echo "needs cmake, a C++ compiler, SDL2 with image, ttf and gfx, OpenGL, EGL, and Boost with Python" >&2
fi

digits=$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
if command -v ldconfig > /dev/null && ! ldconfig -p | grep -q "libboost_python$digits\."; then
    echo "the system's Boost.Python is not for $("$python" --version): make .venv with the system's Python" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip --disable-pip-version-check --no-input -qq install setuptools wheel
"$python" -m pip --disable-pip-version-check --no-input -qq download --no-deps --no-binary :all: \
    --no-build-isolation --dest "$work" "gfootball==$version"
tar -xzf "$work/gfootball-$version.tar.gz" -C "$work"
engine=$work/gfootball-$version/third_party/gfootball_engine
echo "compiling the engine of football (once; some minutes)"
if ! { cmake -S "$engine" -B "$work/build" -DCMAKE_CXX_FLAGS=-w && make -C "$work/build" -j "${JOBS:-$(nproc)}"; } \
    > "$work/log" 2>&1; then
    tail -n 20 "$work/log" >&2
    exit 1
fi
# setup.py compiles again unless it finds the library where its makers put theirs
mkdir -p "$engine/lib"
cp "$work/build/libgame.so" "$engine/lib/prebuilt_gameplayfootball.so"
GFOOTBALL_USE_PREBUILT_SO=1 "$python" -m pip --disable-pip-version-check --no-input -qq install --no-deps \
    --no-build-isolation "$work/gfootball-$version"
"$python" -P -c 'import gfootball_engine'
echo "the engine of football is built: mdp=football mdp.engine=gfootball"

#!/usr/bin/env bash
# Brings a bare Debian or Ubuntu machine to the point where easeml can run: PostgreSQL with PL/Python, and a virtual
# environment that the server can read. Usage: docker/bootstrap.sh VENV [packages|environment|all|DATASET]
# It does nothing, quickly, when everything is there. TORCH names the PyTorch requirement (default: torch==2.13.0).
set -euo pipefail

venv=$1
part=${2:-all}
torch=${TORCH:-torch==2.13.0}
clone=$(cd "$(dirname "$0")/.." && pwd)

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo DEBIAN_FRONTEND=noninteractive "$@"; fi; }

# Root's environment lies in a folder that others could have made first: whoever owns it decides what the server runs.
check_owner() {
    local folder
    for folder in "$(dirname "$venv")" "$venv"; do
        [ -e "$folder" ] || [ -L "$folder" ] || continue
        if [ -L "$folder" ] || [ "$(stat -c %u "$folder")" != "$(id -u)" ] || [ -n "$(find "$folder" -maxdepth 0 -perm /022)" ]; then
            echo "$folder is a link, belongs to somebody else or is open to others: $(stat -c '%U %A' "$folder")" >&2
            echo "Remove it, or choose another place: make VENV=..." >&2
            exit 1
        fi
    done
}

# The newest installed PostgreSQL of version 15 or later that has PL/Python.
server_with_plpython() {
    ls /usr/share/postgresql/*/extension/plpython3u.control 2>/dev/null | cut -d/ -f5 |
        awk '$1 >= 15' | sort -n | tail -n 1
}

cluster_defaults=/etc/postgresql-common/createcluster.conf

install_packages() {
    local missing=()
    [ -n "$(server_with_plpython)" ] || missing+=(postgresql plpython3)
    /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(venv)
    # LightGBM links it. (ldconfig is not on the path of those who are not root.)
    /usr/bin/python3 -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || missing+=(libgomp1)
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "Installing Debian packages for: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Only the private cluster of easeml is wanted: keep the packages from creating and starting one of their own.
    if [ ! -e "$cluster_defaults" ] && [ ! -d /etc/postgresql ]; then
        trap 'as_root rm -f "$cluster_defaults"' EXIT
        as_root mkdir -p "$(dirname "$cluster_defaults")"
        echo "create_main_cluster = false" | as_root tee "$cluster_defaults" >/dev/null
    fi
    as_root apt-get update -qq
    local names=(python3-venv libgomp1)
    if [ -z "$(server_with_plpython)" ]; then
        local version
        version=$(apt-cache search --names-only '^postgresql-plpython3-[0-9]+$' | sed 's/.*plpython3-\([0-9]*\).*/\1/' |
            awk '$1 >= 15' | sort -n | head -n 1)
        [ -n "$version" ] || { echo "No PostgreSQL 15 or newer with PL/Python is offered by apt on this machine." >&2; exit 1; }
        names+=("postgresql-$version" "postgresql-plpython3-$version")
    fi
    as_root apt-get install -y -qq --no-install-recommends "${names[@]}" </dev/null
    # Without that file of ours, with the package's own in its place: clusters of others are made as ever.
    if [ -n "$(trap -p EXIT)" ]; then
        trap - EXIT
        as_root rm -f "$cluster_defaults"
        [ ! -e "/usr/share/${cluster_defaults#/etc/}" ] || as_root cp "/usr/share/${cluster_defaults#/etc/}" "$cluster_defaults"
    fi
}

# PL/Python embeds Debian's own Python, so the environment must come from the same interpreter.
make_environment() {
    [ "$(id -u)" != 0 ] || check_owner
    # An upgrade of the distribution puts another Python under the environment, whose packages lie in a folder of the old one.
    if ! "$venv/bin/python" -I -c 'import pip' 2>/dev/null; then
        local made_by has
        made_by=$(sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' "$venv/pyvenv.cfg" 2>/dev/null || true)
        has=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "Creating the virtual environment $venv"
        mkdir -p "$(dirname "$venv")"
        [ "$(id -u)" != 0 ] || check_owner
        if [ -n "$made_by" ] && [ "$made_by" != "$has" ]; then
            echo "It was made by Python $made_by, and this system has $has: what is there is removed"
            /usr/bin/python3 -m venv --clear "$venv"
        else
            /usr/bin/python3 -m venv "$venv"
        fi
    fi
    local stamp="$venv/easeml-requirements"
    local wanted
    wanted=$(cat "$clone/pyproject.toml" "$clone/experiments/pyproject.toml" | cksum)" $torch "$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
    echo "Installing Python packages ($torch and the requirements of pyproject.toml)"
    "$venv/bin/pip" install --quiet "$torch" "hatchling>=1.25"
    "$venv/bin/pip" install --quiet --no-build-isolation "$clone[test,experiments]" "$clone/experiments"
    chmod -R a+rX "$venv"
    echo "$wanted" >"$stamp"
}

# The datasets of the demo: digits and those of tenants come with scikit-learn, Fashion-MNIST is a package of Debian's.
install_dataset() {
    [ ! -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || return 0
    echo "Installing Debian's package dataset-fashion-mnist"
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -qq
    as_root apt-get install -y -qq --no-install-recommends dataset-fashion-mnist </dev/null
}

case $part in
    packages) install_packages ;;
    environment) make_environment ;;
    all) install_packages; make_environment ;;
    digits | tenants | cluster) ;;
    fashion-mnist) install_dataset ;;
    *) echo "usage: $0 VENV [packages|environment|all|digits|fashion-mnist|tenants|cluster]" >&2; exit 2 ;;
esac

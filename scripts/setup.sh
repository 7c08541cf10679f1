#!/bin/sh
# Installs the Debian packages that are missing: setup.sh PACKAGE... Called by quickstart.sh and test.sh.
set -eu

missing=
for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "setup: installing$missing"
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "setup: needs root or sudo to install:$missing" >&2
        exit 1
    }
    as_root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086 # one word per package
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null

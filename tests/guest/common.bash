# common.bash: what the scripts of this folder share; sourced, never run.
#
# Everything fetched or built lands in $cache, outside the checkout, so that a second run needs
# neither network nor compiler.  Delete the folder to start afresh.
# shellcheck shell=bash disable=SC2034

me=${0##*/}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${VCCL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/vccl}/guest

# die MESSAGE...: say it and leave with 125, the status for "the guest failed, not the command".
die() {
    echo "guest/$me: $*" >&2
    exit 125
}

# need PURPOSE: stop unless every program is there that the lines of `packages` for PURPOSE name.
need() {
    local purpose program package absent=()
    while read -r purpose package program; do
        [[ $purpose == "$1" ]] || continue
        command -v "$program" >/dev/null || [[ -x /usr/sbin/$program ]] || absent+=("$package")
    done < <(grep -v '^ *\(#\|$\)' "$here/packages")
    ((${#absent[@]} == 0)) || die "missing packages; install them with: apt-get install --no-install-recommends ${absent[*]}"
}

# fetch PACKAGE: download a Debian package into the working directory, without installing it.
fetch() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        die "Debian's kernels are fetched with apt-get and dpkg-deb, which are not here; copy a filled $cache to this machine"
    apt-get -q download -o APT::Sandbox::User=root "$1" >&2 ||
        die "cannot download the Debian package '$1' (is there a network? are the lists fresh: apt-get update?)"
}

# newest_image VERSION: the last package of an unsigned kernel of this version that apt knows.
newest_image() {
    apt-cache search --names-only "^linux-image-${1//./\\.}\\.[0-9.+a-z-]*amd64-unsigned$" |
        awk '$1 !~ /-(rt|cloud)-/ { print $1 }' | sort -V | tail -n 1
}

# only_one NAME: let one process at a time prepare NAME in the cache; others wait for it.
only_one() {
    mkdir -p "$cache" || die "cannot create $cache; set VCCL_CACHE to a folder that can be written"
    exec 9>"$cache/lock-$1"
    flock 9
}

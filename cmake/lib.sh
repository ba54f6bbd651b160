# lib.sh: what tests/run, examples/run and bench/run share; sourced, never run.
#
# VCCL_BUILD_ROOT moves the build folders out of the checkout's build/; JOBS sets the number of parallel jobs.
# shellcheck shell=bash

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_root=${VCCL_BUILD_ROOT:-$top/build}
jobs=${JOBS:-$(nproc)}
export CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1   # one cache serves every checkout

# die MESSAGE...: say it and leave with 2, the status for "could not even try".
die() {
    echo "${0##*/}: $*" >&2
    exit 2
}

# there PROGRAM-OR-HEADER-OR-PATH: whether it is installed. A path may be a pattern.
there() {
    case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    *.h | *.hpp) [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]] ||
        compgen -G "/usr/include/*-linux-gnu*/$1" >/dev/null ;;
    *) command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 || -x /sbin/$1 ]] ;;
    esac
}

# absent_packages FILE PURPOSE...: the Debian packages that FILE's lines for these purposes name and that are missing.
absent_packages() {
    local file=$1 purpose package sign
    shift
    while read -r purpose package sign; do
        [[ " $* " == *" $purpose "* ]] || continue
        there "$sign" || echo "$package"
    done < <(grep -v '^ *\(#\|$\)' "$file") | sort -u
}

# apt_has_lists: whether apt knows what there is to be had, beyond what is installed.
apt_has_lists() {
    grep -q '^ *origin ' <<<"$(LC_ALL=C apt-cache policy 2>/dev/null)"
}

# install_packages FILE PURPOSE...: install what is missing, or name it and leave. Of a purpose with a question mark, only what
# this distribution has.
install_packages() {
    local absent package wished as_root=() file=$1
    shift
    mapfile -t absent < <(absent_packages "$file" "$@")
    mapfile -t wished < <(absent_packages "$file" "${@/%/?}")
    ((${#absent[@]} + ${#wished[@]})) || return 0
    if ((EUID != 0)); then as_root=(sudo -n); fi
    if ! command -v apt-get >/dev/null || ! { ((EUID == 0)) || sudo -n true 2>/dev/null; }; then
        ((${#absent[@]})) || return 0
        die "missing (by their Debian names): ${absent[*]}. Install them and try again."
    fi
    if ((${#absent[@]})) || ! apt_has_lists; then "${as_root[@]}" apt-get -qq update >&2 || true; fi
    for package in "${wished[@]}"; do
        if apt-cache show "$package" >/dev/null 2>&1; then absent+=("$package"); fi
    done
    ((${#absent[@]})) || return 0
    echo "== installing ${absent[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${absent[@]}" >/dev/null ||
        die "apt-get could not install: ${absent[*]}"
}

# settings ARGUMENT...: all that the outcome of configuring depends on, but for files.
settings() {
    printf '%s\n' "$top" "$build_root" "$PATH" "${CC-}" "${CXX-}" "${CUDACXX-}" "${CFLAGS-}" "${CXXFLAGS-}" "${CMAKE_PREFIX_PATH-}" "$@"
}

# configured FOLDER SETTINGS: whether this build folder was configured so, and neither the project nor what is installed has
# changed since.
configured() {
    local stamp=$1/configured
    [[ -e $stamp && -e $1/CMakeCache.txt && $(<"$stamp") == "$2" ]] || return 1
    [[ -e $1/build.ninja || -e $1/Makefile ]] || return 1
    [[ ! /var/lib/dpkg/status -nt $stamp ]] || return 1
    [[ -z $(find "$top" \( -path "$build_root" -o -path "$top/build" -o -name .git \) -prune -o \
        \( -name CMakeLists.txt -o -name '*.cmake' -o -name 'CMake*Presets.json' \) -newer "$stamp" -print -quit) ]]
}

# configure PRESET [CMAKE-ARGUMENT...]: into $build_root/PRESET, quietly unless it fails.
configure() {
    local preset=$1 folder=$build_root/$1 wanted
    local log=$folder/configure.log
    wanted=$(settings "$@")
    shift
    mkdir -p "$folder"
    rm -f "$folder/configured"
    if [[ ! -e $folder/CMakeCache.txt ]] && command -v ninja >/dev/null; then set -- "$@" -G Ninja; fi
    echo "$wanted" >"$folder/configuring"   # older than whatever changes meanwhile
    (cd "$top" && cmake --preset "$preset" -B "$folder" "$@") >"$log" 2>&1 || {
        cat "$log" >&2
        return 1
    }
    mv "$folder/configuring" "$folder/configured"
}

# configure_once PRESET [CMAKE-ARGUMENT...]: the same, unless that is done. For whoever is in a hurry: tests configure anew.
configure_once() {
    configured "$build_root/$1" "$(settings "$@")" || configure "$@"
}

# compile PRESET TARGET...: build these targets of a configured preset; the log is shown only if that fails.
compile() {
    local preset=$1 log=$build_root/$1/build.log
    shift
    cmake --build "$build_root/$preset" -j "$jobs" --target "$@" >"$log" 2>&1 || {
        grep -E -A12 'error:|^FAILED:|undefined reference' "$log" | head -n 150 >&2 || tail -n 60 "$log" >&2
        echo "the whole log: $log" >&2
        return 1
    }
}

# has_target PRESET TARGET: whether a configured preset knows it.
has_target() {
    grep -qE "(^|[ /])$2(:|\$| )" <<<"$(cmake --build "$build_root/$1" --target help)"
}

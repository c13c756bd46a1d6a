# What both scripts ask of the machine. Sourced, never run: `say`, `die`, `need_tools`.
# shellcheck shell=bash

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$*"
    exit 2
}

# Installs Debian packages when that is allowed without asking anybody; else says what to type.
install_packages() {
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        die "missing: $*. Install it and start again; on Debian: sudo apt-get install $*"
    fi
    say "installing $*"
    apt-get update -qq >&2 || die "apt-get update failed: the package lists cannot be fetched"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Options::=--force-confold "$@" >&2 || die "apt-get install $* failed"
}

git_is_new_enough() {
    local version major minor
    version=$(git --version 2>/dev/null | awk '{print $3}') || return 1
    IFS=. read -r major minor _ <<<"$version"
    [ "${major:-0}" -gt 2 ] 2>/dev/null || { [ "${major:-0}" -eq 2 ] && [ "${minor:-0}" -ge 39 ]; } 2>/dev/null
}

# git 2.39 or newer, a C compiler (SQLite is built from source), cargo.
need_tools() {
    local missing=()
    command -v git >/dev/null || missing+=(git)
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
    git_is_new_enough || die "git 2.39 or newer is needed, this is: $(git --version)"
    # rustup puts cargo here; a shell that was open before does not know yet.
    command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    command -v cargo >/dev/null \
        || die "cargo is missing. Install Rust with rustup (https://rustup.rs), then start again"
    # Distributions ship older ones, which do not read rust-toolchain.toml; rustup's fetches what it names.
    local version minor
    version=$(cargo --version | awk '{print $2}') || die "cargo does not run: see above"
    IFS=. read -r _ minor _ <<<"$version"
    [ "${minor:-0}" -ge 95 ] 2>/dev/null \
        || die "cargo $version is too old, 1.95 is needed. Install Rust with rustup (https://rustup.rs)"
}

# shellcheck shell=bash
# Sourced by scripts/guest.sh: makes the kernel of User-Mode Linux from Debian's source package, and finds it again.
#
# A kernel lies in $cache/CONFIGURATION-VERSION/: linux, and modules/, by which modprobe knows what is built in.
# CONFIGURATION is a hash of what we say about it, VERSION that of Debian's package.
# shellcheck disable=SC2154  # here and cache are variables of scripts/guest.sh
RECIPE=1 # to be counted up with each change of how the kernel is made
SOURCE_PACKAGE=linux-source-6.12
BUILD_TOOLS=(make gcc ld flex bison bc xz depmod)
BUILD_PACKAGES=(make gcc binutils libc6-dev flex bison bc xz-utils kmod)

configuration_hash() { { echo "$RECIPE"; cat "$here/guest/kernel.config"; } | sha256sum | cut -c1-12; }

# The newest kernel of this configuration; the name that cannot be there if there is none.
kernel_folder() {
    local found
    found=$(printf '%s\n' "$cache/$(configuration_hash)"-*/linux | sort -V | tail -n1)
    printf '%s\n' "${found%/linux}"
}

source_version() {
    local version
    version=$(dpkg-query -W -f='${Version}' "$SOURCE_PACKAGE" 2>/dev/null) && [ -f "/usr/src/$SOURCE_PACKAGE.tar.xz" ] && [ -n "$version" ] && { echo "$version"; return; }
    apt-cache policy "$SOURCE_PACKAGE" 2>/dev/null | sed -n 's/^  Candidate: \([0-9].*\)/\1/p'
}

missing_tools() {
    local tool
    for tool in "${BUILD_TOOLS[@]}"; do command -v "$tool" >/dev/null || printf '%s ' "$tool"; done
}

# What the build needs; root gets it installed, others are told.
prepare() {
    command -v dpkg-query apt-cache >/dev/null ||
        fail "--build needs Debian's package $SOURCE_PACKAGE, and this is not Debian; HYROADS_GUEST_KERNEL may name a kernel of yours"
    version=$(source_version)
    if [ -z "$version" ] && [ "$EUID" = 0 ]; then
        apt-get update -qq >&2 || fail "apt-get update failed"
        version=$(source_version)
    fi
    [ -n "$version" ] || fail "no package $SOURCE_PACKAGE in the package lists (Debian 12 and 13 have it); try: sudo apt-get update"
}

install_tools() {
    [ -n "$(missing_tools)" ] || return 0
    [ "$EUID" = 0 ] || fail "--build misses $(missing_tools); try: sudo apt-get install ${BUILD_PACKAGES[*]}"
    echo "== tools: ${BUILD_PACKAGES[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${BUILD_PACKAGES[@]}" >/dev/null ||
        fail "apt-get could not install ${BUILD_PACKAGES[*]}"
}

# The source in $work/linux, without most of what our configuration does not compile: 0.4 GB instead of 1.5.
unpack() {
    local archive=/usr/src/$SOURCE_PACKAGE.tar.xz
    if [ ! -f "$archive" ]; then
        echo "== $SOURCE_PACKAGE $version (150 MB)"
        (cd "$work" && apt-get download -qq "$SOURCE_PACKAGE=$version" 2>/dev/null) || fail "could not download $SOURCE_PACKAGE $version"
        dpkg-deb --fsys-tarfile "$work"/*.deb | tar -xf - -C "$work" "./usr/src/$SOURCE_PACKAGE.tar.xz"
        archive=$work/usr/src/$SOURCE_PACKAGE.tar.xz
    fi
    mkdir "$work/linux"
    tar -xf "$archive" -C "$work/linux" --strip-components=1 --exclude-from=- <<'END'
*/Documentation/*.*
*/tools/[!i]*/*
*/samples/*.[chS]
*/sound/*.[ch]
*/arch/[!ux]*/*.[chS]
*/arch/[!ux]*/*.dts*
*/arch/xtensa/*.[chS]
*/drivers/[!bcnt]*/*.[chS]
*/drivers/net/ethernet/*.[ch]
*/drivers/net/wireless/[!v]*/*.[ch]
END
    # Processors with AMX have more registers than the 21 KiB that User-Mode Linux saves; it would end at once.
    sed -i 's/\(HOST_FP_SIZE, \)2696/\116384/' "$work/linux/arch/x86/um/user-offsets.c"
}

# Every step by itself: within `||` a shell does not stop at the first that fails.
compile() {
    local names=$work/depmod/lib/modules release
    cd "$work/linux" &&
        make -s ARCH=um KCONFIG_ALLCONFIG="$here/guest/kernel.config" allnoconfig >/dev/null &&
        configured &&
        make -s ARCH=um -j"$(nproc)" &&
        release=$(make -s ARCH=um kernelrelease) &&
        strip -o "$work/done/linux" linux &&
        mkdir -p "$names/$release" &&
        cp modules.builtin modules.builtin.modinfo "$names/$release" &&
        touch "$names/$release/modules.order" &&
        depmod -b "$work/depmod" "$release" &&
        mv "$names/$release" "$work/done/modules"
}

# A line that the kernel's source does not know, or does not allow, is an error and not a kernel that lacks something.
configured() {
    local missing
    missing=$(grep -vxFf .config "$here/guest/kernel.config" | grep -v '^# ---\|^# [A-Z][a-z ]\|^$' || true)
    [ -z "$missing" ] || { echo "not taken from scripts/guest/kernel.config: $missing"; false; }
}

build() {
    local folder
    prepare
    folder=$cache/$(configuration_hash)-$version
    mkdir -p "$cache"
    exec 8>"$cache/lock"
    flock 8 # somebody else may be building the same
    if [ -x "$folder/linux" ]; then echo "== kernel $version is there: $folder"; return; fi
    install_tools
    work=$cache/work
    rm -rf "$work"
    mkdir -p "$work/done"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    unpack
    echo "== compiling $version, about 8 minutes of processor time"
    (compile) >"$work/log" 2>&1 8>&- || { tail -n 20 "$work/log" >&2; fail "the kernel could not be compiled"; }
    # Kernels of other configurations and versions are of no use any more.
    find "$cache" -mindepth 1 -maxdepth 1 -type d ! -path "$work" -exec rm -rf {} +
    mv "$work/done" "$folder"
    echo "== kernel $version, $SECONDS s: $folder"
}

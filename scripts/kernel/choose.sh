# Which kernel scripts/kernel.sh builds for and boots.

debian_installed() { # sets $headers and $image: the newest installed headers, and the image of the same kernel
    headers=$(find /usr/src -maxdepth 1 -name 'linux-headers-*-amd64' ! -name '*-cloud-*' ! -name '*-rt-*' | sort -V | tail -1)
    [[ -n $headers ]] || fail "linux-headers-amd64 is installed, but /usr/src has no headers"
    local release=${headers##*/linux-headers-}
    image=$out/image/boot/vmlinuz-$release
    if [[ ! -e $image ]]; then
        step "downloading the kernel $release"
        (cd "$out" && rm -rf image ./linux-image-*.deb && timeout 120 apt-get download -qq "linux-image-$release" && dpkg -x ./linux-image-*.deb image) \
            >>"$log" 2>&1 || fail "the kernel's package cannot be downloaded: see $log"
    fi
}

# A kernel of another Debian release. This system's own release, packages and lists stay as they are.
debian_kernel() { # debian_kernel SUITE: sets $headers and $image to its newest kernel, unpacked under $out
    local at=$out/debian-$1 apt package release packages compiler
    apt=(-o "Dir::Etc::SourceList=$at/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$at/state"
        -o Dir::State::status=/dev/null -o "Dir::Cache=$at/cache" -o APT::Sandbox::User=root)
    if [[ ! -e $at/release ]]; then
        step "downloading the kernel of Debian's $1"
        rm -rf "$at"
        mkdir -p "$at"/{state/lists/partial,cache/archives/partial,packages,unpacked}
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" >"$at/sources.list"
        apt-get "${apt[@]}" update -qq >>"$log" 2>&1 || fail "Debian has no release named $1, or cannot be reached: see $log"
        release=$(apt-cache "${apt[@]}" depends linux-headers-amd64 2>>"$log" | sed -n 's/^ *Depends: linux-headers-//p')
        [[ $release == *-amd64 ]] || fail "Debian's $1 has no package linux-headers-amd64"
        packages=("linux-headers-$release" "linux-image-$release")
        # Those that the headers consist of; the compiler is this system's.
        while read -r package; do packages+=("$package"); done < <(apt-cache "${apt[@]}" depends "linux-headers-$release" 2>>"$log" |
            sed -n 's/^ *Depends: \(linux-headers-.*-common\|linux-kbuild-.*\)/\1/p')
        (cd "$at/packages" && timeout 600 apt-get "${apt[@]}" download -qq "${packages[@]}") >>"$log" 2>&1 ||
            fail "the packages ${packages[*]} cannot be downloaded: see $log"
        for package in "$at"/packages/*.deb; do
            dpkg-deb -x "$package" "$at/unpacked" || fail "$package cannot be unpacked"
        done
        # The headers' Makefile names the common headers by an absolute path.
        sed -i "s|include /usr/src/|include $at/unpacked/usr/src/|" "$at/unpacked/usr/src/linux-headers-$release/Makefile"
        echo "$release" >"$at/release"
        rm -rf "$at"/{packages,cache,state}
    fi
    release=$(<"$at/release")
    headers=$at/unpacked/usr/src/linux-headers-$release image=$at/unpacked/boot/vmlinuz-$release
    compiler=$(sed -n 's/^CC = .*\(gcc-[0-9]*\)$/\1/p' "$headers/.kernelvariables")
    [[ -z $compiler ]] || command -v "$compiler" >>"$log" ||
        fail "the kernel of Debian's $1 needs $compiler: install it, or take a release that this system's compiler serves, as bookworm-backports on Debian 12"
}

release_of_headers() { # release_of_headers DIR
    local file=$1/include/generated/utsrelease.h
    [[ -e $file ]] || fail "$1 has no headers of a kernel (include/generated/utsrelease.h): build the kernel, or 'make modules_prepare', first"
    sed -n 's/^#define UTS_RELEASE "\(.*\)"/\1/p' "$file"
}

release_of_image() { # release_of_image FILE: the header of a bzImage says where its name is
    local at name
    [[ -r $1 ]] || fail "there is no image $1: name the kernel's bzImage or vmlinuz with --image FILE"
    at=$(od -An -tu2 -j 526 -N 2 "$1")
    read -r name _ < <(dd if="$1" bs=1 skip=$((at + 512)) count=80 status=none | tr '\0' '\n') || true
    echo "$name"
}

#!/usr/bin/env bash
# build-node.sh FOLDER: what cluster.sh calls NODE_TOOLS. containerd, its shim, ctr and the CNI plugins from the Go module proxy; runc
# and nft from Debian packages unpacked into the folder (nothing is installed, so no root and no change to the machine); images of
# pause and CoreDNS made here. Needs go, apt-get and dpkg (Debian or Ubuntu).
#   runc comes from Debian because `go install` of it has no seccomp (that needs libseccomp's headers) and every pod sandbox wants it.
set -euo pipefail
here="$(dirname "$(readlink -f "$0")")"
CONTAINERD=v2.4.2 CNI=v1.9.1 COREDNS=v1.15.0
out="$1"
mkdir -p "$out"/{bin,cni,lib,deb}; t="$(mktemp -d)"; trap 'rm -rf "$t"' EXIT
gi() { local d="$1"; shift; CGO_ENABLED=0 GOFLAGS= GOWORK=off GOBIN="$d" go install -trimpath -ldflags '-s -w' "$@"; }
c=github.com/containerd/containerd/v2/cmd
gi "$out/bin" $c/containerd@$CONTAINERD $c/containerd-shim-runc-v2@$CONTAINERD $c/ctr@$CONTAINERD
p=github.com/containernetworking/plugins/plugins
gi "$out/cni" $p/main/bridge@$CNI $p/main/loopback@$CNI $p/ipam/host-local@$CNI $p/meta/portmap@$CNI
mkdir -p "$t/dns/etc" "$t/pause"; gi "$t/dns" github.com/coredns/coredns@$COREDNS
( cd "$out/deb" && apt-get download runc nftables libnftables1 libnftnl11 libmnl0 libseccomp2 libxtables12 libjansson4 libedit2 libbsd0 libmd0 libtinfo6 >/dev/null )
for d in "$out"/deb/*.deb; do dpkg -x "$d" "$t/root"; done
cp "$t"/root/usr/sbin/{runc,nft} "$out/bin/"
find "$t/root" -name '*.so.*' -exec cp -a {} "$out/lib/" \;
cat > "$t/pause.go" <<'G'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

// Holds the pod's namespaces; as pid 1 of a shared pid namespace it also reaps.
func main() {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range c {
		if s != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if n, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); n <= 0 || err != nil {
				break
			}
		}
	}
}
G
( cd "$t" && CGO_ENABLED=0 GOFLAGS= GOWORK=off go build -trimpath -ldflags '-s -w' -o pause/pause pause.go )
bash "$here/mkimage.sh" tollgate.test/pause:1 "$t/pause" "$out/pause.tar" '["/pause"]'
bash "$here/mkimage.sh" tollgate.test/coredns:1 "$t/dns" "$out/coredns.tar" '["/coredns"]'
rm -rf "$out/deb"

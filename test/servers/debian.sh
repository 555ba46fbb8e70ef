#!/bin/sh
# debian.sh <root> <package …>: installs Debian unstable with the packages and without services into <root>, as root. Its last line has the packages' versions.
# All mounts are made in a new mount namespace, and all processes run in a new PID namespace: when this script ends for any reason,
# they end too, and no mount is visible outside, so that the folder can be removed at any time.
set -eu
if [ "${DEBIAN_SH_INSIDE:-}" != yes ]; then
  # A source of the machine's that does not answer is no reason to stop: whether the package was had tells.
  command -v debootstrap >/dev/null || { apt-get update -q || true; DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap; }
  DEBIAN_SH_INSIDE=yes exec setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc sh "$0" "$@"
fi
root=$1
shift
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
debootstrap --variant=minbase --include=ca-certificates sid "$root"

# No package starts a service or creates a cluster during its installation.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mkdir -p "$root/etc/postgresql-common"
echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"

mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
chroot "$root" apt-get install -q -y --no-install-recommends "$@"
chroot "$root" apt-get clean
rm -rf "$root"/var/lib/apt/lists/*
chroot "$root" dpkg-query --show --showformat='${Package} ${Version}, ' "$@" | sed 's/, $//'
echo

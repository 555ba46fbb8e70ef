#!/usr/bin/env bash
# A real single-node Kubernetes cluster (pods run) inside its own network, mount, pid and uts namespaces. Root, Linux.
#   cluster.sh ASSETS NODE_TOOLS STATE      start; writes STATE/kubeconfig (admin); returns when the node is Ready
#   cluster.sh --import STATE IMAGE.tar...  load images (OCI or docker archive) into the node
#   cluster.sh --sh STATE CMD...            run CMD inside the node's namespaces
#   cluster.sh --stop STATE                 end everything and clean up (one kill: the namespaces' pid 1)
# ASSETS:     kube-apiserver etcd kubectl kube-controller-manager kube-scheduler kubelet kube-proxy (the cache's entry kubernetes)
# NODE_TOOLS: bin/{containerd,containerd-shim-runc-v2,ctr,runc,nft} cni/{bridge,host-local,loopback,portmap} [lib/]
# Addresses (all made here): host 10.201.0.1 <-veth-> node 10.201.0.2, pods 10.202.0.0/24, services 10.203.0.0/24.
# The node has no default route: nothing it runs can reach outside this machine.
set -euo pipefail
self="$(readlink -f "$0")"; here="$(dirname "$self")"
PODS=10.202.0.0/24 SVCS=10.203.0.0/24 HOSTIP=10.201.0.1 NODEIP=10.201.0.2 APISVC=10.203.0.1 DNSIP=10.203.0.10
NODE=node1 CG="${CG:-tollgate-test}"
cgroups() { awk '$3=="cgroup" {print $2}' /proc/mounts; }   # every v1 hierarchy, the named one too: kubelet wants its root in all

case "${1:-}" in
--stop)
  S="$2"
  if [ -f "$S/init.pid" ]; then p="$(cat "$S/init.pid")"; kill -9 "$p" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$p" 2>/dev/null || break; sleep 0.1; done; rm -f "$S/init.pid"; fi
  # cgroups outlive the processes; deepest first
  for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do for _ in 1 2 3 4 5 6; do [ -d "$m/$CG" ] || break
    find "$m/$CG" -depth -type d -exec rmdir {} + 2>/dev/null || true; if [ -d "$m/$CG" ]; then sleep 0.5; fi; done; done
  if [ -f "$S/sysctl.saved" ]; then while read -r k v; do echo "$v" > "/proc/sys/$k"; done < "$S/sysctl.saved"; fi
  ip link del tgk-host 2>/dev/null || true
  exit 0 ;;
--import)
  S="$(readlink -f "$2")"; shift 2; . "$S/env"
  for f in "$@"; do f="$(readlink -f "$f")"
    nsenter -t "$(cat "$S/init.pid")" -n -m -p -u -- "$T/bin/ctr" -a "$S/c.sock" -n k8s.io images import "$f" 2>/dev/null; done
  exit 0 ;;
--sh)
  S="$(readlink -f "$2")"; shift 2; . "$S/env"; exec nsenter -t "$(cat "$S/init.pid")" -n -m -p -u -- "$@" ;;
--inner) ;;
*)
  A="$(readlink -f "$1")"; T="$(readlink -f "$2")"; mkdir -p "$3"; S="$(readlink -f "$3")"; t0=$(date +%s.%N)
  mkdir -p "$S"/{pki,log,kc,cni,containerd}; chmod 700 "$S"; mkdir -p "$S/tmp"
  for k in vm/overcommit_memory kernel/panic kernel/panic_on_oops; do echo "$k $(cat /proc/sys/$k)"; done > "$S/sysctl.saved"
  { echo "A=$A"; echo "T=$T"; echo "export PATH=$T/bin:\$PATH"; [ -d "$T/lib" ] && echo "export LD_LIBRARY_PATH=$T/lib XTABLES_LIBDIR=$T/lib/xtables"; true; } > "$S/env"
  cd "$S/pki"
  ec() { openssl ecparam -name prime256v1 -genkey -noout -out "$1" 2>/dev/null; }
  cert() { # name subject ext
    ec "$1.key"; openssl req -new -key "$1.key" -subj "$2" -out "$1.csr" 2>/dev/null; printf '%s\n' "$3" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt" 2>/dev/null; }
  if [ ! -f ca.crt ]; then
    ec ca.key; openssl req -x509 -new -key ca.key -subj /CN=tollgate-test-ca -days 30 -out ca.crt 2>/dev/null
    cert apiserver /CN=kube-apiserver "$(printf 'subjectAltName=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:%s,IP:%s\nextendedKeyUsage=serverAuth' $NODEIP $APISVC)"
    cert kubelet-client /O=system:masters/CN=apiserver-kubelet-client extendedKeyUsage=clientAuth
    cert front-proxy /CN=front-proxy extendedKeyUsage=clientAuth
    cert kubelet /O=system:nodes/CN=system:node:$NODE "$(printf 'subjectAltName=DNS:%s,IP:%s\nextendedKeyUsage=serverAuth,clientAuth' $NODE $NODEIP)"
    ec sa.key; openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null; : > tokens.csv; chmod 600 tokens.csv
    user() { # file user group
      local t; t="$(openssl rand -hex 24)"; echo "$t,$2,$2,\"$3\"" >> tokens.csv
      ( umask 077; cat > "$1" <<Y
apiVersion: v1
kind: Config
clusters: [{name: t, cluster: {server: "https://$NODEIP:6443", certificate-authority-data: $(base64 < ca.crt | tr -d '\n')}}]
users: [{name: u, user: {token: "$t"}}]
contexts: [{name: t, context: {cluster: t, user: u}}]
current-context: t
Y
      ); }
    user "$S/kubeconfig" admin system:masters
    user "$S/kc/kcm" system:kube-controller-manager ""; user "$S/kc/scheduler" system:kube-scheduler ""
    user "$S/kc/kubelet" system:node:$NODE system:nodes; user "$S/kc/proxy" system:kube-proxy ""
  fi
  cd "$S"
  # pid 1 of the new namespaces is this script again; it starts everything and reaps.
  unshare --fork --kill-child --pid --mount-proc --net --mount --uts --propagation private bash "$self" --inner "$S" > log/init.log 2>&1 < /dev/null &
  u=$!; for _ in $(seq 50); do c="$(cat /proc/$u/task/$u/children 2>/dev/null | tr -d ' ')"; [ -n "$c" ] && break; sleep 0.1; done
  echo "$c" > init.pid
  ip link add tgk-host type veth peer name eth0 netns "$c"
  ip addr add $HOSTIP/24 dev tgk-host; ip link set tgk-host up
  touch "$S/net.ready"
  for r in $PODS $SVCS; do ip route replace "$r" via $NODEIP dev tgk-host 2>/dev/null || true; done
  for _ in $(seq 900); do
    kill -0 "$u" 2>/dev/null || { tail -20 log/init.log >&2; exit 1; }
    if "$A/kubectl" --kubeconfig kubeconfig get node $NODE -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null | grep -q True; then
      for r in $PODS $SVCS; do ip route replace "$r" via $NODEIP dev tgk-host; done
      "$A/kubectl" --kubeconfig kubeconfig label node $NODE kubernetes.io/role=all --overwrite >/dev/null
      echo "node Ready in $(awk -v a="$t0" -v b="$(date +%s.%N)" 'BEGIN{printf "%.1f", b-a}') s: KUBECONFIG=$S/kubeconfig" >&2; exit 0
    fi; sleep 0.1
  done
  echo "node not Ready" >&2; exit 1 ;;
esac

# ---- inside the namespaces -------------------------------------------------
S="$2"; . "$S/env"; cd "$S"
hostname $NODE
mount --make-rshared /
# kubelet and containerd want some fixed folders; give them private ones
mkdir -p "$S/run"; mount -t tmpfs tmpfs /run; mkdir -p /run/lock
ip link set lo up
while [ ! -f "$S/net.ready" ]; do sleep 0.05; done; rm -f "$S/net.ready"
ip addr add $NODEIP/24 dev eth0; ip link set eth0 up
ip route add $SVCS dev eth0   # so that the node itself reaches service addresses: nft rewrites them on the way out
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet

run() { local n="$1"; shift; ( while :; do "$@" >> "log/$n.log" 2>&1 || true; sleep 1; done ) & }

run etcd "$A/etcd" --name t --data-dir "$S/etcd" --unsafe-no-fsync --log-level warn
run kube-apiserver "$A/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0 --advertise-address $NODEIP --secure-port 6443 \
  --tls-cert-file pki/apiserver.crt --tls-private-key-file pki/apiserver.key --client-ca-file pki/ca.crt --token-auth-file pki/tokens.csv \
  --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
  --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file pki/sa.pub --service-account-signing-key-file pki/sa.key \
  --service-cluster-ip-range $SVCS --kubelet-client-certificate pki/kubelet-client.crt --kubelet-client-key pki/kubelet-client.key \
  --kubelet-certificate-authority pki/ca.crt --kubelet-preferred-address-types InternalIP \
  --requestheader-client-ca-file pki/ca.crt --requestheader-allowed-names front-proxy --requestheader-username-headers X-Remote-User \
  --requestheader-group-headers X-Remote-Group --requestheader-extra-headers-prefix X-Remote-Extra- \
  --proxy-client-cert-file pki/front-proxy.crt --proxy-client-key-file pki/front-proxy.key --enable-aggregator-routing

# containerd
mkdir -p cni
cat > cni/10-bridge.conflist <<J
{"cniVersion":"1.0.0","name":"pods","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"$S/cni-ipam","ranges":[[{"subnet":"$PODS"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","backend":"nftables","capabilities":{"portMappings":true}}]}
J
cat > containerd/config.toml <<J
version = 3
root = "$S/containerd/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "$S/c.sock"
[ttrpc]
address = "$S/c.sock.ttrpc"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "tollgate.test/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
# without CAP_SYS_RESOURCE runc may not lower oom_score_adj and dies with "can't get final child's PID"
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["$T/cni"]
conf_dir = "$S/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "$T/bin/runc"
SystemdCgroup = false
J
run containerd "$T/bin/containerd" -c containerd/config.toml
for _ in $(seq 100); do [ -S c.sock ] && "$T/bin/ctr" -a "$S/c.sock" version >/dev/null 2>&1 && break; sleep 0.1; done
"$T/bin/ctr" -a "$S/c.sock" -n k8s.io images import "$T/pause.tar" >/dev/null

# control loops
run kube-controller-manager "$A/kube-controller-manager" --kubeconfig kc/kcm --leader-elect=false --secure-port 0 --use-service-account-credentials \
  --service-account-private-key-file pki/sa.key --root-ca-file pki/ca.crt --cluster-signing-cert-file pki/ca.crt --cluster-signing-key-file pki/ca.key \
  --service-cluster-ip-range $SVCS --cluster-cidr $PODS
run kube-scheduler "$A/kube-scheduler" --kubeconfig kc/scheduler --leader-elect=false --secure-port 0

# kubelet
for m in $(cgroups); do mkdir -p "$m/$CG"; if [ -f "$m/cpuset.cpus" ]; then cat "$m/cpuset.cpus" > "$m/$CG/cpuset.cpus"; cat "$m/cpuset.mems" > "$m/$CG/cpuset.mems"; fi; done
cat > kc/kubelet.yaml <<J
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$CG
containerRuntimeEndpoint: unix://$S/c.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $S/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $S/pki/kubelet.crt
tlsPrivateKeyFile: $S/pki/kubelet.key
clusterDomain: cluster.local
clusterDNS: [$DNSIP]
resolvConf: ""
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
podLogsDir: $S/podlogs
serverTLSBootstrap: false
syncFrequency: 10s
J
run kubelet "$A/kubelet" --config kc/kubelet.yaml --kubeconfig kc/kubelet --root-dir "$S/kubelet" --cert-dir "$S/kubelet-pki" \
  --hostname-override $NODE --node-ip $NODEIP
cat > kc/proxy.yaml <<J
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ${PROXY_MODE:-nftables}
hostnameOverride: $NODE
clusterCIDR: $PODS
clientConnection: {kubeconfig: $S/kc/proxy}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
metricsBindAddress: 127.0.0.1:10249
healthzBindAddress: 127.0.0.1:10256
J
run kube-proxy "$A/kube-proxy" --config kc/proxy.yaml
wait

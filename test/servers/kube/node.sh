#!/usr/bin/env bash
# node.sh ASSETS TOOLS, in a folder that node.ts has prepared: a single-node cluster, as the first process of a new PID, mount and UTS namespace. Its mounts,
# processes and networks end with that process. Prints `network is up`, and `node started` when all programs have been started.
set -euo pipefail
assets=$1 tools=$2 state=$PWD
export PATH=$tools/bin:$PATH LD_LIBRARY_PATH=$tools/lib XTABLES_LIBDIR=$tools/lib/xtables

if [ "${3:-}" != inside ]; then
  hostname "$NODE"
  mount --make-rshared /
  # Folders that kubelet and containerd require.
  mount -t tmpfs tmpfs /run
  mkdir -p /run/lock /run/kernel
  # kubelet writes these sysctls of the whole machine: it gets copies.
  for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    cat "/proc/sys/$name" >"/run/kernel/${name//\//.}"
    mount --bind "/run/kernel/${name//\//.}" "/proc/sys/$name"
  done
  # The only network link leads to the machine, without a route beyond it.
  ip netns add node
  ip link add "$LINK" type veth peer name eth0 netns node
  ip addr add "$HOST_ADDRESS/24" dev "$LINK"
  ip link set "$LINK" up
  for range in "$POD_RANGE" "$SERVICE_RANGE"; do ip route add "$range" via "$NODE_ADDRESS" dev "$LINK"; done
  exec nsenter --net=/run/netns/node bash "$0" "$assets" "$tools" inside
fi

ip link set lo up
ip addr add "$NODE_ADDRESS/24" dev eth0
ip link set eth0 up
# Lets the node itself reach Services, whose addresses are rewritten on output.
ip route add "$SERVICE_RANGE" dev eth0
for name in ip_forward conf/all/route_localnet; do echo 1 >"/proc/sys/net/ipv4/$name"; done
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
echo 'network is up'

# Programs that exit are restarted, as by a service manager: most exit until the API server is reachable.
run() {
  local name=$1
  shift
  (while :; do
    "$@" >>"log/$name" 2>&1 || true
    sleep 0.5
  done) &
}

run etcd "$assets/etcd" --name node --data-dir etcd --unsafe-no-fsync --log-level warn
run kube-apiserver "$assets/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0 --advertise-address "$NODE_ADDRESS" --secure-port 6443 \
  --tls-cert-file apiserver.crt --tls-private-key-file apiserver.key --client-ca-file ca.crt --token-auth-file tokens.csv \
  --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
  --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file sa.pub --service-account-signing-key-file sa.key \
  --service-cluster-ip-range "$SERVICE_RANGE" --kubelet-client-certificate kubelet-client.crt --kubelet-client-key kubelet-client.key \
  --kubelet-certificate-authority ca.crt --kubelet-preferred-address-types InternalIP --profiling=false \
  --requestheader-client-ca-file ca.crt --requestheader-allowed-names front-proxy-client --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
  --requestheader-extra-headers-prefix X-Remote-Extra- --proxy-client-cert-file front-proxy.crt --proxy-client-key-file front-proxy.key

run containerd "$tools/bin/containerd" --config containerd.toml
until "$tools/bin/ctr" --address "$state/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
"$tools/bin/ctr" --address "$state/containerd.sock" --namespace k8s.io images import "$tools/pause.tar" >/dev/null

run kube-controller-manager "$assets/kube-controller-manager" --kubeconfig manager.kubeconfig --leader-elect=false --secure-port 0 --use-service-account-credentials \
  --service-account-private-key-file sa.key --root-ca-file ca.crt --service-cluster-ip-range "$SERVICE_RANGE" --cluster-cidr "$POD_RANGE" --profiling=false
run kube-scheduler "$tools/kube-scheduler" --kubeconfig scheduler.kubeconfig --leader-elect=false --secure-port 0 --profiling=false
run kubelet "$tools/kubelet" --config kubelet.json --kubeconfig kubelet.kubeconfig --root-dir "$state/kubelet" --cert-dir "$state/certificates" --hostname-override "$NODE" --node-ip "$NODE_ADDRESS"
run kube-proxy "$tools/kube-proxy" --config proxy.json
echo 'node started'
wait

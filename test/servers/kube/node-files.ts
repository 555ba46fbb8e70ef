/** Configuration files of a node's programs, by the file names in node.sh. */
import { join } from 'node:path'

/** Addresses of the machine as seen by pods, of the node, its pods and Services. Nothing else uses them. */
export const NETWORK = {
  LINK: 'tollgate-node',
  NODE: 'node1',
  HOST_ADDRESS: '10.201.0.1',
  NODE_ADDRESS: '10.201.0.2',
  POD_RANGE: '10.202.0.0/24',
  SERVICE_RANGE: '10.203.0.0/24',
}

/** The control group beneath which every pod's is. */
export const CGROUP = 'tollgate-node'

const DNS = '10.203.0.10'

const containerd = (folder: string, tools: string): string => `
version = 3
root = '${folder}/containerd'
state = '/run/containerd'
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
address = '${folder}/containerd.sock'
[ttrpc]
address = '${folder}/containerd.sock.ttrpc'
[plugins.'io.containerd.cri.v1.images']
snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'tollgate.test/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
# Without CAP_SYS_RESOURCE runc may not lower oom_score_adj, and ends.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['${tools}/cni']
conf_dir = '${folder}/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'runc'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '${tools}/bin/runc'
SystemdCgroup = false
`

const network = (folder: string): object => ({
  cniVersion: '1.0.0',
  name: 'pods',
  plugins: [
    {
      type: 'bridge',
      bridge: 'cni0',
      isGateway: true,
      ipMasq: false,
      hairpinMode: true,
      ipam: { type: 'host-local', dataDir: join(folder, 'addresses'), ranges: [[{ subnet: NETWORK.POD_RANGE }]], routes: [{ dst: '0.0.0.0/0' }] },
    },
  ],
})

const kubelet = (folder: string): object => ({
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  kind: 'KubeletConfiguration',
  failCgroupV1: false,
  cgroupDriver: 'cgroupfs',
  cgroupRoot: `/${CGROUP}`,
  containerRuntimeEndpoint: `unix://${folder}/containerd.sock`,
  authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: join(folder, 'ca.crt') } },
  authorization: { mode: 'Webhook' },
  tlsCertFile: join(folder, 'kubelet.crt'),
  tlsPrivateKeyFile: join(folder, 'kubelet.key'),
  clusterDomain: 'cluster.local',
  clusterDNS: [DNS],
  resolvConf: '',
  failSwapOn: false,
  evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '1%', 'imagefs.available': '1%', 'nodefs.inodesFree': '1%' },
  imageGCHighThresholdPercent: 100,
  imageGCLowThresholdPercent: 99,
  podLogsDir: join(folder, 'pods'),
  syncFrequency: '10s',
})

const proxy = (folder: string): object => ({
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  mode: 'nftables',
  hostnameOverride: NETWORK.NODE,
  clusterCIDR: NETWORK.POD_RANGE,
  clientConnection: { kubeconfig: join(folder, 'proxy.kubeconfig') },
  // Kernel limits stay unchanged: they are the machine's.
  conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s', udpTimeout: '0s', udpStreamTimeout: '0s' },
  metricsBindAddress: '127.0.0.1:10249',
  healthzBindAddress: '127.0.0.1:10256',
})

/** Texts by file name, for a node whose state is in `folder` and whose programs are in `tools`. */
export function nodeFiles(folder: string, tools: string): Record<string, string> {
  return {
    'containerd.toml': containerd(folder, tools),
    'cni/pods.conflist': JSON.stringify(network(folder)),
    'kubelet.json': JSON.stringify(kubelet(folder)),
    'proxy.json': JSON.stringify(proxy(folder)),
  }
}

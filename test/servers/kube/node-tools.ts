/** Programs of a node besides the control plane, as one entry of the cache. */
import { copyFile, cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { writeArchive } from '../../../image/archive.ts'
import type { Entry } from '../cache.ts'
import { command } from '../command.ts'
import { lacksPackages, unpackPackages } from '../debian.ts'
import { go, lacksGo } from '../go.ts'
import { buildKubernetes, VERSION } from './build.ts'

const CONTAINERD = ['containerd', 'containerd-shim-runc-v2', 'ctr'].map((name) => `github.com/containerd/containerd/v2/cmd/${name}@v2.4.2`)
const CNI = ['main/bridge', 'main/loopback', 'ipam/host-local'].map((name) => `github.com/containernetworking/plugins/plugins/${name}@v1.9.1`)
const COREDNS = 'github.com/coredns/coredns v1.15.0'

/** Debian's runc, because a build without a C compiler has no seccomp, and nft, with their libraries. */
const PACKAGES = ['runc', 'nftables', 'libnftables1', 'libnftnl11', 'libmnl0', 'libseccomp2', 'libxtables12', 'libjansson4', 'libedit2', 'libbsd0', 'libmd0', 'libtinfo6']

/** Writes the image `name` to `file`. `folder` has its file system, which is one program. */
export async function image(folder: string, file: string, name: string, program: string): Promise<void> {
  for (const needed of ['data', 'etc']) await mkdir(join(folder, needed), { recursive: true })
  await writeArchive(folder, file, name, { copies: [], install: [], packages: [], workdir: '/', env: {}, user: '65532:65532', ports: [], entrypoint: [program] })
}

/** Builds `coredns.go` into the folder. */
async function buildCoredns(folder: string): Promise<void> {
  const source = join(folder, '../dns-source')
  await mkdir(source)
  await writeFile(join(source, 'go.mod'), `module tollgate.invalid/coredns\n\ngo 1.25\n\nrequire ${COREDNS}\n`)
  await copyFile(join(import.meta.dirname, 'coredns.go'), join(source, 'main.go'))
  await go(['build', '-mod=mod', '-trimpath', '-ldflags=-s -w', '-o', join(folder, 'coredns'), '.'], source)
}

async function debianParts(folder: string, scratch: string): Promise<void> {
  const root = join(scratch, 'debian')
  await unpackPackages(PACKAGES, root)
  for (const program of ['runc', 'nft']) await copyFile(join(root, 'usr/sbin', program), join(folder, 'bin', program))
  for (const path of await readdir(root, { recursive: true })) {
    // As it is where it is a link to another version of the same.
    if (/\.so\.[\d.]+$/.test(path)) await cp(join(root, path), join(folder, 'lib', path.split('/').at(-1) ?? ''), { verbatimSymlinks: true })
  }
}

/** kubelet, kube-proxy and kube-scheduler of that version; `bin` has containerd, runc and nft, `cni` the plugins of pods' networks; and images of pause and CoreDNS. */
export const NODE_TOOLS: Entry = {
  name: 'kubernetes-node',
  version: VERSION,
  program: 'kubelet',
  async lacks() {
    if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'needs root on Linux'
    const commands = command('sh', ['-c', 'command -v ip && command -v unshare && command -v nsenter'])
    return (await lacksGo()) ?? (await lacksPackages()) ?? commands.then(() => null, () => 'needs ip, unshare and nsenter (on Debian: apt-get install iproute2 util-linux)')
  },
  async install(folder) {
    const scratch = join(folder, 'scratch')
    const inside = (name: string) => join(scratch, name)
    for (const made of ['bin', 'lib', 'cni', 'scratch', 'scratch/dns', 'scratch/pause']) await mkdir(join(folder, made))
    const install = (to: string, ...packages: string[]) => go(['install', '-trimpath', '-ldflags=-s -w', ...packages], folder, { GOBIN: to })
    await install(join(folder, 'bin'), ...CONTAINERD)
    await install(join(folder, 'cni'), ...CNI)
    await buildCoredns(inside('dns'))
    await go(['build', '-trimpath', '-ldflags=-s -w', '-o', inside('pause/pause'), join(import.meta.dirname, 'pause.go')], folder)
    await image(inside('dns'), join(folder, 'coredns.tar'), 'tollgate.test/coredns:1', '/coredns')
    await image(inside('pause'), join(folder, 'pause.tar'), 'tollgate.test/pause:1', '/pause')
    await debianParts(folder, scratch)
    await buildKubernetes(['kube-scheduler', 'kubelet', 'kube-proxy'], folder)
    await rm(scratch, { recursive: true })
  },
}

/**
 * A real cluster of one node that runs pods, in separate namespaces and without network access beyond the machine. Needs root on Linux. The machine has one at a time. Pods reach
 * the machine at `NETWORK.HOST_ADDRESS`, and the machine reaches pods and Services at their own addresses. NetworkPolicies are accepted and not enforced.
 */
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { CACHE } from '../cache.ts'
import { installed } from '../client.ts'
import { command } from '../command.ts'
import { assets, KUBERNETES_NAMES } from '../kubernetes.ts'
import { locked } from '../lock.ts'
import { start } from '../process.ts'
import { serve } from '../server.ts'
import { own } from '../shared.ts'
import { openAuthority } from './authority.ts'
import { CGROUP, NETWORK, nodeFiles } from './node-files.ts'

export type Node = {
  /** Path of an administrator's kubeconfig. */
  kubeconfig: string
  /** Resolves when pods and the cluster's DNS run. Rejects with the ends of the logs when they do not. */
  ready(): Promise<void>
  /** Loads an image from an archive, and adds a tag. */
  importImage(archive: string): Promise<void>
  tagImage(name: string, another: string): Promise<void>
  stop(): Promise<void>
}

const { NODE_ADDRESS, NODE } = NETWORK
const SERVER = `https://${NODE_ADDRESS}:6443`

async function prepare(folder: string, tools: string): Promise<void> {
  for (const name of ['log', 'cni']) await mkdir(join(folder, name))
  for (const [name, text] of Object.entries(nodeFiles(folder, tools))) await writeFile(join(folder, name), text)
  const authority = await openAuthority(folder)
  const names = ['DNS:localhost', 'DNS:kubernetes', 'DNS:kubernetes.default', 'DNS:kubernetes.default.svc', 'IP:127.0.0.1', `IP:${NODE_ADDRESS}`, 'IP:10.203.0.1']
  await authority.certificate('apiserver', '/CN=kube-apiserver', `subjectAltName=${names.join(',')}`, 'extendedKeyUsage=serverAuth')
  await authority.certificate('kubelet-client', '/O=system:masters/CN=apiserver-kubelet-client', 'extendedKeyUsage=clientAuth')
  // By it API servers of other projects know that this one has authenticated a request.
  await authority.certificate('front-proxy', '/CN=front-proxy-client', 'extendedKeyUsage=clientAuth')
  await authority.certificate('kubelet', `/O=system:nodes/CN=system:node:${NODE}`, `subjectAltName=DNS:${NODE},IP:${NODE_ADDRESS}`, 'extendedKeyUsage=serverAuth')
  await authority.user('kubeconfig', SERVER, 'admin', 'system:masters')
  await authority.user('manager.kubeconfig', SERVER, 'system:kube-controller-manager')
  await authority.user('scheduler.kubeconfig', SERVER, 'system:kube-scheduler')
  await authority.user('proxy.kubeconfig', SERVER, 'system:kube-proxy')
  await authority.user('kubelet.kubeconfig', SERVER, `system:node:${NODE}`, 'system:nodes')
}

/** Every mounted hierarchy of control groups; version 2 has one. */
async function hierarchies(): Promise<string[]> {
  const mounts = (await readFile('/proc/mounts', 'utf8')).split('\n').map((line) => line.split(' '))
  return mounts.flatMap(([, place = '', type = '']) => (type.startsWith('cgroup') ? [place] : []))
}

async function makeGroups(): Promise<void> {
  for (const root of await hierarchies()) {
    const group = join(root, CGROUP)
    await mkdir(group, { recursive: true })
    // A cpuset without cores or memory accepts no process; only version 1 needs that.
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      const above = await readFile(join(root, file), 'utf8').catch(() => null)
      if (above !== null) await writeFile(join(group, file), above)
    }
  }
}

/** Groups outlive their processes, and can be removed a moment after the last one exits. */
async function removeGroups(): Promise<void> {
  for (const root of await hierarchies()) {
    for (let tries = 0; tries < 100 && !(await removed(join(root, CGROUP))); tries++) await pause(100)
  }
}

async function removed(group: string): Promise<boolean> {
  const inside = await readdir(group, { withFileTypes: true }).catch(() => [])
  for (const entry of inside) if (entry.isDirectory()) await removed(join(group, entry.name))
  return rmdir(group).then(() => true, ({ code }) => code === 'ENOENT')
}

/** Cleans up after a node. The network device would disappear a moment later by itself. */
async function clear(): Promise<void> {
  await command('ip', ['link', 'delete', NETWORK.LINK]).catch(() => {})
  await removeGroups()
}

/** Waits until no other run on this machine has a node. Returns the function that releases the lock. */
function nodeLock(): Promise<() => void> {
  const mine = Promise.withResolvers<() => void>()
  const over = Promise.withResolvers<void>()
  const waiting = () => console.log('# another run has a node; waiting for it')
  locked(join(CACHE, 'node.lock'), waiting, () => {
    mine.resolve(over.resolve)
    return over.promise
  }).catch(mine.reject)
  return mine.promise
}

/** Resolves when the machine has its address in the node's network; `ready` resolves when the node runs. */
export async function startNode(): Promise<Node> {
  const tools = dirname(installed('kubernetes-node'))
  const release = await nodeLock()
  try {
    return await startAlone(tools, release)
  } catch (error) {
    release()
    throw error
  }
}

async function startAlone(tools: string, release: () => void): Promise<Node> {
  await clear()
  await makeGroups()
  let state = ''
  const server = await serve(
    async (folder) => {
      state = folder
      await prepare(folder, tools)
    },
    async (folder, running) => {
      const apart = ['--mount', '--propagation', 'private', '--pid', '--mount-proc', '--uts', '--fork', '--kill-child', '--wd', folder]
      const argv: [string, ...string[]] = ['unshare', ...apart, 'bash', join(import.meta.dirname, 'node.sh'), assets(), tools]
      running.push(await start({ argv, env: NETWORK, ready: async (printed) => printed.includes('network is up') }))
    },
  ).catch(async (error: unknown) => {
    await clear()
    throw error
  })
  const kubeconfig = join(state, 'kubeconfig')
  const ctr = (...args: string[]) => command(join(tools, 'bin/ctr'), ['--address', join(state, 'containerd.sock'), '--namespace', 'k8s.io', ...args])
  const images = { importImage: async (archive: string) => void (await ctr('images', 'import', archive)), tagImage: async (name: string, another: string) => void (await ctr('images', 'tag', name, another)) }
  return {
    kubeconfig,
    ...images,
    async ready() {
      const kubectl = (...args: string[]) => command(join(assets(), 'kubectl'), ['--kubeconfig', kubeconfig, ...args])
      await becomesReady(kubectl, () => images.importImage(join(tools, 'coredns.tar'))).catch(async (error: unknown) => {
        throw new Error(`${error instanceof Error ? error.message : error}\n${await endsOfLogs(join(state, 'log'))}`)
      })
    },
    async stop() {
      await server.stop()
      await clear()
      release()
    },
  }
}

async function becomesReady(kubectl: (...args: string[]) => Promise<string>, importDns: () => Promise<void>): Promise<void> {
  const patience = '--timeout=120s'
  for (let tries = 1; ; tries++) {
    const there = await kubectl('get', 'node', NODE).then(() => true, (error: unknown) => (tries < 300 ? false : Promise.reject(error)))
    if (there) break
    await pause(200)
  }
  await kubectl('wait', `node/${NODE}`, '--for=condition=Ready', patience)
  await importDns()
  await kubectl('apply', '--filename', join(import.meta.dirname, 'coredns.yaml'))
  await kubectl('--namespace', 'kube-system', 'rollout', 'status', 'deployment/coredns', patience)
}

async function endsOfLogs(folder: string): Promise<string> {
  const ends = (await readdir(folder)).map(async (name) => `${name}:\n${(await readFile(join(folder, name), 'utf8')).trimEnd().split('\n').slice(-5).join('\n')}`)
  return (await Promise.all(ends)).join('\n')
}

/** A private node; null, with the test skipped, where none can run. */
export async function ownNode(t: Test): Promise<Node | null> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) {
    const reason = 'a node that runs pods needs root on Linux'
    if (process.env['CI'] === 'true') t.fail(`kubernetes-node: ${reason}`)
    else t.pass('kubernetes-node', { skip: reason })
    return null
  }
  return own(t, [...KUBERNETES_NAMES, 'kubernetes-node'], startNode)
}

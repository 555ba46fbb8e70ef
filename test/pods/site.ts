/** A node, and beside it on the machine the servers of an installation: MongoDB's protocol, Kafka, and a model. */
import { randomBytes } from 'node:crypto'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { missing } from '../servers/client.ts'
import { KAFKA_NAMES, startKafka } from '../servers/kafka.ts'
import { NETWORK } from '../servers/kube/node-files.ts'
import { ownNode, type Node } from '../servers/kube/node.ts'
import { kubectl as program } from '../servers/kubernetes.ts'
import { MONGODB_NAMES, startMongodb, type Mongodb } from '../servers/mongodb.ts'
import { REPOSITORY } from '../flows/program.ts'
import { CLIENT } from '../servers/oidc-provider.ts'
import { openModel, type Model } from './model.ts'
import { openProvider, PUBLIC_URL, type Provider } from './provider.ts'

const run = promisify(execFile)

/** The namespaces of the installation, as in docs/chart.md, and of the tenant. */
export const GATE = 'tollgate'
export const TENANT = 'acme'
/** The image has the tags 1 and 2, so that one can be upgraded to the other. */
export const IMAGE = 'registry.test/tollgate'

export type Site = {
  node: Node
  model: Model
  provider: Provider
  mongodb: Mongodb
  brokers: string
  /** Runs kubectl, with `input` for `--filename -`. Rejects with its standard error. `token` is the account's; the administrator's without. */
  kubectl(args: string[], options?: { input?: string; token?: string }): Promise<string>
}

/** Starts the node and the servers. Null if the suite is skipped; everything stops at the end of the test. */
export async function openSite(t: Test): Promise<Site | null> {
  if (missing(t, ['helm', ...MONGODB_NAMES, ...KAFKA_NAMES])) return null
  const node = await ownNode(t)
  if (!node) return null
  const address = NETWORK.HOST_ADDRESS
  const keep = async <T>(starting: Promise<T>, stop: (one: T) => Promise<void>): Promise<T> => {
    const one = await starting
    t.teardown(() => stop(one))
    return one
  }
  const parts = [
    keep(startMongodb({ address }), ({ stop }) => stop()),
    keep(startKafka({ address }), ({ stop }) => stop()),
    keep(openModel(address), ({ close }) => close()),
    openProvider(t, address, TENANT),
    Promise.all([makeImage(t, REPOSITORY, '1'), node.ready()]).then(([archive]) => node.importImage(archive)),
  ] as const
  // If one fails, the others must have started before they can be stopped.
  await Promise.allSettled(parts)
  const [mongodb, kafka, model, provider] = await Promise.all(parts)
  await node.tagImage(`${IMAGE}:1`, `${IMAGE}:2`)
  t.comment(mongodb.version)
  return { node, model, provider, mongodb, brokers: kafka.brokers, kubectl: (args, options) => kubectl(node, args, options) }
}

/** Polls until it is true. Rejects when it takes too long to be caused by load. */
export async function until(look: () => Promise<boolean>, withinMs = 300_000): Promise<void> {
  for (const deadline = performance.now() + withinMs; !(await look()); await pause(250)) {
    if (performance.now() > deadline) throw new Error(`timed out: ${String(look)}`)
  }
}

/** Builds the image of the program in `root`, and returns its archive. */
export async function makeImage(t: Test, root: string, tag: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-image-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  await run(process.execPath, [join(root, 'image/build.ts'), join(folder, 'root'), join(folder, 'image.tar'), `${IMAGE}:${tag}`])
  return join(folder, 'image.tar')
}

async function kubectl({ kubeconfig }: Node, args: string[], { input = '', token }: { input?: string; token?: string } = {}): Promise<string> {
  const running = run(program(), ['--kubeconfig', kubeconfig, ...(token === undefined ? [] : ['--token', token]), ...args], { maxBuffer: 1 << 26 })
  // One that ends before it has read them says by its status whether it needed them.
  running.child.stdin?.on('error', () => {}).end(input)
  const { stdout } = await running.catch((error: { stderr?: string }) => {
    throw new Error(error.stderr || String(error), { cause: error })
  })
  return stdout
}

/** Sends SIGKILL to the process of a pod, like the kernel's OOM killer. */
export async function killPod(uid: string): Promise<void> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const [groups, command] = await Promise.all([readFile(`/proc/${pid}/cgroup`, 'utf8'), readFile(`/proc/${pid}/cmdline`, 'utf8')]).catch(() => ['', ''])
    if (groups.includes(`pod${uid}`) && command.includes('tollgate.mjs')) process.kill(Number(pid), 'SIGKILL')
  }
}

/** The Secrets of the installation, by name, and the certificate authority of the provider. */
export function secrets({ mongodb, brokers, provider }: Site): object[] {
  const entries = {
    'tollgate-sealing': { 'sealing.key': `${randomBytes(32).toString('base64')}\n` },
    'tollgate-store': { url: `${mongodb.url}tollgate` },
    'tollgate-broker': { url: `kafka://${brokers}?partitions=4` },
    'upstream-keys': { main: 'model-key' },
    'dashboard-client': { 'client-secret': CLIENT.secret },
  }
  return [
    ...Object.entries(entries).map(([name, stringData]) => ({ apiVersion: 'v1', kind: 'Secret', metadata: { name, namespace: GATE }, stringData })),
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'authorities', namespace: GATE }, data: { 'ca.crt': provider.authority } },
  ]
}

/** The installation's values: as in docs/chart.md, for a node of two cores, with the preview engine, the only one available. The dashboard of the second image manages keys. */
export function values({ model, provider }: Site, tag: string): object {
  const requests = { cpu: '50m' }
  return {
    image: { repository: IMAGE, tag, pullPolicy: 'IfNotPresent' },
    publicUrl: PUBLIC_URL,
    dashboard: { enabled: true, keyManagement: tag === '2', oidc: { issuer: provider.issuer, clientId: CLIENT.id, existingSecret: 'dashboard-client' } },
    caBundle: { existingConfigMap: 'authorities' },
    sealingKey: { existingSecret: 'tollgate-sealing' },
    store: { existingSecret: 'tollgate-store' },
    broker: { existingSecret: 'tollgate-broker' },
    upstreams: { keysSecret: 'upstream-keys', file: { upstreams: [{ name: 'main', baseUrl: model.url, apiKeyFile: 'main', model: 'the-model', wire: 'chat', timeouts: { idleMs: 1_800_000 } }] } },
    allowFakes: true,
    engines: {
      file: {
        engines: [{ name: 'preview', type: 'preview' }],
        routes: [
          { kind: 'image', engine: 'preview', price: { amount: '0.04', per: 'Job' }, max: { megapixels: 4.2 }, defaults: { size: '1024x1024' } },
          { kind: 'video', engine: 'preview', price: { amount: '0.05', per: 'Second' }, max: { megapixels: 1, seconds: 10 }, defaults: { size: '640x360', seconds: 4 } },
        ],
      },
    },
    planLimits: { limits: [{ namespaces: [TENANT], requestsPerMinute: 1_000_000, media: { maxAllowance: '1000' } }, { namespaces: [GATE] }, { namespaces: ['*'], products: [] }] },
    tenantRoles: { tenantsWritePlans: true },
    settings: { TASK_LEASE_SECONDS: 3 },
    // A node that is busy starting pods takes a while to remove a stopping pod from its Services.
    gateway: { drainDelaySeconds: 15, resources: { requests } },
    dispatcher: { replicas: 1, resources: { requests } },
    controller: { resources: { requests } },
    worker: { resources: { requests } },
  }
}

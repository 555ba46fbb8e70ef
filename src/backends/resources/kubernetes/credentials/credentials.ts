/** Who we are to the API server, and how it is reached: a kubeconfig or the pod's ServiceAccount. */
import { delimiter, join } from 'node:path'
import { createSecureContext, type ConnectionOptions } from 'node:tls'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'
import type { ResourcesConfig } from '../../resources.ts'
import { readIfThere } from './credential-file.ts'
import { ACCOUNT_FOLDER, openServiceAccount } from './service-account.ts'

export type Connection = { server: URL; dispatcher: Dispatcher; headers: Record<string, string> }

export type Credentials = {
  /** The API server, with its port unless that goes without saying. */
  host: string
  /** The namespace of the context, which is the pod's own inside a cluster. */
  namespace: string | null
  /**
   * How to reach the API server now. Tokens and certificates are read again every half minute, and at once when the server `refused` those
   * of an earlier answer of this. While that fails those that were not refused are used further.
   */
  connection(refused?: Connection): Promise<Connection>
  close(): Promise<void>
}

type Tls = Pick<ConnectionOptions, 'ca' | 'cert' | 'key' | 'rejectUnauthorized' | 'servername'>

/** Where the API server is, and how this process authenticates there. */
export type ApiAccess = {
  server: URL
  /** Of an HTTP proxy in front of it. */
  proxy: string | null
  namespace: string | null
  /** Tokens and certificates as they are now, issued anew when the server refused the last ones. Rejects with an Error of one sentence without any secret. */
  read(isRefused: boolean): Promise<{ tls: Tls; headers: Record<string, string> }>
}

const REFRESH_MS = 30_000
/** An API server ends connections that nobody uses after 90 s; a new one costs both sides a handshake. */
const KEPT_MS = 60_000

/** Reads the kubeconfig at that path, or finds what kubectl or a pod would use. Throws an Error of one sentence if there is none. */
export async function openCredentials(
  kubeconfig: string | null,
  environment: ResourcesConfig['environment'],
  accountFolder = ACCOUNT_FOLDER,
): Promise<Credentials> {
  const { server, proxy, namespace, read } = await findAccess(kubeconfig, environment, accountFolder)
  let latest: Promise<Connection> | undefined
  let readAt = Number.NEGATIVE_INFINITY
  /** The last that was read, and not refused. */
  let good: Connection | null = null
  let agent: { of: string; dispatcher: Dispatcher } | null = null

  function dispatcherOf(tls: Tls): Dispatcher {
    const of = JSON.stringify(tls)
    if (agent?.of === of) return agent.dispatcher
    void agent?.dispatcher.close().catch(() => {})
    agent = { of, dispatcher: openDispatcher(tls, proxy) }
    return agent.dispatcher
  }

  /** After the one before: at the same time a plugin would run twice. */
  async function renew(before: Promise<Connection> | undefined, isRefused: boolean): Promise<Connection> {
    await before?.catch(() => {})
    const kept = isRefused ? null : good
    try {
      const { tls, headers } = await read(isRefused)
      return (good = { server, dispatcher: dispatcherOf(tls), headers })
    } catch (error) {
      if (kept) return kept
      good = null
      readAt = Number.NEGATIVE_INFINITY
      throw error
    }
  }

  return {
    host: server.host,
    namespace,
    connection(refused) {
      // Of many requests that are refused at a time the first one renews the credentials, and the others use its result.
      const isRefused =
        refused?.dispatcher === good?.dispatcher && refused?.headers['authorization'] === good?.headers['authorization'] && good !== null
      if (latest && !isRefused && performance.now() - readAt <= REFRESH_MS) return latest
      if (isRefused) good = null
      readAt = performance.now()
      return (latest = renew(latest, isRefused))
    },
    async close() {
      await agent?.dispatcher.destroy()
    },
  }
}

async function findAccess(kubeconfig: string | null, environment: ResourcesConfig['environment'], account: string): Promise<ApiAccess> {
  const files = await findKubeconfigs(kubeconfig, environment)
  // For its weight imported only where there is a kubeconfig.
  if (files.length > 0) return (await import('./kubeconfig.ts')).openKubeconfig(files, environment)
  const access = await openServiceAccount(environment, account)
  if (access) return access
  throw new Error(
    "RESOURCES_URL: nothing says where the API server is: name a kubeconfig by kubeconfig=… or KUBECONFIG, or run in a pod with its ServiceAccount's token.",
  )
}

export type KubeconfigFile = { path: string; text: string }

/** The given file, else those of KUBECONFIG without the missing ones, else the one in the home folder. Throws an Error of one sentence if no named file exists. */
export async function findKubeconfigs(given: string | null, environment: ResourcesConfig['environment']): Promise<KubeconfigFile[]> {
  const named = given === null ? (environment['KUBECONFIG'] ?? '').split(delimiter).filter((path) => path !== '') : [given]
  const home = environment['HOME'] ? [join(environment['HOME'], '.kube', 'config')] : []
  const isNamed = named.length > 0
  const found: KubeconfigFile[] = []
  for (const path of isNamed ? named : home) {
    // An unreadable home folder, such as that of root in a pod, has none for this process.
    const text = await readIfThere(path).catch((error: unknown) => (isNamed ? Promise.reject(error) : null))
    if (text !== null) found.push({ path, text })
  }
  if (found.length === 0 && isNamed)
    throw new Error(
      `RESOURCES_URL: there is no kubeconfig at ${named.join(' or ')}: put one there, or correct ${given === null ? 'KUBECONFIG' : 'kubeconfig=…'}.`,
    )
  return found
}

/** One for all requests, so that connections are kept. HTTP/1.1: a watch holds a connection of its own and can neither starve requests nor be starved. */
function openDispatcher(tls: Tls, proxy: string | null): Dispatcher {
  const options = { allowH2: false, keepAliveTimeout: KEPT_MS }
  if (proxy !== null) return new ProxyAgent({ ...options, uri: proxy, requestTls: tls as NonNullable<ProxyAgent.Options['requestTls']> })
  // Made once: with it certificates are not read again for each connection.
  const secureContext = createSecureContext(tls)
  const connect = { ...tls, secureContext, keepAlive: true, keepAliveInitialDelay: 30_000, timeout: 10_000 }
  return new Agent({ ...options, connect: connect as NonNullable<Agent.Options['connect']> })
}

/** Who we are to the API server, and how it is reached: the pod's ServiceAccount or a kubeconfig, as read by the official client. */
import { createSecureContext, type ConnectionOptions } from 'node:tls'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'

export type Connection = {
  server: URL
  dispatcher: Dispatcher
  headers: Record<string, string>
}

export type Credentials = {
  /** The namespace of the context, which is the pod's own inside a cluster. */
  namespace: string | null
  /** How to reach the API server now. Tokens and certificates are read again every half minute, and at once when `isRefused`. */
  connection(isRefused?: boolean): Promise<Connection>
  close(): Promise<void>
}

type Tls = Pick<ConnectionOptions, 'ca' | 'cert' | 'key' | 'rejectUnauthorized' | 'servername'>

const REFRESH_MS = 30_000
const KEEP_ALIVE_DELAY_MS = 30_000
/** An API server ends connections that nobody uses after 90 s; a new one costs both sides a handshake. */
const KEPT_MS = 60_000

/** Reads the kubeconfig at that path, or finds what kubectl or a pod would use. Throws an Error of one sentence if there is none. */
export async function openCredentials(kubeconfig: string | null): Promise<Credentials> {
  const { KubeConfig } = await import('@kubernetes/client-node')
  const config = new KubeConfig()
  try {
    if (kubeconfig === null) config.loadFromDefault()
    else config.loadFromFile(kubeconfig)
  } catch (error) {
    throw new Error(`RESOURCES_URL: the kubeconfig ${kubeconfig ?? 'that KUBECONFIG names'} cannot be read (${(error as Error).message}).`, { cause: error })
  }
  const cluster = config.getCurrentCluster()
  const server = cluster && URL.parse(cluster.server)
  if (!cluster || !server) throw new Error('RESOURCES_URL: the kubeconfig names no cluster as its current context.')
  let fresh: { at: number; connection: Promise<Connection> } | null = null
  let agent: { of: string; dispatcher: Dispatcher } | null = null

  async function read(): Promise<Connection> {
    const found: Tls & { headers?: Record<string, string>; auth?: string } = {}
    // It reads token and certificate files, and runs the credential plugin of the kubeconfig where there is one.
    await config.applyToHTTPSOptions(found as Parameters<typeof config.applyToHTTPSOptions>[0])
    const { headers = {}, auth, ca, cert, key, rejectUnauthorized, servername } = found
    const tls = defined({ ca, cert, key, rejectUnauthorized, servername })
    const of = JSON.stringify(tls)
    if (agent?.of !== of) {
      const old = agent?.dispatcher
      agent = { of, dispatcher: dispatcherOf(tls, cluster?.proxyUrl) }
      void old?.close().catch(() => {})
    }
    const basic = auth === undefined ? {} : { Authorization: `Basic ${Buffer.from(auth).toString('base64')}` }
    return { server: server as URL, dispatcher: agent.dispatcher, headers: { ...headers, ...basic } }
  }

  return {
    namespace: config.getContextObject(config.getCurrentContext())?.namespace?.trim() || null,
    async connection(isRefused = false) {
      if (isRefused || !fresh || performance.now() - fresh.at > REFRESH_MS) fresh = { at: performance.now(), connection: read() }
      const { connection } = fresh
      return connection.catch((error: unknown) => {
        if (fresh?.connection === connection) fresh = null
        throw error
      })
    },
    async close() {
      await agent?.dispatcher.destroy()
    },
  }
}

/** One for all requests, so that connections are kept. HTTP/1.1: a watch holds a connection of its own and can neither starve requests nor be starved. */
function dispatcherOf(tls: Tls, proxy: string | undefined): Dispatcher {
  if (proxy === undefined) {
    // Made once: with it certificates are not read again for each connection.
    const secureContext = createSecureContext(tls)
    const connect = { ...tls, secureContext, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS, timeout: 10_000 } as NonNullable<Agent.Options['connect']>
    return new Agent({ connect, allowH2: false, keepAliveTimeout: KEPT_MS })
  }
  if (!/^https?:/.test(proxy)) throw new Error(`RESOURCES_URL: the kubeconfig's proxy-url ${proxy} is of a kind that is not supported: it may be http or https.`)
  return new ProxyAgent({ uri: proxy, requestTls: tls as NonNullable<ProxyAgent.Options['requestTls']>, allowH2: false, keepAliveTimeout: KEPT_MS })
}

function defined(members: { [N in keyof Tls]: Tls[N] | undefined }): Tls {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined))
}

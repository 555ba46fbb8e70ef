/** Who we are to the API server, and how it is reached: a kubeconfig or the pod's ServiceAccount. */
import { createSecureContext, type ConnectionOptions } from 'node:tls'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'
import type { ResourcesConfig } from '../../resources.ts'
import { findKubeconfigFiles } from './kubeconfig-files.ts'
import { ACCOUNT_FOLDER, openServiceAccount } from './service-account.ts'

export type Connection = {
  server: URL
  dispatcher: Dispatcher
  headers: Record<string, string>
}

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

type Renewal = { at: number; connection: Promise<Connection> }

type Tls = Pick<ConnectionOptions, 'ca' | 'cert' | 'key' | 'rejectUnauthorized' | 'servername'>

/** Where the API server is, and how this process authenticates there. */
export type ApiAccess = {
  server: URL
  /** Of an HTTP proxy in front of it. */
  proxy: string | null
  namespace: string | null
  /**
   * The options and headers as they are now; with tokens and certificates issued anew when the server refused the last ones. Rejects with
   * an Error of one sentence without any secret.
   */
  read(isRefused: boolean): Promise<{ tls: Tls; headers: Record<string, string> }>
}

const REFRESH_MS = 30_000
const KEEP_ALIVE_DELAY_MS = 30_000
/** An API server ends connections that nobody uses after 90 s; a new one costs both sides a handshake. */
const KEPT_MS = 60_000

/** Reads the kubeconfig at that path, or finds what kubectl or a pod would use. Throws an Error of one sentence if there is none. */
export async function openCredentials(
  kubeconfig: string | null,
  environment: ResourcesConfig['environment'],
  accountFolder = ACCOUNT_FOLDER,
): Promise<Credentials> {
  const { server, proxy, namespace, read } = await findAccess(kubeconfig, environment, accountFolder)
  let fresh: Renewal | null = null
  /** The last that was read, and not refused. */
  let good: Connection | null = null
  let agent: { of: string; dispatcher: Dispatcher } | null = null
  /** Never two at a time: a plugin would run twice, and a refresh token may be good once. */
  let reading: Promise<unknown> = Promise.resolve()

  async function connect(isRefused: boolean): Promise<Connection> {
    const next = reading.then(() => read(isRefused))
    reading = next.catch(() => {})
    const { tls, headers } = await next
    const of = JSON.stringify(tls)
    if (agent?.of !== of) {
      const old = agent?.dispatcher
      agent = { of, dispatcher: dispatcherOf(tls, proxy) }
      void old?.close().catch(() => {})
    }
    return { server, dispatcher: agent.dispatcher, headers }
  }

  function renew(isRefused: boolean): Renewal {
    const renewal: Renewal = {
      at: performance.now(),
      connection: connect(isRefused).then(
        (connection) => {
          if (fresh === renewal) good = connection
          return connection
        },
        (error: unknown) => {
          if (good) return good
          if (fresh === renewal) fresh = null
          throw error
        },
      ),
    }
    return renewal
  }

  return {
    host: server.host,
    namespace,
    connection(refused) {
      // Of many requests that are refused at a time the first one renews the credentials, and the others use its result.
      const isNew = refused !== undefined && good !== null && isSame(refused, good)
      if (isNew) good = null
      if (isNew || !fresh || performance.now() - fresh.at > REFRESH_MS) fresh = renew(isNew)
      return fresh.connection
    },
    async close() {
      await agent?.dispatcher.destroy()
    },
  }
}

function isSame(one: Connection, other: Connection): boolean {
  return one.dispatcher === other.dispatcher && one.headers['authorization'] === other.headers['authorization']
}

async function findAccess(
  kubeconfig: string | null,
  environment: ResourcesConfig['environment'],
  accountFolder: string,
): Promise<ApiAccess> {
  const files = await findKubeconfigFiles(kubeconfig, environment)
  if (files.length > 0) {
    const { openKubeconfig } = await import('./kubeconfig.ts')
    return openKubeconfig(files, environment)
  }
  const account = await openServiceAccount(environment, accountFolder)
  if (!account)
    throw new Error(
      "RESOURCES_URL: nothing says where the API server is: name a kubeconfig by kubeconfig=… or KUBECONFIG, or run in a pod with its ServiceAccount's token.",
    )
  return account
}

/** One for all requests, so that connections are kept. HTTP/1.1: a watch holds a connection of its own and can neither starve requests nor be starved. */
function dispatcherOf(tls: Tls, proxy: string | null): Dispatcher {
  if (proxy !== null)
    return new ProxyAgent({
      uri: proxy,
      requestTls: tls as NonNullable<ProxyAgent.Options['requestTls']>,
      allowH2: false,
      keepAliveTimeout: KEPT_MS,
    })
  // Made once: with it certificates are not read again for each connection.
  const secureContext = createSecureContext(tls)
  const connect = { ...tls, secureContext, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS, timeout: 10_000 } as NonNullable<
    Agent.Options['connect']
  >
  return new Agent({ connect, allowH2: false, keepAliveTimeout: KEPT_MS })
}

/** Who we are to the API server, and how it is reached: a kubeconfig or the pod's ServiceAccount. */
import { createSecureContext, type ConnectionOptions } from 'node:tls'
import { Agent, ProxyAgent, type Dispatcher } from 'undici'
import type { ResourcesConfig } from '../../resources.ts'
import { contextOf, type Cluster, type Context, type Pem, type User } from './context.ts'
import { readCredentialFile } from './credential-file.ts'
import { openExecCredential, type Issued } from './plugin.ts'
import { findKubeconfigs } from './kubeconfig.ts'
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
   * How to reach the API server now. Tokens and certificates are read again every half minute, and at once when the server `refused` those of an earlier answer of
   * this. While that fails those that were not refused are used further.
   */
  connection(refused?: Connection): Promise<Connection>
  close(): Promise<void>
}

type Renewal = { at: number; connection: Promise<Connection> }

type Tls = Pick<ConnectionOptions, 'ca' | 'cert' | 'key' | 'rejectUnauthorized' | 'servername'>

const REFRESH_MS = 30_000
const KEEP_ALIVE_DELAY_MS = 30_000
/** An API server ends connections that nobody uses after 90 s; a new one costs both sides a handshake. */
const KEPT_MS = 60_000
const NOTHING: Issued = { token: null, cert: null, key: null }

/** Reads the kubeconfig at that path, or finds what kubectl or a pod would use. Throws an Error of one sentence if there is none. */
export async function openCredentials(kubeconfig: string | null, environment: ResourcesConfig['environment'], accountFolder = ACCOUNT_FOLDER): Promise<Credentials> {
  const { cluster, user, namespace } = await findContext(kubeconfig, environment, accountFolder)
  const issue = user.plugin ? openExecCredential(user.plugin, environment) : async () => NOTHING
  let fresh: Renewal | null = null
  /** The last that was read, and not refused. */
  let good: Connection | null = null
  let agent: { of: string; dispatcher: Dispatcher } | null = null

  async function read(isRefused: boolean): Promise<Connection> {
    const ca = await textOf(cluster.ca)
    const issued = await issue(ca, isRefused)
    const token = (await tokenOf(user)) ?? issued.token
    const tls = tlsOf(cluster, ca, (await textOf(user.cert)) ?? issued.cert, (await textOf(user.key)) ?? issued.key)
    const of = JSON.stringify(tls)
    if (agent?.of !== of) {
      const old = agent?.dispatcher
      agent = { of, dispatcher: dispatcherOf(tls, cluster.proxy) }
      void old?.close().catch(() => {})
    }
    return { server: cluster.server, dispatcher: agent.dispatcher, headers: { ...user.headers, ...(token !== null && { authorization: `Bearer ${token}` }) } }
  }

  function renew(isRefused: boolean): Renewal {
    const renewal: Renewal = {
      at: performance.now(),
      connection: read(isRefused).then(
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
    host: cluster.server.host,
    namespace,
    connection(refused) {
      // Of many that are refused at a time the first asks for others, and the rest have those.
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

async function findContext(kubeconfig: string | null, environment: ResourcesConfig['environment'], accountFolder: string): Promise<Context> {
  const found = await findKubeconfigs(kubeconfig, environment)
  if (found.length > 0) return contextOf(found)
  const account = await openServiceAccount(environment, accountFolder)
  if (!account) throw new Error("RESOURCES_URL: nothing says where the API server is: name a kubeconfig by kubeconfig=… or KUBECONFIG, or run in a pod with its ServiceAccount's token.")
  return account
}

async function textOf(pem: Pem | null): Promise<string | null> {
  if (pem === null) return null
  return 'text' in pem ? pem.text : readCredentialFile(pem.path)
}

/** As client-go: the file, which may be replaced, stands before what was written once. */
async function tokenOf({ token, tokenPath }: User): Promise<string | null> {
  if (tokenPath === null) return token
  const read = (await readCredentialFile(tokenPath)).trim()
  if (read === '') throw new Error(`RESOURCES_URL: ${tokenPath} is empty: it has to hold a token.`)
  return read
}

function tlsOf({ isInsecure, serverName }: Cluster, ca: string | null, cert: string | null, key: string | null): Tls {
  return {
    ...(ca !== null && { ca }),
    ...(cert !== null && { cert }),
    ...(key !== null && { key }),
    ...(isInsecure && { rejectUnauthorized: false }),
    ...(serverName !== null && { servername: serverName }),
  }
}

/** One for all requests, so that connections are kept. HTTP/1.1: a watch holds a connection of its own and can neither starve requests nor be starved. */
function dispatcherOf(tls: Tls, proxy: string | null): Dispatcher {
  if (proxy !== null) return new ProxyAgent({ uri: proxy, requestTls: tls as NonNullable<ProxyAgent.Options['requestTls']>, allowH2: false, keepAliveTimeout: KEPT_MS })
  // Made once: with it certificates are not read again for each connection.
  const secureContext = createSecureContext(tls)
  const connect = { ...tls, secureContext, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS, timeout: 10_000 } as NonNullable<Agent.Options['connect']>
  return new Agent({ connect, allowH2: false, keepAliveTimeout: KEPT_MS })
}

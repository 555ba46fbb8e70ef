/** The cluster and the user that a kubeconfig's current context joins, as typed values. Pure: what lies in other files is named, not read. */
import { resolve } from 'node:path'
import { EXEC_VERSIONS, type Plugin } from './plugin.ts'
import { isMap, merge, type Entry, type Kubeconfig } from './kubeconfig.ts'

/** PEM as it was written in the kubeconfig, or the path of a file, which may be replaced. */
export type Pem = { text: string } | { path: string }

export type Cluster = { server: URL; ca: Pem | null; isInsecure: boolean; serverName: string | null; proxy: string | null }

export type User = {
  /** Of every request; a token stands before what authorizes here. */
  headers: Record<string, string>
  token: string | null
  tokenPath: string | null
  cert: Pem | null
  key: Pem | null
  plugin: Plugin | null
}

export type Context = { cluster: Cluster; user: User; namespace: string | null }

export const ANONYMOUS: User = { headers: {}, token: null, tokenPath: null, cert: null, key: null, plugin: null }

/** The current context. Throws an Error of one sentence, without any secret, on what is missing, of the wrong type or not supported. */
export function contextOf(kubeconfigs: Kubeconfig[]): Context {
  const { currentContext, entry } = merge(kubeconfigs)
  if (currentContext === null) throw new Error('RESOURCES_URL: the kubeconfig has no current-context: choose one with kubectl config use-context.')
  const context = entry('context', currentContext)
  const cluster = entry('cluster', required(context, 'cluster'))
  const user = text(context, 'user')
  return {
    cluster: clusterOf(cluster),
    user: user === null ? ANONYMOUS : userOf(entry('user', user), cluster),
    namespace: text(context, 'namespace')?.trim() || null,
  }
}

function clusterOf(entry: Entry): Cluster {
  const server = URL.parse(required(entry, 'server'))
  const isInsecure = flag(entry, 'insecure-skip-tls-verify')
  if (!server || !/^https?:$/.test(server.protocol)) throw refused(entry, 'has a server that is no address: it has to begin with https://')
  // Whoever is on the way would read the token.
  if (server.protocol === 'http:' && !isInsecure) throw refused(entry, 'has a server without TLS: give it https://, or say insecure-skip-tls-verify: true')
  const ca = pem(entry, 'certificate-authority')
  // One of them is a mistake, and nobody can say which.
  if (isInsecure && ca !== null) throw refused(entry, 'has both insecure-skip-tls-verify and a certificate-authority: leave one of them out')
  const proxy = text(entry, 'proxy-url')
  // Not shown: a proxy's address may hold a password.
  if (proxy !== null && !/^https?:$/.test(URL.parse(proxy)?.protocol ?? '')) throw refused(entry, 'has a proxy-url that is not supported: it may be http or https')
  return { server, ca, isInsecure, serverName: text(entry, 'tls-server-name'), proxy }
}

const REFUSED = { 'auth-provider': 'kubectl knows none since 1.26: use exec', 'as-uid': 'it may be as alone', 'as-groups': 'it may be as alone', 'as-user-extra': 'it may be as alone' }

function userOf(entry: Entry, cluster: Entry): User {
  for (const [name, instead] of Object.entries(REFUSED)) if (present(entry, name) !== null) throw refused(entry, `has ${name}, which is not supported: ${instead}`)
  const [cert, key] = [pem(entry, 'client-certificate'), pem(entry, 'client-key')]
  if ((cert === null) !== (key === null)) throw refused(entry, 'has one of client-certificate and client-key: give both')
  const [username, as] = [text(entry, 'username'), text(entry, 'as')]
  const basic = Buffer.from(`${username}:${text(entry, 'password') ?? ''}`).toString('base64')
  return {
    headers: { ...(username !== null && { authorization: `Basic ${basic}` }), ...(as !== null && { 'impersonate-user': as }) },
    token: text(entry, 'token'),
    tokenPath: path(entry, 'tokenFile'),
    cert,
    key,
    plugin: present(entry, 'exec') === null ? null : pluginOf(within(entry, 'exec'), cluster),
  }
}

function pluginOf(entry: Entry, cluster: Entry): Plugin {
  const apiVersion = required(entry, 'apiVersion')
  if (!EXEC_VERSIONS.includes(apiVersion)) throw refused(entry, `has an apiVersion that is not supported: it may be ${EXEC_VERSIONS.join(' or ')}`)
  if (text(entry, 'interactiveMode') === 'Always') throw refused(entry, 'has interactiveMode Always, and nobody is there to answer: use a plugin that asks nothing')
  const command = required(entry, 'command')
  const env = list(entry, 'env').map((one) => ({ ...entry, title: `env of the ${entry.title}`, members: isMap(one) ? one : {} }))
  const args = list(entry, 'args')
  if (!args.every((arg) => typeof arg === 'string')) throw refused(entry, 'has args that are no text: put them in quotes')
  return {
    apiVersion,
    // As kubectl: without a slash it is looked for in PATH.
    command: command.includes('/') ? resolve(entry.folder, command) : command,
    args,
    env: Object.fromEntries(env.map((one) => [required(one, 'name'), text(one, 'value') ?? ''])),
    installHint: text(entry, 'installHint'),
    cluster: flag(entry, 'provideClusterInfo') ? told(cluster) : null,
  }
}

/** Of a cluster what a plugin is told, beside the authority (client.authentication.k8s.io, `Cluster`); its own settings are an extension of the kubeconfig. */
function told(cluster: Entry): Record<string, unknown> {
  const extensions = list(cluster, 'extensions').filter(isMap)
  const config = extensions.find(({ name }) => name === 'client.authentication.k8s.io/exec')?.['extension']
  const names = ['server', 'tls-server-name', 'insecure-skip-tls-verify', 'proxy-url']
  const members = names.flatMap((name) => (present(cluster, name) === null ? [] : [[name, cluster.members[name]]]))
  return { ...Object.fromEntries(members), ...(config !== undefined && { config }) }
}

function refused({ title }: Entry, why: string): Error {
  return new Error(`RESOURCES_URL: the ${title} ${why}.`)
}

/** kubectl writes what is not there as null, and some as an empty text. */
function present({ members }: Entry, name: string): unknown {
  return members[name] === undefined || members[name] === '' ? null : members[name]
}

function text(entry: Entry, name: string): string | null {
  const value = present(entry, name)
  if (value !== null && typeof value !== 'string') throw refused(entry, `has a ${name} that is no text: put it in quotes`)
  return value
}

function required(entry: Entry, name: string): string {
  const value = text(entry, name)
  if (value === null) throw refused(entry, `has no ${name}: add it`)
  return value
}

function flag(entry: Entry, name: string): boolean {
  const value = present(entry, name) ?? false
  if (typeof value !== 'boolean') throw refused(entry, `has a ${name} that is neither true nor false`)
  return value
}

function list(entry: Entry, name: string): unknown[] {
  const value = present(entry, name) ?? []
  if (!Array.isArray(value)) throw refused(entry, `has ${name} that are no list`)
  return value
}

function within(entry: Entry, name: string): Entry {
  const members = present(entry, name)
  if (!isMap(members)) throw refused(entry, `has an ${name} that is no map`)
  return { title: `${name} of the ${entry.title}`, members, folder: entry.folder }
}

function path(entry: Entry, name: string): string | null {
  const value = text(entry, name)
  return value === null ? null : resolve(entry.folder, value)
}

/** As client-go: the data, if they are there, stand before the file. */
function pem(entry: Entry, name: string): Pem | null {
  const data = text(entry, `${name}-data`)
  if (data !== null) return { text: Buffer.from(data, 'base64').toString() }
  const file = path(entry, name)
  return file === null ? null : { path: file }
}

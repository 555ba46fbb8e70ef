/** The current context of kubeconfig files, through `KubeConfig` of the official client. Imported only where there is a kubeconfig, for its weight (decision 0020). */
import type { RequestOptions } from 'node:https'
import { KubeConfig } from '@kubernetes/client-node'
import type { ResourcesConfig } from '../../resources.ts'
import { readCredentialFile, readToken } from './credential-file.ts'
import { NONE, type ApiAccess, type Issue } from './credentials.ts'
import { openExecPlugin } from './exec-plugin.ts'
import { mergeKubeconfigs, type Entry, type KubeconfigFile } from './kubeconfig-files.ts'
import { CLUSTER, CONTEXT, readEntry, unusable, USER, type Cluster, type User } from './kubeconfig-schema.ts'
import { openOidcProvider } from './oidc-provider.ts'

/** Throws an Error of one sentence, without any secret, on what is missing, of the wrong type or not supported. */
export function openKubeconfig(files: KubeconfigFile[], environment: ResourcesConfig['environment']): ApiAccess {
  const { currentContext, entry } = mergeKubeconfigs(files)
  if (currentContext === null) throw new Error('RESOURCES_URL: the kubeconfig has no current-context: choose one with kubectl config use-context.')
  const context = readEntry(CONTEXT, entry('context', currentContext))
  const clusterEntry = entry('cluster', context.cluster)
  const userEntry = context.user ? entry('user', context.user) : { ...clusterEntry, members: {} }
  const cluster = readEntry(CLUSTER, clusterEntry)
  const user = readEntry(USER, userEntry)
  const server = serverOf(cluster, clusterEntry)
  checkUser(user, userEntry)
  const kubeConfig = kubeConfigOf(cluster, clusterEntry, user, userEntry)
  const issue = issueOf(user, userEntry, cluster, environment)
  return {
    server,
    proxy: cluster['proxy-url'] || null,
    namespace: context.namespace?.trim() || null,
    async read(isRefused) {
      const options: RequestOptions & { headers: Record<string, string> } = { headers: {} }
      await kubeConfig.applyToHTTPSOptions(options).catch(unreadable)
      const { ca, cert, key, rejectUnauthorized, servername, auth, headers } = options
      const issued = await issue(isRefused, ca?.toString() ?? null)
      const [heldCert, heldKey] = [cert?.toString() ?? issued.cert, key?.toString() ?? issued.key]
      return {
        tls: {
          ...(ca && { ca: ca.toString() }),
          ...(heldCert && heldKey && { cert: heldCert, key: heldKey }),
          ...(rejectUnauthorized !== undefined && { rejectUnauthorized }),
          ...(servername && { servername }),
        },
        headers: {
          ...(auth && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
          ...Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
          ...(issued.token && { authorization: `Bearer ${issued.token}` }),
        },
      }
    },
  }
}

/** Without `exec` and `auth-provider`, which the package would run without bounds. */
function kubeConfigOf(cluster: Cluster, clusterEntry: Entry, user: User, userEntry: Entry): KubeConfig {
  const { token, username, password, as } = user
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromString(
    JSON.stringify({
      clusters: [{ name: 'current', cluster: { ...cluster, ...pem(clusterEntry, 'certificate-authority') } }],
      users: [{ name: 'current', user: { token, username, password: password ?? '', as: as || null, ...pem(userEntry, 'client-certificate'), ...pem(userEntry, 'client-key') } }],
      contexts: [{ name: 'current', context: { cluster: 'current', user: 'current' } }],
      'current-context': 'current',
    }),
  )
  return kubeConfig
}

/** As in client-go, data win over the file; in the package the file does. */
function pem({ members, resolvePath }: Entry, field: string): Record<string, unknown> {
  const [data, path] = [members[`${field}-data`], members[field]]
  return { [`${field}-data`]: data, [field]: data || !path ? null : resolvePath(String(path)) }
}

/** As in client-go, a plugin or an OIDC provider is used only where nothing else authenticates, and a token's file, which may be replaced, wins over the token. */
function issueOf(user: User, { resolvePath }: Entry, cluster: Cluster, environment: ResourcesConfig['environment']): Issue {
  const { tokenFile, exec, 'auth-provider': provider } = user
  if (tokenFile) return async () => ({ ...NONE, token: await readToken(resolvePath(tokenFile)) })
  if (user.token || user.username || user['client-certificate'] || user['client-certificate-data']) return async () => NONE
  if (exec) {
    // As in kubectl, a command without a slash is looked up in PATH.
    const command = exec.command.includes('/') ? resolvePath(exec.command) : exec.command
    return openExecPlugin({ ...exec, command }, exec.provideClusterInfo ? clusterInfo(cluster) : null, environment)
  }
  if (!provider) return async () => NONE
  const { 'idp-certificate-authority': path, 'idp-certificate-authority-data': data } = provider.config
  const readCa = async () => (data ? Buffer.from(data, 'base64').toString() : path ? readCredentialFile(resolvePath(path)) : null)
  return openOidcProvider(provider.config, readCa)
}

/** The `Cluster` of client.authentication.k8s.io without its authority; the plugin's own settings are an extension of the kubeconfig. */
function clusterInfo(cluster: Cluster): Record<string, unknown> {
  const config = cluster.extensions?.find(({ name }) => name === 'client.authentication.k8s.io/exec')?.extension
  const { server, 'tls-server-name': serverName, 'insecure-skip-tls-verify': isInsecure, 'proxy-url': proxy } = cluster
  return { server, 'tls-server-name': serverName || undefined, 'insecure-skip-tls-verify': isInsecure ?? undefined, 'proxy-url': proxy || undefined, config }
}

function serverOf(cluster: Cluster, entry: Entry): URL {
  const server = URL.parse(cluster.server)
  const { 'insecure-skip-tls-verify': isInsecure, 'proxy-url': proxy } = cluster
  if (!server || !/^https?:$/.test(server.protocol)) throw unusable(entry, 'its server must begin with https://')
  // Anybody on the way could read the token.
  if (server.protocol === 'http:' && !isInsecure) throw unusable(entry, 'its server has no TLS: use https://, or set insecure-skip-tls-verify: true')
  const hasCa = cluster['certificate-authority'] || cluster['certificate-authority-data']
  if (isInsecure && hasCa) throw unusable(entry, 'it has both insecure-skip-tls-verify and a certificate-authority: leave one of them out')
  // Without its value: the address of a proxy may contain a password.
  if (proxy && !/^https?:$/.test(URL.parse(proxy)?.protocol ?? '')) throw unusable(entry, 'its proxy-url is not supported: it may be http or https')
  return server
}

const IMPERSONATION = ['as-uid', 'as-groups', 'as-user-extra']

function checkUser(user: User, entry: Entry): void {
  // The package ignores them, which would grant other rights.
  const unsupported = IMPERSONATION.find((name) => (entry.members[name] ?? '') !== '')
  if (unsupported) throw unusable(entry, `${unsupported} is not supported: use as alone`)
  const [hasCert, hasKey] = ['client-certificate', 'client-key'].map((name) => Boolean(entry.members[name] || entry.members[`${name}-data`]))
  if (hasCert !== hasKey) throw unusable(entry, 'it has one of client-certificate and client-key: give both')
  const issuer = user['auth-provider']?.config['idp-issuer-url']
  if (issuer !== undefined && URL.parse(issuer)?.protocol !== 'https:') throw unusable(entry, 'auth-provider.config.idp-issuer-url must begin with https://')
}

/** The package reads certificates from their files each time. */
function unreadable({ path, code }: NodeJS.ErrnoException): never {
  throw new Error(`RESOURCES_URL: ${path ?? 'a file of the kubeconfig'} cannot be read (${code}): put it there, or correct the kubeconfig.`)
}

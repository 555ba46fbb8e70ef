/**
 * The current context of kubeconfig files, through `KubeConfig` of the official client. Imported only where there is a kubeconfig, for its
 * weight (decision 0020).
 */
import type { RequestOptions } from 'node:https'
import { KubeConfig } from '@kubernetes/client-node'
import type { ResourcesConfig } from '../../resources.ts'
import { readCredentialFile, readToken } from './credential-file.ts'
import type { ApiAccess } from './credentials.ts'
import { openExecPlugin } from './exec-plugin.ts'
import { mergeKubeconfigs, type Entry, type KubeconfigFile } from './kubeconfig-files.ts'
import { CLUSTER, CONTEXT, readEntry, unusable, USER, type Cluster, type User } from './kubeconfig-schema.ts'

/**
 * As the package's authenticators: sets `Authorization`, or `cert` and `key`, anew when the server refused the last ones. Rejects with an
 * Error of one sentence without any secret.
 */
export type Authenticate = (options: RequestOptions & { headers: Record<string, string> }, isRefused: boolean) => Promise<void>

/** Throws an Error of one sentence, without any secret, on what is missing, of the wrong type or not supported. */
export function openKubeconfig(files: KubeconfigFile[], environment: ResourcesConfig['environment']): ApiAccess {
  const { currentContext, entry } = mergeKubeconfigs(files)
  if (currentContext === null)
    throw new Error('RESOURCES_URL: the kubeconfig has no current-context: choose one with kubectl config use-context.')
  const context = readEntry(CONTEXT, entry('context', currentContext))
  const clusterEntry = entry('cluster', context.cluster)
  const userEntry = context.user ? entry('user', context.user) : { ...clusterEntry, members: {} }
  const [cluster, user] = [readEntry(CLUSTER, clusterEntry), readEntry(USER, userEntry)]
  check(clusterEntry, userEntry)
  const authenticate = authenticatorOf(user, userEntry, cluster, environment)
  return {
    server: new URL(cluster.server),
    proxy: cluster['proxy-url'] || null,
    namespace: context.namespace?.trim() || null,
    async read(isRefused) {
      const [ca, cert, key] = await Promise.all([
        pem(clusterEntry, 'certificate-authority'),
        pem(userEntry, 'client-certificate'),
        pem(userEntry, 'client-key'),
      ])
      const options = { headers: {} }
      await kubeConfigOf(
        { ...cluster, 'certificate-authority-data': ca },
        { ...user, 'client-certificate-data': cert, 'client-key-data': key },
      ).applyToHTTPSOptions(options)
      await authenticate?.(options, isRefused)
      return accessOf(options)
    },
  }
}

/** Without `exec` and `auth-provider`, which the package would run without bounds, and without files, which it would read synchronously. */
function kubeConfigOf(cluster: Cluster, user: User): KubeConfig {
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromString(
    JSON.stringify({
      clusters: [{ name: 'current', cluster: { ...cluster, 'certificate-authority': null } }],
      users: [
        {
          name: 'current',
          user: {
            ...user,
            password: user.password ?? '',
            as: user.as || null,
            'client-certificate': null,
            'client-key': null,
            exec: null,
            'auth-provider': null,
            'token-file': null,
          },
        },
      ],
      contexts: [{ name: 'current', context: { cluster: 'current', user: 'current' } }],
      'current-context': 'current',
    }),
  )
  return kubeConfig
}

/** In base64. As in client-go, data win over the file. */
async function pem({ members, resolvePath }: Entry, field: string): Promise<string | null> {
  const [data, path] = [members[`${field}-data`], members[field]]
  if (data || !path) return data ? String(data) : null
  return Buffer.from(await readCredentialFile(resolvePath(String(path)))).toString('base64')
}

function accessOf({
  ca,
  cert,
  key,
  rejectUnauthorized,
  servername,
  auth,
  headers,
}: RequestOptions): Awaited<ReturnType<ApiAccess['read']>> {
  return {
    tls: {
      ...(ca && { ca: String(ca) }),
      ...(cert && key && { cert: String(cert), key: String(key) }),
      ...(rejectUnauthorized !== undefined && { rejectUnauthorized }),
      ...(servername && { servername }),
    },
    headers: {
      ...(auth && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
      ...Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name.toLowerCase(), String(value)])),
    },
  }
}

/** As in client-go, a token's file, which may be replaced, wins over the token, and a plugin is used only where nothing else authenticates. */
function authenticatorOf(user: User, entry: Entry, cluster: Cluster, environment: ResourcesConfig['environment']): Authenticate | null {
  const { resolvePath } = entry
  const { tokenFile, exec, 'auth-provider': provider } = user
  if (tokenFile) return async ({ headers }) => void (headers['Authorization'] = `Bearer ${await readToken(resolvePath(tokenFile))}`)
  if (user.token || user.username || user['client-certificate'] || user['client-certificate-data']) return null
  // As in kubectl, a command without a slash is looked up in PATH.
  if (exec)
    return openExecPlugin(
      { ...exec, command: exec.command.includes('/') ? resolvePath(exec.command) : exec.command },
      exec.provideClusterInfo ? clusterInfo(cluster) : null,
      environment,
    )
  if (provider) throw unusable(entry, 'auth-provider is not supported: use exec with a credential plugin, such as kubectl oidc-login')
  return null
}

/** The `Cluster` of client.authentication.k8s.io without its authority; the plugin's own settings are an extension of the kubeconfig. */
function clusterInfo(cluster: Cluster): Record<string, unknown> {
  const config = cluster.extensions?.find(({ name }) => name === 'client.authentication.k8s.io/exec')?.extension
  const { server, 'tls-server-name': serverName, 'insecure-skip-tls-verify': isInsecure, 'proxy-url': proxy } = cluster
  return {
    server,
    'tls-server-name': serverName || undefined,
    'insecure-skip-tls-verify': isInsecure ?? undefined,
    'proxy-url': proxy || undefined,
    config,
  }
}

/** Beyond the types: what is contradictory, insecure or not supported. */
function check(cluster: Entry, user: Entry): void {
  const { server, 'insecure-skip-tls-verify': isInsecure, 'proxy-url': proxy } = cluster.members
  if (!hasScheme(server, 'http:', 'https:')) throw unusable(cluster, 'its server must begin with https://')
  // Anybody on the way could read the token.
  if (hasScheme(server, 'http:') && !isInsecure)
    throw unusable(cluster, 'its server has no TLS: use https://, or set insecure-skip-tls-verify: true')
  const has = ({ members }: Entry, name: string) => Boolean(members[name] || members[`${name}-data`])
  if (isInsecure && has(cluster, 'certificate-authority'))
    throw unusable(cluster, 'it has both insecure-skip-tls-verify and a certificate-authority: leave one of them out')
  // Without its value: the address of a proxy may contain a password.
  if (proxy && !hasScheme(proxy, 'http:', 'https:')) throw unusable(cluster, 'its proxy-url is not supported: it may be http or https')
  // The package ignores them, which would grant other rights.
  const unsupported = ['as-uid', 'as-groups', 'as-user-extra'].find((name) => has(user, name))
  if (unsupported) throw unusable(user, `${unsupported} is not supported: use as alone`)
  if (has(user, 'client-certificate') !== has(user, 'client-key'))
    throw unusable(user, 'it has one of client-certificate and client-key: give both')
}

function hasScheme(address: unknown, ...schemes: string[]): boolean {
  return schemes.includes(URL.parse(String(address))?.protocol ?? '')
}

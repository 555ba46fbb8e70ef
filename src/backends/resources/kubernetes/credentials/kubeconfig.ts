/** The current context of kubeconfig files by the official client, and what that does not read, refuse or bound (decision 0020). */
import { execFile } from 'node:child_process'
import type { RequestOptions } from 'node:https'
import { dirname, resolve } from 'node:path'
import { KubeConfig, type Cluster, type User } from '@kubernetes/client-node'
import { ExecAuth } from '@kubernetes/client-node/dist/exec_auth.js'
import { parse, type YAMLParseError } from 'yaml'
import type { ResourcesConfig } from '../../resources.ts'
import { YAML } from '../../yaml.ts'
import { readCredential } from './credential-file.ts'
import type { ApiAccess, KubeconfigFile } from './credentials.ts'

type Named<Kind extends string> = { name: string } & { [K in Kind]: Record<string, unknown> }
type Document = { 'current-context'?: string; contexts: Named<'context'>[]; clusters: Named<'cluster'>[]; users: Named<'user'>[] }
type Entries = { cluster: Record<string, unknown>; user: Record<string, unknown> }
type Options = RequestOptions & { headers: Record<string, string> }
type Environment = ResourcesConfig['environment']

/** Throws an Error of one sentence, without any secret, on what is missing or refused. */
export function openKubeconfig(files: KubeconfigFile[], environment: Environment, pluginMs = 30_000): ApiAccess {
  const documents = files.map(parseKubeconfig)
  const config = new KubeConfig()
  // As in kubectl, of several entries of the same name the first one wins.
  const merged = {
    'current-context': documents.map((document) => document['current-context']).find(Boolean),
    contexts: documents.flatMap(({ contexts }) => contexts),
    clusters: documents.flatMap(({ clusters }) => clusters),
    users: documents.flatMap(({ users }) => users),
  }
  config.loadFromString(JSON.stringify(merged), { onInvalidEntry: 'filter' })
  const name = config.getCurrentContext()
  if (!name) throw new Error('RESOURCES_URL: the kubeconfig has no current-context: choose one with kubectl config use-context.')
  const context = config.getContextObject(name)
  const cluster = config.getCurrentCluster()
  const user = context?.user ? config.getCurrentUser() : { name: 'nobody' }
  if (!context || !cluster || !user) {
    const missing = !context ? `context ${name}` : cluster ? `user ${context.user}` : `cluster ${context.cluster}`
    throw new Error(`RESOURCES_URL: the kubeconfig names the ${missing} and has no valid one: add it, or choose another context.`)
  }
  /** With what the client does not read. */
  const entries: Entries = {
    cluster: merged.clusters.find((one) => one.name === cluster.name)?.cluster ?? {},
    user: merged.users.find((one) => one.name === user.name)?.user ?? {},
  }
  const fault = faultOf(cluster, user, entries.user)
  if (fault !== null) throw new Error(`RESOURCES_URL: the context ${name} of the kubeconfig cannot be used: ${fault}.`)
  return {
    server: new URL(cluster.server),
    proxy: cluster.proxyUrl || null,
    namespace: context.namespace?.trim() || null,
    read: authenticator(cluster, user, entries, environment, pluginMs),
  }
}

/** With the paths of the file resolved. By way of JSON, as in kubectl, so that an alias of itself is an error. */
function parseKubeconfig({ path, text }: KubeconfigFile): Document {
  const resolveIn = (entry: Record<string, unknown> | null | undefined, ...fields: string[]) => {
    for (const field of fields) if (entry?.[field]) entry[field] = resolve(dirname(path), String(entry[field]))
  }
  try {
    // The client's own parser does not know the booleans of YAML 1.1 and merge keys, which kubectl does. With `silent` ours would report no error at all.
    const { contexts, clusters, users, ...rest } = JSON.parse(
      JSON.stringify(parse(text, { ...YAML, merge: true, logLevel: 'error' }) ?? {}),
    )
    const document: Document = { ...rest, contexts: contexts ?? [], clusters: clusters ?? [], users: users ?? [] }
    for (const { cluster } of document.clusters) resolveIn(cluster, 'certificate-authority')
    for (const { user } of document.users) {
      resolveIn(user, 'client-certificate', 'client-key', 'tokenFile')
      // A command without a slash is looked up in PATH.
      const exec = user?.['exec'] as Record<string, unknown> | null | undefined
      if (String(exec?.['command']).includes('/')) resolveIn(exec, 'command')
    }
    return document
  } catch (error) {
    throw brokenYaml(path, text, error as Partial<YAMLParseError>)
  }
}

/** Without its cause, whose message quotes the file: that may be a token. */
function brokenYaml(path: string, text: string, { pos }: Partial<YAMLParseError>): Error {
  const line = text.slice(0, pos?.[0] ?? 0).split('\n').length
  return new Error(`RESOURCES_URL: ${path} is no kubeconfig in YAML: correct it from line ${line} on.`)
}

/** What is insecure, would grant other rights than were asked for, or is not supported. */
function faultOf(cluster: Cluster, user: User, { tokenFile, ...entry }: Record<string, unknown>): string | null {
  const protocol = URL.parse(cluster.server)?.protocol
  const hasOther = Boolean(tokenFile || user.token || user.username || user.certData || user.certFile || user.exec)
  const ignored = ['as-uid', 'as-groups', 'as-user-extra'].find((field) => entry[field])
  const faults: [unknown, string][] = [
    [protocol !== 'https:' && protocol !== 'http:', 'its server must begin with https://'],
    // Anybody on the way could read the token.
    [protocol === 'http:' && !cluster.skipTLSVerify, 'its server has no TLS: use https://, or set insecure-skip-tls-verify: true'],
    [
      cluster.skipTLSVerify && (cluster.caFile || cluster.caData),
      'it has both insecure-skip-tls-verify and a certificate-authority: leave one of them out',
    ],
    // Without its value: the address of a proxy may contain a password.
    [cluster.proxyUrl && !/^https?:\/\//.test(cluster.proxyUrl), 'its proxy-url is not supported: it must be http or https'],
    [ignored, `${ignored} is not supported: use as alone`],
    [!(user.certFile || user.certData) !== !(user.keyFile || user.keyData), 'it has one of client-certificate and client-key: give both'],
    [user.authProvider && !hasOther, 'auth-provider is not supported: use exec with a credential plugin, such as kubectl oidc-login'],
    [
      user.exec && !/^client\.authentication\.k8s\.io\/v1(beta1)?$/.test(user.exec.apiVersion),
      'exec.apiVersion must be client.authentication.k8s.io/v1 or v1beta1',
    ],
    [user.exec && !user.exec.command, 'exec.command is missing'],
    [user.exec?.interactiveMode === 'Always', 'exec.interactiveMode must be Never or IfAvailable: there is no terminal'],
  ]
  return faults.find(([isFault]) => isFault)?.[1] ?? null
}

/** As in client-go, data win over a file, a token's file over the token, and a plugin is used only where nothing else authenticates. */
function authenticator(cluster: Cluster, user: User, entries: Entries, environment: Environment, pluginMs: number): ApiAccess['read'] {
  const { tokenFile } = entries.user
  const isPlugin = user.exec && !(tokenFile || user.token || user.username || user.certData || user.certFile)
  const plugin = isPlugin ? openPlugin(user, entries.cluster, environment, pluginMs) : null
  /** The client would read files of any size, in the way of everything else. */
  const dataOf = async (data: string | undefined, file: string | undefined) =>
    data || !file ? data : Buffer.from(await readCredential(file)).toString('base64')
  return async (isRefused) => {
    const token = tokenFile ? await readCredential(String(tokenFile)) : user.token
    const caData = await dataOf(cluster.caData, cluster.caFile)
    const [certData, keyData] = [await dataOf(user.certData, user.certFile), await dataOf(user.keyData, user.keyFile)]
    const config = new KubeConfig()
    // The client would run plugins, and what `auth-provider` names, without bounds.
    config.loadFromClusterAndUser(
      { ...cluster, ...(caData && { caData }), caFile: '' },
      {
        ...user,
        ...(certData && { certData }),
        ...(keyData && { keyData }),
        certFile: '',
        keyFile: '',
        exec: null,
        authProvider: null,
        password: user.password ?? '',
        ...(token && { token }),
      },
    )
    const options: Options = { headers: {} }
    await config.applyToHTTPSOptions(options).catch(({ code }: NodeJS.ErrnoException) => {
      // Without its cause, which may quote a credential.
      throw new Error(`RESOURCES_URL: a credential of the kubeconfig cannot be read (${code ?? 'wrong type'}): correct it.`)
    })
    await plugin?.(options, isRefused)
    const { ca, cert, key, rejectUnauthorized, servername, auth, headers } = options
    const basic = auth ? [['authorization', `Basic ${Buffer.from(auth).toString('base64')}`]] : []
    const given = Object.entries(headers).flatMap(([name, value]) => (value ? [[name.toLowerCase(), value]] : []))
    return { tls: { ca, cert, key, rejectUnauthorized, servername }, headers: Object.fromEntries([...basic, ...given]) }
  }
}

/**
 * Runs the credential plugin when its credential is missing, refused or expired, and sets the header or the certificate that it issued:
 * https://kubernetes.io/docs/reference/config-api/client-authentication.v1/. `ExecAuth` keeps what was refused, tells the plugin nothing
 * of the cluster, has no deadline and no bounds, and quotes what the plugin printed.
 */
function openPlugin({ name, exec }: User, cluster: Entries['cluster'], environment: Environment, timeout: number) {
  const { apiVersion, command, args, env, installHint, provideClusterInfo } = exec
  let auth = new ExecAuth()

  function execInfo(ca: Options['ca']): string {
    const extensions = (cluster['extensions'] ?? []) as { name: string; extension: unknown }[]
    const config = extensions.find((one) => one.name === 'client.authentication.k8s.io/exec')?.extension
    const authority = { 'certificate-authority': undefined, 'certificate-authority-data': ca && Buffer.from(String(ca)).toString('base64') }
    const spec = {
      cluster: provideClusterInfo ? { ...cluster, ...authority, extensions: undefined, config } : undefined,
      interactive: false,
    }
    return JSON.stringify({ apiVersion, kind: 'ExecCredential', spec })
  }

  return async (options: Options, isRefused: boolean): Promise<void> => {
    if (isRefused) auth = new ExecAuth()
    let fault = 'issued neither a token nor a certificate with its key'
    try {
      const own = ((env ?? []) as { name: string; value?: string }[]).map((one) => [one.name, one.value ?? ''])
      const variables = { ...environment, ...Object.fromEntries(own), KUBERNETES_EXEC_INFO: execInfo(options.ca) }
      auth['execFn'] = (file: string, given: string[]) => {
        const child = execFile(file, given, { env: variables, timeout, maxBuffer: 1024 * 1024, killSignal: 'SIGKILL' })
        // A plugin that asks for input finds its end.
        child.stdin?.end()
        return child
      }
      await auth.applyAuthentication({ name, exec: { command, args: args ?? [] } }, options)
      if (options.headers['Authorization'] || (options.cert && options.key)) return
    } catch (error) {
      const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT'
      fault = isMissing
        ? `was not found: ${String(installHint ?? 'install it').replaceAll(/\s+/g, ' ')}`
        : `failed, or issued nothing within ${timeout / 1000} s: run it by hand to see why`
    }
    auth = new ExecAuth()
    throw new Error(`RESOURCES_URL: the kubeconfig's credential plugin ${command} ${fault}.`)
  }
}

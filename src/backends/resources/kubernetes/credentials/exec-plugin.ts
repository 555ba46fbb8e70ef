/** Credential plugins of a kubeconfig, run by `ExecAuth` of the official client: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/. */
import { execFile } from 'node:child_process'
import { ExecAuth } from '@kubernetes/client-node/dist/exec_auth.js'
import type { ResourcesConfig } from '../../resources.ts'
import type { Authenticate } from './kubeconfig.ts'
import type { Exec } from './kubeconfig-schema.ts'

const LONGEST_MS = 30_000
const MOST_BYTES = 1024 * 1024
/** Longer than a connection is used without asking again. */
const EARLY_MS = 60_000

/**
 * Runs the plugin when its credential is missing, refused or about to expire; `cluster` is what `provideClusterInfo` gives it, beside the
 * authority. Rejects with an Error of one sentence that has nothing the plugin printed. `ExecAuth` has no deadline and no bounds, keeps
 * what was refused and quotes stderr: so each run is started here, and a new one made when needed.
 */
export function openExecPlugin(
  plugin: Exec,
  cluster: object | null,
  environment: ResourcesConfig['environment'],
  longestMs = LONGEST_MS,
): Authenticate {
  const user = { name: 'current', exec: { command: plugin.command, args: plugin.args ?? [] } }
  const variables = Object.fromEntries(plugin.env?.map(({ name, value }) => [name, value ?? '']) ?? [])
  let auth = new ExecAuth()
  let expiresAt = Number.POSITIVE_INFINITY

  return async (options, isRefused) => {
    if (isRefused || Date.now() > expiresAt - EARLY_MS) auth = new ExecAuth()
    const env = { ...environment, ...variables, KUBERNETES_EXEC_INFO: JSON.stringify(execInfo(plugin, cluster, options.ca)) }
    let fault: string | null = null
    auth['execFn'] = (command: string, args: string[]) => {
      const child = execFile(command, args, { env, timeout: longestMs, maxBuffer: MOST_BYTES, killSignal: 'SIGKILL' }, (error, stdout) => {
        const read = error ? { fault: faultOfRun(plugin, error, longestMs) } : readCredential(plugin, stdout)
        if ('fault' in read) fault = read.fault
        else expiresAt = read.expiresAt
      })
      // A plugin that asks for input finds its end.
      child.stdin?.end()
      return child
    }
    await auth.applyAuthentication(user, options).catch((error: NodeJS.ErrnoException) => (fault ??= faultOfRun(plugin, error, longestMs)))
    if (fault === null) return
    auth = new ExecAuth()
    // Without its cause, which holds the arguments and what was printed.
    throw new Error(`RESOURCES_URL: the kubeconfig's credential plugin ${plugin.command} ${fault}.`)
  }
}

function execInfo({ apiVersion }: Exec, cluster: object | null, ca: unknown): object {
  const authority = ca ? { 'certificate-authority-data': Buffer.from(String(ca)).toString('base64') } : {}
  return { apiVersion, kind: 'ExecCredential', spec: { ...(cluster && { cluster: { ...cluster, ...authority } }), interactive: false } }
}

type RunError = { code?: string | number | null; killed?: boolean; signal?: NodeJS.Signals | null }

function faultOfRun({ installHint }: Exec, { code, killed, signal }: RunError, longestMs: number): string {
  if (code === 'ENOENT') return `was not found: ${installHint?.replaceAll(/\s+/g, ' ').trim() || 'install it'}`
  if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return 'printed more than 1 MiB'
  if (killed) return `had not ended after ${longestMs / 1000} s`
  return typeof code === 'number' ? `ended with exit code ${code}: run it by hand to see why` : `could not run (${code ?? signal})`
}

/** An `ExecCredential`; without an expirationTimestamp it is good until it is refused. */
function readCredential({ apiVersion }: Exec, printed: string): { expiresAt: number } | { fault: string } {
  let credential: { apiVersion?: unknown; status?: Record<string, unknown> | null } | null
  try {
    credential = JSON.parse(printed)
  } catch {
    return { fault: 'printed no JSON' }
  }
  if (credential?.apiVersion !== apiVersion) return { fault: `printed an ExecCredential of another version than ${apiVersion}` }
  const { token, clientCertificateData: cert, clientKeyData: key, expirationTimestamp } = credential.status ?? {}
  const [hasToken, hasCert, hasKey] = [token, cert, key].map((value) => typeof value === 'string' && value.trim() !== '')
  if (hasCert !== hasKey || (!hasToken && !hasCert)) return { fault: 'issued neither a token nor a certificate with its key' }
  return { expiresAt: typeof expirationTimestamp === 'string' ? Date.parse(expirationTimestamp) : Number.POSITIVE_INFINITY }
}

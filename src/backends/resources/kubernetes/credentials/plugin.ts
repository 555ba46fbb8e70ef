/** Credential plugins of a kubeconfig: programs that print an ExecCredential (https://kubernetes.io/docs/reference/config-api/client-authentication.v1/). */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { ResourcesConfig } from '../../resources.ts'

export const EXEC_VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1']

export type Plugin = {
  apiVersion: string
  command: string
  args: string[]
  env: Record<string, string>
  installHint: string | null
  /** What it is told of the cluster, beside its authority; null if nothing. */
  cluster: Record<string, unknown> | null
}

/** A token, or a certificate with its key (PEM), or both. */
export type Issued = { token: string | null; cert: string | null; key: string | null }

/** What was issued for the cluster with that authority (PEM); when it was refused, what is issued anew. */
export type ExecCredential = (ca: string | null, isRefused: boolean) => Promise<Issued>

const LONGEST_MS = 30_000
const MOST_BYTES = 1024 * 1024
/** More than a connection is kept for without asking again. */
const EARLY_MS = 60_000

/** Runs the plugin when it is asked, and keeps what it issued until shortly before that expires. Rejects with an Error of one sentence that has nothing of what was printed. */
export function openExecCredential(plugin: Plugin, environment: ResourcesConfig['environment'], longestMs = LONGEST_MS): ExecCredential {
  let held: { issued: Issued; expiresAt: number } | null = null
  let running: Promise<Issued> | null = null

  async function ask(ca: string | null): Promise<Issued> {
    const info = JSON.stringify({ apiVersion: plugin.apiVersion, kind: 'ExecCredential', spec: { ...clusterOf(plugin, ca), interactive: false } })
    const printed = await run(plugin, { ...environment, ...plugin.env, KUBERNETES_EXEC_INFO: info }, longestMs)
    held = read(plugin, printed)
    return held.issued
  }

  return (ca, isRefused) => {
    if (isRefused) held = null
    if (held && Date.now() < held.expiresAt - EARLY_MS) return Promise.resolve(held.issued)
    running ??= ask(ca).finally(() => (running = null))
    return running
  }
}

function clusterOf({ cluster }: Plugin, ca: string | null): object {
  if (!cluster) return {}
  return { cluster: { ...cluster, ...(ca !== null && { 'certificate-authority-data': Buffer.from(ca).toString('base64') }) } }
}

async function run(plugin: Plugin, env: NodeJS.ProcessEnv, longestMs: number): Promise<string> {
  try {
    const running = promisify(execFile)(plugin.command, plugin.args, { env, timeout: longestMs, maxBuffer: MOST_BYTES, killSignal: 'SIGKILL' })
    // It finds that nobody will say anything.
    running.child.stdin?.end()
    return (await running).stdout
  } catch (error) {
    // Without its cause, which holds the arguments and what was printed.
    throw failed(plugin, reason(plugin, error as Failure, longestMs))
  }
}

type Failure = { code?: string | number | null; killed?: boolean; signal?: string | null }

function reason({ installHint }: Plugin, { code, killed, signal }: Failure, longestMs: number): string {
  if (code === 'ENOENT') return `was not found: ${installHint?.replaceAll(/\s+/g, ' ').trim() || 'install it'}`
  if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return 'printed more than 1 MiB'
  if (killed) return `had not ended after ${longestMs / 1000} s`
  return typeof code === 'number' ? `ended with exit code ${code}: run it by hand to see why` : `could not run (${code ?? signal})`
}

/** `ExecCredentialStatus`: what has no expirationTimestamp is good until it is refused. */
function read(plugin: Plugin, printed: string): { issued: Issued; expiresAt: number } {
  const { apiVersion, status } = parsed(plugin, printed)
  if (apiVersion !== plugin.apiVersion) throw failed(plugin, `printed an ExecCredential of another version than ${plugin.apiVersion}`)
  const { token, clientCertificateData, clientKeyData, expirationTimestamp } = status ?? {}
  const [given, cert, key] = [token, clientCertificateData, clientKeyData].map((value) => (typeof value === 'string' && value.trim() !== '' ? value : null)) as [string | null, string | null, string | null]
  if ((cert === null) !== (key === null) || (given === null && cert === null)) throw failed(plugin, 'issued neither a token nor a certificate with its key')
  return { issued: { token: given, cert, key }, expiresAt: typeof expirationTimestamp === 'string' ? Date.parse(expirationTimestamp) : Number.POSITIVE_INFINITY }
}

function parsed(plugin: Plugin, printed: string): { apiVersion?: unknown; status?: Record<string, unknown> | null } {
  try {
    return JSON.parse(printed) ?? {}
  } catch {
    throw failed(plugin, 'printed no JSON')
  }
}

function failed({ command }: Plugin, why: string): Error {
  return new Error(`RESOURCES_URL: the kubeconfig's credential plugin ${command} ${why}.`)
}

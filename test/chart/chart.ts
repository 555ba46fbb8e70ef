/** The chart as Helm makes it of the values in `values/`. */
import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { parseAllDocuments } from 'yaml'
import { CHART } from '../../charts/generate.ts'
import { installed } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { VERSION } from '../servers/kube/build.ts'

const run = promisify(execFile)
const VALUES = join(import.meta.dirname, 'values')

export { CHART }
export const NAMESPACE = 'gate'

/** What the chart makes objects of only where a cluster knows it. */
export const CAPABILITIES = ['admissionregistration.k8s.io/v1/MutatingAdmissionPolicy', 'keda.sh/v1alpha1', 'monitoring.coreos.com/v1', 'gateway.networking.k8s.io/v1']

/** The names of the files in `values/`; `required` is beneath each of the others. */
export const CASES = readdirSync(VALUES).map((file) => file.replace('.yaml', ''))

export function valuesOf(name: string): string[] {
  return ['required', ...(name === 'required' ? [] : [name])].flatMap((file) => ['--values', join(VALUES, `${file}.yaml`)])
}

/** By their names in test/servers/list.ts, the one that most suites run first. */
export const HELMS = ['helm', 'helm3'] as const
export type Helm = (typeof HELMS)[number]

/** Runs Helm. Rejects with what it said on its error output. */
export async function helm(args: string[], kubeconfig?: string, which: Helm = 'helm'): Promise<string> {
  const env = { ...process.env, KUBECONFIG: kubeconfig ?? '/nowhere' }
  const { stdout } = await run(installed(which), args, { env, maxBuffer: 1 << 26 }).catch((error: { stderr?: string }) => {
    throw new Error(error.stderr ?? String(error), { cause: error })
  })
  return stdout
}

/** By Helm and its arguments: each takes a second of processor time. */
const made = new Map<string, Promise<string>>()

/** The chart's objects as text. `more` are further arguments, such as `--set`. */
export function rendered(name: string, more: string[] = [], which?: Helm): Promise<string> {
  const known = CAPABILITIES.flatMap((version) => ['--api-versions', version])
  // A Helm that was not built by its own Makefile takes the cluster for an old one.
  const args = ['template', 'tollgate', CHART, '--namespace', NAMESPACE, '--kube-version', VERSION, ...valuesOf(name), ...known, ...more]
  return made.getOrInsertComputed([which, ...args].join(' '), () => helm(args, undefined, which))
}

export async function objects(name: string, more: string[] = [], which?: Helm): Promise<Answered[]> {
  return parsed(await rendered(name, more, which))
}

export function parsed(text: string): Answered[] {
  return parseAllDocuments(text)
    .map((document) => {
      if (document.errors[0]) throw document.errors[0]
      return document.toJS()
    })
    .filter((object) => object !== null)
}

/** As `Deployment/tollgate-gateway`, with the namespace where there are several of the name. */
export function nameOf({ kind, metadata: { name, namespace } }: Answered): string {
  return `${kind}/${name}${kind.startsWith('Role') && namespace !== undefined && namespace !== NAMESPACE ? ` in ${namespace}` : ''}`
}

export function found(all: Answered[], name: string): Answered {
  const object = all.find((one) => nameOf(one) === name)
  if (!object) throw new Error(`there is no ${name} among ${all.map(nameOf).join(', ')}`)
  return object
}

/** The pods' templates by the name of what makes them. */
export function pods(all: Answered[]): [string, Answered][] {
  return all.flatMap((one): [string, Answered][] => {
    const template = one.kind === 'CronJob' ? one.spec.jobTemplate.spec.template : ['Deployment', 'Job'].includes(one.kind) ? one.spec.template : null
    return template === null ? [] : [[nameOf(one), template]]
  })
}

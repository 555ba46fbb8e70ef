/** Kubeconfig files, found and merged as kubectl does it: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/. */
import { access } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { parse, type YAMLParseError } from 'yaml'
import type { ResourcesConfig } from '../../resources.ts'
import { YAML } from '../../yaml.ts'
import { readCredentialFile, readIfThere } from './credential-file.ts'

export type Kubeconfig = { path: string; text: string }

/** A cluster, user or context. Relative paths in it begin at `folder`; `title` is for sentences. */
export type Entry = { title: string; members: Record<string, unknown>; folder: string }

export type Entries = {
  /** What the first file that has one says; null if none does. */
  currentContext: string | null
  /** The entry of that name in the first file that has one. Throws an Error of one sentence if none does. */
  entry(kind: 'cluster' | 'user' | 'context', name: string): Entry
}

/** The file that is given, else those of KUBECONFIG, else kubectl's own; none if nobody named any. Throws an Error of one sentence if what is named is not there. */
export async function findKubeconfigs(given: string | null, environment: ResourcesConfig['environment']): Promise<Kubeconfig[]> {
  const paths = given === null ? (environment['KUBECONFIG'] ?? '').split(delimiter).filter((path) => path !== '') : [given]
  const texts = await Promise.all(paths.map(readIfThere))
  const found = paths.flatMap((path, at) => (typeof texts[at] === 'string' ? [{ path, text: texts[at] }] : []))
  if (paths.length > 0 && found.length === 0) throw new Error(`RESOURCES_URL: there is no kubeconfig at ${paths.join(' or ')}: put one there, or correct ${given === null ? 'KUBECONFIG' : 'kubeconfig=…'}.`)
  if (paths.length > 0 || !environment['HOME']) return found
  const own = join(environment['HOME'], '.kube', 'config')
  // A home that is somebody else's, as that of root in a pod, has none for us.
  const isThere = await access(own).then(() => true, () => false)
  return isThere ? [{ path: own, text: await readCredentialFile(own) }] : []
}

/** What the files say together: of each name the first wins. Throws an Error of one sentence if one is no kubeconfig. */
export function merge(kubeconfigs: Kubeconfig[]): Entries {
  const files = kubeconfigs.map((kubeconfig) => ({ document: parsed(kubeconfig), folder: dirname(kubeconfig.path) }))
  const contexts = files.map(({ document }) => document['current-context'])
  return {
    currentContext: contexts.find((name): name is string => typeof name === 'string' && name !== '') ?? null,
    entry(kind, name) {
      for (const { document, folder } of files) {
        const list = document[`${kind}s`]
        const found: unknown = Array.isArray(list) ? list.find((one) => isMap(one) && one['name'] === name) : undefined
        if (isMap(found)) return { title: `${kind} ${name} of the kubeconfig`, members: isMap(found[kind]) ? found[kind] : {}, folder }
      }
      throw new Error(`RESOURCES_URL: the kubeconfig names the ${kind} ${name} and does not have it: add it, or choose another context.`)
    },
  }
}

export function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function parsed({ path, text }: Kubeconfig): Record<string, unknown> {
  let value: unknown
  try {
    // Else it says of no fault.
    value = parse(text, { ...YAML, merge: true, logLevel: 'error' }) ?? {}
  } catch (error) {
    throw broken(path, text, error as Partial<YAMLParseError>)
  }
  if (!isMap(value)) throw new Error(`RESOURCES_URL: ${path} is no kubeconfig: it has to be a map with clusters, users and contexts.`)
  return value
}

/** Without its cause, whose message quotes what is written there: that may be a token. */
function broken(path: string, text: string, { pos }: Partial<YAMLParseError>): Error {
  const line = text.slice(0, pos?.[0] ?? 0).split('\n').length
  return new Error(`RESOURCES_URL: the kubeconfig ${path} is no YAML: correct it from line ${line} on.`)
}

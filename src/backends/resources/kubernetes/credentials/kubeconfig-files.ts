/** Kubeconfig files, found and merged as kubectl does it: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/. */
import { access } from 'node:fs/promises'
import { delimiter, dirname, join, resolve } from 'node:path'
import { parse, type YAMLParseError } from 'yaml'
import type { ResourcesConfig } from '../../resources.ts'
import { YAML } from '../../yaml.ts'
import { readCredentialFile, readIfThere } from './credential-file.ts'

export type KubeconfigFile = { path: string; text: string }

/** A cluster, user or context of a file; `title` names it in error messages. */
export type Entry = { title: string; members: Record<string, unknown>; resolvePath(path: string): string }

export type MergedKubeconfig = {
  /** That of the first file with one. */
  currentContext: string | null
  /** The entry of that name in the first file that has one. Throws an Error of one sentence if none does. */
  entry(kind: 'cluster' | 'user' | 'context', name: string): Entry
}

/**
 * The given file, else those of KUBECONFIG without the missing ones, else the one in the home folder; none if there is none. Throws an
 * Error of one sentence if no named file exists.
 */
export async function findKubeconfigFiles(given: string | null, environment: ResourcesConfig['environment']): Promise<KubeconfigFile[]> {
  const paths = given === null ? (environment['KUBECONFIG'] ?? '').split(delimiter).filter((path) => path !== '') : [given]
  const texts = await Promise.all(paths.map(readIfThere))
  const found = paths.flatMap((path, at) => (typeof texts[at] === 'string' ? [{ path, text: texts[at] }] : []))
  if (paths.length > 0 && found.length === 0)
    throw new Error(
      `RESOURCES_URL: there is no kubeconfig at ${paths.join(' or ')}: put one there, or correct ${given === null ? 'KUBECONFIG' : 'kubeconfig=…'}.`,
    )
  if (paths.length > 0 || !environment['HOME']) return found
  const own = join(environment['HOME'], '.kube', 'config')
  // An unreadable home folder, such as that of root in a pod, has none for this process.
  const isThere = await access(own).then(
    () => true,
    () => false,
  )
  return isThere ? [{ path: own, text: await readCredentialFile(own) }] : []
}

/** Of several entries of the same name the first one wins. Throws an Error of one sentence if a file is not a kubeconfig. */
export function mergeKubeconfigs(files: KubeconfigFile[]): MergedKubeconfig {
  const parsed = files.map((file) => ({ document: parseKubeconfig(file), folder: dirname(file.path) }))
  const contexts = parsed.map(({ document }) => document['current-context'])
  return {
    currentContext: contexts.find((name): name is string => typeof name === 'string' && name !== '') ?? null,
    entry(kind, name) {
      for (const { document, folder } of parsed) {
        const list = document[`${kind}s`]
        const found: unknown = Array.isArray(list) ? list.find((one) => isMap(one) && one['name'] === name) : undefined
        if (isMap(found))
          return {
            title: `${kind} ${name} of the kubeconfig`,
            members: isMap(found[kind]) ? found[kind] : {},
            resolvePath: (path) => resolve(folder, path),
          }
      }
      throw new Error(`RESOURCES_URL: the kubeconfig names the ${kind} ${name} and does not have it: add it, or choose another context.`)
    },
  }
}

/** With the booleans of YAML 1.1 and merge keys, as in kubectl; the client library's parser has neither, and quotes the file in its errors. */
function parseKubeconfig({ path, text }: KubeconfigFile): Record<string, unknown> {
  let value: unknown
  try {
    // With `silent` the parser would report no error at all. By way of JSON, as in kubectl, so that an alias of itself is an error.
    value = JSON.parse(JSON.stringify(parse(text, { ...YAML, merge: true, logLevel: 'error' }) ?? {}))
  } catch (error) {
    throw brokenYaml(path, text, error as Partial<YAMLParseError>)
  }
  if (!isMap(value)) throw new Error(`RESOURCES_URL: ${path} is no kubeconfig: it has to be a map with clusters, users and contexts.`)
  return value
}

/** Without its cause, whose message quotes the file: that may be a token. */
function brokenYaml(path: string, text: string, { pos }: Partial<YAMLParseError>): Error {
  const line = text.slice(0, pos?.[0] ?? 0).split('\n').length
  return new Error(`RESOURCES_URL: the kubeconfig ${path} is no YAML: correct it from line ${line} on.`)
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

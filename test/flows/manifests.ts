/** Manifests of the flows, as YAML files in the folder `plans`. */
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { NAMESPACE } from './program.ts'

type Spec = Record<string, unknown>

/** A Coding plan; members of `spec` replace or join the defaults here. */
export function codingPlan(name: string, spec: Spec = {}, coding: Spec = {}): object {
  return {
    apiVersion: 'tollgate.dev/v1alpha1',
    kind: 'Plan',
    metadata: { name, namespace: NAMESPACE },
    spec: {
      product: 'Coding',
      coding: { sessionWindow: { tokens: 500_000, durationSeconds: 18_000 }, weeklyWindow: { tokens: 5_000_000 }, ...coding },
      ...spec,
    },
  }
}

/** A key of that plan, whose Secret has the key's name. */
export function apiKey(name: string, plan: string, spec: Spec = {}): object {
  return {
    apiVersion: 'tollgate.dev/v1alpha1',
    kind: 'ApiKey',
    metadata: { name, namespace: NAMESPACE },
    spec: { planRef: { name: plan }, secretName: name, ...spec },
  }
}

/** Writes `plans/<file>.yaml` of that folder in place, like an editor. */
export async function declare(folder: string, file: string, ...resources: object[]): Promise<void> {
  await mkdir(join(folder, 'plans'), { recursive: true })
  await writeFile(join(folder, 'plans', `${file}.yaml`), resources.map((resource) => stringify(resource)).join('---\n'))
}

/** Removes `plans/<file>.yaml`. */
export async function withdraw(folder: string, file: string): Promise<void> {
  await rm(join(folder, 'plans', `${file}.yaml`))
}

/** A Media plan; members of `spec` replace or join the defaults here. */
export function mediaPlan(name: string, spec: Spec = {}, media: Spec = {}): object {
  return {
    apiVersion: 'tollgate.dev/v1alpha1',
    kind: 'Plan',
    metadata: { name, namespace: NAMESPACE },
    spec: { product: 'Media', media: { allowance: '1000.00', prices: PREVIEWS, ...media }, ...spec },
  }
}

/** Previews are free where nobody names a price: tests of money do. */
const PREVIEWS = [
  { kind: 'image', amount: '0.04' },
  { kind: 'video', amount: '0.05', per: 'Second' },
  { kind: 'music', amount: '0.01', per: 'Second' },
  { operation: 'ai_edit', amount: '0.04' },
]

/** Manifests of the benchmarks: plans so large that no limit is reached, although every limit is checked. */

/** The manifests of the folder `plans`, and the files of the settings UPSTREAMS and ENGINES by name. */
export type Declared = { plans: string[]; files: Record<string, string> }

const ENGINES = `\
engines:
  - { name: noop, type: noop }
routes:
  - { kind: image, engine: noop, price: { amount: "0.01", per: Job } }
  - { kind: video, engine: noop, price: { amount: "0.01", per: Job } }
`

/** Each plan and its key belong to a separate tenant. */
export function tenant(n: number): string {
  return `bench-${n}`
}

/** So many Coding plans over the model at this address, which is declared to speak `wire`. */
export function coding(count: number, modelUrl: string, wire = 'chat'): Declared {
  const limits = 'sessionWindow: {tokens: 1000000000000}, weeklyWindow: {tokens: 1000000000000}, maxConcurrentRequests: 1000'
  const upstreams = `upstreams: [{name: bench, baseUrl: "${modelUrl}/v1", apiKey: bench-upstream-key, model: bench-model, wire: ${wire}}]\n`
  return { plans: plans(count, `product: Coding, requestsPerMinute: 1000000, coding: {${limits}}`), files: { 'upstreams.yaml': upstreams } }
}

/** So many Media plans with the no-op engine. */
export function media(count: number): Declared {
  const limits = 'allowance: "1000000", maxConcurrentTasks: 100, maxQueuedTasks: 10000'
  return { plans: plans(count, `product: Media, requestsPerMinute: 1000000, media: {${limits}}`), files: { 'engines.yaml': ENGINES } }
}

function plans(count: number, spec: string): string[] {
  return Array.from({ length: count }, (_, n) => [
    `{apiVersion: tollgate.dev/v1alpha1, kind: Plan, metadata: {name: plan, namespace: ${tenant(n)}}, spec: {${spec}}}\n`,
    `{apiVersion: tollgate.dev/v1alpha1, kind: ApiKey, metadata: {name: key, namespace: ${tenant(n)}}, spec: {planRef: {name: plan}, secretName: key}}\n`,
  ]).flat()
}

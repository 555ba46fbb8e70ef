/** What is declared to a Tollgate that is measured: plans so large that no limit is reached, and every one is checked. */

/** A manifest for each file below `plans`, and what the settings UPSTREAMS and ENGINES name. */
export type Declared = { plans: string[]; files: Record<string, string> }

const ENGINES = `\
engines:
  - { name: noop, type: noop }
routes:
  - { kind: image, engine: noop, price: { amount: "0.01", per: Job } }
`

/** The n-th plan and its key are of a tenant of their own. */
export function tenant(n: number): string {
  return `bench-${n}`
}

/** So many Coding plans over the model at this address. */
export function coding(count: number, modelUrl: string): Declared {
  const limits = 'sessionWindow: {tokens: 1000000000000}, weeklyWindow: {tokens: 1000000000000}, maxConcurrentRequests: 1000'
  const upstreams = `upstreams: [{name: bench, baseUrl: "${modelUrl}/v1", apiKey: bench-upstream-key, model: bench-model, wire: chat}]\n`
  return { plans: plans(count, `product: Coding, requestsPerMinute: 1000000, coding: {${limits}}`), files: { 'upstreams.yaml': upstreams } }
}

/** So many Media plans with the engine that makes nothing. */
export function media(count: number): Declared {
  const limits = 'allowance: "1000000", maxConcurrentTasks: 100, maxQueuedTasks: 2000'
  return { plans: plans(count, `product: Media, requestsPerMinute: 1000000, media: {${limits}}`), files: { 'engines.yaml': ENGINES } }
}

function plans(count: number, spec: string): string[] {
  return Array.from({ length: count }, (_, n) => [
    `{apiVersion: tollgate.dev/v1alpha1, kind: Plan, metadata: {name: plan, namespace: ${tenant(n)}}, spec: {${spec}}}\n`,
    `{apiVersion: tollgate.dev/v1alpha1, kind: ApiKey, metadata: {name: key, namespace: ${tenant(n)}}, spec: {planRef: {name: plan}, secretName: key}}\n`,
  ]).flat()
}

/**
 * `helm test`: waits until the release's pods are ready, creates a Plan and an ApiKey as a tenant does, calls the gateway with the key, suspends the Plan and expects
 * a 403. Calls no model. Arguments: namespace of the Plan, name of the objects to create, URL of the gateways, namespace and name of the release.
 */
import { readFileSync } from 'node:fs'
import { request } from 'node:https'
import { setTimeout as pause } from 'node:timers/promises'

const [namespace, name, gateway, releaseNamespace, release] = process.argv.slice(2)
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const RESOURCES = `/apis/tollgate.dev/v1alpha1/namespaces/${namespace}`
const TIMEOUT_MS = 120_000
/** Time that a pod may stay in a state which does not end by waiting, before the test fails. */
const STUCK_MS = 20_000
const until = Date.now() + TIMEOUT_MS

/** Sends a request to the API server. */
function kube(method, path, body, type = 'application/json') {
  const { promise, resolve, reject } = Promise.withResolvers()
  const headers = { authorization: `Bearer ${readFileSync(`${ACCOUNT}/token`, 'utf8').trim()}`, ...(body && { 'content-type': type }) }
  const sent = request({ host: 'kubernetes.default.svc', path, method, headers, ca: readFileSync(`${ACCOUNT}/ca.crt`), timeout: 10_000 }, async (response) => {
    const text = (await response.toArray()).join('')
    resolve({ status: response.statusCode, body: text.startsWith('{') ? JSON.parse(text) : { message: text } })
  })
  sent.on('error', reject).on('timeout', () => sent.destroy(new Error('the API server did not respond in time')))
  sent.end(body && JSON.stringify(body))
  return promise
}

/**
 * Why a Deployment does not have all of its pods ready, in one sentence; null if it has. `isStuck`: waiting does not end it, such as with a missing Secret.
 * `pods` and `events` are those of the namespace.
 */
export function whyNotReady({ metadata, spec, status = {} }, pods, events) {
  const { observedGeneration = 0, updatedReplicas = 0, readyReplicas = 0, conditions = [] } = status
  if (observedGeneration >= metadata.generation && updatedReplicas >= spec.replicas && readyReplicas >= spec.replicas) return null
  const labels = Object.entries(spec.selector.matchLabels)
  const isOurs = (pod) => !pod.metadata.deletionTimestamp && labels.every(([label, value]) => pod.metadata.labels?.[label] === value)
  const reasons = pods.filter(isOurs).flatMap((pod) => whyPodNotReady(pod, events) ?? [])
  const refused = conditions.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')
  if (refused) reasons.push({ isStuck: true, reason: refused.message })
  const { isStuck, reason } = reasons.find(({ isStuck }) => isStuck) ?? reasons[0] ?? { isStuck: false, reason: 'its pods are being created' }
  return { isStuck, sentence: `pods of the Deployment ${metadata.name} are not ready: ${reason}` }
}

const PROGRESSING = ['ContainerCreating', 'PodInitializing']

function whyPodNotReady({ metadata, status }, events) {
  const conditions = status.conditions ?? []
  if (conditions.some(({ type, status }) => type === 'Ready' && status === 'True')) return null
  const unscheduled = conditions.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  if (unscheduled) return { isStuck: false, reason: unscheduled.message }
  for (const { state, lastState } of status.containerStatuses ?? []) {
    const end = state.terminated ?? lastState?.terminated
    if (end && end.exitCode !== 0) return { isStuck: !state.running, reason: `${end.message?.trim() || end.reason} (exit code ${end.exitCode})` }
    if (state.waiting && !PROGRESSING.includes(state.waiting.reason)) return { isStuck: true, reason: `${state.waiting.reason}: ${state.waiting.message}` }
  }
  const warning = events.findLast(({ type, involvedObject }) => type === 'Warning' && involvedObject.uid === metadata.uid)
  return { isStuck: warning?.reason === 'FailedMount', reason: warning?.message ?? 'it is starting' }
}

/** Resolves once every Deployment of the release has its pods ready. */
async function podsReady() {
  const list = async (path) => {
    const { status, body } = await kube('GET', path)
    if (status !== 200) throw new Error(`reading ${path} returned ${status}: ${body.message}`)
    return body.items
  }
  const labelled = `labelSelector=${encodeURIComponent(`app.kubernetes.io/instance=${release}`)}`
  const core = `/api/v1/namespaces/${releaseNamespace}`
  let [stuckSince, last] = [Infinity, '']
  for (;;) {
    const [deployments, pods] = await Promise.all([`/apis/apps/v1/namespaces/${releaseNamespace}/deployments`, `${core}/pods`].map((path) => list(`${path}?${labelled}`)))
    const events = await list(`${core}/events?fieldSelector=type=Warning`)
    const reasons = deployments.flatMap((deployment) => whyNotReady(deployment, pods, events) ?? [])
    if (reasons.length === 0) return
    const { isStuck, sentence } = reasons.find(({ isStuck }) => isStuck) ?? reasons[0]
    if (sentence !== last) console.log(sentence)
    last = sentence
    stuckSince = isStuck ? Math.min(stuckSince, Date.now()) : Infinity
    if (Date.now() > Math.min(until, stuckSince + STUCK_MS)) throw new Error(`the test failed because ${sentence}`)
    await pause(1000)
  }
}

async function create(plural, kind, spec) {
  await kube('DELETE', `${RESOURCES}/${plural}/${name}`)
  const body = { apiVersion: 'tollgate.dev/v1alpha1', kind, metadata: { name, namespace }, spec }
  await waitFor(`${kind} ${name} to be created`, async () => {
    const { status, body: reply } = await kube('POST', `${RESOURCES}/${plural}`, body)
    // 409: that of an earlier test is still being deleted.
    if (status !== 201 && status !== 409) throw new Error(`creating ${kind} ${name} returned ${status}: ${reply.message}`)
    return status === 201
  })
}

/** Repeats `check` until it resolves to a truthy value. */
async function waitFor(what, check) {
  for (;;) {
    const found = await check()
    if (found) return found
    if (Date.now() > until) throw new Error(`timed out waiting for ${what}`)
    await pause(500)
  }
}

async function ready(plural, wanted) {
  let last = ''
  await waitFor(`${plural}/${name} to be Ready=${wanted}`, async () => {
    const { body } = await kube('GET', `${RESOURCES}/${plural}/${name}`)
    const { status, reason, message } = body.status?.conditions?.find(({ type }) => type === 'Ready') ?? {}
    const is = `${plural}/${name} is Ready=${status} ${reason}: ${message}`
    if (is !== last) console.log(status === undefined ? `${plural}/${name} has no status yet; is the controller running?` : is)
    last = is
    return `${status} ${reason}`.startsWith(wanted)
  })
}

async function call(method, path, key, body) {
  const headers = { authorization: `Bearer ${key}`, ...(body && { 'content-type': 'application/json' }) }
  const response = await fetch(`${gateway}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }), signal: AbortSignal.timeout(20_000) }).catch((error) => {
    throw new Error(`${gateway} cannot be reached: ${error.cause?.message ?? error.message}`, { cause: error })
  })
  return { status: response.status, text: await response.text() }
}

async function main() {
  try {
    await podsReady()
    await create('plans', 'Plan', { product: 'Coding', coding: { sessionWindow: { tokens: 1000 }, weeklyWindow: { tokens: 1000 } } })
    await create('apikeys', 'ApiKey', { planRef: { name }, secretName: name })
    await ready('apikeys', 'True')
    const { status, body } = await kube('GET', `/api/v1/namespaces/${namespace}/secrets/${name}`)
    if (status !== 200) throw new Error(`reading the Secret ${name} returned ${status}: ${body.message}`)
    const key = Buffer.from(body.data['api-key'], 'base64').toString()
    await waitFor('the gateway to accept the key', async () => (await call('GET', '/v1/models', key)).status === 200)
    console.log('the key works')

    const suspended = await kube('PATCH', `${RESOURCES}/plans/${name}`, { spec: { state: 'Suspended' } }, 'application/merge-patch+json')
    if (suspended.status !== 200) throw new Error(`suspending the Plan returned ${suspended.status}: ${suspended.body.message}`)
    await ready('apikeys', 'False PlanSuspended')
    const refused = await call('POST', '/v1/chat/completions', key, { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 1 })
    if (refused.status !== 403) throw new Error(`with a suspended Plan the gateway returned ${refused.status} instead of 403: ${refused.text}`)
    console.log('with a suspended Plan the gateway returns 403: the test passed')
  } catch (error) {
    console.error(error.message)
    process.exitCode = 1
  } finally {
    // The result stands, whatever becomes of these: the next test begins by deleting them too.
    await Promise.allSettled(['apikeys', 'plans'].map((plural) => kube('DELETE', `${RESOURCES}/${plural}/${name}`)))
  }
}

if (import.meta.main) await main()

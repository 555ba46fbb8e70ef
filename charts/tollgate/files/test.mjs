/**
 * `helm test`: creates a Plan and an ApiKey as a tenant does, calls the gateway with the key, suspends the Plan and expects a 403. Calls no model. Arguments:
 * namespace, name of the objects to create, URL of the gateways.
 */
import { readFileSync } from 'node:fs'
import { request } from 'node:https'
import { setTimeout as pause } from 'node:timers/promises'

const [namespace, name, gateway] = process.argv.slice(2)
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const RESOURCES = `/apis/tollgate.dev/v1alpha1/namespaces/${namespace}`
const TIMEOUT_MS = 120_000
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
  const response = await fetch(`${gateway}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }), signal: AbortSignal.timeout(20_000) })
  return { status: response.status, text: await response.text() }
}

try {
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
  await kube('DELETE', `${RESOURCES}/apikeys/${name}`)
  await kube('DELETE', `${RESOURCES}/plans/${name}`)
}

/**
 * `helm test`: declares a Plan and an ApiKey as a tenant does, calls the gateway with the key, suspends the Plan and expects to be refused. Costs nothing: no
 * model is asked. Arguments: namespace, name of what it makes, URL of the gateways.
 */
import { readFileSync } from 'node:fs'
import { request } from 'node:https'
import { setTimeout as pause } from 'node:timers/promises'

const [namespace, name, gateway] = process.argv.slice(2)
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const RESOURCES = `/apis/tollgate.dev/v1alpha1/namespaces/${namespace}`
const PATIENCE_MS = 120_000
const until = Date.now() + PATIENCE_MS

/** Asks the API server. */
function ask(method, path, body, type = 'application/json') {
  const { promise, resolve, reject } = Promise.withResolvers()
  const headers = { authorization: `Bearer ${readFileSync(`${ACCOUNT}/token`, 'utf8').trim()}`, ...(body && { 'content-type': type }) }
  const asked = request({ host: 'kubernetes.default.svc', path, method, headers, ca: readFileSync(`${ACCOUNT}/ca.crt`), timeout: 10_000 }, async (answer) => {
    const text = (await answer.toArray()).join('')
    resolve({ status: answer.statusCode, body: text.startsWith('{') ? JSON.parse(text) : { message: text } })
  })
  asked.on('error', reject).on('timeout', () => asked.destroy(new Error('the API server does not answer')))
  asked.end(body && JSON.stringify(body))
  return promise
}

async function make(plural, kind, spec) {
  await ask('DELETE', `${RESOURCES}/${plural}/${name}`)
  const body = { apiVersion: 'tollgate.dev/v1alpha1', kind, metadata: { name, namespace }, spec }
  await becomes(`${kind} ${name} to be made`, async () => {
    const { status, body: said } = await ask('POST', `${RESOURCES}/${plural}`, body)
    // 409: the one of a test before is still going.
    if (status !== 201 && status !== 409) throw new Error(`${kind} ${name} was answered ${status}: ${said.message}`)
    return status === 201
  })
}

/** Tries until `look` says something that is true. */
async function becomes(what, look) {
  for (;;) {
    const found = await look()
    if (found) return found
    if (Date.now() > until) throw new Error(`waited in vain for ${what}`)
    await pause(500)
  }
}

async function ready(plural, wanted) {
  let last = ''
  await becomes(`${plural}/${name} to be Ready=${wanted}`, async () => {
    const { body } = await ask('GET', `${RESOURCES}/${plural}/${name}`)
    const { status, reason, message } = body.status?.conditions?.find(({ type }) => type === 'Ready') ?? {}
    const is = `${plural}/${name} is Ready=${status} ${reason}: ${message}`
    if (is !== last) console.log(status === undefined ? `${plural}/${name} has no status yet; is the controller there?` : is)
    last = is
    return `${status} ${reason}`.startsWith(wanted)
  })
}

async function call(method, path, key, body) {
  const headers = { authorization: `Bearer ${key}`, ...(body && { 'content-type': 'application/json' }) }
  const answer = await fetch(`${gateway}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }), signal: AbortSignal.timeout(20_000) })
  return { status: answer.status, text: await answer.text() }
}

try {
  await make('plans', 'Plan', { product: 'Coding', coding: { sessionWindow: { tokens: 1000 }, weeklyWindow: { tokens: 1000 } } })
  await make('apikeys', 'ApiKey', { planRef: { name }, secretName: name })
  await ready('apikeys', 'True')
  const { status, body } = await ask('GET', `/api/v1/namespaces/${namespace}/secrets/${name}`)
  if (status !== 200) throw new Error(`the Secret ${name} was answered ${status}: ${body.message}`)
  const key = Buffer.from(body.data['api-key'], 'base64').toString()
  await becomes('the gateway to take the key', async () => (await call('GET', '/v1/models', key)).status === 200)
  console.log('the key works')

  const suspended = await ask('PATCH', `${RESOURCES}/plans/${name}`, { spec: { state: 'Suspended' } }, 'application/merge-patch+json')
  if (suspended.status !== 200) throw new Error(`suspending the Plan was answered ${suspended.status}: ${suspended.body.message}`)
  await ready('apikeys', 'False PlanSuspended')
  const refused = await call('POST', '/v1/chat/completions', key, { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 1 })
  if (refused.status !== 403) throw new Error(`with a suspended Plan the gateway answered ${refused.status} instead of 403: ${refused.text}`)
  console.log('with a suspended Plan the gateway answers 403: all is well')
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
} finally {
  await ask('DELETE', `${RESOURCES}/apikeys/${name}`)
  await ask('DELETE', `${RESOURCES}/plans/${name}`)
}

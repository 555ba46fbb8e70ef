/** Runbooks that are followed on a system which is really broken: Prometheus evaluates the chart's rules until the alert fires, and the steps of the page lead to the cause. Times are shortened. */
import { execFile } from 'node:child_process'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import * as manifests from '../backends/resources/manifests.ts'
import { openAccount, type Account } from '../chart/controller-account.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { answer, at, chat, get, post, type Json } from '../flows/calls.ts'
import { openSite } from '../flows/deployment.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { start, type Program } from '../flows/program.ts'
import { persistently } from '../flows/systems.ts'
import { missing } from '../servers/client.ts'
import { KAFKA_NAMES, kafka } from '../servers/kafka.ts'
import { kubectl, kubernetes, KUBERNETES_NAMES } from '../servers/kubernetes.ts'
import { MONGODB_NAMES, ownMongodb } from '../servers/mongodb.ts'
import { ownPrometheus, type Prometheus } from '../servers/prometheus.ts'
import { folderFor } from '../temporary-folder.ts'
import { answersOf, fires, hostsOf, logHas, shortenedRules } from './alert-drill.ts'

const FREE = { requestsPerMinute: 1_000_000 }
const CODER = { sessionWindow: { tokens: 500_000 }, weeklyWindow: { tokens: 5_000_000 } }

t.setTimeout(1_200_000)
// Each has a system of its own, and waits for Prometheus most of the time.
t.jobs = 3

/** Waits until a query of the alert's runbook, counted from 0, shows this. */
async function shows(t: Test, prometheus: Prometheus, alert: string, query: number, pattern: RegExp, meanwhile: () => Promise<unknown> = async () => {}): Promise<void> {
  const shown = await eventually(`query ${query} of ${alert} to show ${pattern}`, async () => {
    await meanwhile()
    const answered = (await answersOf(prometheus, alert))[query] ?? ''
    return pattern.test(answered) ? answered : null
  })
  t.comment(`${alert}, query ${query}: ${shown}`)
}

const logLine = (program: Program, event: string, part: string) => program.log.some((line) => line.includes(`"event":"${event}"`) && line.includes(part))

type Controlled = { account: Account; program: Program; prometheus: Prometheus; key: string; kubectl(...args: string[]): Promise<string> }

/** A program that takes Plans and ApiKeys from an API server by the chart's rights, with a plan and a key that is Ready. Null if the test is skipped. */
async function openControlled(t: Test): Promise<Controlled | null> {
  if (missing(t, [...KUBERNETES_NAMES, 'helm', 'prometheus'])) return null
  const kubeconfig = await kubernetes(t)
  if (kubeconfig === null) return null
  const [account, folder] = [await openAccount(t, kubeconfig), await folderFor(t)]
  const { operator } = account
  await account.grant(null)
  const program = await start({ folder, env: { RESOURCES_URL: account.url } })
  t.teardown(() => program.kill())
  const prometheus = await ownPrometheus(t, hostsOf(program), [await shortenedRules(folder)])
  if (prometheus === null) return null
  await operator.declare(manifests.codingPlan('coder', FREE, CODER), manifests.apiKey('ci', 'coder', { secretName: 'ci-key' }))
  await operator.becomes(operator.ref('ApiKey', 'ci'), { Ready: 'True Issued' })
  const key = String((await operator.secretEntries(operator.namespace('acme'), 'ci-key'))?.['api-key'])
  const run = async (...args: string[]) => (await promisify(execFile)(kubectl(), ['--kubeconfig', kubeconfig, '--namespace', operator.namespace('acme'), ...args])).stdout
  return { account, program, prometheus, key, kubectl: run }
}

t.test('no leader, and reconcile errors: a right that was taken away is found by the log, the codes of the API server and kubectl', async (t) => {
  const controlled = await openControlled(t)
  if (controlled === null) return
  const { account, program, prometheus, key } = controlled
  const { operator } = account
  const served = async () => (await chat(program, key)).status
  await eventually('the key to work', async () => ((await served()) === 200 ? true : null))

  await account.grant('create secrets')
  await operator.declare(manifests.apiKey('late', 'coder', { secretName: 'late-key' }))
  await fires(prometheus, 'TollgateReconcileErrors')
  await shows(t, prometheus, 'TollgateReconcileErrors', 0, /apikey (0\.)?\d/)
  await shows(t, prometheus, 'TollgateReconcileErrors', 1, /(403 POST|POST 403)/)
  t.ok(logLine(program, 'reconcile_backend_unavailable', 'cannot create resource \\"secrets\\"'), 'the log names the right')
  t.match(await controlled.kubectl('describe', 'apikey', 'late'), /ClusterRefused[^]*cannot create resource "secrets"|cannot create resource "secrets"[^]*ClusterRefused/)
  t.equal(await served(), 200, 'keys that work keep working')
  await account.grant(null)
  await operator.becomes(operator.ref('ApiKey', 'late'), { Ready: 'True Issued' })

  await account.grant('update leases')
  await fires(prometheus, 'TollgateNoLeader')
  await shows(t, prometheus, 'TollgateNoLeader', 0, / 0$/)
  await shows(t, prometheus, 'TollgateNoLeader', 1, /resources 1/)
  await eventually('the detail of the check to have the error of the lease', async () => (/cannot update resource/.test(await (await fetch(`${program.opsUrl}/readyz`)).text()) ? true : null))
  await shows(t, prometheus, 'TollgateNoLeader', 2, /(403 PUT|PUT 403)/)
  t.ok(logLine(program, 'lease_request_failed', 'cannot update resource \\"leases\\"'), 'the log names the right')
  t.match(await controlled.kubectl('get', 'lease', '--output=yaml'), /holderIdentity: .+[^]*renewTime: /)
  await operator.declare(manifests.codingPlan('coder', { ...FREE, state: 'Suspended' }, CODER))
  t.equal(await served(), 200, 'what users see: a suspension has no effect')
  await account.grant(null)
  await eventually('the suspension to have effect', async () => ((await served()) === 403 ? true : null))
})

t.test('a store that is slow, and one that is away: every process is slow, and the error budget leads to the check of the store', async (t) => {
  if (missing(t, [...MONGODB_NAMES, ...KAFKA_NAMES, 'prometheus'])) return
  const [store, brokers, folder] = [await ownMongodb(t), await kafka(t), await folderFor(t)]
  if (store === null || brokers === null) return
  const site = openSite({ mongodb: store.url, brokers })
  await declare(folder, 'plans', codingPlan('code', FREE), apiKey('code-key', 'code'), mediaPlan('studio', FREE), apiKey('studio-key', 'studio'))
  const program = await persistently(() => site.start({ folder, roles: ['controller', 'gateway', 'gateway'] }))
  t.teardown(() => program.kill())
  const prometheus = await ownPrometheus(t, hostsOf(...program.processes), [await shortenedRules(folder)])
  if (prometheus === null) return
  const [code, studio] = [await program.key('code-key'), await program.key('studio-key')]
  const answered: number[] = []
  const slowly = async () => {
    await store.freeze()
    const asked = chat(program, code)
    await pause(700)
    store.thaw()
    answered.push((await asked).status)
  }
  await fires(prometheus, 'TollgateStoreSlow', slowly)
  // More than half a second for some verb, in each gateway. The controller ends when it cannot renew its lease in time.
  for (const { opsUrl } of program.processes.filter(({ role }) => role === 'gateway')) await shows(t, prometheus, 'TollgateStoreSlow', 0, new RegExp(`${new URL(opsUrl).host}[^;]* (0\\.[5-9]|[1-9])`), slowly)
  t.ok(answered.includes(200), 'what users see: late answers')

  await store.kill()
  const refused = async () => {
    t.match(await chat(program, code), { status: 503, body: { error: { code: 'unavailable' } } })
    t.equal((await get(program, studio, '/api/v1/usage')).status, 503)
  }
  await fires(prometheus, 'TollgateErrorBudgetBurn', refused)
  for (const product of ['coding', 'media']) await shows(t, prometheus, 'TollgateErrorBudgetBurn', 0, new RegExp(`${product}[^;]* 503|503[^;]* ${product}`), refused)
  await shows(t, prometheus, 'TollgateErrorBudgetBurn', 1, /store 0/)
  t.ok(logHas(program, 'request_failed') || program.log.some((line) => line.includes('"msg":"request failed"')), 'the log has the cause')
  await store.start()
  await eventually('service', async () => ((await chat(program, code)).status === 200 ? true : null))
})

t.test('webhooks that are late: the attempts of a task and the log name the slow receiver and its tenant', async (t) => {
  const folder = await folderFor(t)
  const receiver = await openReceiver(t)
  // Slower than a second: it gets 4 deliveries at once. And it answers none before all tasks of a batch have ended.
  let batchEnded = Promise.withResolvers<void>()
  receiver.always(() => ({ until: batchEnded.promise.then(() => pause(1_200)) }))
  await declare(folder, 'plans', mediaPlan('studio', FREE, { maxConcurrentTasks: 50 }), apiKey('studio-key', 'studio'))
  const program = await start({ folder, env: { EGRESS_ALLOW: '127.0.0.1/32', WEBHOOK_TIMEOUT_SECONDS: '60' } })
  t.teardown(() => program.kill())
  const prometheus = await ownPrometheus(t, hostsOf(program), [await shortenedRules(folder)])
  if (prometheus === null) return
  const key = await program.key('studio-key')
  const order = async () => at((await answer(await post(program, key, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '32x32', webhook_url: `${receiver.url}/hook` }))).body, 'id')
  const first = await order()
  const batch = async () => {
    batchEnded = Promise.withResolvers()
    await Promise.all(Array.from({ length: 8 }, order))
    await eventually('the batch to end', async () => (at((await get(program, key, '/api/v1/usage')).body, 'held') === '0.0000' ? true : null))
    batchEnded.resolve()
  }
  await fires(prometheus, 'TollgateWebhooksLate', batch)
  await shows(t, prometheus, 'TollgateWebhooksLate', 0, /^ ([2-9]|\d\d)/)
  await shows(t, prometheus, 'TollgateWebhooksLate', 1, /(delivered 1|1 delivered) 0?\.?\d/)
  t.ok(program.log.some((line) => line.includes('"msg":"webhook attempt"') && line.includes('"tenant":"acme"')), 'the log has the tenant')
  const durations = await eventually('its attempts', async () => {
    const { body } = await get(program, key, `/api/v1/generations/${String(first)}/deliveries`)
    const attempts = at(body, 'data', 0, 'attempts') as Json[] | undefined
    return attempts && attempts.length > 0 ? attempts.map((one) => Number(at(one, 'duration_ms'))) : null
  })
  t.ok(durations.every((ms) => ms > 1_000), `the receiver took ${durations.join(', ')} ms`)
})

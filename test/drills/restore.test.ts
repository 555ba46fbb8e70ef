/** Restore drill: the database of an older backup beside the current Plans, ApiKeys and Secrets of the cluster. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { apiKey, codingPlan, mediaPlan } from '../backends/resources/manifests.ts'
import { openReceiver, verifies } from '../fakes/receiver.ts'
import { answer, at, chat, get, post, used, type Caller } from '../flows/calls.ts'
import { openSite } from '../flows/deployment.ts'
import { eventually } from '../flows/eventually.ts'
import { PROGRAM } from '../flows/program.ts'
import { run } from '../flows/run.ts'
import { openOperator, type Operator } from '../plugins/operator.ts'
import { missing } from '../servers/client.ts'
import { KAFKA_NAMES, kafka } from '../servers/kafka.ts'
import { kubernetes, KUBERNETES_NAMES } from '../servers/kubernetes.ts'
import { MONGODB_NAMES, ownMongodb } from '../servers/mongodb.ts'
import { folderFor } from '../temporary-folder.ts'
import { openSteps } from './steps.ts'

const copy = (from: string, to: string) => promisify(execFile)('cp', ['-a', from, to])
const CODER = codingPlan('coder', { requestsPerMinute: 1_000_000 }, { sessionWindow: { tokens: 500_000 }, weeklyWindow: { tokens: 5_000_000 } })
const key = (name: string, plan: string, spec: object = {}) => apiKey(name, plan, { secretName: `${name}-key`, ...spec })

t.setTimeout(1_800_000)

/** Creates a task; resolves to its id. */
async function create(program: Caller, apiKeyOf: string, request: object): Promise<string> {
  const { status, body } = await answer(await post(program, apiKeyOf, '/api/v1/generations', { prompt: 'a lighthouse', ...request }))
  if (status !== 202) throw new Error(`a task was answered ${status}: ${JSON.stringify(body)}`)
  return String(at(body, 'id'))
}

const completed = (program: Caller, apiKeyOf: string, id: string) =>
  eventually(`task ${id}`, async () => (at((await get(program, apiKeyOf, `/api/v1/generations/${id}`)).body, 'status') === 'completed' ? true : null))

/** Creates an image and waits for it; resolves to the task's id. */
async function order(program: Caller, apiKeyOf: string, webhook: string): Promise<string> {
  const id = await create(program, apiKeyOf, { kind: 'image', size: '32x32', webhook_url: webhook })
  await completed(program, apiKeyOf, id)
  return id
}

async function secretsOf(operator: Operator, ...names: string[]): Promise<Record<string, Record<string, string> | null>> {
  const found = names.map(async (name) => [name, await operator.secretEntries(operator.namespace('acme'), `${name}-key`)] as const)
  return Object.fromEntries(await Promise.all(found))
}

t.test('a database of an older backup beside current Secrets: no key is issued anew, every key works, a deleted one does not, and verify finds nothing', async (t: Test) => {
  if (missing(t, [...KUBERNETES_NAMES, ...MONGODB_NAMES, ...KAFKA_NAMES])) return
  const [kubeconfig, store, brokers, folder] = [await kubernetes(t), await ownMongodb(t), await kafka(t), await folderFor(t)]
  if (kubeconfig === null || store === null || brokers === null) return
  const { step, end } = openSteps(t)
  const operator = await openOperator(t, kubeconfig)
  const receiver = await openReceiver(t)
  const site = openSite({ mongodb: store.url, brokers })
  const env = { RESOURCES_URL: operator.url, EGRESS_ALLOW: '127.0.0.1/32' }
  const started = async () => {
    const program = await site.start({ folder, env })
    t.teardown(() => program.kill())
    return program
  }
  const data = join(store.folder, 'postgres')
  const issued = (name: string, reason = 'Issued') => operator.becomes(operator.ref('ApiKey', name), { Ready: `True ${reason}` })
  const keyOf = async (name: string) => String((await secretsOf(operator, name))[name]?.['api-key'])
  const command = async (...words: string[]) => run(process.execPath, [PROGRAM, ...words], { cwd: folder, env: await site.settings(folder) })
  const spent = async (at_: Caller) => ({ coding: (await used(at_, await keyOf('ci'))).weekly, media: at((await get(at_, await keyOf('studio'), '/api/v1/usage')).body, 'burned') })

  let gateway = await step('start of four processes', started)
  await operator.declare(CODER, mediaPlan('studio'), key('ci', 'coder'), key('gone', 'coder'), key('studio', 'studio'))
  for (const name of ['ci', 'gone', 'studio']) await issued(name)
  const [rotated, gone] = [await keyOf('ci'), await keyOf('gone')]
  await eventually('the keys to work', async () => ((await chat(gateway, rotated)).status === 200 ? true : null))
  const kept = await order(gateway, await keyOf('studio'), `${receiver.url}/before`)
  await receiver.arrived(1)
  const spentBefore = await spent(gateway)
  const begun = await create(gateway, await keyOf('studio'), { kind: 'video', duration_seconds: 10 })

  await step('backup: a copy of the database at one point in time', async () => {
    await store.kill()
    await copy(data, join(folder, 'backup'))
    await store.start()
  })
  await eventually('service', async () => ((await chat(gateway, rotated)).status === 200 ? true : null))

  await step('after the backup: a key issued, one rotated, one deleted, an image and requests', async () => {
    await operator.declare(key('late', 'coder'), key('ci', 'coder', { rotationRevision: 1 }))
    await operator.withdraw(operator.ref('ApiKey', 'gone'))
    await issued('late')
    await eventually('the rotation', async () => ((await keyOf('ci')) === rotated ? null : true))
    await eventually('the deleted key to end', async () => ((await chat(gateway, gone)).status === 401 ? true : null))
    for (const name of ['ci', 'late']) t.equal((await chat(gateway, await keyOf(name))).status, 200, `${name} works`)
  })
  const lost = await order(gateway, await keyOf('studio'), `${receiver.url}/after`)
  const spentSince = await spent(gateway)
  const eventsAfter = async (cursor?: unknown) => (await get(gateway, await keyOf('studio'), `/api/v1/events${cursor === undefined ? '' : `?cursor=${cursor}`}`)).body
  const cursor = at(await eventsAfter(), 'next_cursor')
  const secrets = await secretsOf(operator, 'ci', 'late', 'studio')

  gateway = await step('restore: all processes stopped, the database replaced, all started', async () => {
    await gateway.stop()
    await store.kill()
    await promisify(execFile)('rm', ['-rf', data])
    await copy(join(folder, 'backup'), data)
    await store.start()
    t.match(await command('verify'), { code: 0 }, 'the restored database keeps its invariants')
    t.match(await command('tasks', 'stuck', '--older-than', '0'), { stdout: new RegExp(begun) }, 'a task was open')
    t.match(await command('backup', 'restored', '--yes'), { code: 0 })
    return started()
  })
  await step('every key Ready and working', async () => {
    for (const name of ['late', 'studio']) await issued(name)
    await issued('ci', 'RotationInProgress')
    for (const name of ['ci', 'late']) await eventually(`${name} to work`, async () => ((await chat(gateway, await keyOf(name))).status === 200 ? true : null))
    await eventually('the deleted key to end', async () => ((await chat(gateway, gone)).status === 401 ? true : null))
  })
  t.same(await secretsOf(operator, 'ci', 'late', 'studio'), secrets, 'no key was issued anew: every Secret is as it was')
  t.equal((await chat(gateway, rotated)).status, 200, 'the key of before the rotation works for its overlap')

  const studio = await keyOf('studio')
  t.equal((await get(gateway, studio, `/api/v1/generations/${kept}`)).status, 200, 'a task of before the backup is there')
  t.equal((await get(gateway, studio, `/api/v1/generations/${lost}`)).status, 404, 'a task of after the backup is lost')
  await completed(gateway, studio, begun)
  const charge = at((await get(gateway, studio, `/api/v1/generations/${begun}`)).body, 'actual_cost')
  const burned = await get(gateway, studio, '/api/v1/usage').then(({ body }) => at(body, 'burned'))
  t.equal(Number(burned), Number(spentBefore.media) + Number(charge), 'and so is its charge, while the open task is made and charged')
  t.comment(`lost with the backup: task ${lost}, ${String(spentBefore.media)} burned instead of ${String(spentSince.media)}, and ${spentSince.coding - spentBefore.coding} tokens of the window`)
  const arrived = receiver.received.length
  const restored = await order(gateway, studio, `${receiver.url}/restored`)
  // A task is completed a moment before its event is logged.
  const events = await eventually('the event', async () => {
    const body = await eventsAfter(cursor)
    return at(body, 'data', 1) === undefined ? null : body
  })
  t.same([0, 1, 2].map((n) => at(events, 'data', n, 'task_id')), [begun, restored, undefined], 'a reader of the lost event log misses nothing')
  const webhooks = await receiver.arrived(arrived + 1)
  for (const webhook of webhooks) t.ok(await verifies(webhook, studio), `the webhook at ${webhook.path} is signed by the same key`)
  await gateway.stop()
  const verified = await command('verify')
  t.match(verified, { code: 0 }, verified.stdout.trim())
  end()
})

/** End-to-end tests of the Media API: the program as one process or several, manifests as files, plain HTTP. */
import t, { type Test } from 'tap'
import { withoutFfmpeg } from '../backends/engines/ffmpeg-media.ts'
import { openReceiver, ranged } from '../fakes/receiver.ts'
import { folderFor } from '../temporary-folder.ts'
import { answer, at, get, post, type Answer, type Json } from './calls.ts'
import { eventually } from './eventually.ts'
import { apiKey, declare, mediaPlan } from './manifests.ts'
import type { Program } from './program.ts'
import { SIDES, SIDE_TIMEOUT_MS, type Start } from './sides.ts'

t.setTimeout(SIDE_TIMEOUT_MS)
for (const side of SIDES) {
  t.test(`${side.name}: the Media API`, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
    const start = await side.open(t)
    if (start) await flows(t, start)
  })
}

const IMAGE = { kind: 'image', prompt: 'a lighthouse', size: '64x64' }
const ENV = { EGRESS_ALLOW: '127.0.0.1/32', TASK_LEASE_SECONDS: '2', WEBHOOK_DELAYS_SECONDS: '0,0.5,1,2' }

async function create(program: Program, key: string, body: object = IMAGE): Promise<Answer> {
  return answer(await post(program, key, '/api/v1/generations', body))
}

async function operate(program: Program, key: string, body: object): Promise<Answer> {
  return answer(await post(program, key, '/api/v1/operations', body))
}

/** A sweep finds the claim of a worker that was killed before its run began after a minute. */
function ended(program: Program, key: string, task: Json): Promise<Json> {
  const look = async () => {
    const { body } = await get(program, key, `/api/v1/${String(at(task, 'object'))}s/${String(at(task, 'id'))}`)
    return ['completed', 'failed', 'canceled'].includes(String(at(body, 'status'))) ? body : null
  }
  return eventually('the end of a task', look, SIDE_TIMEOUT_MS)
}

async function flows(t: Test, start: Start): Promise<void> {
  const folder = await folderFor(t)
  await declare(folder, 'plans', mediaPlan('studio', { requestsPerMinute: 1_000_000 }), apiKey('studio-key', 'studio'), mediaPlan('small', {}, { allowance: '0.10' }), apiKey('small-key', 'small'))
  let program = await start({ folder, env: ENV })
  t.teardown(() => program.kill())
  const receiver = await openReceiver(t)

  t.test('a generation is accepted at once, made, charged, announced by webhook and downloaded by its link', async (t) => {
    const key = await program.key('studio-key')
    const { status, body: task } = await create(program, key, { ...IMAGE, webhook_url: `${receiver.url}/hook` })
    t.equal(status, 202)
    const done = await ended(program, key, task)
    t.match(done, { status: 'completed', progress: 100, actual_cost: '0.0400', attempts: 1 })
    const file = await fetch(String(at(done, 'result', 'image_url')))
    t.equal(file.status, 200)
    t.equal(file.headers.get('content-type'), 'image/png')
    t.equal((await file.arrayBuffer()).byteLength, at(done, 'result', 'bytes'))
    const part = await fetch(String(at(done, 'result', 'image_url')), { headers: { range: 'bytes=1-3' } })
    t.equal(part.status, 206)
    t.equal(await part.text(), 'PNG')
    const [event] = await receiver.arrived(1)
    t.match(JSON.parse(String(event?.rawBody)), { event: 'task.completed', data: { task_id: at(task, 'id') } })
    const { body: usage } = await get(program, key, '/api/v1/usage')
    t.match(usage, { held: '0.0000', burned: '0.0400' })
  })

  for (const product of ['Room', 'Media'] as const) {
    t.test(`a ${product} plan unlocks the Media API key and the usage view only while it is active`, async (t) => {
      const name = `sold-${product.toLowerCase()}`
      const sell = (state: string) => declare(folder, name, mediaPlan(name, { product, state }, { allowance: '5.00' }), apiKey(`${name}-key`, name), apiKey(`${name}-seen`, 'studio'))
      await sell('Suspended')
      await program.key(`${name}-seen`)
      t.equal(await program.keyNow(`${name}-key`), null, 'no key before the plan is paid')
      await sell('Active')
      const key = await program.key(`${name}-key`)
      t.match(await ended(program, key, (await create(program, key)).body), { status: 'completed', actual_cost: '0.0400' })
      t.match(await get(program, key, '/api/v1/usage'), { status: 200, body: { object: 'usage', product, granted: '5.0000', burned: '0.0400', available: '4.9600' } })
      await sell('Suspended')
      await eventually('the Secret to go', async () => ((await program.keyNow(`${name}-key`)) === null ? true : null))
      t.match(await create(program, key), { status: 403, body: { error: { code: 'plan_inactive' } } })
    })
  }

  t.test('a result, a data: URL and an address on the network are sources of operations; one that is refused costs nothing', async (t) => {
    const key = await program.key('studio-key')
    const picture = await ended(program, key, (await create(program, key)).body)
    const link = String(at(picture, 'result', 'image_url'))
    const bytes = Buffer.from(await (await fetch(link)).arrayBuffer())
    const source = await openReceiver(t)
    source.always(() => ({ status: 200, body: bytes }))
    for (const media_url of [link, `data:image/png;base64,${bytes.toString('base64')}`, `${source.url}/picture`]) {
      const { status, body: task } = await operate(program, key, { operation: 'ai_edit', prompt: 'snow', media_url })
      t.equal(status, 202)
      t.match(await ended(program, key, task), { object: 'operation', operation: 'ai_edit', status: 'completed', attempts: 1, result: { content_type: 'image/png', width: 64, height: 64 } })
    }
    source.always(() => ({ status: 404 }))
    const { body: failed } = await operate(program, key, { operation: 'ai_edit', prompt: 'snow', media_url: `${source.url}/picture` })
    t.match(await ended(program, key, failed), { status: 'failed', error: { code: 'input_unreachable' }, actual_cost: '0.0000' })
    t.match(await operate(program, key, { operation: 'ai_edit', prompt: 'snow', media_url: 'http://169.254.169.254/' }), { status: 400, body: { error: { code: 'url_not_allowed' } } })
  })

  t.test('a merge of two films of four seconds from elsewhere holds cents', { skip: withoutFfmpeg }, async (t) => {
    const key = await program.key('studio-key')
    const film = await ended(program, key, (await create(program, key, { kind: 'video', prompt: 'waves', size: '64x64', duration_seconds: 4 })).body)
    const bytes = Buffer.from(await (await fetch(String(at(film, 'result', 'video_url')))).arrayBuffer())
    const source = await openReceiver(t)
    source.always(({ headers }) => ranged(bytes, headers.range))
    const merge = { operation: 'merge', media_urls: [`${source.url}/a`, `${source.url}/b`] }
    // A machine that is busy may not answer within the time that a creation waits.
    const { status, body: task } = await eventually('the films to answer in time', async () => {
      const created = await operate(program, key, merge)
      if (at(created.body, 'estimated_cost') === '0.0490') return created
      await post(program, key, `/api/v1/operations/${String(at(created.body, 'id'))}/cancel`, {})
      return null
    })
    t.match([status, task], [202, { estimated_cost: '0.0490' }], '8 s, a tenth and a second')
    t.match(await ended(program, key, task), { status: 'completed', estimated_cost: '0.0490', actual_cost: '0.0400', result: { duration_ms: 8000 } })
  })

  t.test('tasks accepted before all processes are killed are made afterwards, and charged once', async (t) => {
    const key = await program.key('studio-key')
    const before = await get(program, key, '/api/v1/usage')
    const tasks = await Promise.all(Array.from({ length: 8 }, () => create(program, key)))
    await program.kill()
    program = await start({ folder, env: ENV })
    for (const { status, body } of tasks) {
      t.equal(status, 202)
      t.match(await ended(program, key, body), { status: 'completed' })
    }
    const burned = ({ body }: Answer) => Math.round(Number(at(body, 'burned')) * 100)
    const after = await eventually('all money to be settled', async () => {
      const usage = await get(program, key, '/api/v1/usage')
      return at(usage.body, 'held') === '0.0000' ? usage : null
    })
    t.equal(burned(after) - burned(before), 8 * 4)
  })

  t.test('the program stops cleanly', async (t) => {
    t.same(await program.stop(), { code: 0, signal: null })
  })
}

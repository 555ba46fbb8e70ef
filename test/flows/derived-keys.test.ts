/** Gateways and workers that have derived keys only: they serve everything, and no API key can be decrypted with what they have. */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { openReceiver, verifies } from '../fakes/receiver.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { answer, at, chat, get, post } from './calls.ts'
import { openSite } from './deployment.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { PROGRAM, type Process } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'
import { persistently } from './systems.ts'

t.setTimeout(SIDE_TIMEOUT_MS)

t.test('gateways and workers with derived keys make media, sign links, serve chats, and honour what others signed', { timeout: SIDE_TIMEOUT_MS }, async (t) => {
  const [store, brokers] = [await mongodb(t), await kafka(t)]
  if (store === null || brokers === null) return
  const site = openSite({ mongodb: store, brokers })
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const receiver = await openReceiver(t)
  const running: Pick<Process, 'kill'>[] = []
  t.teardown(async () => {
    await Promise.all(running.map((one) => one.kill()))
    await site.close()
    await rm(folder, { recursive: true, force: true })
  })
  await declare(folder, 'plans', mediaPlan('studio'), apiKey('media', 'studio'), codingPlan('coder'), apiKey('coding', 'coder'))
  const env = { EGRESS_ALLOW: '127.0.0.1/32' }
  const settings = await site.settings(folder)
  const sealingFile = settings['SEALING_KEY_FILE'] ?? ''
  const derivedFile = join(folder, 'derived.keys')
  /** As an operator does. */
  async function derive(): Promise<void> {
    const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, 'derive-keys'], { cwd: folder, env: { PATH: process.env['PATH'], SEALING_KEY_FILE: sealingFile } })
    await writeFile(derivedFile, stdout)
  }
  await derive()
  const whole = await persistently(() => site.start({ folder, env, roles: ['controller', 'gateway', 'dispatcher'] }))
  running.push(...whole.processes)
  const keys = { media: await whole.key('media'), coding: await whole.key('coding') }
  const gateways = whole.processes.filter(({ role }) => role === 'gateway')
  const derivedEnv = { ...env, SEALING_KEY_FILE: '', DERIVED_KEYS_FILE: derivedFile }
  const worker = await site.join(folder, 'worker', derivedEnv)
  running.push(worker)

  /** The task of an image, once it has ended. */
  async function image(): Promise<unknown> {
    const body = { kind: 'image', prompt: 'a lighthouse', size: '32x32', webhook_url: `${receiver.url}/hook` }
    const { body: task } = await answer(await post(whole, keys.media, '/api/v1/generations', body))
    return eventually('the image', async () => {
      const { body: now } = await get(whole, keys.media, `/api/v1/generations/${String(at(task, 'id'))}`)
      return ['completed', 'failed'].includes(String(at(now, 'status'))) ? now : null
    })
  }
  const first = await image()
  t.match(first, { status: 'completed' })
  const link = String(at(first, 'result', 'image_url'))
  t.equal((await fetch(link)).status, 200, 'a gateway with the sealing key honours what the worker signed')

  await Promise.all(gateways.map((one) => one.stop()))
  running.push(await site.join(folder, 'gateway', derivedEnv))
  t.equal((await fetch(link)).status, 200)
  t.equal((await fetch(link.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A')))).status, 403)
  t.equal((await chat(whole, keys.coding)).status, 200)
  t.match(await image(), { status: 'completed' })
  const [delivery] = await receiver.arrived(1)
  t.ok(delivery && (await verifies(delivery, keys.media)), 'the dispatcher signs webhooks')

  await t.test('after a rotation of the sealing key links of before are honoured', async (t) => {
    await writeFile(sealingFile, `${randomBytes(32).toString('base64')}\n${await readFile(sealingFile, 'utf8')}`)
    await derive()
    running.push(await site.join(folder, 'gateway', { ...derivedEnv, PORT: '0' }))
    const rotated = running.at(-1) as Process
    t.equal((await fetch(link.replace(whole.url, rotated.url))).status, 200)
  })
})

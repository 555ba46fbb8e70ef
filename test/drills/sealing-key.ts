/** Rotation of the sealing key under load, by the steps of docs/operations.md: the new line second, then first, `tollgate reseal`, and the old line dropped. Gateways and workers have derived keys. */
import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import { openReceiver, verifies } from '../fakes/receiver.ts'
import { answer, at, get, post } from '../flows/calls.ts'
import { siteFor } from '../flows/deployment.ts'
import { apiKey, declare, mediaPlan } from '../flows/manifests.ts'
import { PROGRAM } from '../flows/program.ts'
import { run } from '../flows/run.ts'
import { openLoad } from '../pods/load.ts'
import { openFleet } from './fleet.ts'
import { LOAD_PLANS, settled } from './load.ts'
import { openSteps } from './steps.ts'

t.setTimeout(1_800_000)

t.test('the sealing key is rotated under load: no request fails, webhooks keep the signatures of their API keys, and links are valid until their line is dropped', async (t) => {
  const place = await siteFor(t)
  if (place === null) return
  const { site, folder } = place
  const { step, end } = openSteps(t)
  const receiver = await openReceiver(t)
  await declare(folder, 'plans', ...LOAD_PLANS, mediaPlan('probe'), apiKey('probe', 'probe'))
  const settings = await site.settings(folder)
  const command = async (...args: string[]) => {
    const outcome = await run(process.execPath, [PROGRAM, ...args], { cwd: folder, env: settings })
    if (outcome.code !== 0) throw new Error(`${args.join(' ')}: ${outcome.stderr}${outcome.stdout}`)
    return outcome.stdout
  }
  const [sealingFile, derivedFile] = [settings['SEALING_KEY_FILE'] ?? '', join(folder, 'derived.keys')]
  const derive = async () => writeFile(derivedFile, await command('derive-keys'))
  const write = async (...lines: string[]) => {
    await writeFile(sealingFile, lines.map((line) => `${line}\n`).join(''))
    await derive()
  }
  const [old, fresh] = [(await readFile(sealingFile, 'utf8')).trim(), randomBytes(32).toString('base64')]
  await derive()

  const envOf = (role: Role) => ({ EGRESS_ALLOW: '127.0.0.1/32', ...(role === 'gateway' || role === 'worker' ? { SEALING_KEY_FILE: '', DERIVED_KEYS_FILE: derivedFile } : {}) })
  const { balancer, key, replaceAll } = await step('start of five processes', () => openFleet(t, { site, folder, envOf }))
  const keys = { media: await key('media'), coding: await key('coding') }
  const probe = await key('probe')
  const linkOf = async (id: string) => String(at((await get(balancer, probe, `/api/v1/generations/${id}`)).body, 'result', 'image_url'))
  /** The status of a result link, which has the address of one gateway, at any of them. */
  const statusOf = async (link: string) => (await fetch(link.replace(new URL(link).origin, balancer.url))).status
  /** Makes an image in a plan without load, and checks the signature of its webhook. Resolves to the task's id. */
  const order = async (when: string) => {
    const arrived = receiver.received.length
    const { body } = await answer(await post(balancer, probe, '/api/v1/generations', { kind: 'image', prompt: when, size: '32x32', webhook_url: `${receiver.url}/hook` }))
    const webhook = (await receiver.arrived(arrived + 1))[arrived]
    t.ok(webhook && (await verifies(webhook, probe)), `${when}: a webhook is signed by its API key`)
    return String(at(body, 'id'))
  }
  const resealed = async (...args: string[]) => JSON.parse(await command('reseal', '--json', ...args))

  const first = await order('before')
  const oldLink = await linkOf(first)
  t.equal(await statusOf(oldLink), 200)
  const load = openLoad(balancer, keys, { clients: 2, again: false })
  await step('the new line second, all processes replaced', async () => {
    await write(old, fresh)
    await replaceAll()
  })
  await order('the new line second')
  await step('the new line first, all processes replaced', async () => {
    await write(fresh, old)
    await replaceAll()
  })
  await order('the new line first')
  t.equal(await statusOf(oldLink), 200, 'links of the old line are valid')
  t.match(await resealed(), { current: 0, older: 3, unopened: [] }, 'the old line encrypted all API keys')
  await step('tollgate reseal --yes', async () => t.match(await resealed('--yes'), { resealed: 3, unopened: [] }))
  t.match(await resealed(), { current: 3, older: 0, unopened: [] }, 'no API key needs the old line')
  await step('the old line dropped, all processes replaced', async () => {
    await write(fresh)
    await replaceAll()
  })
  await order('the old line dropped')
  t.equal(await statusOf(oldLink), 403, 'links of the old line are invalid')
  t.equal(await statusOf(await linkOf(first)), 200, 'the task has a new link')

  const { done, failed } = await load.stop()
  t.comment(`${done} calls meanwhile, ${failed.length} failed`)
  t.same(failed, [])
  await settled(balancer, keys.media)
  const verified = await run(process.execPath, [PROGRAM, 'verify'], { cwd: folder, env: settings })
  t.equal(verified.code, 0, verified.stdout.trim())
  end()
})

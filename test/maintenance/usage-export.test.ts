/** `tollgate usage export`, run as an operator does, and what billing systems make of it by the script of `examples/usage`. */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { readConfig } from '../../src/config/config.ts'
import { runCommand } from '../../src/bootstrap/commands.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { admit, hold, ID, mediaPlan, plan, settle, T0, taskId } from '../contracts/store/acme.ts'
import { openBilling } from '../fakes/billing.ts'

const SCRIPT = join(import.meta.dirname, '../../examples/usage/send-usage.mjs')

/** A store with requests of acme, one an hour, and a task of globex. */
async function filled(t: Test, requests = 250): Promise<{ store: Store; file: string; run(...args: string[]): Promise<string> }> {
  const file = join(t.testdir(), 'tollgate.db')
  const store = await openStore(`sqlite:${file}`, { recordsUsage: true })
  t.teardown(() => store.close())
  await store.change(ID, plan(), T0)
  for (let n = 0; n < requests; n++) {
    const at = T0 + n * 3_600_000
    await store.change(ID, admit(taskId(n), 100), at)
    await store.change(ID, { ...settle(taskId(n), 7), usage: { input: 90, cachedInput: 40, output: 7 } }, at)
  }
  await store.change('globex/studio', mediaPlan(), T0)
  await store.change('globex/studio', { ...hold(taskId(900), 'video'), amount: 50_000 }, T0)
  await store.change('globex/studio', { op: 'claim', claim: 'c', kinds: ['video'] }, T0)
  await store.change('globex/studio', { op: 'close', task: taskId(900), actual: 40_033 }, T0 + 1_234)
  const { config } = readConfig({ STORE_URL: `sqlite:${file}` }, undefined, 'inspect')
  return {
    store,
    file,
    async run(...args) {
      const parts: string[] = []
      await runCommand(config, ['usage', 'export', ...args], Date.now, async (part) => void parts.push(part))
      return parts.join('')
    },
  }
}

t.test('usage records are exported as CloudEvents or CSV, of a tenant or all, in a range', async (t) => {
  const { run, file } = await filled(t)
  const lines = (await run()).trimEnd().split('\n').map((line) => JSON.parse(line))
  t.equal(lines.length, 251)
  t.match(lines[0], { specversion: '1.0', id: taskId(0), type: 'dev.tollgate.usage.coding.v1', subject: 'acme', data: { plan: 'code', key: 'key-1', input_tokens: 90, charged_tokens: 97 } })
  t.match(lines[250], { id: taskId(900), type: 'dev.tollgate.usage.media.v1', subject: 'globex', time: '2026-01-05T00:00:01.234Z', data: { kind: 'video', cost: '0.040033' } })
  const csv = (await run('--format', 'csv', '--tenant', 'globex')).split('\r\n')
  t.same(csv, [
    'id,time,tenant,plan,key,kind,input_tokens,cached_input_tokens,output_tokens,charged_tokens,estimated,cost',
    `${taskId(900)},2026-01-05T00:00:01.234Z,globex,studio,key-1,video,,,,,,0.040033`,
    '',
  ])
  t.match((await run('--format', 'csv')).split('\r\n')[1], `${taskId(0)},2026-01-05T00:00:00.000Z,acme,code,key-1,coding,90,40,7,97,false,`)
  const day = (await run('--since', '2026-01-06', '--until', '2026-01-07T00:00:00Z')).trimEnd().split('\n')
  t.same([day.length, JSON.parse(day[0] ?? '').time, JSON.parse(day[23] ?? '').time], [24, '2026-01-06T00:00:00.000Z', '2026-01-06T23:00:00.000Z'])
  t.equal(await run('--tenant', 'nobody'), '')
  const note = async (days: string) => (await runCommand(readConfig({ STORE_URL: `sqlite:${file}`, USAGE_DAYS: days }, undefined, 'inspect').config, ['usage', 'export'], Date.now, async () => {})).note
  t.same([await note('30'), await note('0')], [undefined, 'USAGE_DAYS is 0: no usage records are made. Those of an earlier setting are exported.\n'])
})

t.test('a wrong command line says what it may be', async (t) => {
  const { run } = await filled(t)
  await t.rejects(run('--format', 'xml'), { message: /usage export with --format ndjson or csv/ })
  await t.rejects(run('--since', 'yesterday'), { message: /--since with a day or a time in UTC, such as 2026-11-01 or 2026-11-01T12:00:00Z/ })
  await t.rejects(run('--until', '2026-02-31'), { message: /--until with a day/ })
  await t.rejects(run('--json'), { message: /usage export with --format/ })
})

t.test('a reader that has enough ends the export', async (t) => {
  const { file } = await filled(t, 2_000)
  const child = spawn(process.execPath, [join(import.meta.dirname, '../../bin/tollgate.mjs'), 'usage', 'export'], { env: { PATH: process.env['PATH'], STORE_URL: `sqlite:${file}` }, stdio: ['ignore', 'pipe', 'pipe'] })
  const said = text(child.stderr)
  child.stdout.once('data', () => child.stdout.destroy())
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve))
  t.same([code, await said], [0, ''])
})

/** Runs the example with the exported lines; resolves with its exit code and what it complained of. */
async function send(args: string[], lines: string): Promise<{ code: number | null; said: string }> {
  const child = spawn(process.execPath, [SCRIPT, ...args], { env: { ...process.env, BILLING_KEY: 'secret' }, stdio: ['pipe', 'ignore', 'pipe'] })
  child.stdin.end(lines)
  const [said, code] = await Promise.all([text(child.stderr), new Promise<number | null>((resolve) => child.on('close', resolve))])
  return { code, said }
}

t.test('OpenMeter takes the events as they are, Lago and Stripe as the example maps them, and each id once', async (t) => {
  const { run, store } = await filled(t)
  const lines = await run()
  const charged = (await store.subscription(ID))?.coding?.usage ?? {}
  const tokens = Object.values(charged).reduce((sum, day) => sum + day.charged, 0)
  const customers = join(t.testdir(), 'customers.json')
  writeFileSync(customers, JSON.stringify({ acme: 'cus_acme', globex: 'cus_globex' }))

  const openmeter = await openBilling(t, 'openmeter')
  for (let n = 0; n < 2; n++) t.match(await send(['openmeter', openmeter.url], lines), { code: 0, said: '' })
  const sum = (value: (event: Record<string, never>) => unknown, events: Iterable<Record<string, unknown>>) => [...events].reduce((all, event) => all + Number(value(event as never) ?? 0), 0)
  t.same([openmeter.refused, openmeter.requests, openmeter.events.size], [[], 6, 251])
  t.equal(sum((event) => event['data']?.['charged_tokens'], openmeter.events.values()), tokens)

  const lago = await openBilling(t, 'lago')
  t.match(await send(['lago', lago.url], lines), { code: 0, said: '' })
  t.same([lago.refused, lago.requests, lago.events.size], [[], 3, 251])
  t.equal(sum((event) => event['properties']?.['charged_tokens'], lago.events.values()), tokens)
  t.match(lago.events.get(taskId(900)), { external_subscription_id: 'globex/studio', code: 'tollgate_media', timestamp: '1767571201.234', properties: { cost: '0.040033' } })

  const stripe = await openBilling(t, 'stripe')
  t.match(await send(['stripe', stripe.url, customers], lines), { code: 0, said: '' })
  t.same([stripe.refused, stripe.events.size], [[], 251])
  const valueOf = (name: string) => sum((event) => event['payload[value]'], [...stripe.events.values()].filter((event) => event['event_name'] === name))
  t.same([valueOf('tollgate_tokens'), valueOf('tollgate_media_micro')], [tokens, 40_033])
  t.match(await send(['stripe', stripe.url], lines), { code: 1, said: /names no customer of tenant acme/ })
})

/**
 * Makes the pictures of docs/dashboard.md: `npm run pictures`. It runs the program in this process with a clock that it moves through two weeks of requests, and photographs every page in a
 * real browser. Needs sharp, and the browser of `npm run servers chromium`.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { chromium, type Page } from 'playwright-core'
import { Registry } from 'prom-client'
import sharp from 'sharp'
import { buildApp } from '../src/app.ts'
import { openBackends } from '../src/bootstrap/open-backends.ts'
import { readConfig } from '../src/config/config.ts'
import { eventually } from '../test/flows/eventually.ts'
import { openReceiver } from '../test/fakes/receiver.ts'
import { installed } from '../test/servers/client.ts'

const PICTURES = join(import.meta.dirname, 'dashboard')
const DAY_MS = 86_400_000
const DAYS = 13

const MANIFESTS = `
apiVersion: tollgate.dev/v1alpha1
kind: Plan
metadata: { name: studio, namespace: demo }
spec: { product: Media, displayName: Studio, media: { allowance: "25.00", periodDays: 30, prices: [{ kind: image, amount: "0.04" }, { kind: video, amount: "0.10", per: Second }] } }
---
apiVersion: tollgate.dev/v1alpha1
kind: Plan
metadata: { name: coder, namespace: demo }
spec: { product: Coding, displayName: Coder, coding: { sessionWindow: { tokens: 60000, durationSeconds: 18000 }, weeklyWindow: { tokens: 400000 } } }
---
apiVersion: tollgate.dev/v1alpha1
kind: Plan
metadata: { name: atelier, namespace: demo }
spec: { product: Room, displayName: Atelier, state: Suspended, media: { allowance: "10.00", periodDays: 30 } }
${[
  ['laptop', 'coder'],
  ['build-robot', 'coder'],
  ['website', 'studio'],
]
  .map(([name, plan]) => `---\napiVersion: tollgate.dev/v1alpha1\nkind: ApiKey\nmetadata: { name: ${name}, namespace: demo }\nspec: { planRef: { name: ${plan} }, secretName: ${name} }\n`)
  .join('')}`

const folder = mkdtempSync(join(tmpdir(), 'tollgate-pictures-'))
mkdirSync(join(folder, 'plans'))
writeFileSync(join(folder, 'plans/demo.yaml'), MANIFESTS)

// The store, which runs in this process, and the program read the same clock.
let passedMs = -DAYS * DAY_MS
const now = Date.now
Date.now = () => now() + passedMs
const { config } = readConfig({ DATA_DIR: join(folder, 'data'), PORT: '0', RESOURCES_URL: `files:${join(folder, 'plans')}`, EGRESS_ALLOW: '127.0.0.1/32', BRAND: 'Tollgate' })
const surroundings = { config, log: pino({ level: 'silent' }), wall: Date.now, registry: new Registry() }
const backends = await openBackends(surroundings, (_name, open) => open())
const app = buildApp(surroundings, backends)
const url = await app.listen({ port: 0, host: '127.0.0.1' })
const receiver = await openReceiver(null)
const key = (name: string) => eventually(`the key ${name}`, () => readFile(join(folder, 'data/secrets/demo', name, 'api-key'), 'utf8').catch(() => null))

async function post(name: string, path: string, body: object): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}${path}`, { method: 'POST', headers: { authorization: `Bearer ${await key(name)}`, 'content-type': 'application/json', prefer: 'wait=60' }, body: JSON.stringify(body) })
  return (await response.json()) as Record<string, unknown>
}

const PROMPTS = ['A lighthouse at dawn, oil on canvas', 'A tram in the rain, seen from above', 'An old greenhouse full of ferns', 'Red boats on a quiet lake', 'A night market under paper lanterns', 'Snow on a mountain pass']

/** One day of a small team: more on some days, nothing on others. */
async function live(day: number): Promise<void> {
  const load = [3, 5, 2, 6, 0, 4, 5][day % 7] ?? 0
  for (let at = 0; at < load; at++) {
    await post(at % 3 === 2 ? 'build-robot' : 'laptop', '/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user', content: 'Explain this function. '.repeat(700 + 150 * ((day + at) % 5)) }] })
    await post('website', '/api/v1/generations', { kind: 'image', prompt: PROMPTS[(day + at) % PROMPTS.length] })
  }
  if (day % 3 === 1) await post('website', '/api/v1/generations', { kind: 'video', prompt: PROMPTS[day % PROMPTS.length], duration_seconds: 3 })
  if (day % 4 === 3) await post('website', '/api/v1/generations', { kind: 'music', prompt: 'A slow waltz for piano', duration_seconds: 5 })
}

for (let day = 0; day <= DAYS; day++) {
  await live(day)
  if (day === DAYS) break
  passedMs += DAY_MS
  // The program has to notice the new time first.
  await eventually('readiness', async () => ((await Promise.all(app.checks.map((check) => check()))).every(({ ok }) => ok) ? true : null))
  await eventually('an answer', async () => ((await fetch(`${url}/v1/usage`, { headers: { authorization: `Bearer ${await key('laptop')}` } })).ok ? true : null))
}
receiver.next({ status: 503, body: '{"error":"down for maintenance"}' }, { status: 200, body: '{"received":true}' })
const order = await post('website', '/api/v1/generations', { kind: 'image', prompt: 'A harbour at dusk, long exposure', webhook_url: `${receiver.url}/orders`, metadata: { order: '1042', customer: 'blue-door' } })
await receiver.arrived(2)
const source = (order['result'] as Record<string, string>)['image_url']
await post('website', '/api/v1/operations', { operation: 'background_remove', media_url: source })

const browser = await chromium.launch({ executablePath: installed('chromium'), args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] })

async function photograph(page: Page, name: string): Promise<void> {
  await page.waitForLoadState('networkidle').catch(() => {})
  await sharp(await page.screenshot()).webp({ quality: 78 }).toFile(join(PICTURES, `${name}.webp`))
  console.log(`docs/dashboard/${name}.webp`)
}

async function signedIn(options: object): Promise<Page> {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: 'en-GB', reducedMotion: 'reduce', ...options })).newPage()
  await page.goto(app.signInLink() ?? '')
  await page.getByRole('heading', { name: 'Plans' }).waitFor()
  return page
}

const open = async (page: Page, path: string, text: string) => {
  await page.goto(`${url}/dashboard${path}`)
  await page.locator('main').getByText(text).first().waitFor()
}

mkdirSync(PICTURES, { recursive: true })
const light = await signedIn({ colorScheme: 'light' })
await photograph(light, 'home')
await open(light, '/usage/coding', 'By key')
await light.getByRole('table', { name: 'Coding requests, newest first' }).waitFor()
await photograph(light, 'coding-usage')
await open(light, `/tasks/${String(order['id'])}`, 'Attempt')
await photograph(light, 'task')
await open(light, '/keys', 'Use a key')
await light.getByRole('button', { name: 'Reveal laptop' }).click()
await light.getByLabel('Client', { exact: true }).selectOption('codex')
await light.getByRole('heading', { name: 'API Keys' }).scrollIntoViewIfNeeded()
await photograph(light, 'keys')
const dark = await signedIn({ colorScheme: 'dark' })
await open(dark, '/usage/media', 'By key')
await photograph(dark, 'media-usage')
await open(dark, '/room', 'AI Room')
await dark.getByLabel('Prompt').fill('A lighthouse by the sea at dawn')
await dark.getByRole('button', { name: /^Create/ }).click()
await dark.getByText('Processing').waitFor()
await dark.getByText('Processing').waitFor({ state: 'detached' })
await dark.locator('.gallery-item').nth(2).waitFor()
await dark.evaluate('scrollTo(0, 0)')
await photograph(dark, 'room')
const phone = await signedIn({ colorScheme: 'light', viewport: { width: 390, height: 844 } })
await photograph(phone, 'phone')

await browser.close()
await receiver.close()
await app.close()
await backends.close()
rmSync(folder, { recursive: true })

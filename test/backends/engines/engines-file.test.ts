/** The engines backend: the ENGINES file, what a generation asks for and costs, and runs by the routing table. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openEngines, type Engine, type Engines } from '../../../src/backends/engines/engine.ts'
import { DEFAULT_ENGINES, parseEngines, type Route } from '../../../src/backends/engines/engines-file.ts'
import { amountsOf, costOf, generationOf, priceOf, type GenerationBody, type GenerationRequest, type Kind } from '../../../src/domain/media-generations.ts'
import { FAKE_ENGINES, fakeEngine, openFakeEngines, runControl, silent, USED } from '../../fakes/engine.ts'

const image: GenerationRequest = { kind: 'image', prompt: 'x', width: 64, height: 64, durationMs: null, seed: null, format: 'png' }
const control = () => runControl()

function routes(text: string): Map<string, Route> {
  return new Map(parseEngines('e.yaml', text).routes.map((route) => [route.kind, route]))
}

const builtIn = routes(DEFAULT_ENGINES)
const asked = (kind: Kind, body: Partial<GenerationBody>, route = builtIn.get(kind)!) => generationOf(kind, { prompt: 'x', ...body }, route, ['png', 'webp'], [])

function request(kind: Kind, body: Partial<GenerationBody>): GenerationRequest {
  const found = asked(kind, body)
  if (found.outcome === 'invalid') throw new Error(JSON.stringify(found.errors))
  return found.request
}

t.test('a bad file is refused with the line and the reason', async (t) => {
  const head = 'engines:\n  - { name: a, type: preview }\nroutes:\n'
  const route = (more: string): string => `${head}  - { kind: image, engine: a, price: { amount: "1", per: Job } }\n  - { ${more} }\n`
  const price = 'price: { amount: "1", per: Job }'
  const cases: [text: string, line: number, message: RegExp][] = [
    ['', 1, /the file must be an object/],
    ['engines: [', 1, /./],
    ['engines: []\nroutes: []\n', 1, /engines must have at least one entry/],
    [`${head}  []\nextra: 1\n`, 5, /extra is not a setting/],
    ['engines:\n  - name: a\n    type: preview\n  - name: a\n    type: preview\nroutes: []\n', 4, /engines.1..name must be unique/],
    [route(`kind: video, engine: b, ${price}`), 5, /routes.1..engine must be the name of an engine/],
    [route(`kind: poem, engine: a, ${price}`), 5, /routes.1..kind must be one of image, video, music/],
    [route(`kind: video, operation: trim, engine: a, ${price}`), 5, /routes.1. must have either a kind or an operation/],
    [route(`engine: a, ${price}`), 5, /routes.1. must have either a kind or an operation/],
    [route(`kind: image, engine: a, ${price}`), 5, /routes.1. is a second route for image/],
    [route('kind: video, engine: a'), 5, /routes.1..price is required/],
    [route('kind: video, engine: a, price: { amount: 0.05, per: Second }'), 5, /routes.1..price.amount must be a string/],
    [route('kind: video, engine: a, price: { amount: "-1", per: Second }'), 5, /routes.1..price.amount must be a decimal string/],
    [route('kind: video, engine: a, price: { amount: "0.0000001", per: Second }'), 5, /routes.1..price.amount must be a decimal string/],
    [route('kind: video, engine: a, price: { amount: "2000000000", per: Second }'), 5, /price.amount must be at most 1000000000/],
    [route('kind: video, engine: a, price: { amount: "1", per: Token }'), 5, /routes.1..price.per must be one of Job, Second, Megapixel/],
    [route('kind: music, engine: a, price: { amount: "1", per: Megapixel }'), 5, /price.per must be Job or Second for music/],
    [route('operation: upscale, engine: a, price: { amount: "1", per: Second }'), 5, /price.per must be Job or Megapixel for upscale/],
    [route(`kind: video, engine: a, ${price}, max: { seconds: 5 }, defaults: { seconds: 6 }`), 5, /routes.1..defaults.seconds is above max.seconds/],
    [route(`kind: video, engine: a, ${price}, max: { megapixels: 0.1 }`), 5, /routes.1..defaults.size is above max.megapixels/],
    [route(`kind: video, engine: a, ${price}, defaults: { size: 101x100 }`), 5, /even width and height/],
    [route(`kind: music, engine: a, ${price}, qualities: { low: { factor: 1 } }`), 5, /routes.1..qualities is not for music/],
    [route(`kind: video, engine: a, ${price}, qualities: { best: { factor: 1 } }`), 5, /qualities.best/],
    [route(`kind: video, engine: a, ${price}, qualities: { low: { factor: 0 } }`), 5, /factor/],
    [route(`kind: video, engine: a, ${price}, qualities: { low: { factor: 1 } }, defaults: { quality: high }`), 5, /routes.1..defaults.quality must be one of qualities/],
    [route(`kind: video, engine: a, ${price}, timeoutSeconds: 0`), 5, /timeoutSeconds/],
    [route(`kind: video, engine: a, ${price}, price: { amount: "2", per: Job }`), 5, /unique/],
  ]
  for (const [text, line, message] of cases) {
    t.throws(() => parseEngines('e.yaml', text), { message: new RegExp(`^ENGINES e\\.yaml, line ${line}: .*${message.source}.*\\.$`) }, text)
  }
})

t.test('a file may be JSON, and engines may have options of their own', async (t) => {
  const read = parseEngines('e.json', '{"engines": [{"name": "a", "type": "other", "baseUrl": "http://x"}],\n "routes": [{"operation": "upscale", "engine": "a", "model": "m", "price": {"amount": "0", "per": "Megapixel"}, "timeoutSeconds": 5, "concurrency": 2}]}')
  t.match(read, {
    engines: [{ name: 'a', type: 'other', options: { baseUrl: 'http://x' }, line: 1 }],
    routes: [{ kind: 'upscale', engine: 'a', model: 'm', price: { kind: 'upscale', micro: 0, per: 'Megapixel' }, timeoutMs: 5000, concurrency: 2 }],
  })
})

t.test('a canceled run is charged whole where a provider bills it, unless the route says otherwise', async (t) => {
  for (const [type, given, percent] of [['openai', '', 100], ['replicate', '', 100], ['replicate', ', cancelPercent: 20', 20], ['preview', '', 0], ['preview', ', cancelPercent: 50', 50], ['other', '', 0]] as const) {
    const read = parseEngines('e.yaml', `engines: [{ name: a, type: ${type} }]\nroutes: [{ kind: image, engine: a, price: { amount: "1", per: Job }${given} }]`)
    t.match(read.routes, [{ cancelPercent: percent }], type)
  }
})

t.test('what a client leaves out comes from the route', async (t) => {
  t.same(request('image', {}), { kind: 'image', prompt: 'x', width: 1024, height: 1024, durationMs: null, seed: null, format: 'png' })
  t.same(request('video', { seed: 5 }), { kind: 'video', prompt: 'x', width: 640, height: 360, durationMs: 4000, seed: 5, format: 'png' })
  t.same(request('music', { output_format: 'webp' }), { kind: 'music', prompt: 'x', width: null, height: null, durationMs: 10_000, seed: null, format: 'webp' })
})

t.test('an aspect ratio gives a size of about the default area, never above it', async (t) => {
  const size = (kind: Kind, ratio: string): unknown[] => [request(kind, { aspect_ratio: ratio }).width, request(kind, { aspect_ratio: ratio }).height]
  t.same(size('video', '16:9'), [640, 360])
  t.same(size('image', '1:1'), [1024, 1024])
  t.same(size('image', '16:9'), [1360, 768])
  t.same(size('image', '9:16'), [768, 1360])
  t.same(size('image', '99:1'), [10_184, 96])
})

t.test('every faulty field is named, with a pointer to it', async (t) => {
  const faults = (kind: Kind, body: Partial<GenerationBody>): string[] => {
    const found = asked(kind, body)
    return found.outcome === 'invalid' ? found.errors.map(({ path, code }) => `${path} ${code}`) : []
  }
  t.same(faults('image', { size: '2050x2050' }), ['/size maximum'])
  t.same(faults('image', { size: '15x200' }), ['/size minimum'])
  t.same(faults('image', { size: '64x64', aspect_ratio: '1:1' }), ['/aspect_ratio not_allowed'])
  t.same(faults('image', { duration_seconds: 1, output_format: 'gif' }), ['/duration_seconds not_allowed', '/output_format enum'])
  t.same(faults('video', { size: '641x360', duration_seconds: 10.001 }), ['/size multiple_of', '/duration_seconds maximum'])
  t.same(faults('music', { size: '64x64' }), ['/size not_allowed'])
  t.same(faults('music', { aspect_ratio: '1:1', duration_seconds: 121 }), ['/aspect_ratio not_allowed', '/duration_seconds maximum'])
  t.same(faults('image', { size: '2048x2048' }), [])
})

t.test('a quote is the price times the requested amount, rounded up to a micro-unit', async (t) => {
  const cost = (kind: Kind, body: Partial<GenerationBody>, micro: number, per: 'Job' | 'Second') => costOf({ micro, per }, amountsOf(request(kind, body)))
  t.equal(cost('image', { size: '2000x1000' }, 40_000, 'Job'), 40_000)
  t.equal(cost('video', { duration_seconds: 2.5 }, 50_000, 'Second'), 125_000)
  t.equal(cost('music', { duration_seconds: 0.1 }, 10_000, 'Second'), 1000)
  t.equal(costOf({ micro: 1, per: 'Second' }, amountsOf(request('video', { duration_seconds: 1.001 }))), 2)
  t.equal(costOf({ micro: 1000, per: 'Megapixel' }, amountsOf(request('image', { size: '1024x1024' }))), 1049)
  t.equal(costOf({ micro: 0, per: 'Job' }, amountsOf(request('image', {}))), 0)
})

t.test("the plan's price goes before the service's, unless it is per a unit that the kind does not have", async (t) => {
  const music = builtIn.get('music')!
  t.equal(priceOf(music, [{ kind: 'image', micro: 1, per: 'Job' }]), music.price)
  t.same(priceOf(music, [{ kind: 'music', micro: 7, per: 'Job' }]), { kind: 'music', micro: 7, per: 'Job' })
  t.equal(priceOf(music, [{ kind: 'music', micro: 7, per: 'Megapixel' }]), music.price)
})

t.test('without a file, the preview engine makes images, videos and music, free of charge, and local engines what can run here', async (t) => {
  const engines = await openEngines({ file: null, log: silent })
  t.teardown(() => engines.close())
  t.equal(engines.offer('image'), null, 'nothing before it is ready')
  await engines.ready()
  for (const [kind, per] of [['image', 'Job'], ['video', 'Second'], ['music', 'Second']] as const) {
    t.match(engines.offer(kind), { engine: 'preview', route: { price: { kind, micro: 0, per } } }, 'previews are free')
  }
  for (const kind of ['sculpt', 'constructor', '__proto__']) t.equal(engines.offer(kind), null)
  await engines.routes()
  for (const [kind, engine] of [['inpaint', 'local'], ['ai_edit', 'preview'], ['trim', 'local']] as const) t.equal(engines.offer(kind)?.engine ?? engine, engine, kind)
})

async function opening(t: Test, text: string): Promise<Engines> {
  const engines = await openEngines({ file: join(t.testdir({ 'engines.yaml': text }), 'engines.yaml'), log: silent })
  t.teardown(() => engines.close())
  return engines
}

t.test('a start on a bad file, or on a type of engine that is not there, stops with its line', async (t) => {
  await t.rejects(opening(t, 'engines: []\nroutes: []\n'), /^ENGINES .*engines\.yaml, line 1: engines/)
  await t.rejects(openEngines({ file: join(t.testdir(), 'none.yaml'), log: silent }), { message: /^ENGINES .*none\.yaml: cannot be read \(ENOENT\)\.$/ })
  const replicate = await opening(t, FAKE_ENGINES.replace('type: fake', 'type: other'))
  replicate.add('fake', fakeEngine().open)
  await t.rejects(replicate.ready(), /line 2: engine fake: type other is not available; there are: preview, local, local-image, fake/)
  const wrong = await opening(t, DEFAULT_ENGINES.replace('type: preview', 'type: preview, speed: 1'))
  await t.rejects(wrong.ready(), /line 2: engine preview: type preview has no option speed/)
})

t.test('a type is added once, and before the program is ready', async (t) => {
  const engines = await openFakeEngines(t, fakeEngine())
  t.throws(() => engines.add('late', fakeEngine().open), /too late/)
  const early = await opening(t, FAKE_ENGINES)
  t.throws(() => early.add('preview', fakeEngine().open), /there already/)
})

t.test('a route to an engine that does not make it is warned of and not supported', async (t) => {
  const warnings: object[] = []
  const file = join(t.testdir({ 'e.yaml': `${FAKE_ENGINES}  - { operation: upscale, engine: fake, price: { amount: "1", per: Job } }\n` }), 'e.yaml')
  const engines = await openEngines({ file, log: { info() {}, warn: (facts) => warnings.push(facts) } })
  t.teardown(() => engines.close())
  engines.add('fake', fakeEngine(['image', 'video', 'music']).open)
  await engines.ready()
  t.match((await engines.routes()).map(({ kind, missing }) => [kind, missing === null]), [['image', true], ['video', true], ['music', true], ['upscale', false]])
  t.match(warnings, [{ kind: 'upscale', engine: 'fake', missing: 'the engine of this route does not make it' }])
  t.equal(engines.offer('upscale'), null)
})

t.test('a run ends as the engine says, and what it throws is internal and retryable', async (t) => {
  const fake = fakeEngine()
  const engines = await openFakeEngines(t, fake)
  fake.next('make', { fail: 'provider_rejected', retryable: false }, 'throw')
  t.match(await engines.run(image, control()), { outcome: 'made', used: { Job: 1000 } })
  t.match(await engines.run(image, control()), { outcome: 'failed', code: 'provider_rejected', retryable: false, message: 'The request was refused because of its content or input.' })
  t.match(await engines.run(image, control()), { outcome: 'failed', code: 'internal', retryable: true, message: 'Something went wrong on our side.', cause: new Error('the secret of the provider') })
  t.equal(fake.runs.length, 3)
})

t.test('a task that was queued with a field that its route no longer takes is not run without it', async (t) => {
  const fake = fakeEngine()
  const open: typeof fake.open = async (...entry) => ({ ...(await fake.open(...entry)), options: () => ['quality'] })
  const route = '{ kind: image, engine: fake, price: { amount: "0.04", per: Job }'
  const engines = await openFakeEngines(t, { ...fake, open }, FAKE_ENGINES.replace(route, `${route}, qualities: { high: { factor: 4, value: ultra } }`))
  const inputs = [{ role: 'media', contentType: 'image/png', bytes: 0, async *read() {} }] as const
  for (const [more, has] of [[{ n: 2 }, {}], [{ negativePrompt: 'fog' }, {}], [{ quality: 'low' }, {}], [{ kind: 'video', quality: 'high' }, {}], [{ kind: 'video' }, { inputs }]] as const)
    t.match(await engines.run({ ...image, ...more }, runControl(has)), { outcome: 'failed', code: 'not_supported', retryable: false }, JSON.stringify(more))
  t.equal(fake.runs.length, 0)
  t.match(await engines.run({ ...image, quality: 'high' }, control()), { outcome: 'made' })
  t.match(await engines.run({ ...image, n: 2 }, runControl({ job: { id: 'job-1', remember: async () => {} } })), { outcome: 'made' }, 'a job that has its fields is resumed')
})

t.test('progress is reported as whole percents that rise and stay below 100', async (t) => {
  const fake = fakeEngine()
  const engines = await openFakeEngines(t, fake)
  const heard: number[] = []
  fake.next({ progress: [0, 10.7, 10, 5, 40, 100, 100] })
  await engines.run(image, runControl({ progress: (percent) => heard.push(percent) }))
  t.same(heard, [0, 10, 40, 99])
})

t.test('amounts that cannot be charged fail the run before its result is stored, with the engine and the amounts for the operator', async (t) => {
  for (const used of [{ Job: 0.5, Second: 0, Megapixel: 0 }, { Job: 1000, Second: NaN, Megapixel: 0 }, { Job: -1000, Second: 0, Megapixel: 0 }]) {
    const fake = fakeEngine()
    const open: typeof fake.open = async (...entry) => {
      const engine = await fake.open(...entry)
      return { ...engine, run: async (...of) => ({ ...(await engine.run(...of)), used }) as Awaited<ReturnType<typeof engine.run>> }
    }
    const engines = await openFakeEngines(t, { ...fake, open })
    const made = await engines.run(image, control())
    t.match(made, { outcome: 'failed', code: 'internal', retryable: false, message: 'Something went wrong on our side.' })
    t.match(made.outcome === 'failed' && made.cause, { message: /^engine \S+ used \{.*\}: amounts are whole thousandths of a unit, and not negative$/ })
  }
})

t.test('a run that takes longer than its route allows is provider_timeout; one that its caller ends rejects with the reason', async (t) => {
  const fake = fakeEngine()
  const engines = await openFakeEngines(t, fake, FAKE_ENGINES.replace('per: Job }', 'per: Job }, timeoutSeconds: 1'))
  fake.next('hang', 'hang')
  // The timer of the limit does not keep the process alive by itself.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  t.match(await engines.run(image, control()), { outcome: 'failed', code: 'provider_timeout', retryable: true })
  const controller = new AbortController()
  const run = engines.run({ ...image, kind: 'music' }, { ...control(), signal: controller.signal })
  await fake.begun(2)
  controller.abort(new Error('canceled'))
  await t.rejects(run, { message: 'canceled' })
  await t.rejects(engines.run(image, { ...control(), signal: AbortSignal.abort(new Error('early')) }), { message: 'early' })
  t.equal(fake.runs.length, 2)
})

t.test('a job that has ended is kept by a run that breaks off while its result is fetched, for the next attempt to fetch', async (t) => {
  const fake = fakeEngine()
  let ran: Engine['run'] = async () => Promise.reject(new Error('no space'))
  const open: typeof fake.open = async (...entry) => ({
    ...(await fake.open(...entry)),
    run: (request, run) => ((run.job.hasEnded = true), ran(request, run)),
  })
  const engines = await openFakeEngines(t, { ...fake, open }, FAKE_ENGINES.replace('per: Job }', 'per: Job }, timeoutSeconds: 1'))
  t.match(await engines.run(image, control()), { outcome: 'failed', code: 'internal', retryable: true, keepsJob: true })
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  ran = (_request, { signal }) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  t.match(await engines.run(image, control()), { outcome: 'failed', code: 'provider_timeout', retryable: true, keepsJob: true })
})

t.test('a changed file is applied: engines with the same entry stay open, others are opened and closed', async (t) => {
  const fake = fakeEngine()
  const engines = await openFakeEngines(t, fake)
  const file = join(t.testdirName, 'engines.yaml')
  writeFileSync(file, FAKE_ENGINES.replace('routes:', '  - { name: second, type: fake }\nroutes:').replace('image, engine: fake, price: { amount: "0.04"', 'image, engine: second, price: { amount: "0.08"'))
  await engines.reload()
  t.same([fake.opened, fake.closed], [['fake', 'second'], []])
  t.match(engines.offer('image'), { route: { engine: 'second', price: { micro: 80_000 } } })
  writeFileSync(file, FAKE_ENGINES.split('\n').filter((line) => !line.includes('music')).join('\n'))
  await engines.reload()
  t.same([fake.opened, fake.closed], [['fake', 'second'], ['second']])
  t.match(await engines.run({ ...image, kind: 'music' }, control()), { outcome: 'failed', code: 'not_supported', retryable: false })
  await engines.close()
  await engines.close()
  t.same(fake.closed, ['second', 'fake'])
})

t.test('an engine quotes by the limits that follow from the sources, and knows those of the route', async (t) => {
  const fake = fakeEngine()
  const quoted: unknown[] = []
  const open: typeof fake.open = async (...entry) => ({ ...(await fake.open(...entry)), quote: (_request, ...terms) => (quoted.push(terms), USED) })
  const engines = await openFakeEngines(t, { ...fake, open }, FAKE_ENGINES.replace('price: { amount: "0.04"', 'model: painter, price: { amount: "0.04"'))
  const { route, quote } = engines.offer('image')!
  const lower = { ...route.max, pixels: 256 }
  quote(image, lower)
  quote(image)
  t.same(quoted, [[lower, 'painter', route.max], [route.max, 'painter', route.max]])
})

t.test('a job is resumed at the engine that has it, though the route has another one by now, as long as that is there', async (t) => {
  const lines: unknown[] = []
  const folder = t.testdir()
  const file = join(folder, 'engines.yaml')
  const place = (engine: string, names: string[]) => writeFileSync(file, `engines:\n${names.map((name) => `  - { name: ${name}, type: fake }\n`).join('')}routes:\n  - { kind: image, engine: ${engine}, price: { amount: "0.04", per: Job } }\n`)
  place('a', ['a'])
  const engines = await openEngines({ file, log: { info() {}, warn: (facts) => lines.push(facts) }, pollMs: 60_000 })
  t.teardown(() => engines.close())
  const ran: unknown[] = []
  const fake = fakeEngine()
  engines.add('fake', async (name, ...entry) => ({
    ...(await fake.open(name, ...entry)),
    async run(_request, { job }) {
      ran.push([name, job.id, job.resumeOnly])
      if (job.id === null) await job.remember(`${name}-1`)
      return { outcome: 'failed', code: 'provider_error', retryable: true, message: '' }
    },
  }))
  await engines.ready()
  const remembered: unknown[] = []
  const remember = async (id: string, engine: string) => void remembered.push([id, engine])
  const run = (id: string | null, engine?: string) => engines.run(image, { ...control(), job: { id, engine, remember } })
  await run(null)
  place('b', ['a', 'b'])
  await engines.reload()
  await run('a-1', 'a')
  await run('old')
  // What is left of an earlier attempt.
  await run(null, 'a')
  t.same(lines, [])
  place('b', ['b'])
  await engines.reload()
  await run('a-1', 'a')
  t.same(ran, [['a', null, undefined], ['a', 'a-1', true], ['b', 'old', undefined], ['b', null, undefined], ['b', null, undefined]])
  t.same(remembered, [['a-1', 'a'], ['b-1', 'b'], ['b-1', 'b']])
  t.match(lines, [{ event: 'job_given_up', kind: 'image', job: 'a-1', engine: 'a' }])
})

t.test('further changes are applied while runs of an engine that is gone go on, and a stop waits for these', async (t) => {
  const fake = fakeEngine()
  const gone = Promise.withResolvers<void>()
  const file = join(t.testdir({ 'e.yaml': FAKE_ENGINES }), 'e.yaml')
  const engines = await openEngines({ file, log: { info() {}, warn() {} }, pollMs: 60_000 })
  t.teardown(() => engines.close())
  engines.add('fake', async (...entry) => ({ ...(await fake.open(...entry)), close: () => gone.promise }))
  await engines.ready()
  for (const name of ['second', 'third']) {
    writeFileSync(file, FAKE_ENGINES.replaceAll(/\bfake,/g, `${name},`))
    await engines.reload()
    t.match(engines.offer('image'), { route: { engine: name } })
  }
  let isClosed = false
  const closing = engines.close().then(() => (isClosed = true))
  await new Promise(setImmediate)
  t.notOk(isClosed)
  gone.resolve()
  await closing
})

t.test('an invalid change is refused with its line, and the earlier table stays in force', async (t) => {
  const fake = fakeEngine()
  const refused: unknown[] = []
  const file = join(t.testdir({ 'e.yaml': FAKE_ENGINES }), 'e.yaml')
  const engines = await openEngines({ file, log: { info() {}, warn: (facts) => refused.push(facts) }, pollMs: 60_000 })
  t.teardown(() => engines.close())
  engines.add('fake', fake.open)
  await engines.ready()
  writeFileSync(file, FAKE_ENGINES.replace('"0.04"', '0.04'))
  await engines.reload()
  await engines.reload()
  t.match(refused.splice(0), [{ event: 'engines_refused', err: { message: /line 4: routes.0..price\.amount/ } }])
  writeFileSync(file, FAKE_ENGINES.replace('routes:', '  - { name: second, type: fake }\n  - { name: third, type: none }\nroutes:'))
  await engines.reload()
  t.match(refused, [{ event: 'engines_refused', err: { message: /line 4: engine third: type none/ } }])
  t.same([fake.opened, fake.closed], [['fake', 'second'], ['second']], 'what was opened for it is closed again')
  t.match(engines.offer('image'), { route: { price: { micro: 40_000 } } })
})

t.test('a change of the file is noticed', async (t) => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const file = join(t.testdir({ 'e.yaml': FAKE_ENGINES }), 'e.yaml')
  const engines = await openEngines({ file, log: { warn() {}, info: () => resolve() }, pollMs: 20 })
  t.teardown(() => engines.close())
  engines.add('fake', fakeEngine().open)
  await engines.ready()
  writeFileSync(file, FAKE_ENGINES.replace('"0.04"', '"0.125"'))
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  await promise
  t.equal(engines.offer('image')?.route.price.micro, 125_000)
})

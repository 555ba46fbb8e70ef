import { getEventListeners } from 'node:events'
import { inflateSync } from 'node:zlib'
import { join } from 'node:path'
import fastify, { type FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import { guarded } from '../../plugins/third-party/engine-validation.ts'
import thirdParty from '../../plugins/third-party/third-party.ts'
import { readConfig } from '../../src/config/config.ts'
import type { Engine } from '../../src/backends/engines/engine.ts'
import { amountsOf, costOf, type GenerationRequest } from '../../src/domain/media-generations.ts'
import type { OperationRequest } from '../../src/domain/media-operations.ts'
import { enginePromises } from '../contracts/engine.ts'
import { LIMITS, runControl } from '../fakes/engine.ts'
import { IMAGE } from '../contracts/operations/sources.ts'
import { start, REPOSITORY } from '../flows/program.ts'
import { CODING, MEDIA, bearer, openGateway } from './gateway.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

const entriesOf = (text: string) => readConfig({ PLUGINS: text }).config.PLUGINS

/** Plugin files in a folder of the test, and their entries of PLUGINS. */
function written(t: Test, sources: Record<string, string>, query = '') {
  const folder = t.testdir(sources)
  return Object.keys(sources).flatMap((file) => entriesOf(`${join(folder, file)}${query}`))
}

const fp = "import fp from 'fastify-plugin'\n"
const EXAMPLE = join(REPOSITORY, 'examples/solid-colour')

t.test('the example plugin makes images of one colour, and paints them over, in the running program', async (t) => {
  const env = { PLUGINS: `${EXAMPLE}/solid-colour.js?fallback=336699`, ENGINES: `${EXAMPLE}/engines.yaml`, RESOURCES_URL: `files:${join(REPOSITORY, 'plans')}` }
  const program = await start({ folder: t.testdir(), env, namespace: 'demo' })
  t.teardown(() => program.stop())
  const headers = { ...bearer(await program.key('demo-media-key')), 'content-type': 'application/json', prefer: 'wait=30' }
  for (const [prompt, colour] of [['a Red square', 'ff0000'], ['the sea is #0a3c5f today', '0a3c5f'], ['constructor', '336699']] as const) {
    const answer = await fetch(`${program.url}/api/v1/generations`, { method: 'POST', headers, body: JSON.stringify({ kind: 'image', prompt, size: '40x30' }) })
    const record = (await answer.json()) as { result: { image_url: string } }
    t.match(record, { status: 'completed', actual_cost: '0.0100', result: { content_type: 'image/png', width: 40, height: 30, duration_ms: null } }, "at the price of the route")
    const bytes = Buffer.from(await (await fetch(record.result.image_url)).arrayBuffer())
    t.same(readPng(bytes), { width: 40, height: 30, colour, blank: true })
    const edit = { operation: 'ai_edit', prompt: 'make it green', media_url: record.result.image_url }
    const edited = (await (await fetch(`${program.url}/api/v1/operations`, { method: 'POST', headers, body: JSON.stringify(edit) })).json()) as typeof record
    t.match(edited, { object: 'operation', status: 'completed', actual_cost: '0.0100', result: { width: 40, height: 30 } })
    t.match(readPng(Buffer.from(await (await fetch(edited.result.image_url)).arrayBuffer())), { width: 40, height: 30, colour: '008000' })
  }
})

/** Size and colour of a PNG with one palette entry, after checking its chunks. */
function readPng(bytes: Buffer): object {
  const chunks = new Map<string, Buffer>()
  for (let at = 8; at < bytes.length; ) {
    const size = bytes.readUInt32BE(at)
    chunks.set(bytes.toString('latin1', at + 4, at + 8), bytes.subarray(at + 8, at + 8 + size))
    at += 12 + size
  }
  const [header, palette, data] = ['IHDR', 'PLTE', 'IDAT'].map((type) => chunks.get(type) ?? Buffer.alloc(16))
  const rows = inflateSync(data ?? '')
  return { width: header?.readUInt32BE(0), height: header?.readUInt32BE(4), colour: palette?.toString('hex'), blank: rows.length === 30 * 6 && rows.every((byte) => byte === 0) }
}

t.test("the example's engine passes the engine contract, except for the seed, which it ignores", async (t) => {
  const { default: plugin } = await import(join(EXAMPLE, 'solid-colour.js'))
  const app = fastify()
  const types = new Map<string, unknown>()
  app.decorate('engines', { add: (type: string, open: unknown) => void types.set(type, open) } as FastifyInstance['engines'])
  await app.register(plugin, { fallback: '808080' }).ready()
  const { 'the same prompt and seed give the same bytes, another seed gives others': _seeds, ...promises } = enginePromises
  const request: GenerationRequest = { kind: 'image', prompt: 'x', width: 33, height: 7, durationMs: null, seed: null, format: 'png' }
  const edit: OperationRequest = { kind: 'ai_edit', prompt: 'x', strength: null, seed: null, format: 'png' }
  const source = { role: 'media', contentType: 'image/png', bytes: IMAGE.length, read: async function* () { yield IMAGE } } as const
  for (const [promise, proof] of Object.entries(promises)) {
    t.test(promise, async (t) => proof(t, { engine: await guarded('solid-colour', types.get('solid-colour'))('solid', {}), requests: [request, edit], inputsOf: ({ kind }) => (kind === 'ai_edit' ? [source] : []) }))
  }
})

t.test('routes of a plugin require keys, plans and metering', async (t) => {
  const source = `${fp}
    export const optionsSchema = { type: 'object', additionalProperties: false, properties: { banner: { type: 'string' }, tokens: { type: 'integer', default: 7 } } }
    export default fp(async (app, { banner, tokens }) => {
      app.get('/whoami', { config: { api: 'media' } }, async ({ caller }) => ({ banner, tenant: caller.key.tenant, key: caller.key.name }))
      app.get('/refuse', { config: { api: 'media' } }, async () => { throw app.errors.fail('not_found', { message: 'No such thing.' }) })
      app.post('/gate', { config: { api: 'media', creates: true } }, async ({ caller }) => {
        const failure = await caller.earlierFailure()
        if (failure) throw failure
        return { open: true }
      })
      const config = { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 100 }) }
      app.post('/work', { config }, async ({ reservation }) => {
        reservation.settleWith(Promise.resolve({ usage: { input: 0, cachedInput: 0, output: tokens }, estimated: false }))
        return { registry: typeof app.metrics.registry.registerMetric }
      })
    }, { name: 'greeter', fastify: '5.x', dependencies: ['auth', 'metering', 'errors', 'ops'] })`
  const gateway = await openGateway(t, async (app) => {
    app.decorate('engines', {} as FastifyInstance['engines'])
    await app.register(thirdParty, { entries: written(t, { 'greeter.js': source }, '?banner=hello%2C%20you') })
  })
  const media = await gateway.key(await gateway.plan('studio', { product: 'Media', media: MEDIA }), { name: 'ci' })
  t.same((await gateway.app.inject({ method: 'POST', url: '/gate', headers: bearer(media.raw) })).json(), { open: true })
  await gateway.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  t.match((await gateway.app.inject({ method: 'POST', url: '/gate', headers: bearer(media.raw) })).json(), { error: { code: 'plan_inactive' } })
  const coder = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const coding = await gateway.key(coder)
  const ask = (url: string, headers = {}, method: 'GET' | 'POST' = 'GET') => gateway.app.inject({ url, headers, method })
  t.same((await ask('/whoami', bearer(media.raw))).json(), { banner: 'hello, you', tenant: 'acme', key: 'ci' })
  t.equal((await ask('/whoami')).statusCode, 401)
  t.match((await ask('/whoami', bearer(coding.raw))).json(), { error: { code: 'wrong_product' } })
  t.match((await ask('/refuse', bearer(media.raw))).json(), { error: { code: 'not_found', message: 'No such thing.' } })
  t.same((await ask('/work', bearer(coding.raw), 'POST')).json(), { registry: 'function' })
  t.equal((await gateway.settled(coder)).coding?.weekly.used, 7)
})

const named = (body: string, more = '') => `${fp}export default fp(async (app) => { ${body} }, { name: 'broken', fastify: '5.x'${more} })`
const BROKEN: [what: string, source: string | null, reason: RegExp, query?: string][] = [
  ['a missing file', null, / is not there\.$/],
  ['a syntax error', 'const a = 1\nconst = 2\n', / cannot be loaded: SyntaxError: Unexpected token '='\.$/],
  ['a missing package', "import 'no-such-package'", / cannot be loaded: Error: Cannot find package 'no-such-package'/],
  ['a module that throws', "throw new Error('boom')", / cannot be loaded: Error: boom\.$/],
  ['no plugin', 'export default 7', / does not export a plugin made with fastify-plugin as its default\.$/],
  ['a bare function', 'export default async () => {}', / does not export a plugin made with fastify-plugin/],
  ['no name', `${fp}export default fp(async () => {})`, / has no name\.$/],
  ['a name of ours', `${fp}export default fp(async () => {}, { name: 'auth' })`, / is named auth, and so is one before it\.$/],
  ['an unknown dependency', named('', ", dependencies: ['redis']"), / depends on redis; there are errors, ops, auth, metering\.$/],
  ['a closed decorator', named('', ", decorators: { fastify: ['store'] }"), / asks for app\.store, which is not open to plugins\.$/],
  ['a use of what is closed', named('app.tasks.store'), /^The plugin broken of .* could not be registered: app\.tasks is not open to plugins$/],
  ['a throw at registration', named("throw new TypeError('boom')"), /^The plugin broken of .*broken\.js could not be registered: boom$/],
  ['another Fastify', `${fp}export default fp(async () => {}, { name: 'broken', fastify: '4.x' })`, /could not be registered: .*broken.* expected '4\.x' fastify version/],
  ['an engine without a function', named("app.engines.add('x', {})"), /engines of type x have no function that opens them$/],
  ['options without a schema', named(''), / takes no options: it exports no optionsSchema\.$/, '?a=1'],
  ['a schema that is none', `${named('')}\nexport const optionsSchema = { type: 'colour' }`, / has an optionsSchema that is no JSON Schema: /],
  ['an option that does not fit', `${named('')}\nexport const optionsSchema = { properties: { size: { type: 'integer' } } }`, / was given options of which size must be integer\.$/, '?size=large'],
  ['an option that is not known', `${named('')}\nexport const optionsSchema = { properties: {}, additionalProperties: false }`, / additional properties \(size\)\.$/, '?size=1'],
]

t.test('a broken plugin stops the start with one sentence that names it', async (t) => {
  for (const [what, source, reason, query] of BROKEN) {
    await t.test(what, async (t) => {
      const entries = source === null ? entriesOf(join(t.testdir(), 'broken.js')) : written(t, { 'broken.js': source }, query)
      const app = fastify()
      app.decorate('engines', { add() {} } as unknown as FastifyInstance['engines'])
      for (const name of ['errors', 'ops', 'auth', 'metering']) await app.register(Object.assign(async () => {}, { [Symbol.for('skip-override')]: true, [Symbol.for('plugin-meta')]: { name } }))
      const error = await app.register(thirdParty, { entries }).then(() => null, (thrown: Error) => thrown)
      t.match(error?.message, reason)
      t.match(error?.message, entries[0]?.file)
      t.notMatch(error?.message, /\n/)
      t.equal(error?.constructor, Error)
      await app.close()
    })
  }
})

t.test('the program prints that sentence only', async (t) => {
  const folder = t.testdir({ 'broken.js': named("throw new TypeError('boom')") })
  const failed = await start({ folder, env: { PLUGINS: 'broken.js', LOG_LEVEL: 'fatal' } }).then(() => null, (error: Error) => error.message)
  t.match(failed, /ended with 1 before it was ready:\nThe plugin broken of .*broken\.js could not be registered: boom$/)
})

t.test('an invalid PLUGINS is refused', async (t) => {
  for (const text of ['?a=1', 'a.js?b=1?c=2', 'a.js?b=1&b=2']) t.throws(() => entriesOf(text), /^PLUGINS was ".*"; it must be files separated by commas/)
  t.match(entriesOf('/a.js, /b.js?c=d%2Ce'), [{ file: '/a.js', options: {} }, { file: '/b.js', options: { c: 'd,e' } }])
})

t.test('a plugin can access the decorators of docs/plugins.md only', async (t) => {
  const folder = t.testdir({ 'spy.js': `${fp}export default fp(async (app) => { globalThis.seenByPlugin = app }, { name: 'spy' })` })
  await openEmbeddedProgram(t, { env: { PLUGINS: join(folder, 'spy.js') } })
  const { seenByPlugin: seen } = globalThis as unknown as { seenByPlugin: Record<string, unknown> }
  const bare = fastify()
  const ours = new Set<string>()
  for (let level: object | null = seen; level && level !== Object.prototype; level = Object.getPrototypeOf(level)) {
    for (const name of Object.getOwnPropertyNames(level)) if (!(name in bare)) ours.add(name)
  }
  const open = [...ours].filter((name) => {
    try {
      return seen[name] !== undefined
    } catch {
      return false
    }
  })
  t.same(open.sort(), ['engines', 'errors', 'metrics'])
  t.same(Object.keys(seen['engines'] as object), ['add'])
  t.throws(() => seen['store'], { message: 'app.store is not open to plugins' })
})

t.test('a worker registers the engines of plugins without open routes; a dispatcher registers neither', async (t) => {
  const route = `${fp}export default fp(async (app) => { app.get('/open', async () => 'open') }, { name: 'open', dependencies: ['auth', 'metering'] })`
  const files = [`${EXAMPLE}/solid-colour.js`, join(t.testdir({ 'open.js': route }), 'open.js')]
  const env = { PLUGINS: files.join(','), ENGINES: `${EXAMPLE}/engines.yaml` }
  const { app: worker } = await openEmbeddedProgram(t, { role: 'worker', env })
  t.same(worker.engines.offer('image')?.formats, ['png'])
  t.same([(await worker.inject('/open')).statusCode, (await worker.inject('/v1/models')).statusCode, (await worker.inject('/docs')).statusCode], [401, 404, 404])
  const { app: dispatcher } = await openEmbeddedProgram(t, { role: 'dispatcher', env })
  t.equal((await dispatcher.inject('/open')).statusCode, 404)
})

const image: GenerationRequest = { kind: 'image', prompt: 'x', width: 64, height: 32, durationMs: null, seed: null, format: 'png' }
const control = runControl()
const opened = (engine: object): Promise<Engine> => guarded('x', async () => ({ offers: { image: { formats: ['png'] } }, run: async () => null, ...engine }))('x', {})

t.test('an engine may omit members that follow from the request', async (t) => {
  const body = Buffer.from('x')
  const engine = await opened({ run: async () => ({ outcome: 'made', body, contentType: 'image/png' }) })
  t.same(engine.quote(image, LIMITS), amountsOf(image))
  t.same(await engine.run(image, control), { outcome: 'made', body, contentType: 'image/png', facts: { width: 64, height: 32, durationMs: null }, used: amountsOf(image) })
  const upscale: OperationRequest = { kind: 'upscale', scale: 2, format: 'png' }
  t.same(engine.quote(upscale, LIMITS), { Job: 1000, Second: 0, Megapixel: 16_000 }, 'the limit, where the source decides')
  t.match(await engine.run(upscale, control), { facts: { width: null, height: null, durationMs: null }, used: { Megapixel: 16_000 } })
  const measured = await opened({ offers: { upscale: { formats: ['png'] } }, run: async () => ({ outcome: 'made', body: IMAGE, contentType: 'image/png' }) })
  t.match(await measured.run(upscale, control), { facts: { width: 40, height: 30, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 2 } })
  await engine.close()
})

t.test('after a run nothing listens to its signal', async (t) => {
  const engine = await opened({ run: async () => ({ outcome: 'made', body: Buffer.from('x'), contentType: 'image/png' }) })
  const { signal } = new AbortController()
  t.match(await engine.run(image, { ...control, signal }), { outcome: 'made' })
  t.same(getEventListeners(signal, 'abort'), [])
})

t.test('a length that a plugin measures in fractions is rounded up, and charged', async (t) => {
  const answer = { outcome: 'made', body: Buffer.from('x'), contentType: 'video/mp4', facts: { width: 64, height: 32, durationMs: 1999.2 } }
  const engine = await opened({ offers: { trim: { formats: ['mp4'] } }, run: async () => answer })
  const made = await engine.run({ kind: 'trim', startMs: 0, endMs: 2000, format: 'mp4' } as OperationRequest, control)
  t.match(made, { outcome: 'made', facts: { durationMs: 2000 }, used: { Second: 2000 } })
  t.equal(made.outcome === 'made' && costOf({ micro: 3, per: 'Second' }, made.used), 6)
})

t.test('a faulty engine charges nothing, and its messages are not published', async (t) => {
  const body = Buffer.from('x')
  const made = { outcome: 'made', body, contentType: 'image/png' }
  const answers = [null, {}, { ...made, body: 'text' }, { ...made, contentType: 'text/html' }, { ...made, used: { Job: -1000 } }, { ...made, used: { Job: 0.5 } }, { ...made, used: { Job: NaN } }, { ...made, facts: { durationMs: -1 } }, { ...made, facts: { durationMs: '9' } }, { outcome: 'failed', code: 'nonsense' }, { outcome: 'failed', code: 'unsupported_input', input: '1' }]
  for (const answer of answers) {
    const engine = await opened({ run: async () => answer })
    t.match(await engine.run(image, control), { outcome: 'failed', code: 'internal', retryable: false, message: 'Something went wrong on our side.' }, JSON.stringify(answer))
  }
  const refusing = await opened({ run: async () => ({ outcome: 'failed', code: 'provider_error', retryable: true, retryAfterMs: 5000, message: 'Acme Models Inc. says no' }) })
  t.match(await refusing.run(image, control), { code: 'provider_error', retryable: true, retryAfterMs: 5000, message: 'The media could not be made.' })
  const keeping = await opened({ run: async () => ({ outcome: 'failed', code: 'provider_timeout', retryable: true, input: 1, keepsJob: true }) })
  t.match(await keeping.run(image, control), { code: 'provider_timeout', retryable: true, input: 1, keepsJob: true })
  const gift = await opened({ quote: () => ({ Job: -1000 }) })
  t.throws(() => gift.quote(image, LIMITS), /are no amounts/)
  for (const engine of [{ offers: {} }, { offers: { image: { formats: [] } } }, { run: 7 }]) await t.rejects(opened(engine), /offers must|run must/)
})

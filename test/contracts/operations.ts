/** What operations promise to a client, over any surface that creates them: the table of cases in `operations/`, and what becomes of money, files and runs. */
import type { Test } from 'tap'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { readyTasks } from '../../src/domain/subscription/ready-tasks.ts'
import type { Lookup } from '../../src/egress/dns-lookup.ts'
import { publishReady } from '../../src/tasks/publish-ready.ts'
import { MADE, USED } from '../fakes/engine.ts'
import { REFUSED_SPELLINGS } from '../egress/spellings.ts'
import { openStudio, type Studio, type StudioOptions } from '../plugins/studio.ts'
import { FAULTS, VALID, WHOLE, type Body } from './operations/bodies.ts'
import { BROKEN, FILM, IMAGE, MASK, openSources, SONG, type Sources } from './operations/sources.ts'
import type { Promises } from './run-contract.ts'

type Members = Record<string, unknown>
/** A record, or the body of an error: `{error: {code, message}, errors}`. */
export type Answer = Members & { id?: string; status?: string; error?: { code: string } | null; errors?: { path: string; code: string; message: string }[] }

/** How a client creates, reads and cancels operations. */
export type Surface = {
  create(studio: Studio, body: Body, idempotencyKey?: string): Promise<Answer>
  get(studio: Studio, id: string): Promise<Answer>
  cancel(studio: Studio, id: string): Promise<Answer>
  /** Registers the surface, where that is not REST. */
  also?: StudioOptions['also']
}

type Opened = Omit<Studio, 'create'> & Sources & {
  create(body: Body, idempotencyKey?: string): Promise<Answer>
  read(id: unknown): Promise<Answer>
  /** The record once it is final. */
  ended(id: unknown): Promise<Answer>
  cancel(id: unknown): Promise<Answer>
  held(): Promise<string>
  /** The ids of all files. */
  kept(): Promise<string[]>
}

/** The id of a result: task and epoch. */
const RESULT = /^[0-9a-f-]{36}-\d+$/
const FINAL = ['completed', 'failed', 'canceled']
const isFinal = ({ status }: Answer): boolean => FINAL.includes(String(status))
const data = (type: string, bytes: Buffer): string => `data:${type};base64,${bytes.toString('base64')}`

/** Where all tasks of the plan wait for another attempt, moves the clock to the first, and tells the worker, which would look for it a second or two later. */
async function nextAttempt({ app, store, subscription, time }: Studio): Promise<void> {
  const record = await store.subscription(subscription)
  const { due = [], holds } = record?.media ?? {}
  const readyAt = Math.min(...due.map((kind) => kind.readyAt))
  if (readyAt <= time.now || readyAt === Infinity || holds?.running.size !== 0) return
  time.now = readyAt
  publishReady(app.tasks, subscription, readyTasks(record, readyAt, 100))
}

/** A studio with a server of sources. */
async function open(t: Test, surface: Surface, options: StudioOptions = {}): Promise<Opened> {
  const studio = await openStudio(t, { ...options, ...(surface.also ? { also: surface.also } : {}) })
  const sources = await openSources(t)
  const read = (id: unknown) => surface.get(studio, String(id))
  return {
    ...studio,
    ...sources,
    read,
    create: (body, key) => surface.create(studio, body, key),
    cancel: (id) => surface.cancel(studio, String(id)),
    async ended(id) {
      const record = await read(id)
      if (isFinal(record)) return record
      while (!FINAL.includes((await studio.store.task('acme', String(id)))?.state ?? '')) {
        await nextAttempt(studio)
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
      return read(id)
    },
    held: async () => (await studio.get('/api/v1/usage')).json().held,
    kept: () => studio.app.files.list('', 1000),
  }
}

const paths = ({ errors = [] }: Answer): string[] => [...new Set(errors.map(({ path }) => path))].sort()

/** What a surface may do wrong: each opens what it needs. */
export function operationPromises(surface: Surface): Promises<null> {
  return {
    'every operation is made from its sources, with every parameter or its default, and charged what it took': async (t) => {
      const studio = await open(t, surface)
      for (const [body, request, estimated] of WHOLE) {
        const asked = body(studio.urls)
        const created = await studio.create(asked)
        t.match(created, { object: 'operation', operation: request.kind, status: 'queued', estimated_cost: estimated, webhook_url: null }, request.kind)
        const { operation: _operation, ...given } = asked
        const background = given['background'] === undefined ? {} : { background: String(given['background']).toLowerCase() }
        t.match(created['input'], { ...given, ...background, output_format: ['trim', 'merge'].includes(request.kind) ? undefined : 'png' }, 'the input as it was validated')
        const done = await studio.ended(created.id)
        t.match(done, { status: 'completed', progress: 100, error: null, attempts: 1, result: { content_type: 'image/png', bytes: MADE.length, width: 500 } }, request.kind)
        t.same(studio.engine.runs.at(-1), request)
        t.same(await studio.held(), '0.0000')
      }
      t.same(await studio.kept().then((files) => files.length), WHOLE.length, 'the results alone are left')
    },

    'the price is per job, second or megapixel: the limit of the route is held, and what it took is charged': async (t) => {
      const studio = await open(t, surface)
      const rows = [['background_remove', '0.0200', '0.0200', null], ['upscale', '0.1600', '0.0200', '0.1400'], ['inpaint', '0.1200', '0.0075', '0.1125'], ['trim', '0.6000', '0.0150', '0.5850'], ['merge', '0.6000', '0.0300', '0.5700']] as const
      for (const [operation, estimated, actual, refund] of rows) {
        const { id } = await studio.create(VALID[operation](studio.urls))
        t.match(await studio.ended(id), { status: 'completed', estimated_cost: estimated, actual_cost: actual, refund_amount: refund }, `${operation} takes ${JSON.stringify(USED)}`)
      }
      t.match((await studio.get('/api/v1/usage')).json().by.map(({ operation }: { operation: string }) => operation).sort(), rows.map(([operation]) => operation).sort())
    },

    'every faulty parameter is named, all of a body at once, and nothing is held': async (t) => {
      const studio = await open(t, surface, { loops: false })
      for (const [operation, change, expected] of FAULTS) {
        const body = Object.fromEntries(Object.entries({ ...VALID[operation](studio.urls), ...change }).filter(([, value]) => value !== undefined)) as Body
        const answer = await studio.create(body)
        const what = `${operation} ${JSON.stringify(change).slice(0, 100)}`
        t.match(answer, { error: { code: 'invalid_request' } }, what)
        t.same(paths(answer), expected, what)
        t.ok(answer.errors?.every(({ code, message }) => code.length > 0 && message.length > 0), what)
      }
      t.same([await studio.held(), await studio.kept()], ['0.0000', []])
    },

    'an address that webhooks may not have is refused for every source, with its path, and nothing is held': async (t) => {
      const studio = await open(t, surface, { loops: false, env: { EGRESS_ALLOW: '' } })
      const good = { image: 'https://example.com/a.png', mask: 'https://example.com/m.png', film: 'https://example.com/a.mp4', song: 'https://example.com/b.mp4' }
      const bodies: [path: string, body: (url: string) => Body][] = [
        ...OPERATIONS.filter((operation) => operation !== 'merge').map((operation): [string, (url: string) => Body] => ['/media_url', (url) => ({ ...VALID[operation](good), media_url: url })]),
        ['/media_url', (url) => ({ ...VALID.merge(good), media_url: url })],
        ['/media_urls/1', (url) => ({ operation: 'merge', media_urls: [good.film, url] })],
        ['/mask_url', (url) => ({ ...VALID.inpaint(good), mask_url: url })],
        ['/mask_url', (url) => ({ ...VALID.ai_edit(good), mask_url: url })],
        ['/webhook_url', (url) => ({ ...VALID.upscale(good), webhook_url: url })],
      ]
      // One spelling for each reason: test/egress has all of them.
      const spellings = Map.groupBy(REFUSED_SPELLINGS.filter(([url]) => url !== ''), ([, reason]) => reason).values().map(([first]) => first![0])
      const addresses = ['', ...spellings]
      for (const [path, body] of bodies) {
        for (const url of addresses) {
          // What is refused counts as a read of the key.
          studio.time.now += 100
          const answer = await studio.create(body(url))
          t.same([answer.error?.code, paths(answer)], [url === '' ? 'invalid_request' : 'url_not_allowed', [path]], url)
        }
      }
      const two = await studio.create({ ...VALID.inpaint(good), media_url: 'http://10.0.0.1/', mask_url: 'ftp://example.com/' })
      t.same(paths(two), ['/mask_url', '/media_url'])
      t.same([await studio.held(), await studio.kept()], ['0.0000', []])
    },

    'a data: URL is a source: it is shown by type and size, lies in the files backend until the end, and is read strictly': async (t) => {
      const studio = await open(t, surface)
      studio.engine.next('hang')
      const body = { operation: 'inpaint', prompt: 'x', media_url: data('text/plain', IMAGE), mask_url: data('image/png', MASK) }
      const created = await studio.create(body)
      t.match(created['input'], { media_url: { content_type: 'image/png', bytes: IMAGE.length }, mask_url: { content_type: 'image/png', bytes: MASK.length } })
      await studio.engine.begun(1)
      t.equal((await studio.kept()).length, 2)
      studio.engine.release()
      t.match(await studio.ended(created.id), { status: 'completed', input: { media_url: { bytes: IMAGE.length } } })
      t.same(studio.engine.inputs[0]?.map(({ content }) => content), [IMAGE, MASK])
      t.match(await studio.kept(), [RESULT], 'the result is left')
      const text = IMAGE.toString('base64')
      for (const wrong of ['data:', 'data:image/png;base64,', 'data:image/png,abc', `data:image/png;base64,${text}!`, `data:image/png;base64, ${text}`, 'data:image/png;base64,QUJDR', 'data:image/png;base64,QR==', 'data:image/png;base64,QUJD-_']) {
        t.match(await studio.create({ operation: 'upscale', media_url: wrong }), { error: { code: 'url_not_allowed' }, errors: [{ path: '/media_url' }] }, wrong.slice(0, 40))
      }
      for (const content of ['QUJD', 'QUJD'.repeat(10_000)]) {
        t.match(await studio.create({ operation: 'merge', media_urls: [studio.urls.film, `data:video/mp4;base64,${content}`] }), { error: { code: 'url_not_allowed' }, errors: [{ path: '/media_urls/1', message: /^A data: URL is accepted as media_url or mask_url only, because/ }] })
      }
      t.match(await studio.create({ operation: 'merge', media_urls: [studio.urls.film, `${studio.urls.film}?${'x'.repeat(8192)}`] }), { error: { code: 'invalid_request' }, errors: [{ path: '/media_urls/1', message: 'must have at most 8192 characters' }] })
      t.match(await studio.ended((await studio.create({ operation: 'upscale', media_url: data('image/png', Buffer.from('text')) })).id), { error: { code: 'unsupported_input' } })
    },

    'a data: URL of a request that is refused, fails or is canceled leaves nothing behind': async (t) => {
      const studio = await open(t, surface, { media: { attempts: 1, allowance: '0.0005' } })
      const body = { operation: 'upscale', media_url: data('image/png', IMAGE) }
      studio.engine.next({ fail: 'provider_error', retryable: true }, 'hang')
      t.match(await studio.ended((await studio.create(body)).id), { status: 'failed' })
      t.same(await studio.kept(), [])
      const { id } = await studio.create(body)
      t.match(await studio.create(body), { error: { code: 'insufficient_balance' } })
      t.equal((await studio.kept()).length, 1, 'that of the task alone')
      t.match(await studio.cancel(id), { status: 'canceled' })
      t.same(await studio.kept(), [])
    },

    'fifty requests under one Idempotency-Key make one task, and one upload': async (t) => {
      const studio = await open(t, surface, { loops: false })
      const body = { operation: 'upscale', media_url: data('image/png', IMAGE) }
      const answers = await Promise.all(Array.from({ length: 50 }, () => studio.create(body, 'order-1')))
      t.equal(new Set(answers.map(({ id }) => id)).size, 1)
      t.same([(await studio.kept()).length, await studio.held()], [1, '0.0004'])
      t.match(await studio.create({ ...body, scale: 3 }, 'order-1'), { error: { code: 'idempotency_key_reused' } })
    },

    'a run is canceled in every state: queued, fetching, running; its hold goes back and its files go': async (t) => {
      const idle = await open(t, surface, { loops: false })
      const queued = await idle.create(VALID.upscale(idle.urls))
      t.match(await idle.cancel(queued.id), { status: 'canceled', refund_amount: '0.1600' })

      const studio = await open(t, surface, { env: { TASK_LEASE_SECONDS: '1' } })
      studio.server.next('never')
      const fetching = await studio.create(VALID.upscale(studio.urls))
      await studio.server.arrived(1)
      t.match(await studio.cancel(fetching.id), { status: 'canceled', refund_amount: '0.1600' })
      await studio.server.idle()
      studio.engine.next('hang')
      const running = await studio.create(VALID.upscale(studio.urls))
      await studio.engine.begun(1)
      t.equal((await studio.kept()).length, 1)
      t.match(await studio.cancel(running.id), { status: 'canceled', refund_amount: '0.1600' })
      while ((await studio.kept()).length > 0) await new Promise((resolve) => setTimeout(resolve, 10))
      t.same(studio.engine.aborts, ['canceled'])
      t.equal(await studio.held(), '0.0000')
      t.match(await studio.cancel(running.id), { error: { code: 'already_final' } })
      const done = await studio.create(VALID.upscale(studio.urls))
      await studio.ended(done.id)
      t.match(await studio.cancel(done.id), { error: { code: 'already_final' } })
    },
  }
}

/** What becomes of a task once it is created, by whatever surface. */
export function runPromises(surface: Surface): Promises<null> {
  return {
    'sources are what their content says, in the order of merging, the mask last': async (t) => {
      const studio = await open(t, surface)
      const { image, mask, film, song } = studio.urls
      await studio.ended((await studio.create({ operation: 'inpaint', media_url: image, mask_url: mask, prompt: 'x' })).id)
      t.same(studio.engine.inputs.at(-1), [{ role: 'media', contentType: 'image/png', bytes: IMAGE.length, content: IMAGE }, { role: 'mask', contentType: 'image/png', bytes: MASK.length, content: MASK }])
      await studio.ended((await studio.create({ operation: 'merge', media_url: song, media_urls: [film, song] })).id)
      t.match(studio.engine.inputs.at(-1)?.map(({ contentType, content }) => [contentType, content.length]), [['audio/wav', SONG.length], ['video/mp4', FILM.length], ['audio/wav', SONG.length]])
    },

    'a source that the engine cannot use is named as the request names it': async (t) => {
      const studio = await open(t, surface)
      const { film } = studio.urls
      for (const [input, source] of [[0, '/media_url'], [1, '/media_urls/0']] as const) {
        studio.engine.next({ fail: 'unsupported_input', retryable: false, input })
        t.match(await studio.ended((await studio.create({ operation: 'merge', media_url: film, media_urls: [film] })).id), { error: { details: { source } } })
      }
    },

    'a broken source fails the task with its documented error, after as many attempts as make sense, refunds it, and leaves nothing behind': async (t) => {
      const studio = await open(t, surface, { env: { INPUT_TIMEOUT_SECONDS: '1' }, media: { attempts: 2 } })
      studio.server.always(({ path }) => BROKEN[Number(path.slice(1))]!.answer)
      const created: unknown[] = []
      for (const n of BROKEN.keys()) created.push((await studio.create({ operation: 'background_remove', media_url: `${studio.server.url}/${n}` })).id)
      for (const [n, { name, code, retried }] of BROKEN.entries()) {
        t.match(await studio.ended(created[n]), { status: 'failed', error: { code }, attempts: retried ? 2 : 1, actual_cost: '0.0000', refund_amount: '0.0200', result: null }, name)
      }
      t.same([await studio.held(), await studio.kept()], ['0.0000', []])
      t.same(studio.engine.runs, [], 'no engine saw any of them')
    },

    'a source of the wrong family is unsupported_input, whichever of them it is': async (t) => {
      const studio = await open(t, surface)
      const { image, film, song } = studio.urls
      const bodies: Body[] = [
        ...(['background_remove', 'upscale', 'ai_edit', 'inpaint'] as const).map((operation) => ({ ...VALID[operation](studio.urls), media_url: film })),
        { ...VALID.inpaint(studio.urls), mask_url: song },
        { operation: 'trim', media_url: image, start_time: 0 },
        { operation: 'merge', media_urls: [film, image] },
      ]
      for (const body of bodies) t.match(await studio.ended((await studio.create(body)).id), { status: 'failed', error: { code: 'unsupported_input', details: { source: /^\/(media_url|media_urls\/\d|mask_url)$/, found: { content_type: /^(image|video|audio)\// } } }, attempts: 1 }, JSON.stringify(body))
    },

    'sources that are too large together, too long or too wide are input_too_large': async (t) => {
      const studio = await open(t, surface)
      const large = Buffer.concat([FILM, Buffer.alloc(40_000)])
      studio.server.always(({ path }) => ({ status: 200, body: path === '/long' ? longWav() : large }))
      const at = (name: string) => `${studio.server.url}/${name}`
      t.match(await studio.ended((await studio.create({ operation: 'merge', media_urls: [at('1'), at('2')] })).id), { status: 'completed' })
      t.match(await studio.ended((await studio.create({ operation: 'merge', media_urls: [at('1'), at('2'), at('3')] })).id), { error: { code: 'input_too_large', details: { source: '/media_urls/2', limit: { bytes: Number } } } })
      t.match(await studio.ended((await studio.create({ operation: 'trim', media_url: at('long'), start_time: 0 })).id), { error: { code: 'input_too_large', details: { source: '/media_url', found: { seconds: Number }, limit: { seconds: Number } } } })
    },

    'a name that resolves to an internal address, now or at the end of a redirect, fails as one without an address does': async (t) => {
      const lookup: Lookup = async (name) => (name.startsWith('inward') ? ['10.0.0.1'] : name.startsWith('nowhere') ? [] : ['127.0.0.1'])
      const studio = await open(t, surface, { lookup })
      for (const url of ['http://nowhere.example/a.png', 'http://inward.example/a.png', `http://toBackendError.example:${studio.server.port}/redirect`]) {
        if (url.includes('redirect')) studio.server.next(...Array.from({ length: 3 }, () => ({ redirect: 'http://inward.example/b.png' })))
        t.match(await studio.ended((await studio.create({ operation: 'upscale', media_url: url })).id), { status: 'failed', error: { code: 'input_unreachable' } }, url)
      }
      studio.server.next({ redirect: studio.urls.image })
      t.match(await studio.ended((await studio.create({ operation: 'upscale', media_url: `http://toBackendError.example:${studio.server.port}/moved` })).id), { status: 'completed' }, 'a redirect outwards is followed')
    },

    'a result is the source of the next task, without network; its link is all that it takes, until it expires': async (t) => {
      const studio = await open(t, surface)
      const link = async () => {
        const { file, expiresAt } = { file: 'a-result-1', expiresAt: studio.time.now + 60_000 }
        await studio.app.files.put(file, IMAGE, { contentType: 'image/png', expiresAt })
        return studio.app.tasks.link({ file, expiresAt } as never)
      }
      const url = await link()
      const created = await studio.create({ operation: 'upscale', media_url: url })
      t.match(await studio.ended(created.id), { status: 'completed', input: { media_url: url } })
      t.same(studio.engine.inputs[0]?.map(({ content }) => content), [IMAGE])
      t.ok((await studio.kept()).includes('a-result-1'), 'the result itself stays')
      t.match(await studio.create({ operation: 'upscale', media_url: url.replace(/sig=./, 'sig=_').replace('tollgate.test', '127.0.0.2') }), { error: { code: 'url_not_allowed' } }, 'a link that was changed is any other address')
      studio.time.now += 61_000
      t.match(await studio.ended((await studio.create({ operation: 'upscale', media_url: url })).id), { status: 'failed', error: { code: 'input_unreachable' }, attempts: 1 })
      t.same(studio.server.received, [])
    },

    'a source that is away for an attempt is fetched at the next; one that changed meanwhile is taken as it is then': async (t) => {
      const studio = await open(t, surface)
      studio.server.next({ status: 503 }, { status: 200, body: IMAGE }, { status: 200, body: MASK })
      studio.engine.next({ fail: 'provider_error', retryable: true })
      const { id } = await studio.create(VALID.upscale(studio.urls))
      t.match(await studio.ended(id), { status: 'completed', attempts: 3 })
      t.same(studio.engine.inputs.map(([input]) => input?.content.length), [IMAGE.length, MASK.length])
      t.match(await studio.kept(), [RESULT])
    },

    "an attempt that failed needs a provider's job of its own": async (t) => {
      const studio = await open(t, surface)
      studio.engine.next({ job: 'job-1', afterwards: { fail: 'provider_error', retryable: true } }, { job: 'job-2', afterwards: 'make' })
      t.match(await studio.ended((await studio.create(VALID.upscale(studio.urls))).id), { status: 'completed', attempts: 2 })
      t.same(studio.engine.jobs, [null, null])
    },

    "a run that lost its lease leaves its provider's job to the next, which makes no second one": async (t) => {
      const studio = await open(t, surface)
      studio.engine.next({ job: 'job-1', afterwards: 'hang' }, { job: 'job-2', afterwards: 'make' })
      const { id } = await studio.create(VALID.upscale(studio.urls))
      await studio.engine.begun(1)
      while ((await studio.store.task('acme', String(id)))?.job !== 'job-1') await new Promise((resolve) => setTimeout(resolve, 5))
      t.match(await studio.store.task('acme', String(id)), { jobEngine: 'fake' })
      studio.time.now += 31_000
      t.match(await studio.ended(id), { status: 'completed', attempts: 1 })
      studio.engine.release()
      t.same(studio.engine.jobs, [null, 'job-1'])
    },
  }
}

/** A WAV that says it is longer than any route allows. */
function longWav(): Buffer {
  const long = Buffer.from(SONG)
  // Bytes a second.
  long.writeUInt32LE(1, 28)
  return long
}

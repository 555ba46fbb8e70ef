/** What sources elsewhere say of themselves when a task is created. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import t from 'tap'
import { openEgress } from '../../src/egress/egress.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { openSourceProbes } from '../../src/tasks/probe-sources.ts'
import { mp4, png, wav } from '../backends/engines/media-samples.ts'
import { openReceiver, ranged, type Answer } from '../fakes/receiver.ts'

const PLAN = planOf('acme/studio')
const [FILM, LATE, SONG, PICTURE] = [mp4(64, 48, 4000), mp4(64, 48, 4000, { bytes: 300_000, index: 'end' }), wav(9000), png(100, 50)]

function planOf(id: string, requestsPerMinute = 1_000_000): Subscription {
  return { id, terms: { requestsPerMinute } } as unknown as Subscription
}

const partial = (headers: Record<string, string>, body: Buffer): Answer => ({ status: 206, headers, body })
const whole = (body: Buffer, headers: Record<string, string> = {}): Answer => ({ status: 200, headers, body })

/** Sends a file that never ends. */
function endless(_request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-length': String(2 ** 40) })
  response.write(FILM)
  const more = (): void => void (response.destroyed || response.write(Buffer.alloc(65_536), more))
  more()
}

/** Begins an answer and sends the rest of it when it is too late. */
function slow(_request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-length': String(FILM.length) }).write(FILM.subarray(0, 20))
}

t.test('a source says by its first bytes what it is; one that does not, in time and within bounds, is unknown', async (t) => {
  const server = await openReceiver(t)
  const egress = openEgress({ allow: ['127.0.0.1/32'], clock: () => performance.now(), lookup: async () => ['10.0.0.1'] })
  const probe = openSourceProbes({ egress, clock: () => 0, deadlineMs: 60_000 })
  const impatient = openSourceProbes({ egress, clock: () => 0, deadlineMs: 100 })
  const film = { contentType: 'video/mp4', width: 64, height: 48, durationMs: 4000 }
  const part = SONG.subarray(0, 65_536)
  const cases: [name: string, answers: Answer[], found: object | null][] = [
    ['a part', [ranged(FILM, 'bytes=0-65535')], film],
    ['a picture', [ranged(PICTURE, 'bytes=0-65535')], { contentType: 'image/png', width: 100, height: 50 }],
    ['a server that ignores ranges', [whole(FILM)], film],
    ['an endless answer', [endless], film],
    ['an index at the end', [ranged(LATE, 'bytes=0-65535'), ranged(LATE, `bytes=${LATE.length - 300}-${LATE.length}`)], { contentType: 'video/mp4', durationMs: null }],
    ['an index at the end, of a server that ignores ranges', [whole(LATE)], { contentType: 'video/mp4', durationMs: null }],
    ['an index at the end, which is not sent', [ranged(LATE, 'bytes=0-65535'), { status: 500 }], { contentType: 'video/mp4', durationMs: null }],
    ['a sound by its header', [ranged(SONG, 'bytes=0-65535')], { contentType: 'audio/wav', durationMs: 9000 }],
    ['a length that is said to be less', [partial({ 'content-range': 'bytes 0-65535/80044' }, part)], { durationMs: 5000 }],
    ['a length that is not told', [partial({ 'content-range': 'bytes 0-65535/*' }, part)], { durationMs: 9000 }],
    ['a size below what was sent', [partial({ 'content-range': 'bytes 0-65535/65535' }, part)], null],
    ['a size of nothing', [partial({ 'content-range': 'bytes 0-65535/0' }, part)], null],
    ['another part', [partial({ 'content-range': 'bytes 10-65545/80044' }, part)], null],
    ['a part without its place', [partial({}, part)], null],
    ['no file', [{ status: 404, body: FILM }], null],
    ['nothing', [{ status: 204 }], null],
    ['an empty file', [{ status: 416, headers: { 'content-range': 'bytes */0' } }], null],
    ['no media', [whole(Buffer.alloc(5000, 7))], null],
    ['a huge header', [whole(FILM, { 'x-more': 'a'.repeat(100_000) })], null],
    ['a reset', ['reset'], null],
    ['a redirect', [{ redirect: '/next' }, ranged(FILM, 'bytes=0-65535')], film],
    ['a redirect inwards', [{ redirect: 'http://169.254.169.254/latest/meta-data' }], null],
    ['a redirect to a name of inwards', [{ redirect: 'http://inward.example/' }], null],
    ['endless redirects', Array.from({ length: 7 }, () => ({ redirect: '/again' })), null],
    ['an answer that stalls', [slow], null],
    ['no answer', ['never'], null],
  ]
  for (const [name, answers, found] of cases) {
    server.next(...answers)
    const before = server.received.length
    const ask = answers.includes('never') || answers.includes(slow) ? impatient : probe
    const [info] = await ask(PLAN, [`${server.url}/${before}`])
    if (found === null) t.equal(info, null, name)
    else t.match(info, found, name)
    // What is left of the answers, where fewer were asked for.
    for (let left = answers.length - (server.received.length - before); left > 0; left--) await fetch(server.url)
  }
  server.always(({ headers }) => ranged(LATE, headers.range))
  t.match(await probe(PLAN, [`${server.url}/late`]), [film], 'an index at the end')
  const index = LATE.indexOf('moov') - 4
  t.match(server.received.slice(-2).map(({ headers }) => headers.range), ['bytes=0-65535', `bytes=${index}-${index + 65_535}`])
  t.same(await probe(PLAN, [null, 'http://10.0.0.1/', 'no address']), [null, null, null])
})

t.test('what is asked is bounded: an address once for a task, and the sources of a tenant, of a host and of all at a time, and of a plan in a minute', async (t) => {
  let now = 0
  const asked: string[] = []
  const held = Promise.withResolvers<void>()
  const reply = { outcome: 'answered', status: 200, headers: {}, body: PICTURE, durationMs: 1 } as const
  const request = async ({ url }: { url: string }) => (asked.push(url), url.includes('held') && (await held.promise), reply)
  const probe = openSourceProbes({ egress: { request }, clock: () => now })
  const urls = (name: string, count: number) => Array.from({ length: count }, (_, i) => `http://${name}${i}.test/`)
  const answered = async (plan: Subscription, of: (string | null)[]) => (await probe(plan, of)).filter((info) => info !== null).length
  t.equal(await answered(PLAN, [...urls('a', 2), null, ...urls('a', 2)]), 4)
  t.same(asked.splice(0), urls('a', 2))
  const waiting = ['a', 'b', 'c', 'd'].map((tenant) => answered(planOf(`${tenant}/1`), urls(`held-${tenant}`, 32)))
  t.equal(asked.splice(0).length, 128)
  t.equal(await answered(planOf('a/2'), urls('b', 1)), 0, 'the tenant has as many as it may')
  t.equal(await answered(planOf('e/1'), urls('b', 1)), 0, 'all have as many as they may')
  held.resolve()
  t.same(await Promise.all(waiting), [32, 32, 32, 32])
  t.equal(await answered(planOf('e/1'), urls('b', 1)), 1)
  const few = planOf('a/6', 60)
  const counts = []
  for (let i = 0; i < 12; i++) counts.push(await answered(few, urls('c', 2)))
  t.same(counts, [...Array(10).fill(2), 0, 0], 'the rate of the plan')
  now += 1000
  t.equal(await answered(few, urls('c', 2)), 2)
})

t.test('a host is asked for four sources at a time, whoever names them, and for more of a task one after the other within its time', async (t) => {
  let atOnce = 0
  let most = 0
  const held = Promise.withResolvers<void>()
  const request = async () => {
    most = Math.max(most, ++atOnce)
    await held.promise
    atOnce--
    return { outcome: 'answered', status: 200, headers: {}, body: PICTURE, durationMs: 30 } as const
  }
  const probe = openSourceProbes({ egress: { request }, clock: () => 0, deadlineMs: 100 })
  const urls = Array.from({ length: 20 }, (_, i) => `http://${i % 2 === 0 ? 'films.test' : 'FILMS.test.:80'}/${i}`)
  const many = probe(planOf('a/1'), urls)
  t.same(await probe(planOf('b/1'), ['http://films.test/mine']), [null], 'its places are taken')
  held.resolve()
  t.equal((await many).filter((info) => info !== null).length, 16, 'four times 30 ms begin within 100 ms')
  t.equal(most, 4)
  t.match(await probe(planOf('b/1'), ['http://films.test/mine']), [{ contentType: 'image/png' }])
})

t.test('a clock that was set back leaves a plan without probes for no longer than its burst', async (t) => {
  let [now, requests] = [1_000_000_000, 0]
  const request = async () => {
    requests++
    return { outcome: 'refused', reason: 'address', durationMs: 0 } as never
  }
  const probe = openSourceProbes({ egress: { request }, clock: () => now })
  const slow = planOf('acme/slow', 60)
  await probe(slow, ['https://example.com/a'])
  now = 0
  await probe(slow, ['https://example.com/b'])
  now = 1_000
  await probe(slow, ['https://example.com/c'])
  t.equal(requests, 2)
})

/** 200 open streams: an upstream that dies under them, a changed UPSTREAMS file, and what priorities, weights and the breaker do afterwards. */
import { writeFile } from 'node:fs/promises'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { UpstreamEvent } from '../../src/upstream/selection/retry-and-failover.ts'
import { openUpstream, stream, streams, type FakeUpstream } from '../fakes/upstream.ts'
import { chatStream, chunk, delta, DONE, USAGE } from '../fakes/upstream-wire.ts'
import { chat, dataOf, MESSAGES, openGateway, startStream, writeUpstreamsFile, type Gateway } from './gateway.ts'

const STREAMS = 200
const REQUEST = { model: 'svc-code', messages: MESSAGES, stream: true }

/** An upstream that begins every stream and keeps it open. */
async function hanging(t: Test, text: string): Promise<{ upstream: FakeUpstream; open: ServerResponse[] }> {
  const open: ServerResponse[] = []
  const upstream = await openUpstream((answer) => {
    open.push(answer)
    stream(answer, chunk([delta({ role: 'assistant', content: text })]))
  })
  t.teardown(() => upstream.close())
  return { upstream, open }
}

const member = (name: string, { url }: FakeUpstream, more: object = {}) => ({ name, baseUrl: url, model: name, wire: 'chat', ...more })

async function begun(gateway: Gateway): Promise<IncomingMessage[]> {
  return Promise.all(Array.from({ length: STREAMS }, () => startStream(gateway, '/v1/chat/completions', REQUEST)))
}

async function textOf(answer: IncomingMessage): Promise<string> {
  let text = ''
  for await (const part of answer) text += String(part)
  return text
}

const contentOf = (text: string) => dataOf(text).flatMap((one) => one.choices?.[0]?.delta?.content ?? []).join('')

t.test('an upstream that dies in the midst of 200 streams fails each with the error event, charges each what it got, and new requests go to the next', async (t) => {
  const { upstream } = await hanging(t, 'one two three')
  const next = await openUpstream(streams(...chatStream('next')))
  t.teardown(() => next.close())
  const events: UpstreamEvent[] = []
  const gateway = await openGateway(t, { declared: [member('first', upstream, { breaker: { failures: 3 } }), member('second', next, { priority: 1 })] })
  gateway.upstreams.observe((event) => events.push(event))
  const answers = await begun(gateway)
  const texts = Promise.all(answers.map(textOf))
  await upstream.close()
  for (const text of await texts) {
    t.match(dataOf(text).at(-1), { error: { code: 'server_overloaded' } })
    t.notOk(text.includes('[DONE]'))
    t.match(await gateway.settled(), { usage: { output: 3 }, estimated: true })
  }
  t.equal(gateway.upstreams.states()[0]!.breaker, 'closed', 'a stream that breaks says nothing about new requests')
  for (let n = 0; n < 4; n++) t.equal(contentOf((await chat(gateway, { stream: true })).text), 'next')
  t.equal(gateway.upstreams.states()[0]!.breaker, 'open')
  const attempts = events.filter((event) => event.event === 'attempt' && event.upstream === 'first' && event.outcome === 'failed').length
  t.equal(attempts, 3, 'as many as the breaker allows')
})

t.test('a changed UPSTREAMS file lets 200 open streams finish where they are, and sends new requests by its priorities and weights', async (t) => {
  const { upstream: old, open } = await hanging(t, 'old')
  const fresh = await Promise.all(['light', 'heavy', 'spare'].map((name) => openUpstream(streams(...chatStream(name)))))
  t.teardown(() => Promise.all(fresh.map((one) => one.close())))
  const [light, heavy, spare] = fresh as [FakeUpstream, FakeUpstream, FakeUpstream]
  const file = await writeUpstreamsFile(t, [member('old', old)])
  const gateway = await openGateway(t, { upstreams: { file } })
  const answers = await begun(gateway)
  await writeFile(file, JSON.stringify({ upstreams: [member('light', light, { weight: 1 }), member('heavy', heavy, { weight: 4 }), member('spare', spare, { priority: 1 })] }))
  await gateway.upstreams.reload()
  for (let n = 0; n < STREAMS; n++) t.match(contentOf((await chat(gateway, { stream: true })).text), /light|heavy/)
  t.ok(light.requests.length > 15 && light.requests.length < 75, `about a fifth: ${light.requests.length}`)
  t.equal(light.requests.length + heavy.requests.length, STREAMS)
  t.equal(spare.requests.length, 0)
  t.equal(old.requests.length, STREAMS, 'no new request')

  const texts = Promise.all(answers.map(textOf))
  for (const answer of open) answer.end(chunk([delta({ content: ' end' })]) + chunk([delta({}, 'stop')]) + chunk([], { usage: USAGE }) + DONE)
  for (const text of await texts) {
    t.equal(contentOf(text), 'old end')
    t.ok(text.endsWith(DONE))
  }
  for (let n = 0; n < 2 * STREAMS; n++) t.match(await gateway.settled(), { usage: { output: USAGE.completion_tokens }, estimated: false })
  t.equal(old.aborts, 0)
})

t.test('200 streams whose clients leave at once abort at the upstream, and each is charged once', async (t) => {
  const { upstream } = await hanging(t, 'one two three')
  const gateway = await openGateway(t, { declared: [member('first', upstream)] })
  const answers = await begun(gateway)
  await Promise.all(answers.map((answer) => once(answer, 'data')))
  for (const answer of answers) answer.destroy()
  for (let n = 0; n < STREAMS; n++) t.match(await gateway.settled(), { usage: { output: 3 }, estimated: true })
  while (upstream.aborts < STREAMS) await upstream.nextAbort()
  t.equal(upstream.requests.length, STREAMS)
})

/** Stream rewriting: independent of how the bytes are split, nothing of the vendor passes, and only complete streams end cleanly. */
import { isUtf8 } from 'node:buffer'
import t, { type Test } from 'tap'
import { overLimit } from '../../src/domain/errors.ts'
import { openChatStream } from '../../src/upstream/wires/chat/chat-stream.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { openResponsesStream } from '../../src/upstream/wires/responses/responses-stream.ts'
import { repeatedMembers } from '../../src/upstream/wires/responses/response-object.ts'
import type { TemplateSets } from '../../src/upstream/sse/event-templates.ts'
import { openRecentIds } from '../../src/upstream/wires/recent-ids.ts'
import type { StreamRewriter } from '../../src/upstream/wires/wire.ts'
import { chatStream, chunk, delta, DONE, event, message, response, responsesStream, USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import { dataOf, type Loose } from './gateway.ts'

const ids = openIds([Buffer.alloc(48, 1)], () => '02020202-0202-4202-8202-020202020202')
/** Shared by all tests: what one stream taught must not change another. */
const shared: TemplateSets = new Map()
type Options = { templates?: TemplateSets; subscription?: string }
const openChat = (includeUsage = false, { templates = shared, subscription = 'acme/first' }: Options = {}) =>
  openChatStream({ ids: ids(subscription), includeUsage, createdAt: 1000, templates })
const openResponses = ({ templates = shared, subscription = 'acme/first' }: Options = {}) =>
  openResponsesStream({ ids: ids(subscription), repeated: repeatedMembers({ tools: [{ type: 'function', name: 'f' }] }, new Set(), 1000), now: () => 1000, templates })

/** The rewritten stream for these pieces. */
function rewrite(stream: StreamRewriter, pieces: Iterable<Buffer>): string {
  let rewritten = ''
  for (const piece of pieces) rewritten += stream.push(piece)
  rewritten += stream.end()
  const phase = stream.phase()
  if (phase.name === 'broken') rewritten += stream.fail(phase.failure)
  return Buffer.from(rewritten, 'latin1').toString('utf8')
}

const whole = (stream: StreamRewriter, text: string) => rewrite(stream, [Buffer.from(text)])

const TEXTS = ['Hello', ' wörld', ' 日本', ' "quoted" \\ \n', '😀', '</s>', ' data: x', '']
const CHAT = chatStream(...TEXTS).join('')
/** Short, because the test repeats it for every place of a split. */
const SHORT = chatStream('a', ' wö😀', ' "q" \\ \n').join('')
const RESPONSES = responsesStream(...TEXTS).join('')
const STREAMS: [string, () => StreamRewriter, string][] = [
  ['chat', () => openChat(true), SHORT],
  ['responses', openResponses, responsesStream('a', ' wö😀', ' "q" \\ \n').join('')],
  ['chat with CR LF', () => openChat(), SHORT.replaceAll('\n', '\r\n')],
  ['chat with CR', () => openChat(), SHORT.replaceAll('\n', '\r')],
  ['chat that breaks off', () => openChat(), SHORT.slice(0, -20)],
  ['responses with an error', openResponses, RESPONSES.slice(0, 1000) + event('error', { message: 'x' })],
]

t.test('a stream is rewritten equally for every way of splitting its bytes', async (t) => {
  for (const [name, open, text] of STREAMS) {
    const bytes = Buffer.from(text)
    const expected = whole(open(), text)
    let different = 0
    for (let at = 0; at <= bytes.length; at++) if (rewrite(open(), [bytes.subarray(0, at), bytes.subarray(at)]) !== expected) different++
    t.equal(different, 0, `${name} in two pieces, ${bytes.length} places`)
    for (const size of [1, 2, 3, 7, 61]) {
      t.equal(
        rewrite(
          open(),
          Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) => bytes.subarray(n * size, (n + 1) * size)),
        ),
        expected,
        `${name} in pieces of ${size}`,
      )
    }
  }
})

t.test('a stream is rewritten equally whatever other streams of the upstream taught', async (t) => {
  const call = (id: string, index = 0) =>
    chunk([delta({ tool_calls: [{ index, id, type: 'function', function: { name: 'read', arguments: '' } }] })]) +
    chunk([delta({ tool_calls: [{ index, function: { arguments: '{"a":' } }] })]) +
    chunk([delta({ tool_calls: [{ index, id, function: { arguments: '1}' } }] })])
  const begin = chunk([delta({ role: 'assistant', content: '' })])
  const stop = chunk([delta({}, 'stop')])
  const chats = [
    CHAT,
    begin + call('functions.read:0') + call('functions.read:1', 1) + chunk([delta({}, 'tool_calls')]) + DONE,
    begin + call('call "quoted"') + DONE,
    begin + call('functions.read:0') + call('functions.read:1') + chunk([delta({ tool_calls: [{ index: 5, function: { arguments: '{}' } }] })]) + DONE,
    chunk([delta({ content: 'a' })]) + chunk([delta({ role: 'assistant', content: 'b' })]) + chunk([delta({ content: 'c' }, null, 1)]) + DONE,
    begin + chunk([delta({ content: 'a' })]) + DONE,
    begin + chunk([delta({ content: '<<own id>>' })]) + chunk([delta({ content: 'b', reasoning: '<<placeholder 0>>' })]) + stop + DONE,
    begin + chunk([delta({ content: 'a' })], { usage: USAGE }) + chunk([delta({ content: 'b' })], { usage: { ...USAGE, completion_tokens: 9 } }) + stop + DONE,
    begin + chunk([delta({ content: 'a' }), { ...delta({ content: 'b' }), index: 1 }]) + stop + DONE,
    begin + chunk([{ ...delta({ content: 'a' }), logprobs: { content: [{ token: 'a', logprob: -1, bytes: null, top_logprobs: [] }] } }]) + stop + DONE,
  ]
  const gap = RESPONSES.replaceAll('"output_index":0', '"output_index":3')
  const responses = [RESPONSES, gap, RESPONSES.replaceAll('msg_', 'item:'), responsesStream('<<own id>>', 'x').join('')]
  const taught = () => t.ok(['chat', 'chat with usage', 'responses'].every((shape) => shared.get(shape)?.length), 'templates were made')
  const measured = (stream: StreamRewriter, text: string) => [whole(stream, text), stream.meter.estimateTokens(), stream.usage()]
  for (let round = 0; round < 3; round++) {
    for (const subscription of ['acme/first', 'acme/second', 'other/first']) {
      for (const [n, text] of [...chats.entries(), ...chats.toReversed().entries()]) {
        for (const usage of [true, false])
          t.same(measured(openChat(usage, { subscription }), text), measured(openChat(usage, { subscription, templates: new Map() }), text), `chat ${n}`)
      }
      for (const [n, text] of responses.entries())
        t.same(measured(openResponses({ subscription }), text), measured(openResponses({ subscription, templates: new Map() }), text), `responses ${n}`)
    }
  }
  taught()
})

t.test('the text of a model passes unchanged', async (t) => {
  const chunks = dataOf(whole(openChat(), CHAT))
  t.equal(
    chunks
      .slice(0, -1)
      .map((one) => one.choices[0].delta.content ?? '')
      .join(''),
    TEXTS.join(''),
  )
  const events = dataOf(whole(openResponses(), RESPONSES))
  t.equal(
    events
      .filter(({ type }) => type === 'response.output_text.delta')
      .map((one) => one.delta)
      .join(''),
    TEXTS.join(''),
  )
})

t.test('escapes in the text of a model pass unchanged', async (t) => {
  const raw = String.raw`data: {"id":"1","choices":[{"index":0,"delta":{"content":"PLACE"}}]}` + '\n\n'
  const texts = [String.raw`a`, String.raw`\ud83d`, String.raw`\u00e9\n\/`, String.raw`\ude00`, 'b']
  const rewritten = whole(openChat(), texts.map((text) => raw.replace('PLACE', text)).join('') + DONE)
  for (const text of texts) t.ok(rewritten.includes(`"content":"${text}"`), text)
})

t.test('nothing of the vendor passes', async (t) => {
  for (const [name, open, text] of STREAMS) {
    const rewritten = whole(open(), text)
    t.notOk(rewritten.toLowerCase().includes(VENDOR), name)
    t.ok(rewritten.length > 200, 'not empty')
  }
})

const rewrittenChat = (text: string) => whole(openChat(), text)

t.test('an event that differs from its template in anything but its text is parsed', async (t) => {
  const same = (more: object) => `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'text' } }], ...more })}\n\n`
  const start = same({}) + same({})
  for (const more of [{ [VENDOR]: 1 }, { usage: { by: VENDOR } }, { model: VENDOR }, { system_fingerprint: VENDOR }]) {
    t.notOk(rewrittenChat(start + same(more) + same({ ...more }) + DONE).includes(VENDOR), JSON.stringify(more))
  }
  const sneaky = String.raw`data: {"id":"x","choices":[{"index":0,"delta":{"content":"a","acmeai":"b"}}]}` + '\n\n'
  t.notOk(rewrittenChat(start + sneaky + sneaky + DONE).includes(VENDOR))
})

t.test('a malformed string never passes by a template', async (t) => {
  const raw = (text: string) => `data: {"id":"x","choices":[{"index":0,"delta":{"content":${text}}}]}\n\n`
  for (const bad of [String.raw`"\x"`, String.raw`"\u12g4"`, '"a', '"a\tb"', '1', '"a""b"']) {
    const stream = openChat()
    const rewritten = whole(stream, raw('"a"') + raw('"b"') + raw(bad) + DONE)
    if (bad === '1') t.ok(rewritten.includes('[DONE]'), 'content of another type is dropped')
    else t.equal(stream.phase().name, 'broken', bad)
  }
})

t.test('a chat stream ends cleanly only after [DONE]', async (t) => {
  const body = chunk([delta({ content: 'a' })])
  const cases: Record<string, string> = {
    'cut off': body,
    'finished but not done': body + chunk([delta({}, 'stop')]),
    'an error event': `${body}data: ${JSON.stringify({ error: { message: `${VENDOR} failed`, code: 'x' } })}\n\n${DONE}`,
    'an error as a string': `${body}data: ${JSON.stringify({ error: VENDOR })}\n\n${DONE}`,
    'not JSON': `${body}data: {"id":\n\n${DONE}`,
    'not an object': `${body}data: 5\n\n${DONE}`,
  }
  for (const [name, text] of Object.entries(cases)) {
    const rewritten = whole(openChat(), text)
    t.notOk(rewritten.includes('[DONE]'), name)
    t.match(dataOf(rewritten).at(-1), { error: { type: 'server_error', code: 'server_overloaded', message: String } }, name)
    t.notOk(rewritten.includes(VENDOR))
  }
})

t.test('every choice ends with a finish reason', async (t) => {
  const rewritten = dataOf(
    whole(
      openChat(),
      chunk([delta({ content: 'a' })]) +
        chunk([delta({ tool_calls: [{ id: 'x', function: { name: 'f', arguments: '{}' } }] }, '', 1)]) +
        DONE,
    ),
  )
  t.same(
    rewritten
      .slice(0, -1)
      .flatMap((one) => one.choices)
      .filter((one) => one.finish_reason)
      .map(({ index, finish_reason: reason }) => [index, reason]),
    [
      [0, 'stop'],
      [1, 'tool_calls'],
    ],
  )
  t.same(dataOf(whole(openChat(), chunk([delta({}, 'eos_token')]) + DONE))[0].choices[0].finish_reason, 'stop')
})

/** The deltas of the first choice. */
const deltasOf = (text: string, options: Options = {}): Loose[] =>
  dataOf(whole(openChat(false, options), text + chunk([delta({}, 'stop')]) + DONE)).flatMap((one) => (one === '[DONE]' ? [] : one.choices[0].delta))
const callDeltas = (...fragments: object[]) => fragments.map((fragment) => chunk([delta({ tool_calls: [fragment] })])).join('')
/** The calls as SDKs assemble them: by index, texts appended. */
function assembledCalls(text: string): Loose[] {
  const calls: Loose[] = []
  for (const { tool_calls: fragments = [] } of deltasOf(text)) {
    for (const { index, id = '', type = '', function: called = {} } of fragments) {
      calls[index] ??= { id: '', type: '', name: '', arguments: '' }
      calls[index].id += id
      calls[index].type += type
      calls[index].name += called.name ?? ''
      calls[index].arguments += called.arguments ?? ''
    }
  }
  return calls
}
const READ = (json: string) => ({ type: 'function', name: 'read', arguments: json })

t.test('the role comes once, in the first delta of a choice, whatever the upstream sends', async (t) => {
  const always = ['a', 'b', 'c', 'd'].map((content) => chunk([delta({ role: 'assistant', content })])).join('')
  const never = ['a', 'b', 'c', 'd'].map((content) => chunk([delta({ content })])).join('')
  for (const text of [always, never, always]) {
    const [first, ...others] = deltasOf(text)
    t.same(first, { role: 'assistant', content: 'a' })
    t.same(others, [{ content: 'b' }, { content: 'c' }, { content: 'd' }, {}])
  }
})

t.test('tool calls have indexes of their own, and id, type and name once, as SDKs assemble them', async (t) => {
  const call = (json: string, more: object = {}) => ({ index: 0, type: 'function', ...more, function: { name: 'read', arguments: json } })
  const rest = (json: string, more: object = {}) => ({ index: 0, ...more, function: { arguments: json } })
  const both = [READ('{"a":1}'), READ('{"b":2}')]
  const rows: [string, string, object[]][] = [
    ['all with index 0', callDeltas(call('{"a":1}', { id: 'x' }), call('{"b":2}', { id: 'y' })), both],
    ['in pieces, all with index 0', callDeltas(call('', { id: 'x' }), rest('{"a"'), rest(':1}'), call('', { id: 'y' }), rest('{"b"'), rest(':2}')), both],
    ['all with index 0 and without ids', callDeltas(call('{"a":1}', { id: '' }), call('{"b":2}')), both],
    ['without indexes', callDeltas(call('{"a":1}', { id: 'x', index: undefined }), call('{"b":2}', { id: 'y', index: undefined })), both],
    ['from index 1', callDeltas(call('{"a":1}', { id: 'x', index: 1 }), call('', { id: 'y', index: 2 }), rest('{"b":2}', { index: 2 })), both],
    ['id and name in every fragment', callDeltas(call('{"a"', { id: 'x' }), call(':1', { id: 'x' }), call('}', { id: 'x' })), [READ('{"a":1}')]],
    ['another id in every fragment', callDeltas(call('{"a"', { id: 'x' }), rest(':1', { id: 'y' }), rest('}', { id: 'z' })), [READ('{"a":1}')]],
    ['without a type', callDeltas({ index: 0, id: 'x', function: { name: 'read', arguments: '{"a":1}' } }), [READ('{"a":1}')]],
    ['arguments as an object', callDeltas({ index: 0, id: 'x', function: { name: 'read', arguments: { a: 1 } } }), [READ('{"a":1}')]],
    ['without arguments', callDeltas({ index: 0, id: 'x', function: { name: 'read' } }), [READ('')]],
  ]
  for (const [name, text, expected] of rows) {
    const calls = assembledCalls(text)
    t.same(calls.map(({ id: _id, ...call }) => call), expected, name)
    for (const { id } of calls) t.match(id, /^call_[A-Za-z0-9_-]{10,60}$/, name)
  }
  t.same(deltasOf(chunk([delta({ content: 'a', tool_calls: [] })]))[0], { role: 'assistant', content: 'a' }, 'an empty list is no call')
  t.equal(dataOf(whole(openChat(), chunk([delta({ content: 'a', tool_calls: [] })]) + DONE))[1].choices[0].finish_reason, 'stop')
})

t.test('usage is read wherever an upstream reports it, and sent as the last chunk', async (t) => {
  for (const text of [
    chunk([delta({ content: 'a' })]) + chunk([delta({}, 'stop')], { usage: USAGE }) + DONE,
    chunk([delta({ content: 'a' })], { usage: { ...USAGE, completion_tokens: 1, total_tokens: 21 } }) +
      chunk([delta({}, 'stop')], { usage: USAGE }) +
      DONE,
    chunk([{ ...delta({}, 'stop'), usage: USAGE }]) + DONE,
  ]) {
    const stream = openChat(true)
    const rewritten = dataOf(whole(stream, text))
    t.same(stream.usage(), { input: 20, cachedInput: 8, output: 5 })
    t.match(rewritten.at(-2), {
      choices: [],
      usage: { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25, prompt_tokens_details: { cached_tokens: 8 } },
    })
    t.ok(rewritten.slice(0, -2).every((one) => one.usage === null))
  }
})

t.test('citations in a stream pass as the wire defines them', async (t) => {
  const citation = { start_index: 0, end_index: 1, url: 'https://a.example', title: 'A' }
  const annotations = [{ type: 'url_citation', url_citation: { ...citation, [VENDOR]: 1 } }, { type: VENDOR }]
  const [first] = dataOf(whole(openChat(), chunk([delta({ content: 'a', annotations })]) + DONE))
  t.same(first.choices[0].delta.annotations[0], { type: 'url_citation', url_citation: citation })
  t.notOk(JSON.stringify(first).includes(VENDOR))
})

t.test('responses get our own sequence numbers, whatever the upstream sends', async (t) => {
  const wrong = responsesStream('a', 'b', 'c')
    .map((text, index) => text.replace('"type"', `"sequence_number":${index * 3 + 7},"type"`))
    .join('')
  for (const text of [wrong, responsesStream('a', 'b', 'c').join('')]) {
    const events = dataOf(whole(openResponses(), text))
    t.same(
      events.map(({ sequence_number: number }) => number),
      events.map((_, index) => index),
    )
  }
})

t.test('a failed response ends with response.failed and all members of a response', async (t) => {
  const start = responsesStream('a').slice(0, 6).join('')
  const cases: Record<string, string> = {
    'cut off': start,
    failed:
      start +
      event('response.failed', { response: response('failed', [], { error: { code: 'server_error', message: `${VENDOR} broke` } }) }),
    error: start + event('error', { code: 'x', message: VENDOR }),
    'an error without type': `${start}data: ${JSON.stringify({ error: { message: VENDOR } })}\n\n`,
  }
  for (const [name, text] of Object.entries(cases)) {
    const rewritten = whole(openResponses(), text)
    const last = dataOf(rewritten).at(-1)
    t.match(
      last,
      {
        type: 'response.failed',
        response: { status: 'failed', error: { code: 'server_error', message: String }, model: 'svc-code', tools: [{ name: 'f' }] },
      },
      name,
    )
    t.equal(last.response.id, dataOf(rewritten)[0].response.id)
    t.notOk(rewritten.includes(VENDOR))
  }
  const tooLong = whole(
    openResponses(),
    start + event('response.failed', { response: { error: { code: 'context_length_exceeded', message: VENDOR } } }),
  )
  t.match(dataOf(tooLong).at(-1), { response: { error: { code: 'context_length_exceeded' } } })
})

t.test('a completed response has its output even when the upstream omits it', async (t) => {
  const events = responsesStream('a', 'b')
  const text = events.slice(0, -2).join('') + event('response.completed', { response: response('completed', []) })
  t.match(dataOf(whole(openResponses(), text)).at(-1), {
    response: { output: [{ type: 'message', content: [{ type: 'output_text', text: 'ab' }] }], completed_at: 1000 },
  })
  const given = event('response.completed', { response: response('completed', [message('a')], { completed_at: 1_700_000_001 }) })
  t.equal(dataOf(whole(openResponses(), given)).at(-1).response.completed_at, 1000, 'the time of the gateway, not of the upstream')
})

t.test('a response stream begins with response.created, also where the upstream leaves it out', async (t) => {
  const events = responsesStream('a', 'b')
  const last = event('response.completed', { response: response('completed', [message('ab')]) })
  const firstOf = (text: string) => dataOf(whole(openResponses(), text))
  const rows: [string, string, string[]][] = [
    ['neither', events.slice(3).join(''), ['response.created', 'response.in_progress', 'response.output_item.added']],
    ['in_progress alone', events.slice(2).join(''), ['response.created', 'response.in_progress', 'response.output_item.added']],
    ['created alone', events[0] + events.slice(3).join(''), ['response.created', 'response.output_item.added']],
    ['the last event alone', last, ['response.created', 'response.in_progress', 'response.completed']],
    ['a delta alone', events[5] + last, ['response.created', 'response.in_progress', 'response.output_text.delta', 'response.completed']],
  ]
  for (const [name, text, expected] of rows) {
    const got = firstOf(text)
    t.same(got.slice(0, expected.length).map(({ type }) => type), expected, name)
    t.same(got.map((one) => one.sequence_number), got.map((_, n) => n), name)
    t.equal(new Set(got.flatMap((one) => one.response?.id ?? [])).size, 1, name)
    t.match(got[0], { response: { status: 'in_progress', output: [], usage: null } })
  }
})

t.test('items and events that are not of the wire are dropped', async (t) => {
  const strange = { type: 'vendor_thing', id: VENDOR, text: VENDOR }
  const text = [
    event('response.created', { response: response('in_progress') }),
    event('response.vendor_thing.delta', { delta: VENDOR }),
    event('response.output_item.done', { output_index: 0, item: strange }),
    event('response.completed', { response: response('completed', [strange, message('a')]) }),
  ].join('')
  const events = dataOf(whole(openResponses(), text))
  t.same(
    events.map(({ type }) => type),
    ['response.created', 'response.completed'],
  )
  t.equal(events[1].response.output.length, 1)
})

t.test('an id is encrypted to the same text in every event, in the shape of OpenAI, and decrypts to the upstream\'s own', async (t) => {
  const events = dataOf(whole(openResponses(), RESPONSES))
  const itemIds = new Set(
    events.flatMap((one) => [one.item_id, one.item?.id, one.response?.output?.[0]?.id]).filter((id) => id !== undefined),
  )
  t.equal(itemIds.size, 1)
  const [id] = [...itemIds] as string[]
  t.match(id, /^msg_[A-Za-z0-9_-]+$/)
  t.equal(ids('acme/first').decrypt(id!), `msg_${VENDOR}_1`)
  t.equal(ids('other/plan').decrypt(id!), id, 'another subscription cannot decrypt it')
  t.equal(openIds([Buffer.alloc(48, 9), Buffer.alloc(48, 1)])('acme/first').decrypt(id!), `msg_${VENDOR}_1`, 'an older key still decrypts')
  t.equal(ids('acme/first').decrypt('msg_e9ca9a9f-0bbf-5aad-877f-817b3e02234f'), 'msg_e9ca9a9f-0bbf-5aad-877f-817b3e02234f')
})

t.test('ids are remembered within their subscription, and no more of them than a bound', async (t) => {
  const recent = openRecentIds()
  let computed = 0
  const get = (subscription: string, id: string) => recent.get(subscription, id, () => `${subscription} ${id} ${++computed}`)
  t.equal(get('acme/first', 'a'), 'acme/first a 1')
  t.equal(get('acme/first', 'a'), 'acme/first a 1')
  t.equal(get('other/first', 'a'), 'other/first a 2', 'another subscription')
  for (let n = 0; n < 20_000; n++) {
    get('acme/first', `fill ${n}`)
    if (n % 1000 === 0) t.equal(get('acme/first', 'a'), 'acme/first a 1', 'used again and again')
  }
  t.equal(get('other/first', 'a'), `other/first a ${computed}`, 'forgotten')
  const long = 'x'.repeat(1000)
  t.not(get('acme/first', long), get('acme/first', long), 'sealed content is not kept')
})

t.test('a broken stream yields nothing more', async (t: Test) => {
  const stream = openChat()
  stream.push(Buffer.from('data: {"error":{}}\n\n'))
  t.equal(stream.phase().name, 'broken')
  t.equal(stream.push(Buffer.from(CHAT)), '')
  t.equal(stream.end(), '')
  t.match(stream.fail(overLimit('upstreams')), /^data: \{"error"/)
})

t.test('output tokens are counted when an upstream reports no usage', async (t) => {
  const stream = openChat()
  whole(stream, [...Array.from({ length: 50 }, (_, n) => chunk([delta({ content: ` word${n} "é"` })])), DONE].join(''))
  t.equal(stream.usage(), null)
  const tokens = await stream.meter.countTokens()
  t.ok(tokens > 150 && tokens < 400, String(tokens))
  t.ok(stream.meter.estimateTokens() > 100 && stream.meter.estimateTokens() < 300)
  const long = openChat()
  whole(long, Array.from({ length: 400 }, () => chunk([delta({ content: 'x'.repeat(1000) })])).join(''))
  t.ok((await long.meter.countTokens()) > 10_000, 'a text without white space')
})

t.test('a truncated or failed answer of the model is never reported as a success', async (t) => {
  const finishes = (reason: unknown) => dataOf(whole(openChat(), chunk([delta({ content: 'a' })]) + chunk([delta({}, reason as string)]) + DONE))
  for (const reason of ['length', 'MAX_TOKENS', 'max_output_tokens', 'model_length', 'some_new_reason', VENDOR])
    t.equal(finishes(reason).at(-2).choices[0].finish_reason, 'length', reason)
  for (const reason of ['stop', 'STOP', 'eos', 'eos_token', 'end_turn', 'stop_sequence']) t.equal(finishes(reason).at(-2).choices[0].finish_reason, 'stop', reason)
  for (const reason of ['SAFETY', 'content_filter', 'RECITATION']) t.equal(finishes(reason).at(-2).choices[0].finish_reason, 'content_filter', reason)
  for (const reason of ['tool_calls', 'TOOL_USE', 'tool_call']) t.equal(finishes(reason).at(-2).choices[0].finish_reason, 'tool_calls', reason)
  for (const reason of ['abort', 'error', 'ERROR', 'cancelled', 'insufficient_system_resource', 'network_error', 'MALFORMED_FUNCTION_CALL']) {
    const events = finishes(reason)
    t.match(events.at(-1), { error: { code: 'server_overloaded' } }, reason)
    t.notOk(events.includes('[DONE]'))
  }
  const last = (response: object) => dataOf(whole(openResponses(), responsesStream('a').slice(0, 9).join('') + event('response.completed', { response }))).at(-1)
  t.equal(last(response('failed', [message('a')])).type, 'response.failed')
  t.equal(last(response('cancelled', [message('a')])).type, 'response.failed')
  t.match(last(response('incomplete', [message('a')])), { type: 'response.incomplete', response: { status: 'incomplete' } })
})

t.test('items and parts that are dropped leave no gap in output_index and content_index', async (t) => {
  const strange = { type: 'vendor_thing', id: VENDOR }
  const place = { item_id: `msg_${VENDOR}_1`, output_index: 1 }
  const text = [
    event('response.created', { response: response('in_progress') }),
    event('response.output_item.added', { output_index: 0, item: strange }),
    event('response.output_text.delta', { output_index: 0, content_index: 0, item_id: VENDOR, delta: 'dropped' }),
    event('response.output_item.done', { output_index: 0, item: strange }),
    event('response.output_item.added', { output_index: 1, item: { ...message(''), content: [] } }),
    event('response.content_part.added', { ...place, content_index: 0, part: strange }),
    event('response.content_part.added', { ...place, content_index: 1, part: { type: 'output_text', text: '' } }),
    ...['a', 'b', 'c'].map((delta) => event('response.output_text.delta', { ...place, content_index: 1, delta })),
    event('response.output_text.done', { ...place, content_index: 1, text: 'abc' }),
    event('response.content_part.done', { ...place, content_index: 0, part: strange }),
    event('response.content_part.done', { ...place, content_index: 1, part: { type: 'output_text', text: 'abc' } }),
    event('response.output_item.done', { output_index: 1, item: message('abc') }),
    event('response.output_item.added', { output_index: 2, item: strange }),
    event('response.output_item.added', { output_index: 3, item: { type: 'function_call', id: 'fc_1', call_id: 'c', name: 'f', arguments: '' } }),
    event('response.function_call_arguments.delta', { output_index: 3, item_id: 'fc_1', delta: '{}' }),
    event('response.output_item.done', { output_index: 3, item: { type: 'function_call', id: 'fc_1', call_id: 'c', name: 'f', arguments: '{}' } }),
    event('response.completed', { response: response('completed', []) }),
  ].join('')
  const events = dataOf(whole(openResponses(), text))
  t.same(
    events.filter((one) => one.output_index !== undefined).map((one) => [one.type.replace('response.', ''), one.output_index, one.content_index]),
    [
      ['output_item.added', 0, undefined],
      ['content_part.added', 0, 0],
      ...['a', 'b', 'c'].map(() => ['output_text.delta', 0, 0]),
      ['output_text.done', 0, 0],
      ['content_part.done', 0, 0],
      ['output_item.done', 0, undefined],
      ['output_item.added', 1, undefined],
      ['function_call_arguments.delta', 1, undefined],
      ['output_item.done', 1, undefined],
    ],
  )
  t.same(events.map((one) => one.sequence_number), events.map((_, index) => index))
  t.same(events.at(-1).response.output.map(({ type }: { type: string }) => type), ['message', 'function_call'])
  t.notOk(JSON.stringify(events).includes('dropped'))
})

t.test('invalid UTF-8 in a text is replaced, also in an event that matches a template', async (t) => {
  const raw = (text: string | Buffer) => Buffer.concat([Buffer.from('data: {"id":"x","choices":[{"index":0,"delta":{"content":"'), Buffer.from(text as string), Buffer.from('"}}]}\n\n')])
  for (const bad of [[0xff], [0xc3], [0xe2, 0x82], [0xed, 0xa0, 0x80], [0xc0, 0xaf], [0xf5, 0x80, 0x80, 0x80]]) {
    const stream = openChat()
    let rewritten = ''
    for (const piece of [raw('a'), raw('b'), raw('\u00e9'), raw(Buffer.from(bad)), raw('c'), Buffer.from(DONE)]) rewritten += stream.push(piece)
    const bytes = Buffer.from(rewritten, 'latin1')
    t.ok(isUtf8(bytes), Buffer.from(bad).toString('hex'))
    t.ok(bytes.toString('utf8').includes('\ufffd'))
    t.ok(bytes.toString('utf8').includes('"\u00e9"'))
  }
})

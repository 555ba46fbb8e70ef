/** Properties of translated streams over generated answers. A seed that fails is in the test's message. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { WIRES, type CodingRequest, type UpstreamCall, type WireName } from '../../src/upstream/wires/wire.ts'
import { chunk, delta, DONE, event, RESPONSE_USAGE, USAGE } from '../fakes/upstream-wire.ts'
import { dataOf, type Loose } from './gateway.ts'
import { assembled, callOf, openRequestIds, randomOf, rewrite, TOOLS, whole } from './translation.ts'

type Call = { name: string; text: string }
type Answer = { reasoning: string; content: string; calls: Call[]; cut: boolean }

const ALPHABET = ['a', 'B', ' ', 'é', '日', '😀', '"', '\\', '\n', '{', '}', 'data: ', '\u2028', '\0', '</s>']
const NAMES = ['read', 'patch', 'files__list', 'unknown']

/** An answer of a model and one of the ways in which a chat server may stream it. */
function generate(seed: number): { answer: Answer; stream: string } {
  const random = randomOf(seed)
  const below = (limit: number) => Math.floor(random() * limit)
  const text = (most: number) => Array.from({ length: below(most) }, () => ALPHABET[below(ALPHABET.length)]).join('')
  const pieces = (whole: string): string[] => {
    const letters = [...whole]
    const parts: string[] = []
    while (letters.length > 0) parts.push(letters.splice(0, 1 + below(4)).join(''))
    return parts
  }
  const call = (): Call => {
    const name = NAMES[below(NAMES.length)] ?? 'read'
    return { name, text: JSON.stringify(name === 'patch' ? { input: text(20) } : { a: text(20) }) }
  }
  const answer: Answer = { reasoning: below(2) ? text(30) : '', content: below(3) ? text(60) : '', calls: Array.from({ length: below(4) }, call), cut: below(4) === 0 }
  const member = below(2) ? 'reasoning_content' : 'reasoning'
  const queues = answer.calls.map(({ name, text: given }, index) => {
    const [first = '', ...others] = pieces(given)
    const start = { index, id: `call-${index}`, type: 'function' }
    // Some servers send the name after the first arguments.
    const begin = below(3) === 0 ? [{ ...start, function: { arguments: first } }, { index, function: { name } }] : [{ ...start, function: { name, arguments: first } }]
    return { begin, rest: others.map((part) => ({ index, function: { arguments: part } })) }
  })
  const deltas: object[] = [...pieces(answer.reasoning).map((part) => ({ [member]: part })), ...pieces(answer.content).map((part) => ({ content: part }))]
  // The calls begin in order, and their arguments alternate.
  for (const { begin } of queues) deltas.push(...begin.map((one) => ({ tool_calls: [one] })))
  for (let open = queues; open.length > 0; open = open.filter(({ rest }) => rest.length > 0)) {
    const next = open[below(open.length)]?.rest.shift()
    if (next) deltas.push({ tool_calls: [next] })
  }
  const reason = answer.cut ? 'length' : answer.calls.length > 0 ? 'tool_calls' : 'stop'
  const chunks = [{ role: 'assistant', content: '' }, ...deltas].map((one) => chunk([delta(one)]))
  return { answer, stream: [...chunks, chunk([delta({}, reason)]), chunk([], { usage: USAGE }), DONE].join('') }
}

/** What the client of the Responses wire got. */
function answerOf(events: Loose[]): Answer {
  const { status, output } = events.at(-1).response
  const texts = (type: string) => output.filter((item: Loose) => item.type === type).flatMap((item: Loose) => item.content).map((part: Loose) => part.text).join('')
  const calls = output
    .filter((item: Loose) => item.call_id)
    .map((item: Loose) => ({
      name: item.namespace ? `${item.namespace}__${item.name}` : item.name,
      text: item.arguments ?? JSON.stringify({ input: item.input }),
    }))
  return { reasoning: texts('reasoning'), content: texts('message'), calls, cut: status === 'incomplete' }
}

t.test('every generated chat stream becomes a complete and ordered stream of a response', async (t) => {
  for (let seed = 1; seed <= 300; seed++) {
    const { answer, stream } = generate(seed)
    const events = dataOf(whole('responses', stream))
    const faults: string[] = []
    const expect = (ok: boolean, fault: string) => void (ok || faults.push(fault))
    expect(JSON.stringify(answerOf(events)) === JSON.stringify(answer), `the answer: ${JSON.stringify(answerOf(events))} for ${JSON.stringify(answer)}`)
    expect(events.every(({ sequence_number: number }, index) => number === index), 'sequence numbers')
    const added = events.filter(({ type }) => type === 'response.output_item.added')
    const done = events.filter(({ type }) => type === 'response.output_item.done')
    expect(added.every(({ output_index: index }, n) => index === n), 'output indexes')
    expect(JSON.stringify(done.toSorted((a, b) => a.output_index - b.output_index).map(({ item }) => item)) === JSON.stringify(events.at(-1).response.output), 'finished items')
    for (const { item, output_index: index } of done) {
      const deltas = events.filter((one) => one.output_index === index && one.type.endsWith('.delta'))
      const text = item.content ? item.content.map((part: Loose) => part.text).join('') : (item.arguments ?? item.input)
      expect(deltas.map((one) => one.delta).join('') === text, `deltas of item ${index}`)
      expect(deltas.every(({ item_id: id }) => id === item.id), `ids of item ${index}`)
    }
    t.same(faults, [], `seed ${seed}`)
  }
})

t.test('a stream that is translated twice is the answer that the model gave', async (t) => {
  for (let seed = 1; seed <= 300; seed++) {
    const { answer, stream } = generate(seed)
    const twice = rewrite(callOf('chat').openRewriter(), [Buffer.from(whole('responses', stream, { tools: [] }))])
    const built = assembled(twice)
    const got: Answer = {
      reasoning: built.reasoning_content,
      content: built.content,
      calls: built.calls.map((call: Loose) => ({ name: call.function.name, text: call.text })),
      cut: built.reasons[0] === 'length',
    }
    t.same(got, answer, `seed ${seed}`)
    t.equal(built.usage.total_tokens, USAGE.total_tokens, `seed ${seed}`)
  }
})

const HI = [{ role: 'user', content: 'Hi' }]
const STOP = ['</s>']

/** A request of each wire, with a stop sequence where the wire has them. */
const REQUESTS: Record<WireName, (stop: string[]) => CodingRequest> = {
  chat: (stop) => readChatRequest({ model: 'svc-code', messages: HI, stream: true, stream_options: { include_usage: true }, stop }, new Set()),
  responses: () => readResponsesRequest({ model: 'svc-code', input: 'Hi', stream: true, tools: TOOLS }, new Set()),
  messages: (stop) =>
    readMessagesRequest({ model: 'svc-code', max_tokens: 100, messages: HI, stream: true, stop_sequences: stop, thinking: { type: 'enabled', budget_tokens: 2000 } }, new Set(), {
      betas: [],
      promptTokens: () => 9,
    }),
}

/** Ids are numbered, so that two translations of one stream are equal. */
const callBetween = (client: WireName, upstream: WireName, stop: string[]): UpstreamCall => REQUESTS[client](stop).call(100, openRequestIds(), () => 1000, [upstream])

/** Templates of an upstream that never learns any: each of its events is parsed. */
const unlearned = () => ({ get: () => Object.assign([], { unshift: () => 0 }), set: () => {} }) as unknown as Map<string, unknown[]>

/** The same chunks with what some servers send beside a text. */
function embellished(stream: string, seed: number): string {
  return stream.replaceAll(/^data: (\{[^\n]*)$/gm, (line: string, json: string) => {
    const value: Loose = JSON.parse(json)
    const [choice] = value.choices
    if (!choice) return line
    const { content, reasoning } = choice.delta
    if (reasoning && seed % 3 === 0) choice.delta.reasoning_content = `${reasoning}!`
    if (reasoning && seed % 3 === 1) choice.delta.reasoning_details = [{ type: 'reasoning.text', text: 'kept' }]
    if (content && seed % 4 === 0) choice.logprobs = { content: [{ token: 'kept', logprob: -1, bytes: null, top_logprobs: [] }], refusal: null }
    return `data: ${JSON.stringify(value)}`
  })
}

t.test('a stream is translated to the same bytes by templates, whoever taught them, as by parsing each event', async (t) => {
  const learned = new Map(WIRES.map((wire) => [wire, new Map<string, unknown[]>()]))
  for (let seed = 1; seed <= 60; seed++) {
    const chat = embellished(generate(seed).stream, seed)
    const texts = { chat, responses: rewrite(callBetween('responses', 'chat', []).openRewriter(unlearned()), [Buffer.from(chat)]), messages: '' }
    texts.messages = rewrite(callBetween('messages', 'responses', []).openRewriter(unlearned()), [Buffer.from(texts.responses)])
    for (const client of WIRES) {
      for (const upstream of WIRES) {
        for (const stop of [[], STOP]) {
          const [byParsing, byTemplates] = [unlearned(), learned.get(upstream)].map((sets) => rewrite(callBetween(client, upstream, stop).openRewriter(sets), [Buffer.from(texts[upstream])]))
          t.equal(byTemplates, byParsing, `seed ${seed}, ${client} over ${upstream}, stop ${stop.join()}`)
        }
      }
    }
  }
  for (const [wire, sets] of learned) t.equal(sets.size >= 3, true, `templates of ${wire}: ${[...sets.keys()].join()}`)
})

/** A streamed response of two parts of reasoning and a text. `named`: the type is in the name of an event alone. */
function twoParts(first: string, named = false): string {
  const part = (index: number, texts: string[]) => texts.map((text) => event('response.reasoning_summary_text.delta', { item_id: 'rs_1', output_index: 0, summary_index: index, delta: text }))
  const texts = ['The ', 'answer ', '', 'is ', 'seven'].map((text) => event('response.output_text.delta', { item_id: 'msg_1', output_index: 1, content_index: 0, delta: text }))
  const bare = ['Let ', 'me ', 'think'].map((text) => event('response.reasoning_text.delta', { delta: text }))
  const deltas = named ? [...bare, ...texts.map((one) => one.replace(/"item_id".*"delta"/, '"delta"'))].map((one) => one.replace(/"type":"[^"]*",/, '')) : [...part(0, ['First ', 'part ', 'of it']), ...part(1, [first, ' value', ' is', ' seven']), ...texts]
  return [
    event('response.created', { response: { id: 'resp_1', status: 'in_progress', service_tier: 'default', output: [] } }),
    ...deltas,
    event('response.completed', { response: { id: 'resp_1', status: 'completed', service_tier: 'default', output: [], usage: RESPONSE_USAGE } }),
  ].join('')
}

t.test('a text that a translation changes, or that is empty, and an event that its name alone tells, are parsed', async (t) => {
  const cases = [...['default', 'svc-code', 'chat.completion.chunk', 'thinking_delta', 'content_block_delta', 'Second'].map((first) => twoParts(first)), twoParts('', true)]
  for (const client of WIRES) {
    const learned = new Map<string, unknown[]>()
    for (const [n, text] of [...cases, ...cases].entries()) {
      const [byParsing, byTemplates] = [unlearned(), learned].map((sets) => rewrite(callBetween(client, 'responses', []).openRewriter(sets), [Buffer.from(text)]))
      t.equal(byTemplates, byParsing, `${client}, case ${n}`)
    }
  }
})

t.test('a translated stream keeps its text, and not the events that brought it', async (t) => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const heap = () => (collect(), process.memoryUsage().heapUsed)
  const rewriter = callBetween('responses', 'chat', []).openRewriter(new Map())
  const before = heap()
  for (let n = 0; n < 5000; n++) rewriter.push(Buffer.from(chunk([delta({ content: 'a text of some twenty letters' })], { system_fingerprint: 'f'.repeat(3000) })))
  const kept = heap() - before
  t.equal(rewriter.phase().name, 'open')
  t.ok(kept < 5_000_000, `${kept} bytes for ${5000 * 29} of text`)
})

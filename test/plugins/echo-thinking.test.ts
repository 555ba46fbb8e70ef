/** The thought of the echo, on each wire of clients and over each wire of the echo: told when it is asked for, and taken back with the next turn. */
import t from 'tap'
import { WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { dataOf, openGateway, post, type Loose } from '../upstream/gateway.ts'
import { assembledMessage, eventsOf } from '../upstream/message-events.ts'
import { openaiSchemas } from '../upstream/openai-schemas.ts'

const THOUGHT = 'I repeat what was said.'
const HELLO = [{ role: 'user', content: 'Hello' }]

type Client = {
  path: string
  body: object
  /** Settings that ask for thinking. */
  asking: object[]
  /** The thought and the turn of an answer as JSON, and of a stream. */
  whole(body: Loose): { thought: string; turn: object[] }
  streamed(text: string): { thought: string }
  next(turn: object[]): object
}

const CLIENTS: Record<WireName, Client> = {
  chat: {
    path: '/v1/chat/completions',
    body: { messages: HELLO },
    asking: [{ reasoning_effort: 'low' }, { thinking: { type: 'enabled' } }, { enable_thinking: true }, { reasoning: { max_tokens: 2000 } }],
    whole: ({ choices: [{ message }] }) => ({ thought: message.reasoning_content ?? '', turn: [message] }),
    streamed: (text) => ({ thought: dataOf(text).slice(0, -1).map(({ choices: [choice] }) => choice?.delta.reasoning_content ?? '').join('') }),
    next: (turn) => ({ messages: [...HELLO, ...turn, ...HELLO] }),
  },
  responses: {
    path: '/v1/responses',
    body: { input: HELLO },
    asking: [{ reasoning: { effort: 'low', summary: 'auto' } }],
    whole: ({ output }) => ({ thought: [...(output[0].summary ?? []), ...(output[0].type === 'reasoning' ? (output[0].content ?? []) : [])].map(({ text }: Loose) => text).join(''), turn: output }),
    streamed: (text) => ({ thought: dataOf(text).map(({ type, delta }) => (/reasoning.*delta$/.test(type) ? delta : '')).join('') }),
    next: (turn) => ({ input: [...HELLO, ...turn, ...HELLO] }),
  },
  messages: {
    path: '/v1/messages',
    body: { max_tokens: 4096, messages: HELLO },
    asking: [{ thinking: { type: 'adaptive' }, output_config: { effort: 'low' } }, { thinking: { type: 'enabled', budget_tokens: 2000 } }],
    whole: ({ content }) => ({ thought: content[0].thinking ?? '', turn: [{ role: 'assistant', content }] }),
    streamed: (text) => ({ thought: assembledMessage(eventsOf(text)).content[0].thinking ?? '' }),
    next: (turn) => ({ max_tokens: 4096, messages: [...HELLO, ...turn, ...HELLO] }),
  },
}

for (const client of WIRES) {
  for (const wire of WIRES) {
    t.test(`${client} client, ${wire} echo`, async (t) => {
      const gateway = await openGateway(t, { declared: [{ name: 'echo', baseUrl: 'echo:', wire }] })
      const valid = openaiSchemas(t)
      const { path, body, asking, whole, streamed, next } = CLIENTS[client]
      const ask = async (more: object) => {
        const got = await post(gateway, path, { model: 'svc-code', ...body, ...more })
        t.equal(got.status, 200, got.text)
        return { ...got, settled: await gateway.settled() }
      }
      const plain = await ask({})
      t.equal(whole(plain.body).thought, '', 'none without a request for it')
      for (const settings of asking) {
        const answer = await ask(settings)
        if (client === 'chat') valid?.('CreateChatCompletionResponse', answer.body)
        if (client === 'responses') valid?.('Response', answer.body)
        const { thought, turn } = whole(answer.body)
        t.equal(thought, THOUGHT, JSON.stringify(settings))
        t.ok(answer.settled!.usage.output > plain.settled!.usage.output, 'it is charged')
        const stream = await ask({ ...settings, stream: true })
        t.equal(streamed(stream.text).thought, THOUGHT, `${JSON.stringify(settings)}, streamed`)
        if (client === 'responses') for (const event of dataOf(stream.text)) valid?.('ResponseStreamEvent', event)
        t.equal((await ask({ ...settings, ...next(turn) })).status, 200, 'the next turn passes')
      }
    })
  }
}

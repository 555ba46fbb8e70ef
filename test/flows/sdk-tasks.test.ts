/** SDKs and agent frameworks run a loop of tool calls over an upstream of one wire, on each endpoint, whole and streamed. `npm run servers` installs them. */
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { SIGNATURE } from '../fakes/messages-wire.ts'
import { openUpstream, type FakeUpstream } from '../fakes/upstream.ts'
import { VENDOR } from '../fakes/upstream-wire.ts'
import { need, noneInstalled } from '../servers/client.ts'
import { used } from './calls.ts'
import { MESSAGES_CLIENTS, type MessagesClient } from './messages-clients.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'
import { callId, costOf, IMAGE_OF, taskModel, THOUGHT, type Task } from './task-model.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- the frameworks are no dependencies of this package

const PROMPT = 'Add twelve pairs of numbers, then two of the sums.'
/** Twelve calls at once, then one that needs their results. `add`: what the client calls its tool. */
const taskWith = (add: string): Task => ({
  turns: [Array.from({ length: 12 }, (_, n) => ({ name: add, arguments: { a: n, b: 1 } })), [{ name: add, arguments: { a: 3, b: 7 } }]],
  last: (results) => `The sum is ${results[12]}.`,
})
const PARAMETERS = { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'], additionalProperties: false }
const TOOL = { description: 'Adds two numbers', execute: async ({ a, b }: { a: number; b: number }) => String(a + b) }

type Framework = { server: string; endpoints: WireName[]; run(path: string, options: { baseURL: string; apiKey: string; endpoint: WireName; streamed: boolean }): Promise<string> }

const load = (path: string, ...to: string[]): Promise<Loose> => import(pathToFileURL(join(dirname(path), ...to)).href)

const FRAMEWORKS: Record<string, Framework> = {
  'AI SDK': {
    server: 'ai-sdk',
    endpoints: ['chat'],
    async run(path, { baseURL, apiKey, streamed }) {
      const { generateText, streamText, jsonSchema, tool, stepCountIs } = (await import(pathToFileURL(path).href)) as Loose
      const { createOpenAICompatible } = await load(path, '../../@ai-sdk/openai-compatible/dist/index.js')
      const model = createOpenAICompatible({ name: 'tollgate', baseURL, apiKey, includeUsage: true })('svc-code')
      const asked = { model, prompt: PROMPT, tools: { add: tool({ ...TOOL, inputSchema: jsonSchema(PARAMETERS) }) }, stopWhen: stepCountIs(5) }
      return streamed ? streamText(asked).text : (await generateText(asked)).text
    },
  },
  LangChain: {
    server: 'langchain-node',
    endpoints: ['chat', 'responses'],
    async run(path, { baseURL, apiKey, endpoint, streamed }) {
      const { ChatOpenAI } = (await import(pathToFileURL(path).href)) as Loose
      const { HumanMessage, ToolMessage } = await load(path, '../../core/dist/messages/index.js')
      const tools = [{ type: 'function', function: { name: 'add', description: TOOL.description, parameters: PARAMETERS } }]
      const model = new ChatOpenAI({ model: 'svc-code', apiKey, configuration: { baseURL }, useResponsesApi: endpoint === 'responses' }).bindTools(tools)
      const messages = [new HumanMessage(PROMPT)]
      for (;;) {
        let turn = streamed ? null : await model.invoke(messages)
        if (streamed) for await (const part of await model.stream(messages)) turn = turn ? turn.concat(part) : part
        if (turn.tool_calls.length === 0) return turn.text
        messages.push(turn)
        for (const { id, args } of turn.tool_calls) messages.push(new ToolMessage({ content: await TOOL.execute(args), tool_call_id: id }))
      }
    },
  },
  'OpenAI Agents SDK': {
    server: 'openai-agents-node',
    endpoints: ['chat', 'responses'],
    async run(path, { baseURL, apiKey, endpoint, streamed }) {
      const { Agent, run, setTracingDisabled, tool, OpenAIProvider, Runner } = (await import(pathToFileURL(path).href)) as Loose
      const { default: OpenAI } = await load(path, '../../../openai/index.mjs')
      setTracingDisabled(true)
      const modelProvider = new OpenAIProvider({ openAIClient: new OpenAI({ baseURL, apiKey }), useResponses: endpoint === 'responses' })
      const agent = new Agent({ name: 'Adder', model: 'svc-code', tools: [tool({ ...TOOL, name: 'add', parameters: PARAMETERS, strict: false })] })
      const result = await new Runner({ modelProvider }).run(agent, PROMPT, { stream: streamed })
      if (streamed) await result.completed
      return run ? result.finalOutput : ''
    },
  },
}

for (const wire of WIRES) {
  t.test(`frameworks over an upstream that speaks ${wire} alone`, { timeout: 300_000 }, async (t) => {
    if (noneInstalled(t, [...Object.values(FRAMEWORKS), ...Object.values(MESSAGES_CLIENTS)].map(({ server }) => server))) return
    const upstream = await openUpstream()
    const { folder, program } = await startOverOneWire(t, upstream, wire)
    const setting = { folder, program, upstream, wire }
    for (const [name, framework] of Object.entries(FRAMEWORKS)) {
      for (const endpoint of framework.endpoints) {
        for (const streamed of [false, true]) await t.test(`${name}, ${endpoint}, ${streamed ? 'streamed' : 'whole'}`, (t) => solve(t, framework, { ...setting, endpoint, streamed }))
      }
    }
    for (const [name, client] of Object.entries(MESSAGES_CLIENTS)) {
      for (const streamed of client.streamed) await t.test(`${name}, ${streamed ? 'streamed' : 'whole'}`, (t) => think(t, client, { ...setting, streamed }))
    }
  })
}

type Setting = { folder: string; program: Program; upstream: FakeUpstream; wire: WireName; streamed: boolean }

/** Runs the task; resolves with the body of the last request. */
async function checkTask(t: Test, { program, upstream, wire, streamed }: Setting, add: string, run: (key: string) => Promise<string>): Promise<Loose> {
  const key = await program.key('team-key')
  const [before, earlier, task] = [await used(program, key), upstream.requests.length, taskWith(add)]
  upstream.respondWith(taskModel(wire, task))
  t.equal(await run(key), 'The sum is 10.')
  const requests = upstream.requests.slice(earlier)
  t.equal(requests.length, 3)
  t.ok(requests.every(({ body }) => (body['stream'] ?? false) === streamed))
  const body = requests.at(-1)!.body as Loose
  const twelve = Array.from({ length: 12 }, (_, n) => n)
  t.same(idsIn(wire, body), [...twelve, ...twelve, 12, 12].map((n) => callId(n, wire)), 'the calls come back under the ids of the upstream')
  t.equal((await used(program, key)).session - before.session, costOf(task))
  return body
}

/** The ids of calls and results in their order. */
function idsIn(wire: WireName, { messages, input }: Loose): string[] {
  if (wire === 'responses') return input.flatMap((one: Loose) => one.call_id ?? [])
  if (wire === 'chat') return messages.flatMap((one: Loose) => one.tool_call_id ?? one.tool_calls?.map(({ id }: Loose) => id) ?? [])
  return blocksIn(messages).flatMap((one) => one.tool_use_id ?? (one.type === 'tool_use' ? one.id : []))
}

const blocksIn = (messages: Loose[]): Loose[] => messages.flatMap(({ content }) => (Array.isArray(content) ? content : []))

async function solve(t: Test, framework: Framework, setting: Setting & { endpoint: WireName }): Promise<void> {
  const path = need(t, framework.server)
  if (path === null) return
  const { endpoint, streamed, program } = setting
  await checkTask(t, setting, 'add', (apiKey) => framework.run(path, { baseURL: `${program.url}/v1`, apiKey, endpoint, streamed }))
}

/** A client of the Messages wire sends an image, and replays the thinking of both turns as the upstream gave it. */
async function think(t: Test, client: MessagesClient, setting: Setting): Promise<void> {
  const path = need(t, client.server)
  if (path === null) return
  const { folder, program, streamed, wire } = setting
  const body = await checkTask(t, setting, client.tool, async (key) => {
    const answer = await client.ask({ path, folder, url: program.url, key, prompt: PROMPT, streamed, works: true })
    t.notOk(JSON.stringify(answer).includes(VENDOR), 'nothing names the upstream')
    return answer.text
  })
  t.ok(JSON.stringify(body).includes(IMAGE_OF[wire]), 'the image arrived')
  t.match(thoughtsIn(wire, body), Array.from({ length: 2 }, () => THOUGHT_OF[wire]))
}

const THOUGHT_OF: Record<WireName, string> = { chat: THOUGHT, responses: `${VENDOR}-encrypted-`, messages: SIGNATURE }

/** What the model continues its reasoning by, in each turn. */
function thoughtsIn(wire: WireName, { messages, input }: Loose): string[] {
  if (wire === 'responses') return input.filter(({ type }: Loose) => type === 'reasoning').map((item: Loose) => item.encrypted_content)
  if (wire === 'chat') return messages.filter(({ role }: Loose) => role === 'assistant').map((turn: Loose) => turn.reasoning_content)
  return blocksIn(messages).filter(({ type }) => type === 'thinking').map(({ signature }) => signature)
}

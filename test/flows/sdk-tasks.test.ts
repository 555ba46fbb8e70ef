/** Agent frameworks run a loop of tool calls over an upstream of one wire, on both endpoints, whole and streamed. `npm run servers` installs them. */
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { openUpstream, type FakeUpstream } from '../fakes/upstream.ts'
import { RESPONSE_USAGE } from '../fakes/upstream-wire.ts'
import { need } from '../servers/client.ts'
import { used } from './calls.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'
import { callId, taskModel, type Task } from './task-model.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- the frameworks are no dependencies of this package
type Wire = 'chat' | 'responses'

const PROMPT = 'Add 1 and 2, add 3 and 4, and add both sums.'
const call = (a: number, b: number) => ({ name: 'add', arguments: { a, b } })
/** Two calls at once, then one that needs their results. */
const TASK: Task = { turns: [[call(1, 2), call(3, 4)], [call(3, 7)]], last: (results) => `The sum is ${results[2]}.` }
const PARAMETERS = { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'], additionalProperties: false }
const TOOL = { description: 'Adds two numbers', execute: async ({ a, b }: { a: number; b: number }) => String(a + b) }

type Framework = { server: string; endpoints: Wire[]; run(path: string, options: { baseURL: string; apiKey: string; endpoint: Wire; streamed: boolean }): Promise<string> }

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

for (const wire of ['chat', 'responses'] as const) {
  t.test(`frameworks over an upstream that speaks ${wire} alone`, { timeout: 300_000 }, async (t) => {
    const upstream = await openUpstream(taskModel(wire, TASK))
    const { program } = await startOverOneWire(t, upstream, wire)
    for (const [name, framework] of Object.entries(FRAMEWORKS)) {
      for (const endpoint of framework.endpoints) {
        for (const streamed of [false, true]) await t.test(`${name}, ${endpoint}, ${streamed ? 'streamed' : 'whole'}`, (t) => solve(t, framework, { program, upstream, wire, endpoint, streamed }))
      }
    }
  })
}

type Setting = { program: Program; upstream: FakeUpstream; wire: Wire; endpoint: Wire; streamed: boolean }

async function solve(t: Test, framework: Framework, { program, upstream, wire, endpoint, streamed }: Setting): Promise<void> {
  const path = need(t, framework.server)
  if (path === null) return
  const key = await program.key('team-key')
  const [before, earlier] = [await used(program, key), upstream.requests.length]
  t.equal(await framework.run(path, { baseURL: `${program.url}/v1`, apiKey: key, endpoint, streamed }), 'The sum is 10.')
  const requests = upstream.requests.slice(earlier)
  t.equal(requests.length, 3)
  t.ok(requests.every(({ body }) => (body['stream'] ?? false) === streamed))
  const { messages, input } = requests.at(-1)!.body as Loose
  const replayed = wire === 'chat' ? messages.flatMap((one: Loose) => one.tool_call_id ?? one.tool_calls?.map(({ id }: Loose) => id) ?? []) : input.flatMap((one: Loose) => one.call_id ?? [])
  t.same(replayed, [0, 1, 0, 1, 2, 2].map(callId), 'the calls come back under the ids of the upstream')
  t.equal((await used(program, key)).session - before.session, 3 * RESPONSE_USAGE.total_tokens)
}

/** Clients of the Messages wire with a tool that adds: Anthropic's SDKs for JavaScript and Python, the Claude Agent SDK, and the AI SDK. `npm run servers` installs them. */
import { mkdtemp } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { png } from '../backends/engines/media-samples.ts'
import { checkMessagesJson, checkMessagesStream } from '../upstream/messages-schemas.ts'
import { claudeEnvironment } from './coding-agents.ts'
import { run } from './run.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- the clients are no dependencies of this package

export type Asked = {
  path: string
  /** For its own files. */
  folder: string
  url: string
  key: string
  prompt: string
  streamed: boolean
  /** With the tool, an image and thinking. */
  works: boolean
  /** Aborts the request, or kills a client that is a program. */
  signal?: AbortSignal | undefined
}

/** The text, or what the client says of a failure. */
export type Told = { text: string; error: string | null }

export type MessagesClient = {
  /** Its entry in `test/servers/list.ts`. */
  server: string
  /** What it calls its tool. */
  tool: string
  /** The forms of answers that it asks for. */
  streamed: boolean[]
  ask(asked: Asked): Promise<Told>
}

const SCHEMA = { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'], additionalProperties: false }
const DESCRIPTION = 'Adds two numbers'
const IMAGE = png(8, 8).toString('base64')
const THINKING = { type: 'enabled', budget_tokens: 2048 }

/** What it tells, or its failure. */
const told = (asking: Promise<string>): Promise<Told> => asking.then((text) => ({ text, error: null }), (error: Error) => ({ text: '', error: String(error) }))

const contentOf = ({ prompt, works }: Asked): object[] => [
  { type: 'text', text: prompt },
  ...(works ? [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: IMAGE } }] : []),
]

/** A `fetch` that also validates each answer; `done` rejects for one that is not valid. */
function openCheckedFetch() {
  const checks: Promise<void>[] = []
  return {
    async fetch(...request: Parameters<typeof fetch>): Promise<Response> {
      const response = await fetch(...request)
      checks.push(response.clone().text().then((text) => (text.startsWith('{') ? checkMessagesJson(JSON.parse(text)) : checkMessagesStream(text))))
      return response
    },
    done: () => Promise.all(checks),
  }
}

async function askSdk(asked: Asked): Promise<string> {
  const { default: Anthropic } = (await import(pathToFileURL(asked.path).href)) as Loose
  const checked = openCheckedFetch()
  const client = new Anthropic({ baseURL: asked.url, authToken: asked.key, apiKey: null, ...(asked.works ? { fetch: checked.fetch } : {}) })
  const messages: Loose[] = [{ role: 'user', content: contentOf(asked) }]
  const works = asked.works ? { thinking: THINKING, tools: [{ name: 'add', description: DESCRIPTION, input_schema: SCHEMA }] } : {}
  for (;;) {
    const request = { model: 'svc-code', max_tokens: 4096, messages, ...works }
    const options = asked.signal ? { signal: asked.signal } : {}
    const message = asked.streamed ? await client.messages.stream(request, options).finalMessage() : await client.messages.create(request, options)
    const calls = message.content.filter(({ type }: Loose) => type === 'tool_use')
    if (calls.length === 0) await checked.done()
    if (calls.length === 0) return message.content.map(({ text }: Loose) => text ?? '').join('')
    messages.push({ role: 'assistant', content: message.content })
    messages.push({ role: 'user', content: calls.map(({ id, input }: Loose) => ({ type: 'tool_result', tool_use_id: id, content: String(input.a + input.b) })) })
  }
}

async function askPython(asked: Asked): Promise<string> {
  const request = { content: contentOf(asked), streamed: asked.streamed, ...(asked.works ? { thinking: THINKING, tools: [{ name: 'add', description: DESCRIPTION, input_schema: SCHEMA }] } : {}) }
  const env = { ANTHROPIC_BASE_URL: asked.url, ANTHROPIC_AUTH_TOKEN: asked.key }
  const { code, stdout, stderr } = await run(asked.path, [join(import.meta.dirname, 'anthropic_client.py'), JSON.stringify(request)], { cwd: asked.folder, env, signal: asked.signal })
  if (code !== 0) throw new Error(stderr)
  return stdout
}

async function askAiSdk(asked: Asked): Promise<string> {
  const modules = join(dirname(asked.path), '../../..')
  const { createAnthropic } = (await import(pathToFileURL(asked.path).href)) as Loose
  const { generateText, streamText, jsonSchema, tool, stepCountIs } = (await import(pathToFileURL(join(modules, 'ai/dist/index.js')).href)) as Loose
  const add = tool({ description: DESCRIPTION, inputSchema: jsonSchema(SCHEMA), execute: async ({ a, b }: Loose) => String(a + b) })
  const checked = openCheckedFetch()
  const content = [{ type: 'text', text: asked.prompt }, ...(asked.works ? [{ type: 'image', image: IMAGE, mediaType: 'image/png' }] : [])]
  const request = {
    model: createAnthropic({ baseURL: `${asked.url}/v1`, authToken: asked.key, ...(asked.works ? { fetch: checked.fetch } : {}) })('svc-code'),
    messages: [{ role: 'user', content }],
    ...(asked.works ? { tools: { add }, stopWhen: stepCountIs(5), providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 2048 } } } } : {}),
    ...(asked.signal ? { abortSignal: asked.signal } : {}),
  }
  if (!asked.streamed) {
    const { text } = await generateText(request)
    await checked.done()
    return text
  }
  let failure: unknown = null
  const answer = streamText({ ...request, onError: ({ error }: Loose) => void (failure = error), onAbort: () => void (failure = new Error('aborted')) })
  const text = await answer.text.catch(() => '')
  if (failure) throw failure
  await checked.done()
  return text
}

async function askAgentSdk(asked: Asked): Promise<string> {
  const { query, createSdkMcpServer, tool } = (await import(pathToFileURL(asked.path).href)) as Loose
  const { z } = (await import(pathToFileURL(join(dirname(asked.path), '../../zod/index.js')).href)) as Loose
  const add = tool('add', DESCRIPTION, { a: z.number(), b: z.number() }, async ({ a, b }: Loose) => ({ content: [{ type: 'text', text: String(a + b) }] }))
  const home = await mkdtemp(join(asked.folder, 'home-'))
  const abortController = new AbortController()
  asked.signal?.addEventListener('abort', () => abortController.abort())
  const messages = (async function* () {
    yield { type: 'user', parent_tool_use_id: null, session_id: '', message: { role: 'user', content: contentOf(asked) } }
  })()
  const options = {
    cwd: home,
    env: { PATH: process.env['PATH'], HOME: home, ...(await claudeEnvironment(asked.url, asked.key)) },
    tools: [],
    settingSources: [],
    mcpServers: asked.works ? { sums: createSdkMcpServer({ name: 'sums', version: '1.0.0', tools: [add] }) } : {},
    allowedTools: ['mcp__sums__add'],
    abortController,
  }
  for await (const message of query({ prompt: messages, options })) {
    if (message.type !== 'result') continue
    if (message.is_error) throw new Error(message.result ?? message.errors?.join() ?? message.subtype)
    return message.result
  }
  throw new Error('no result')
}

export const MESSAGES_CLIENTS: Record<string, MessagesClient> = {
  "Anthropic's SDK for JavaScript": { server: 'anthropic-node', tool: 'add', streamed: [false, true], ask: (asked) => told(askSdk(asked)) },
  "Anthropic's SDK for Python": { server: 'anthropic-python', tool: 'add', streamed: [false, true], ask: (asked) => told(askPython(asked)) },
  "the AI SDK's Anthropic provider": { server: 'ai-sdk-anthropic', tool: 'add', streamed: [false, true], ask: (asked) => told(askAiSdk(asked)) },
  'the Claude Agent SDK': { server: 'claude-agent-sdk', tool: 'mcp__sums__add', streamed: [true], ask: (asked) => told(askAgentSdk(asked)) },
}

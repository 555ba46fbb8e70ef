/** Compatibility with real OpenAI clients: SDKs for JavaScript and Python, and Codex CLI. `npm run servers` installs them. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { need, noneInstalled } from '../servers/client.ts'
import { at, used } from './calls.ts'
import { codex, codexConfig } from './codex.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { run } from './run.ts'
import { SIDES, SIDE_TIMEOUT_MS, type Start } from './sides.ts'

const MESSAGES = [{ role: 'user', content: 'Say hello' }]

t.setTimeout(SIDE_TIMEOUT_MS)
for (const side of SIDES) {
  // Translation does not depend on the side.
  for (const wire of side.name === 'embedded' ? ['both', 'chat', 'responses', 'messages'] : ['both']) {
    t.test(`${side.name}, upstream wire ${wire}: clients`, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
      if (noneInstalled(t, ['openai-node', 'openai-python', 'codex'])) return
      const start = await side.open(t)
      if (start) await clients(t, start, wire)
    })
  }
}

async function clients(t: Test, start: Start, wire: string): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const upstreams = join(folder, 'upstreams.yaml')
  await writeFile(upstreams, `upstreams: [{name: echo, baseUrl: 'echo:', wire: ${wire}}]`)
  await declare(folder, 'team', codingPlan('team'), apiKey('team-key', 'team'))
  await declare(folder, 'tiny', codingPlan('tiny', {}, { sessionWindow: { tokens: 1, durationSeconds: 18_000 } }), apiKey('tiny-key', 'tiny'), apiKey('tiny-codex', 'tiny'))
  await declare(folder, 'paused', codingPlan('paused'), apiKey('paused-key', 'paused'))
  const program = await start({ folder, env: { UPSTREAMS: upstreams }, roles: ['controller', 'gateway'] })
  t.teardown(async () => {
    await program.kill()
    await rm(folder, { recursive: true, force: true })
  })
  const baseURL = `${program.url}/v1`

  t.test('the OpenAI SDK for JavaScript', async (t) => {
    const path = need(t, 'openai-node')
    if (path === null) return
    // The SDK is not a dependency of this package, so its values are `any`.
    const { default: OpenAI, AuthenticationError, NotFoundError, PermissionDeniedError, RateLimitError } = await import(pathToFileURL(path).href)
    const client = new OpenAI({ baseURL, apiKey: await program.key('team-key') })

    t.test('completes a chat, with and without streaming', async (t) => {
      const whole = await client.chat.completions.create({ model: 'svc-code', messages: MESSAGES })
      t.equal(whole.model, 'svc-code')
      t.ok(whole.usage.total_tokens > 0)
      const stream = client.chat.completions.stream({ model: 'svc-code', messages: MESSAGES, stream_options: { include_usage: true } })
      t.equal(await stream.finalContent(), whole.choices[0].message.content)
      t.same((await stream.totalUsage()).total_tokens, whole.usage.total_tokens)
    })

    t.test('creates a response, with and without streaming', async (t) => {
      const whole = await client.responses.create({ model: 'svc-code', input: 'Say hello' })
      t.ok(whole.output_text.length > 0)
      const stream = client.responses.stream({ model: 'svc-code', input: 'Say hello' })
      t.equal((await stream.finalResponse()).output_text, whole.output_text)
    })

    t.test('gets a tool call and sends its result, on both endpoints', async (t) => {
      const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }
      const question = 'call get_weather {"city":"Paris"}'
      const asked = { model: 'svc-code', messages: [{ role: 'user', content: question }], tools: [{ type: 'function', function: { name: 'get_weather', parameters, strict: true } }] }
      const whole = await client.chat.completions.create(asked)
      t.match(whole.choices[0], { finish_reason: 'tool_calls', message: { tool_calls: [{ type: 'function', function: { name: 'get_weather' } }] } })
      const stream = client.chat.completions.stream(asked)
      const { choices: [choice] } = await stream.finalChatCompletion()
      const [call] = choice.message.tool_calls
      t.same(JSON.parse(call.function.arguments), { city: 'Paris' })
      const result = { role: 'tool', tool_call_id: call.id, content: 'sunny' }
      const done = await client.chat.completions.create({ ...asked, messages: [...asked.messages, choice.message, result] })
      t.equal(done.choices[0].finish_reason, 'stop')

      const request = { model: 'svc-code', input: [{ role: 'user', content: question }], tools: [{ type: 'function', name: 'get_weather', parameters, strict: true }] }
      const { output } = await client.responses.stream(request).finalResponse()
      t.match(output, [{ type: 'function_call', name: 'get_weather' }])
      t.same(JSON.parse(output[0].arguments), { city: 'Paris' })
      const input = [...request.input, ...output, { type: 'function_call_output', call_id: output[0].call_id, output: 'sunny' }]
      t.ok((await client.responses.create({ ...request, input })).output_text.length > 0)
    })

    t.test('compacts a conversation and goes on from it', async (t) => {
      const input = [{ role: 'user', content: 'Say hello' }, { role: 'assistant', content: 'Hello' }]
      const compacted = await client.responses.compact({ model: 'svc-code', input })
      t.match(compacted, { object: 'response.compaction', output: [{ type: 'message', role: 'user' }, { type: 'compaction' }] })
      t.ok(compacted.usage.total_tokens > 0)
      const { output_text: text } = await client.responses.create({ model: 'svc-code', input: compacted.output })
      t.match(text, /replaced by this summary of it:\n\nThis is the built-in echo/)
    })

    t.test('lists the one model', async (t) => {
      t.match((await client.models.list()).data, [{ id: 'svc-code' }])
      t.match(await client.models.retrieve('svc-code'), { id: 'svc-code' })
    })

    t.test('maps each refusal to its error class', async (t) => {
      const create = (key: string, model = 'svc-code') => new OpenAI({ baseURL, apiKey: key }).chat.completions.create({ model, messages: MESSAGES })
      await t.rejects(create('svc_live_wrong'), { constructor: AuthenticationError, status: 401, code: 'invalid_api_key' })
      await t.rejects(create(await program.key('team-key'), 'other'), { constructor: NotFoundError, status: 404, code: 'model_not_found' })
      const tiny = await program.key('tiny-key')
      await create(tiny)
      await t.rejects(create(tiny), { constructor: RateLimitError, status: 429, code: 'session_limit_reached', type: 'usage_limit_reached' })
      const paused = await program.key('paused-key')
      await declare(folder, 'paused', codingPlan('paused', { state: 'Suspended' }), apiKey('paused-key', 'paused'))
      const refusal = await eventually('the suspension', () => create(paused).then(() => null, (error: Error) => error))
      t.match(refusal, { constructor: PermissionDeniedError, status: 403, code: 'plan_inactive' })
    })
  })

  t.test('the OpenAI SDK for Python completes chats and responses, with and without streaming', async (t) => {
    const python = need(t, 'openai-python')
    if (python === null) return
    const env = { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: await program.key('team-key') }
    const { code, stdout, stderr } = await run(python, [join(import.meta.dirname, 'openai_client.py')], { cwd: folder, env })
    t.equal(code, 0, stderr)
    const seen = JSON.parse(stdout)
    t.match(seen, { models: ['svc-code'], last_event: 'response.completed', refused: 'model_not_found' })
    t.ok(seen.chat.length > 0 && seen.response.length > 0)
    t.equal(seen.chat_stream, seen.chat)
    t.equal(seen.chat_stream_tokens, seen.chat_tokens)
    t.equal(seen.response_stream, seen.response)
    t.same(seen.compacted, ['message', 'compaction'])
    t.match(seen.continued, /replaced by this summary of it/)
  })

  t.test('Codex CLI', async (t) => {
    const path = need(t, 'codex')
    if (path === null) return

    t.test('completes a conversation turn with a tool call, which is charged', async (t) => {
      const key = await program.key('team-key')
      const before = await used(program, key)
      const { work, code, events, stderr } = await codex(path, folder, baseURL, key, 'call exec_command {"cmd":"echo made by a tool > made.txt"}')
      t.equal(code, 0, stderr)
      t.equal(await readFile(join(work, 'made.txt'), 'utf8'), 'made by a tool\n')
      t.match(events.find((event) => at(event, 'item', 'type') === 'agent_message'), { item: { text: /./ } }, 'it sends a message after the tool ran')
      const turn = events.at(-1)
      t.match(turn, { type: 'turn.completed', usage: { input_tokens: Number, output_tokens: Number } })
      const charged = (await used(program, key)).session - before.session
      t.equal(charged, Number(at(turn, 'usage', 'input_tokens')) + Number(at(turn, 'usage', 'output_tokens')))
    })

    t.test('lets the gateway compact its conversation when it takes the provider for OpenAI', async (t) => {
      const config = codexConfig(baseURL).replace('name = "Tollgate"', 'name = "OpenAI"').replace('model_provider', 'model_auto_compact_token_limit = 2000\nmodel_provider')
      const { code, events, stderr } = await codex(path, folder, baseURL, await program.key('team-key'), 'call exec_command {"cmd":"true"}', config)
      t.equal(code, 0, stderr)
      t.match(at(events.findLast((event) => at(event, 'item', 'type') === 'agent_message'), 'item', 'text'), /replaced by this summary of it/)
      t.match(events.at(-1), { type: 'turn.completed' })
    })

    // The rest does not depend on the wire.
    if (wire !== 'both') return

    t.test('falls back to HTTPS at once when it is configured for WebSocket', async (t) => {
      const config = codexConfig(baseURL).replace('wire_api = "responses"', 'wire_api = "responses"\nsupports_websockets = true')
      const { work, code, stderr } = await codex(path, folder, baseURL, await program.key('team-key'), 'call exec_command {"cmd":"echo made > made.txt"}', config)
      t.equal(code, 0, stderr)
      t.equal(await readFile(join(work, 'made.txt'), 'utf8'), 'made\n')
      t.equal(stderr.match(/failed to connect/g)?.length, 1, 'it tried one')
    })

    t.test('shows when a full window resets', async (t) => {
      const key = await program.key('tiny-codex')
      await codex(path, folder, baseURL, key, 'Say hello')
      const { code, events } = await codex(path, folder, baseURL, key, 'Say hello')
      t.equal(code, 1)
      t.match(events.at(-1), { type: 'turn.failed', error: { message: /try again at/i } })
    })
  })
}

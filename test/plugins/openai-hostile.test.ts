/** Request bodies with members of every wrong JSON type, against the echo. */
import t from 'tap'
import { openEcho } from '../../src/upstream/echo/echo-server.ts'
import { respond } from '../fakes/upstream.ts'
import { completion, message, response, VENDOR } from '../fakes/upstream-wire.ts'
import { chat, openGateway, post, responses, type Gateway } from '../upstream/gateway.ts'
import { setUp } from './vendor.ts'

const gateway: Gateway = await openGateway(t)

/** Values of every JSON type, also inside lists. A number of 20 digits is parsed to a wrapper object. */
const HOSTILE = ['5', '"a"', 'true', '{}', '{"type":5}', '[]', '[null]', '[5]', '["a"]', '[[]]', '[{}]', '[{"type":5,"function":5,"id":{},"text":{}}]', '12345678901234567890', '[12345678901234567890]']
const CHAT_MEMBERS = `messages tools tool_choice parallel_tool_calls functions function_call response_format stop stream stream_options n max_tokens max_completion_tokens
  temperature top_p presence_penalty frequency_penalty logit_bias logprobs top_logprobs seed reasoning_effort modalities audio prediction metadata store user
  service_tier web_search_options verbosity unknown`.split(/\s+/)
const CHAT_MESSAGE = ['role', 'content', 'tool_calls', 'tool_call_id', 'function_call', 'audio', 'name', 'refusal', 'unknown']
const RESPONSES_MEMBERS = `input prompt instructions tools tool_choice parallel_tool_calls max_tool_calls max_output_tokens text reasoning include stream stream_options background
  temperature top_p presence_penalty frequency_penalty top_logprobs metadata store truncation prompt_cache_key safety_identifier service_tier user
  previous_response_id conversation context_management unknown`.split(/\s+/)
const RESPONSES_ITEM = ['type', 'role', 'content', 'output', 'arguments', 'id', 'call_id', 'status', 'unknown']

/** Bodies with one invalid member, and the path of that member. Each member meets every value, half of them in streams. */
function* hostileBodies(): Generator<{ path: string; body: string; at: string }> {
  const chatBody = (member: string, messages = '[{"role":"user","content":"x"}]') => `{"model":"svc-code","messages":${messages}${member}}`
  const streamed = (n: number, name: string) => (n % 2 === 0 && name !== 'stream' ? ',"stream":true' : '')
  for (const [n, value] of HOSTILE.entries()) {
    for (const [m, name] of CHAT_MEMBERS.entries()) {
      const stream = streamed(n + m, name)
      const body = name === 'messages' ? chatBody(stream, value) : chatBody(`${stream},"${name}":${value}`)
      yield { path: '/v1/chat/completions', body, at: name }
    }
    for (const [m, name] of RESPONSES_MEMBERS.entries()) {
      const input = name === 'input' ? '' : '"input":"x",'
      yield { path: '/v1/responses', body: `{"model":"svc-code",${input}"${name}":${value}${streamed(n + m, name)}}`, at: name }
    }
    for (const name of CHAT_MESSAGE) {
      const role = name === 'role' ? '' : '"role":"user",'
      yield { path: '/v1/chat/completions', body: chatBody(',"stream":true', `[{${role}"${name}":${value}},{"role":"tool","${name}2":1}]`), at: `messages[0].${name}` }
    }
    for (const name of RESPONSES_ITEM) yield { path: '/v1/responses', body: `{"model":"svc-code","input":[{"role":"user"},{"${name}":${value}}]}`, at: `input[1].${name}` }
  }
}

// Each is the wire of one client, and a translation for the other.
for (const wire of ['chat', 'responses']) {
  t.test(`a member of the wrong type is refused by name before a reservation, or passed on; the circuit breaker stays closed; upstream wire: ${wire}`, async (t) => {
    const gateway = await openGateway(t, { declared: [{ name: 'echo', baseUrl: 'echo:', wire }] })
    for (const { path, body, at } of hostileBodies()) {
      const before = gateway.admissions.length
      const answer = await post(gateway, path, body)
      const text = `${path} ${body}: ${answer.status} ${answer.text.slice(0, 200)}`
      if (answer.status === 200) {
        if (answer.text.includes('server_error') || answer.text.includes('response.failed')) t.fail(text)
        await gateway.settled()
        continue
      }
      if (answer.status !== 400) t.fail(text)
      if (!String(answer.body.error.param).startsWith(at)) t.fail(`wrong param: ${text}`)
      // Only the translation finds these, and nothing is charged.
      if (answer.body.error.code === 'unsupported_parameter' ? (await gateway.settled()) !== null : gateway.admissions.length !== before) t.fail(`was admitted: ${text}`)
    }
    t.equal(gateway.upstreams.states()[0]?.breaker, 'closed')
    t.equal((await chat(gateway)).status, 200)
  })
}

t.test('a member of the wrong type is refused with its path in param', async (t) => {
  const cases: [string, object, string][] = [
    ['/v1/chat/completions', { tools: 'a' }, 'tools'],
    ['/v1/chat/completions', { tools: {} }, 'tools'],
    ['/v1/chat/completions', { tools: [null] }, 'tools[0]'],
    ['/v1/chat/completions', { tool_choice: 5 }, 'tool_choice'],
    ['/v1/chat/completions', { response_format: 'json' }, 'response_format'],
    ['/v1/chat/completions', { stop: [5] }, 'stop[0]'],
    ['/v1/chat/completions', { stream_options: { include_usage: 'yes' } }, 'stream_options.include_usage'],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 5 }] }, 'messages[0].content'],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: [null] }] }, 'messages[0].content[0]'],
    ['/v1/chat/completions', { messages: [{ role: 'assistant', tool_calls: {} }] }, 'messages[0].tool_calls'],
    ['/v1/chat/completions', { tools: [{ type: 'function', function: { name: 'f' } }, { function: { name: 'g' } }] }, 'tools[1].type'],
    ['/v1/responses', { tools: 5 }, 'tools'],
    ['/v1/responses', { tools: [{ name: 'f' }] }, 'tools[0].type'],
    ['/v1/responses', { instructions: 5 }, 'instructions'],
    ['/v1/responses', { text: 'json' }, 'text'],
    ['/v1/responses', { reasoning: 'high' }, 'reasoning'],
    ['/v1/responses', { input: [null] }, 'input[0]'],
    ['/v1/responses', { input: [{ role: 'user', content: {} }] }, 'input[0].content'],
  ]
  for (const [path, more, param] of cases) {
    const answer = await (path.endsWith('responses') ? responses : chat)(gateway, more)
    t.match({ status: answer.status, ...answer.body.error }, { status: 400, code: 'invalid_request', param }, JSON.stringify(more))
  }
})

t.test('the echo answers any body with a 200 or a 400 of the wire, never with a broken connection, and logs the reason', async (t) => {
  const log: object[] = []
  const echo = await openEcho({ error: (facts) => log.push(facts) })
  t.teardown(() => echo.close())
  const broken = ['', '[]', '5', '"a"', 'null', '{"messages":'].map((body) => ({ path: '/v1/chat/completions', body }))
  for (const { path, body } of [...broken, ...hostileBodies()]) {
    const answer = await fetch(new URL(path, echo.url), { method: 'POST', headers: { authorization: `Bearer ${echo.token}` }, body })
    const text = await answer.text()
    if (answer.status === 400 ? JSON.parse(text).error.type !== 'invalid_request_error' : answer.status !== 200) t.fail(`${path} ${body}: ${answer.status} ${text}`)
  }
  t.ok(log.length > 0)
  t.ok(log.every((facts) => 'err' in facts))
})

t.test('a member that differs from a documented one by case, or is unknown, never reaches the upstream', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer, { path }) => respond(answer, 200, path.endsWith('responses') ? response('completed', [message('hi')]) : completion('hi')))
  const doubles = '"Model":"other","MODEL":"other","MAX_TOKENS":1000000,"Max_Completion_Tokens":1000000,"Max_output_tokens":1000000,"Stream":true,"\u017ftream":true,"N":100,"Stream_Options":{},"x":1'
  t.equal((await post(gateway, '/v1/chat/completions', `{"model":"svc-code","messages":[{"role":"user","content":"x"}],${doubles},"Messages":[],"max_tokens":5}`)).status, 200)
  t.equal((await post(gateway, '/v1/responses', `{"model":"svc-code","input":"x",${doubles},"Input":"y","Background":true,"Previous_Response_Id":"z"}`)).status, 200)
  t.same(upstream.requests[0]!.body, { model: `${VENDOR}-large`, max_tokens: 5, messages: [{ role: 'user', content: 'x' }] })
  t.same(Object.keys(upstream.requests[1]!.body).sort(), ['input', 'max_output_tokens', 'model', 'store'])
  t.equal(gateway.upstreams.states()[0]!.breaker, 'closed')
})

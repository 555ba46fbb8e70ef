/** Hostile JSON at every endpoint with a body, through the whole program: each is a documented error, and nothing is charged or held. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { bearer } from './gateway.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

const documented = readFileSync(join(import.meta.dirname, '../../docs/errors.md'), 'utf8')

/** A valid body of each endpoint, as the text of its members. */
const ENDPOINTS = [
  { url: '/api/v1/generations', secret: 'demo-media-key', body: '"kind":"image","prompt":"x"', name: 'prompt' },
  { url: '/mcp', secret: 'demo-media-key', body: '"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"generate_image","arguments":{"prompt":"x"}}', name: 'method' },
  { url: '/v1/chat/completions', secret: 'demo-coding-key', body: '"model":"svc-code","messages":[{"role":"user","content":"x"}]', name: 'model' },
  { url: '/v1/responses', secret: 'demo-coding-key', body: '"model":"svc-code","input":"x"', name: 'input' },
] as const

const whole = await openEmbeddedProgram(t, { env: { PORT: '8080' } })

for (const { url, secret, body, name } of ENDPOINTS) {
  t.test(`${url} refuses hostile JSON, and nothing is charged`, async (t) => {
    const raw = await whole.key(secret)
    const send = (payload: string) =>
      whole.app.inject({ method: 'POST', url, headers: { ...bearer(raw), host: '127.0.0.1:8080', 'content-type': 'application/json', accept: 'application/json, text/event-stream' }, payload })
    const used = async () => {
      const { by: _by, session: _session, ...rest } = (await whole.app.inject({ url: url.startsWith('/v1') ? '/v1/usage' : '/api/v1/usage', headers: bearer(raw) })).json()
      return rest
    }
    const before = await used()
    const rows: [string, string, RegExp][] = [
      ['a duplicate member', `{${body},"${name}":"y"}`, new RegExp(`^/${name} occurs more than once\\.$`)],
      ['a duplicate member with an escape', `{${body},"\\u00${name.charCodeAt(0).toString(16)}${name.slice(1)}":"y"}`, new RegExp(`^/${name} occurs more than once\\.$`)],
      ['a nested duplicate member', `{${body},"metadata":{"a":[{"b":1,"b":2}]}}`, /^\/metadata\/a\/0\/b occurs more than once\.$/],
      ['half of a surrogate pair', `{${body},"metadata":{"a":"\\ud83d"}}`, /^\/metadata\/a holds half of a surrogate pair\.$/],
      ['deep nesting', `{${body},"metadata":${'['.repeat(100_000)}`, /nested deeper/],
      ['deep nesting, closed', `{${body},"metadata":${'[['.repeat(10_000)}${']]'.repeat(10_000)}}`, /nested deeper/],
      ['two bodies', `{${body}}{${body}}`, /not valid JSON/],
      ['nothing', '', /not valid JSON/],
    ]
    if (!url.startsWith('/v1')) {
      rows.push(['a number out of range', `{${body},"seed":1e999}`, /^\/seed is a number larger/], ['__proto__', `{${body},"__proto__":{"kind":"video"}}`, /^\/__proto__ is not allowed\.$/])
    }
    for (const [what, payload, message] of rows) {
      const answer = await send(payload)
      t.equal(answer.statusCode, 400, what)
      t.match(answer.json(), { error: { code: 'invalid_json', type: 'invalid_request_error', message } }, what)
      t.notMatch(answer.body, /SyntaxError|at position|node_modules|FST_/)
      t.ok(documented.includes(`| 400 | \`${answer.json().error.code}\` |`))
    }
    t.same(await used(), before, 'nothing was charged or held')
  })
}

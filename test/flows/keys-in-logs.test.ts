/** What a client sends, its API key included, is in no log line, wherever in a request it is. */
import { cpSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import { REPOSITORY, start } from './program.ts'

type Sent = { method?: string; path: string; headers?: Record<string, string>; body?: string }

const HEADERS = [
  'authorization', 'proxy-authorization', 'x-api-key', 'api-key', 'cookie', 'user-agent', 'referer', 'origin', 'accept', 'content-type', 'content-encoding', 'content-language', 'expect', 'if-none-match', 'range',
  'x-request-id', 'x-correlation-id', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'forwarded', 'traceparent', 'tracestate', 'baggage', 'idempotency-key', 'prefer',
  'mcp-session-id', 'mcp-protocol-version', 'last-event-id', 'openai-organization', 'x-any',
]
const POSTS = ['/v1/chat/completions', '/v1/responses', '/api/v1/generations', '/api/v1/operations', '/api/v1/generations/quote', '/mcp']

/** With the key at each place of the body: values, names, values of a wrong type and form, and text that is no JSON. */
function bodies(key: string): string[] {
  const messages = [{ role: 'user', content: key }]
  const rpc = (params: object, method = 'tools/call') => ({ jsonrpc: '2.0', id: key, method, params })
  const valid: object[] = [
    { model: key, messages }, { model: 'svc-code', messages, user: key, stop: key }, { model: 'svc-code', messages: [{ role: key, content: [{ type: key }] }] }, { model: 'svc-code', input: key, instructions: key },
    { model: 'svc-code', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: `https://${key}.invalid/${key}` } }] }] },
    { kind: key, prompt: key }, { kind: 'image', prompt: key, size: key }, { kind: 'image', prompt: 'a', webhook_url: `https://${key}:${key}@127.0.0.1/${key}?${key}` }, { operation: 'upscale', media_url: `http://127.0.0.1/${key}` }, { operation: key, media_url: key },
    { [key]: key }, [key], rpc({ name: key, arguments: { [key]: key } }), rpc({ name: 'get_usage', arguments: { key } }), rpc({ protocolVersion: key, clientInfo: { name: key, version: key } }, 'initialize'), rpc({}, key),
  ]
  return [...valid.map((body) => JSON.stringify(body)), `{"model":"svc-code","messages":${key}}`, `{"${key}`, key, `"${key}"`, `{"a":1,"a":"${key}"}`, `{"model":"svc-code","model":"${key}","messages":[]}`]
}

function paths(key: string): string[] {
  return [`/${key}`, `/v1/${key}`, `/v1/models/${key}`, `/api/v1/generations/${key}`, `/api/v1/operations/${key}`, `/api/v1/deliveries?task=${key}`, `/api/v1/events?after=${key}`, `/files/${key}?key=${key}`, `/dashboard/sign-in?token=${key}`, `/dashboard/${key}`, `/v1/usage?${key}=${key}`, `/%zz${key}`]
}

t.test('an API key is in no log line, in whatever header, address or body it comes', async (t) => {
  const folder = t.testdir({})
  cpSync(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const program = await start({ folder, namespace: 'demo', env: { LOG_LEVEL: 'trace' } })
  t.teardown(() => program.kill())
  const keys = [await program.key('demo-coding-key'), await program.key('demo-media-key')]

  for (const key of keys) {
    const authorized = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const sent: Sent[] = [
      ...HEADERS.flatMap((name) => [key, `Bearer ${key}`, `a="${key}"`].map((value) => ({ path: '/v1/models', headers: { ...authorized, [name]: value } }))),
      ...HEADERS.map((name) => ({ method: 'POST', path: '/v1/chat/completions', headers: { ...authorized, [name]: key }, body: '{}' })),
      ...POSTS.flatMap((path) => bodies(key).map((body) => ({ method: 'POST', path, headers: { ...authorized, accept: 'application/json, text/event-stream' }, body }))),
      ...paths(key).flatMap((path) => ['GET', 'POST', 'DELETE'].map((method) => ({ method, path, headers: authorized }))),
    ]
    const statuses = new Set<number>()
    for (const one of sent) statuses.add(await statusOf(program.url, one))
    for (const status of [200, 400, 401, 404]) t.ok(statuses.has(status), `some are answered with ${status}: ${[...statuses].join(' ')}`)
  }
  await program.stop()
  const secrets = keys.map((key) => key.split('_').at(-1) ?? '')
  t.ok(program.log.some((line) => line.includes('"msg":"request"')), 'requests are logged')
  t.same(program.log.filter((line) => secrets.some((secret) => line.includes(secret))), [])
})

/** The status of the answer; 0 where the connection was closed without one. */
function statusOf(url: string, { method = 'GET', path, headers = {}, body = '' }: Sent): Promise<number> {
  return new Promise((resolve) => {
    const sending = request(url, { method, path, headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) }, agent: false }, (response) => {
      response.resume()
      response.once('close', () => resolve(response.statusCode ?? 0))
    })
    sending.once('error', () => resolve(0))
    sending.end(body)
  })
}

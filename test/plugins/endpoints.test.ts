/** Promises about all endpoints, checked on each endpoint of the whole program (specification, sections 4, 5 and 9). */
import type { InjectOptions, LightMyRequestResponse, RouteOptions } from 'fastify'
import t from 'tap'
import { mint } from '../../src/domain/api-keys.ts'
import { endpoints } from '../specification/statements.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { bearer } from './gateway.ts'

const routes: RouteOptions[] = []
const { app, key } = await openEmbeddedProgram(t, { env: { PORT: '8080' }, before: (app) => app.addHook('onRoute', (route) => void routes.push(route)) })
const keys = { media: await key('demo-media-key'), coding: await key('demo-coding-key') }
const unknown = mint('svc', new Uint8Array(32).fill(7))

/** Public: results with a signed URL, the API reference, and the pages of the dashboard with their icon, which show what its interface answers to a session. */
const PUBLIC = /^\/(files\/|docs|openapi\.json|favicon\.ico$|dashboard|$)/
const DASHBOARD = /^\/dashboard\/api\//

type Endpoint = { method: string; url: string }

function call({ method, url }: Endpoint, headers: Record<string, string>, payload?: string): Promise<LightMyRequestResponse> {
  const body = payload === undefined ? {} : { payload }
  return app.inject({ method: method as NonNullable<InjectOptions['method']>, url: url.replaceAll(/:\w+|\*/g, 'x'), headers: { host: '127.0.0.1:8080', ...headers }, ...body })
}

t.test('every endpoint of the specification is registered', async (t) => {
  t.same(endpoints().map(({ method, url }) => `${method} ${url}`), [
    'POST /api/v1/generations', 'GET /api/v1/generations/:id', 'POST /api/v1/operations', 'GET /api/v1/operations/:id', 'POST /mcp',
    'POST /v1/responses', 'POST /v1/chat/completions', 'GET /v1/models',
  ])
  const registered = new Set(routes.map(({ method, url }) => `${[method].flat().join(',')} ${url}`))
  t.same(endpoints().filter(({ method, url }) => !registered.has(`${method} ${url}`)), [])
})

t.test('every route but the public ones requires Authorization: Bearer and a valid API key', async (t) => {
  const all = routes.flatMap(({ method, url }) => [method].flat().map((one) => ({ method: one, url }))).filter(({ url }) => !PUBLIC.test(url))
  t.ok(all.length > endpoints().length)
  const refused = [{}, { authorization: '' }, { authorization: keys.media }, { authorization: `Basic ${keys.media}` }, { authorization: 'Bearer' }, { 'x-api-key': keys.media }, bearer(unknown)]
  for (const route of all) {
    // The Messages wire takes `x-api-key` as well, and has errors of its own form.
    const isMessages = route.url.startsWith('/v1/messages')
    for (const headers of isMessages ? [...refused.filter((one) => !('x-api-key' in one)), { 'x-api-key': unknown }, { ...bearer(keys.coding), 'x-api-key': unknown }] : refused) {
      const answer = await call(route, headers as Record<string, string>)
      t.same([answer.statusCode, answer.headers['www-authenticate']], [401, 'Bearer'], `${route.method} ${route.url} ${JSON.stringify(headers)}`)
      if (route.method !== 'HEAD') t.match(answer.json(), { error: isMessages ? { type: 'authentication_error' } : { code: 'invalid_api_key' } })
    }
  }
})

t.test("every route of the dashboard's interface requires a session, which no API key takes the place of, and every change the header of its pages", async (t) => {
  const all = routes.flatMap(({ method, url }) => [method].flat().map((one) => ({ method: one, url }))).filter(({ url }) => DASHBOARD.test(url))
  t.ok(all.length > 20)
  for (const route of all) {
    const isRead = ['GET', 'HEAD'].includes(route.method)
    for (const headers of [{}, bearer(keys.media), bearer(keys.coding), { cookie: `tollgate_session=${'A'.repeat(43)}` }]) {
      const answer = await call(route, { ...headers, 'x-tollgate-csrf': '1' })
      t.equal(answer.statusCode, 401, `${route.method} ${route.url} ${JSON.stringify(headers)}`)
      if (route.method !== 'HEAD') t.equal(answer.json().error.code, 'not_signed_in')
      if (!isRead) t.equal((await call(route, headers)).json().error.code, 'csrf', `${route.method} ${route.url} without the header`)
    }
  }
})

for (const { api, ...endpoint } of endpoints()) {
  t.test(`${endpoint.method} ${endpoint.url} accepts keys of its product only`, async (t) => {
    const right = await call(endpoint, bearer(keys[api]))
    t.equal(right.statusCode, endpoint.method === 'POST' ? 400 : endpoint.url.endsWith(':id') ? 404 : 200)
    const wrong = await call(endpoint, bearer(keys[api === 'media' ? 'coding' : 'media']))
    t.same([wrong.statusCode, wrong.json().error.code], [403, 'wrong_product'])
  })

  if (endpoint.method !== 'POST') continue
  t.test(`${endpoint.method} ${endpoint.url} accepts JSON as application/json only`, async (t) => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/xml', 'application/jsonp']) {
      const answer = await call(endpoint, { ...bearer(keys[api]), 'content-type': type }, '{}')
      t.same([answer.statusCode, answer.json().error.code], [415, 'unsupported_media_type'], type)
    }
    for (const type of ['application/json', 'application/json; charset=utf-8']) {
      const answer = await call(endpoint, { ...bearer(keys[api]), 'content-type': type, accept: 'application/json, text/event-stream' }, '{}')
      t.not(answer.statusCode, 415, type)
      t.notMatch(answer.json().error.code, /invalid_json|unsupported_media_type/)
      t.equal((await call(endpoint, { ...bearer(keys[api]), 'content-type': type }, '{"a":')).json().error.code, 'invalid_json')
    }
  })
}

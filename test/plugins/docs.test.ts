import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import type { LightMyRequestResponse, RouteOptions } from 'fastify'
import t, { type Test } from 'tap'
import { FAILURES, type FailureCode } from '../../src/domain/errors.ts'
import { inWords } from '../../src/domain/field-patterns.ts'
import { IMAGE } from '../contracts/operations/sources.ts'
import { bearer } from './gateway.ts'
import { modern } from './mcp-endpoint.ts'
import { openEmbeddedProgram, type EmbeddedProgram } from './embedded-program.ts'

type Schema = Record<string, unknown>
type Content = Record<string, { schema: Schema }>
type Operation = {
  operationId: string
  summary: string
  description?: string
  tags: string[]
  security: Record<string, string[]>[]
  parameters?: { name: string; in: string; required: boolean; schema: Schema }[]
  requestBody?: { content: Content }
  responses: Record<string, { description: string; content?: Content; headers?: Schema }>
}
type Document = { openapi: string; tags: { name: string }[]; paths: Record<string, Record<string, Operation>>; components: { schemas: Record<string, Schema>; securitySchemes: Schema } }

type Read = EmbeddedProgram & { document: Document; routes: RouteOptions[] }

/** The program with all of its routes, and its OpenAPI document. */
async function readDocument(t: Test, env: Record<string, string> = {}): Promise<Read> {
  const routes: RouteOptions[] = []
  const whole = await openEmbeddedProgram(t, { env, before: (app) => app.addHook('onRoute', (route) => void routes.push(route)) })
  const answer = await whole.app.inject('/openapi.json')
  t.equal(answer.statusCode, 200)
  t.match(answer.headers, { 'content-type': /^application\/json/, 'x-request-id': /./ })
  return { ...whole, document: answer.json(), routes }
}

let shared: Promise<Read> | null = null
/** Of a program that the tests share, once one has asked for it. */
const reference = (): Promise<Read> => (shared ??= readDocument(t))

const operationsOf = ({ paths }: Document) =>
  Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, path, operation })))

/** A validator in which the document's own references resolve. */
function schemasOf(document: Document): Ajv2020 {
  const ajv = new Ajv2020({ strict: false, formats: { 'date-time': true, binary: true } })
  return ajv.addSchema({ $id: 'openapi', components: document.components })
}

const absolute = (schema: Schema): Schema => JSON.parse(JSON.stringify(schema).replaceAll('"#/components', '"openapi#/components'))

t.test('a start does not load the reference', async (t) => {
  await openEmbeddedProgram(t)
  t.same(Object.keys(createRequire(import.meta.url).cache).filter((file) => file.includes('@fastify/swagger')), [])
})

t.test('HEAD is answered as GET, without the body', async (t) => {
  const { app } = await reference()
  for (const url of ['/openapi.json', '/docs']) {
    const [head, get] = [await app.inject({ method: 'HEAD', url }), await app.inject(url)]
    t.same([head.statusCode, head.headers['content-type'], head.body], [get.statusCode, get.headers['content-type'], ''], url)
  }
})

t.test('a parameter with a default is not required', async (t) => {
  const parameters = operationsOf((await reference()).document).flatMap(({ name: of, operation }) => (operation.parameters ?? []).map((parameter) => ({ of, ...parameter })))
  t.ok(parameters.some(({ schema }) => 'default' in schema))
  t.same(parameters.filter(({ required, schema }) => required && 'default' in schema), [])
})

t.test('the document is valid OpenAPI 3.1 with unique ids', async (t) => {
  const { document } = await reference()
  const ajv = schemasOf(document)
  const operations = operationsOf(document)
  t.equal(document.openapi, '3.1.0')
  t.equal(new Set(operations.map(({ operation }) => operation.operationId)).size, operations.length)
  const tags = document.tags.map(({ name }) => name)
  for (const { name, path, operation } of operations) {
    t.ok(operation.summary && operation.summary !== name && operation.tags.every((tag) => tags.includes(tag)), name)
    t.ok(operation.security.every((needs) => Object.keys(needs).every((scheme) => scheme in document.components.securitySchemes)), name)
    const asked = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path').map((parameter) => `{${parameter.name}}`)
    t.same(asked, path.match(/\{[^}]+\}/g) ?? [], name)
    const contents = [operation.requestBody?.content ?? {}, ...Object.values(operation.responses).map(({ content = {} }) => content)]
    const schemas = [...contents.flatMap((content) => Object.values(content)), ...(operation.parameters ?? [])].map(({ schema }) => schema)
    for (const schema of schemas) t.doesNotThrow(() => ajv.compile(absolute(schema)), name)
    t.ok(Object.values(operation.responses).every(({ description }) => description.length > 0), name)
  }
})

t.test('every pattern of a request has a sentence in words, for the message of a value that does not match', async (t) => {
  const { document } = await reference()
  const patterns = new Set(JSON.stringify([document.components, operationsOf(document).map(({ operation }) => [operation.requestBody, operation.parameters])]).match(/(?<="pattern":)"(?:[^"\\]|\\.)*"/g)?.map((text) => JSON.parse(text) as string))
  t.ok(patterns.size > 3)
  t.same([...patterns].filter((pattern) => inWords(pattern) === null), [])
})

const PUBLIC = /^(\/v1|\/api\/v1|\/files|\/mcp)(\/|$)/

t.test('every route of the API is in the document, with its security scheme', async (t) => {
  const { document, routes } = await reference()
  const registered = routes.flatMap(({ method, url, config }) => [method].flat().map((one) => ({ name: `${one} ${url.replaceAll(/:(\w+)/g, '{$1}')}`, url, api: config?.api })))
  const api = registered.filter(({ name, url }) => PUBLIC.test(url) && !name.startsWith('HEAD '))
  const documented = new Map(operationsOf(document).map(({ name, operation }) => [name, operation]))
  t.same([...documented.keys()].sort(), api.map(({ name }) => name).sort())
  for (const { name, api: product } of api) t.same(documented.get(name)?.security, product ? [{ [product]: [] }] : [], name)
  t.same(registered.filter(({ api: product, url }) => product && !PUBLIC.test(url)), [], 'nothing else takes a key')
  t.same(routes.filter(({ schema }) => schema?.response), [], 'no schema comes between an answer and its bytes')
})

t.test('error responses list codes of the catalogue under their status', async (t) => {
  const { document } = await reference()
  for (const { name, operation } of operationsOf(document)) {
    for (const [status, { content = {} }] of Object.entries(operation.responses).filter(([status]) => Number(status) >= 400)) {
      const [type, { schema } = { schema: {} }] = Object.entries(content)[0] ?? []
      // JSON-RPC has codes of its own.
      if (name === 'POST /mcp' && ['400', '404', '406'].includes(status)) continue
      t.equal(type, name.includes(' /api/') ? 'application/problem+json' : 'application/json', name)
      const codes = (schema as { allOf: [object, { properties: { error: { properties: { code: { enum: FailureCode[] } } } } }] }).allOf[1].properties.error.properties.code.enum
      t.ok(codes.length > 0 && codes.every((code) => FAILURES[code][0] === Number(status)), `${name} ${status}: ${codes.join(', ')}`)
    }
    const { responses, security } = operation
    t.ok('500' in responses && '503' in responses && (security.length === 0 || ('401' in responses && '403' in responses && '429' in responses)), name)
  }
})

t.test('the headers of creations are described', async (t) => {
  const { document } = await reference()
  for (const path of ['/api/v1/generations', '/api/v1/operations']) {
    const responses = document.paths[path]?.['post']?.responses ?? {}
    for (const [status, names] of [['200', ['Location', 'Preference-Applied']], ['202', ['Location', 'Preference-Applied']], ['429', ['Retry-After', 'X-SVC-Limit']]] as const)
      for (const name of [...names, 'RateLimit', 'RateLimit-Policy']) t.ok(name in (responses[status]?.headers ?? {}), `${path} ${status} ${name}`)
  }
})

t.test('the brand is in the names of headers', async (t) => {
  const { document } = await readDocument(t, { BRAND: 'ACME' })
  t.match(document.paths['/v1/models']?.['get']?.responses, { 429: { headers: { 'X-ACME-Limit': {} } }, 503: { headers: { 'X-ACME-Limit': {} } } })
  for (const path of ['chat/completions', 'responses', 'responses/compact', 'messages'])
    t.match(document.paths[`/v1/${path}`]?.['post']?.responses, { 200: { headers: { 'X-ACME-Usage': {} } } }, path)
  t.notMatch(JSON.stringify(document), /X-SVC/i)
})

t.test('/mcp serves the revisions that its description lists, as docs/mcp.md does, and its refusals conform to the document', async (t) => {
  const { app, key, document } = await readDocument(t)
  const { description = '', responses = {} } = document.paths['/mcp']?.['post'] ?? {}
  const revisions = (text: string) => text.match(/\d{4}-\d\d-\d\d/g) ?? []
  t.same(revisions(description), revisions(readFileSync(join(import.meta.dirname, '../../docs/mcp.md'), 'utf8').match(/The protocol revisions .* are served/)?.[0] ?? ''))
  const url = `${await app.listen({ port: 0, host: '127.0.0.1' })}/mcp`
  const common = { ...bearer(await key('demo-media-key')), 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
  const refused = async (status: number, message: unknown, headers: Record<string, string>) => {
    const answer = await fetch(url, { method: 'POST', headers: { ...common, ...headers }, body: JSON.stringify(message) })
    const body = (await answer.json()) as { error: { message: string; data: { supported: string[] } } }
    const valid = schemasOf(document).compile(absolute(responses[status]?.content?.['application/json']?.schema ?? { not: {} }))
    t.ok(answer.status === status && valid(body), `${answer.status} ${JSON.stringify(body)}`)
    return body.error
  }
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  const [modernList, headers] = modern('tools/list')
  const unknown = JSON.parse(JSON.stringify(modernList).replaceAll('2026-07-28', '2099-01-01'))
  const { data } = await refused(400, unknown, { ...headers, 'mcp-protocol-version': '2099-01-01' })
  const { message } = await refused(400, list, { 'mcp-protocol-version': '1999-01-01' })
  t.same([...new Set([...data.supported, ...revisions(message)])].filter((one) => one !== '1999-01-01').sort(), revisions(description).sort())
  await refused(400, [list], {})
  await refused(404, ...modern('nope'))
  await refused(406, list, { accept: 'application/json' })
})

t.test('real answers conform to the document', async (t) => {
  const { app, key, document } = await reference()
  const ajv = schemasOf(document)
  const media = bearer(await key('demo-media-key'))
  const coding = bearer(await key('demo-coding-key'))
  const fits = (name: string, answer: LightMyRequestResponse): void => {
    const operation = operationsOf(document).find((known) => known.name === name)?.operation
    const type = String(answer.headers['content-type']).split(';', 1)[0] ?? ''
    const schema = operation?.responses[answer.statusCode]?.content?.[type]?.schema
    const valid = ajv.compile(absolute(schema ?? { not: {} }))
    t.ok(valid(answer.json()), `${name} ${answer.statusCode} ${type}: ${ajv.errorsText(valid.errors)}`)
  }
  const ask = async (name: string, url: string, headers: object, payload?: object): Promise<LightMyRequestResponse> => {
    const method = name.startsWith('POST') ? 'POST' : 'GET'
    const answer = await app.inject({ method, url, headers: { ...headers }, ...(payload ? { payload } : {}) })
    fits(name, answer)
    return answer
  }
  const image = { kind: 'image', prompt: 'a lighthouse', size: '64x64' }
  const create = 'POST /api/v1/generations'
  const { id } = (await ask(create, '/api/v1/generations', media, image)).json()
  await ask(create, '/api/v1/generations', { ...media, prefer: 'wait=30' }, image)
  await ask(create, '/api/v1/generations?dry_run=true', media, image)
  await ask(create, '/api/v1/generations', media, { kind: 'sculpture' })
  await ask(create, '/api/v1/generations', {}, image)
  await ask(create, '/api/v1/generations', coding, image)
  await ask(create, '/api/v1/generations', media, { ...image, max_cost: '0.01' })
  const operate = 'POST /api/v1/operations'
  const edit = { operation: 'ai_edit', prompt: 'snow', media_url: `data:image/png;base64,${IMAGE.toString('base64')}` }
  await ask(operate, '/api/v1/operations', media, { operation: 'trim' })
  await ask(operate, '/api/v1/operations', media, { ...edit, media_url: 'http://10.0.0.1/' })
  await ask(operate, '/api/v1/operations?dry_run=true', media, edit)
  const done = (await ask(operate, '/api/v1/operations', { ...media, prefer: 'wait=30' }, edit)).json()
  t.match(done, { status: 'completed', result: { width: 40 } })
  await ask('GET /api/v1/operations/{id}', `/api/v1/operations/${done.id}`, media)
  await ask('GET /api/v1/operations', '/api/v1/operations', media)
  await ask('GET /api/v1/generations/{id}', `/api/v1/generations/${id}`, media)
  await ask('GET /api/v1/generations/{id}', '/api/v1/generations/nope', media)
  await ask('GET /api/v1/generations', '/api/v1/generations', media)
  await ask('GET /api/v1/generations/{id}/deliveries', `/api/v1/generations/${id}/deliveries`, media)
  await ask('GET /api/v1/usage', '/api/v1/usage', media)
  await ask('GET /api/v1/capabilities', '/api/v1/capabilities', media)
  await ask('GET /files/{id}', '/files/nope', {})
  const hello = { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] }
  await ask('POST /v1/chat/completions', '/v1/chat/completions', coding, hello)
  await ask('POST /v1/chat/completions', '/v1/chat/completions', coding, { ...hello, model: 'other' })
  await ask('POST /v1/responses', '/v1/responses', coding, { model: 'svc-code', input: 'Hello' })
  await ask('GET /v1/models', '/v1/models', coding)
  await ask('GET /v1/models/{model}', '/v1/models/svc-code', coding)
  await ask('GET /v1/usage', '/v1/usage', coding)
  await ask('GET /v1/responses', '/v1/responses', coding)
  await ask('POST /mcp', '/mcp', { ...media, host: '127.0.0.1', origin: 'https://evil.example' }, { jsonrpc: '2.0', id: 1, method: 'tools/list' })
})

t.test('a route of a third-party plugin is documented by its own schema', async (t) => {
  const source = `import fp from 'fastify-plugin'
    export default fp(async (app) => {
      app.addSchema({ $id: 'Colour', type: 'string', pattern: '^#' })
      app.post('/paint', { config: { api: 'media' }, schema: { summary: 'Paint', body: { type: 'object', properties: { colour: { $ref: 'Colour#' } } } } }, async () => ({}))
      app.get('/hidden', { config: { api: 'media' }, schema: { hide: true } }, async () => ({}))
    }, { name: 'painter' })`
  const { document } = await readDocument(t, { PLUGINS: join(t.testdir({ 'painter.js': source }), 'painter.js') })
  t.match(document.paths['/paint']?.['post'], {
    summary: 'Paint', tags: ['Plugins'], security: [{ media: [] }], responses: { 401: {}, 403: {} },
    requestBody: { content: { 'application/json': { schema: { properties: { colour: { $ref: '#/components/schemas/Colour' } } } } } },
  })
  t.notOk(document.paths['/hidden'])
})

t.test('the page needs no key, and connects to this server only', async (t) => {
  const { app } = await openEmbeddedProgram(t, { env: { PUBLIC_URL: 'https://media.example' } })
  t.same((await app.inject('/openapi.json')).json().servers, [{ url: 'https://media.example' }])
  const page = await app.inject('/docs')
  t.equal(page.statusCode, 200)
  t.equal(
    page.headers['content-security-policy'],
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  )
  t.notMatch(page.body, /https?:\/\/|<style|<script>|style=/)
  for (const [, asset = ''] of page.body.matchAll(/(?:src|href)="([^"]+)"/g)) t.equal((await app.inject(asset)).statusCode, 200, asset)
  t.match((await app.inject('/docs/static/swagger-initializer.js')).body, /validatorUrl: null/)
  for (const path of ['/docs/static/nope', '/docs/static/..%2f..%2fpackage.json', '/docs/nope']) {
    const missing = await app.inject(path)
    t.same([missing.statusCode, missing.json().error.code], [404, 'not_found'], path)
  }
  t.match((await app.inject({ method: 'POST', url: '/docs' })).json(), { error: { code: 'method_not_allowed' } })
})

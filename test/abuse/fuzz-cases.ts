/** One case of the fuzzer: what the strict JSON parsers, the request readers of the three wires, the readers of uploads and pass-through routes promise for any input. */
import { deepStrictEqual as same, equal, ok } from 'node:assert/strict'
import type { FastifyRequest } from 'fastify'
import { withoutKey } from '../../plugins/proxy/client-key.ts'
import { answerHeaders, requestHeaders } from '../../plugins/proxy/headers.ts'
import type { ProxyRoute } from '../../plugins/proxy/routes-file.ts'
import { Failure } from '../../src/domain/errors.ts'
import { contentTypeOf, mediaInfo } from '../../src/domain/media-info.ts'
import { counterFor, openBudget } from '../../src/domain/media-info/counted-length.ts'
import { parseIncrementally } from '../../src/json/incremental-json.ts'
import type { Manner } from '../../src/json/json-faults.ts'
import { parseStrictJson, textOf } from '../../src/json/strict-json.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { checkMessagesBody } from '../../src/upstream/wires/messages/message-checks.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { rngOf } from '../simulation/seeded-random.ts'
import { exchange, uploadBytes, type Exchange } from './entry-cases.ts'
import { jsonText, requestBody } from './json-cases.ts'

type Parsed = { value: unknown; values: number } | { failure: Failure }

export type Input = { kind: 'parsers'; bytes: Buffer } | { kind: 'upload'; bytes: Buffer } | { kind: 'readers'; body: string } | ({ kind: 'service' } & Exchange)

/** The input of a seed: a text for the parsers, the body of a request for the readers, an upload, or a request and an answer of a pass-through route. */
export function inputOf(seed: number): Input {
  const rng = rngOf(seed)
  const kind = rng.weighted({ parsers: 5, readers: 3, upload: 1, service: 1 })
  switch (kind) {
    case 'parsers':
      return { kind, bytes: jsonText(rng) }
    case 'readers':
      return { kind, body: JSON.stringify(requestBody(rng)) }
    case 'upload':
      return { kind, bytes: uploadBytes(rng) }
    case 'service':
      return { kind, ...exchange(rng) }
  }
}

/** Throws an `AssertionError` when a promise is broken. */
export function check(input: Input): void {
  if (input.kind === 'parsers') for (const manner of ['faithful', 'strict'] as const) checkParsers(input.bytes, manner)
  else if (input.kind === 'upload') checkUpload(input.bytes)
  else if (input.kind === 'service') checkExchange(input)
  else {
    for (const read of [readChatRequest, readResponsesRequest, readMessages]) checkReader(read, input.body)
    checkCount(input.body)
  }
}

const readMessages: typeof readChatRequest = (value, allowed) => readMessagesRequest(value, allowed, { betas: [], promptTokens: () => 1 })

/** A body whose tokens are counted is refused as a fault of the request, or has the members that are counted. */
function checkCount(text: string): void {
  try {
    ok(Array.isArray(checkMessagesBody(JSON.parse(text)).messages))
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    ok(error.status === 400 || error.status === 404, `${error.status} ${error.code}`)
  }
}

/** No upload makes its reader fail, and what it says of one is finite. */
function checkUpload(bytes: Buffer): void {
  for (const total of [bytes.length, 1e9, null]) {
    const info = mediaInfo(bytes, total)
    equal(info?.contentType ?? null, contentTypeOf(bytes))
    for (const value of [info?.width, info?.height, info?.durationMs]) ok(value === null || value === undefined || (Number.isFinite(value) && value >= 0), String(value))
  }
  const counter = counterFor(contentTypeOf(bytes) ?? '', openBudget())
  if (counter) ok(Number.isFinite(counter.read(bytes, 0)) && Number.isFinite(counter.durationMs()))
}

const ROUTE = { upstream: 'http://service.test:8080', prefix: '/tools', rewritePrefix: '/base', headers: {} } as unknown as ProxyRoute

/** Neither the key reaches the service, nor the name of the service the client. */
function checkExchange({ target, key, headers, answer }: Exchange): void {
  let sent = ''
  try {
    sent = withoutKey(target, key)
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    equal(error.code, 'invalid_request')
  }
  ok(!decoded(sent).includes(key), sent)
  const request = { headers: { authorization: `Bearer ${key}` }, span: { traceparent: null }, caller: null, ip: '::1', protocol: 'http', host: 'gateway.test', id: 'r' } as unknown as FastifyRequest
  for (const [name, value] of Object.entries(requestHeaders(headers, request, ROUTE, 'svc'))) ok(!decoded(String(value)).includes(key), name)
  for (const [name, value] of Object.entries(answerHeaders(answer, ROUTE, 'svc'))) {
    const places = name === 'link' ? [...String(value).matchAll(/<([^>]*)>/g)].map(([, place]) => place ?? '') : [String(value)]
    for (const place of places) ok(URL.parse(place, 'http://gateway.test/tools/x')?.hostname !== 'service.test', `${name}: ${value}`)
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** The parsers agree with each other and with JSON.parse, and every refusal has a reason. */
function checkParsers(bytes: Buffer, manner: Manner): void {
  const whole = outcomeOf(() => parseStrictJson(bytes, manner))
  const sliced = outcomeOf(() => incrementally(bytes, manner))
  const plain = plainOf(bytes)
  if ('failure' in whole) {
    ok('failure' in sliced, 'the incremental parser takes what the other refuses')
    equal(whole.failure.code, 'invalid_json')
    equal(sliced.failure.code, 'invalid_json')
    ok(plain === null || whole.failure.facts.errors || /UTF-8|deeper|more than/.test(whole.failure.message), 'JSON is refused without a reason')
    return
  }
  ok(!('failure' in sliced), 'the incremental parser refuses what the other takes')
  same(sliced, whole)
  equal(JSON.stringify(sliced.value), JSON.stringify(whole.value))
  ok(plain, 'a text is taken that is no JSON')
  // V8 14 reads escaped names wrongly (docs/decisions/0028).
  if (!/\\[^"]*"\s*:/.test(textOf(bytes))) same(JSON.parse(JSON.stringify(whole.value), unsigned), JSON.parse(textOf(bytes), unsigned))
}

/** Serializing loses the sign of zero. */
function unsigned(_key: string, value: unknown): unknown {
  return value === 0 ? 0 : value
}

function outcomeOf(parse: () => Parsed): Parsed {
  try {
    return parse()
  } catch (failure) {
    if (failure instanceof Failure) return { failure }
    throw failure
  }
}

function incrementally(bytes: Buffer, manner: Manner): Parsed {
  const steps = parseIncrementally(textOf(bytes), manner)
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

function plainOf(bytes: Buffer): { value: unknown } | null {
  try {
    return { value: JSON.parse(textOf(bytes)) }
  } catch {
    return null
  }
}

const IDS = openIds([Buffer.alloc(48, 1)])('acme/coder')
const ALLOWED = new Set<string>()
const TARGET = { origin: 'one', model: 'upstream', maxTokensField: null, policy: { allow: ALLOWED, drop: ALLOWED, force: {} } }

/** Any body is refused as a fault of the request, or becomes JSON for the upstream. */
function checkReader(read: typeof readChatRequest, text: string): void {
  try {
    const request = read(JSON.parse(text), ALLOWED)
    ok(request.maxOutputTokens === null || Number.isSafeInteger(request.maxOutputTokens))
    ok(Number.isSafeInteger(request.choices) && request.choices >= 1)
    const body = JSON.parse(request.call(1_000, IDS, () => 1, ['chat', 'responses']).body(TARGET)) as Record<string, unknown>
    equal(body['model'], 'upstream')
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    ok(error.status === 400 || error.status === 404, `${error.status} ${error.code}`)
  }
}

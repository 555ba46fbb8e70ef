/** One case of the fuzzer: what the strict JSON parsers and the request readers of both wires promise for any input. */
import { deepStrictEqual as same, equal, ok } from 'node:assert/strict'
import { Failure } from '../../src/domain/errors.ts'
import { parseIncrementally } from '../../src/json/incremental-json.ts'
import type { Manner } from '../../src/json/json-faults.ts'
import { parseStrictJson, textOf } from '../../src/json/strict-json.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { rngOf } from '../simulation/seeded-random.ts'
import { jsonText, requestBody } from './json-cases.ts'

type Parsed = { value: unknown; values: number } | { failure: Failure }

/** The input of a seed: a text for the parsers, or the body of a request for the readers. */
export function inputOf(seed: number): { parsers: Buffer } | { readers: string } {
  const rng = rngOf(seed)
  return rng.chance(0.6) ? { parsers: jsonText(rng) } : { readers: JSON.stringify(requestBody(rng)) }
}

/** Throws an `AssertionError` when a promise is broken. */
export function check(input: ReturnType<typeof inputOf>): void {
  if ('parsers' in input) for (const manner of ['faithful', 'strict'] as const) checkParsers(input.parsers, manner)
  else for (const read of [readChatRequest, readResponsesRequest]) checkReader(read, input.readers)
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
const TARGET = { model: 'upstream', maxTokensField: null, policy: { allow: ALLOWED, drop: ALLOWED, force: {} } }

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

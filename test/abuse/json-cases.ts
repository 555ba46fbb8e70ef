/** Cases of the fuzzer, by seed: texts that are nearly JSON, and bodies of coding requests whose members have any type. */
import type { Rng } from '../simulation/seeded-random.ts'

const STRINGS = ['', 'a', '__proto__', 'constructor', 'prototype', 'data:image/png;base64,AAAA', '\\n', '\\u0041', '\\ud83d\\ude00', '\\ud800', '\\"', '\\\\', '\\/', 'é', '中', '😀', '\u2028', '\\x', '\\u12', '\t']
const NUMBERS = ['0', '-0', '1', '-1', '1.5', '1e2', '1E+2', '1e999', '-1e-999', '123456789012345678901234567890', '0.12345678901234567', '9007199254740993', '01', '1.', '.5', '+1', '-', '1e']
const WORDS = ['true', 'false', 'null', 'NaN', 'nul', 'True']
const SPACES = ['', '', '', ' ', '\n', '\t\r', '\u00a0', '\uFEFF']

/** A text that is JSON, or was before a few of its bytes were changed. */
export function jsonText(rng: Rng): Buffer {
  const bytes = Buffer.from(valueText(rng, rng.whole(0, 5)))
  if (rng.chance(0.6)) return bytes
  for (let changes = rng.whole(1, 3); changes > 0 && bytes.length > 0; changes--) {
    const at = rng.whole(0, bytes.length - 1)
    bytes[at] = rng.chance(0.5) ? rng.pick([...Buffer.from('{}[]",:\\u0e-+. \n')]) : rng.whole(0, 255)
  }
  return rng.chance(0.3) ? bytes.subarray(0, rng.whole(0, bytes.length)) : bytes
}

function valueText(rng: Rng, depth: number): string {
  const space = () => rng.pick(rng.chance(0.95) ? SPACES.slice(0, 6) : SPACES)
  const listed = (text: () => string) => Array.from({ length: rng.whole(0, 4) }, text).join(',')
  const string = () => `"${Array.from({ length: rng.whole(0, 2) }, () => rng.pick(rng.chance(0.95) ? STRINGS.slice(0, 17) : STRINGS)).join('')}"`
  const kind = depth > 0 ? rng.weighted({ object: 3, list: 3, string: 2, number: 2, word: 1 }) : rng.weighted({ string: 2, number: 2, word: 1 })
  const text = {
    object: () => `{${listed(() => `${space()}${string()}${space()}:${valueText(rng, depth - 1)}`)}}`,
    list: () => `[${listed(() => valueText(rng, depth - 1))}]`,
    string,
    number: () => rng.pick(rng.chance(0.95) ? NUMBERS.slice(0, 12) : NUMBERS),
    word: () => rng.pick(rng.chance(0.98) ? WORDS.slice(0, 3) : WORDS),
  }[kind]()
  return `${space()}${text}${space()}`
}

const MEMBERS = ['model', 'messages', 'input', 'role', 'content', 'type', 'text', 'tools', 'tool_calls', 'tool_choice', 'function', 'name', 'arguments', 'namespace', 'id', 'call_id', 'output', 'summary', 'encrypted_content', 'image_url', 'url', 'stream', 'stream_options', 'include_usage', 'n', 'max_tokens', 'max_completion_tokens', 'max_output_tokens', 'instructions', 'reasoning', 'effort', 'metadata', 'store', 'user', 'previous_response_id', 'background', 'service_tier', 'audio', 'response_format', 'text', 'stop', 'logit_bias', '__proto__', 'constructor', 'toString']
const VALUES = ['svc-code', 'user', 'assistant', 'tool', 'developer', 'message', 'function', 'function_call', 'function_call_output', 'reasoning', 'input_text', 'auto', 'call_1', '', 0, 1, -1, 1.5, 1e300, true, false, null]

/** A body of a coding request: often near a valid one, with members of any type. */
export function requestBody(rng: Rng): Record<string, unknown> {
  const message = () => ({ role: rng.pick(['user', 'assistant', 'tool', 'system']), content: rng.chance(0.5) ? 'x' : member(rng, 3), ...object(rng, 2) })
  const base = { model: 'svc-code', messages: Array.from({ length: rng.whole(0, 3) }, message), input: rng.chance(0.5) ? 'x' : Array.from({ length: rng.whole(0, 3) }, message) }
  return { ...(rng.chance(0.9) ? base : {}), ...object(rng, 3) }
}

function member(rng: Rng, depth: number): unknown {
  if (depth === 0 || rng.chance(0.4)) return rng.pick(VALUES)
  return rng.chance(0.5) ? object(rng, depth - 1) : Array.from({ length: rng.whole(0, 3) }, () => member(rng, depth - 1))
}

function object(rng: Rng, depth: number): Record<string, unknown> {
  return Object.fromEntries(Array.from({ length: rng.whole(0, 4) }, () => [rng.pick(MEMBERS), member(rng, depth)]))
}

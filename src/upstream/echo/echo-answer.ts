/** The answers of the built-in echo (`docs/echo.md`): equal on all wires, and deterministic. */

import { openStopFilter } from '../translation/stop-sequences.ts'

/** The parts of a request that the echo reads. */
export type EchoRequest = {
  /** The text of the last user message. */
  user: string
  /** The results of tools after it. */
  outputs: string[]
  /** Names of the functions on offer. */
  tools: string[]
  /** Whether it asks for reasoning. */
  thinks: boolean
  /** Bytes of the conversation, and of the part before the last user message. */
  bytes: number
  earlierBytes: number
  maxTokens: number | null
  stop: readonly string[]
}

export type Usage = { input: number; cached: number; output: number }

/** `thought` and `pieces` are streamed piece by piece, each of which counts as one token. */
export type EchoAnswer = {
  /** Empty unless the request asks for reasoning. */
  thought: string[]
  call: { name: string; arguments: string } | null
  pieces: string[]
  cutOff: boolean
  /** The stop sequence that ended the text. */
  stop: string | null
  waitMs: number
  usage: Usage
}

const MAX_TOKENS = 200_000
const MAX_WAIT_MS = 60_000
/** Characters of the user's text that are repeated; more would block the process. */
const MAX_ECHOED_LENGTH = 20_000

const THOUGHT = ['I ', 'repeat ', 'what ', 'was ', 'said.']

/** The text of a message, also where it comes as a list of parts. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  return Array.isArray(content) ? content.map((part: { text?: unknown }) => (typeof part?.text === 'string' ? part.text : '')).join('') : ''
}

/** The answer to a request. A limit of tokens and stop sequences cut text off, never a tool call. */
export function answerTo(request: EchoRequest): EchoAnswer {
  const call = request.outputs.length === 0 ? callIn(request.user, request.tools) : null
  const filter = openStopFilter(request.stop.filter((sequence) => sequence !== ''))
  const whole = call ? split(call.arguments, /(?<=[,:{ ])/) : split(filter.push(textFor(request)) + filter.flush(), /(?<=\s)/)
  const pieces = request.maxTokens === null || call ? whole : whole.slice(0, request.maxTokens)
  const cutOff = pieces.length < whole.length
  const thought = request.thinks ? THOUGHT : []
  return {
    thought,
    call,
    pieces,
    cutOff,
    stop: cutOff ? null : filter.found(),
    waitMs: Math.min(MAX_WAIT_MS, directive(request.user, 'wait') ?? 0),
    usage: {
      input: Math.max(1, Math.ceil(request.bytes / 4)),
      cached: Math.floor(request.earlierBytes / 4),
      output: thought.length + pieces.length,
    },
  }
}

function textFor({ user, outputs }: EchoRequest): string {
  if (outputs.length > 0) return `The tool answered: ${outputs.join('\n').slice(0, MAX_ECHOED_LENGTH)}`
  const tokens = directive(user, 'tokens')
  if (tokens !== null) return 'word '.repeat(Math.min(MAX_TOKENS, Math.max(1, tokens)))
  return `This is the built-in echo, not a model. You said: ${user.length > MAX_ECHOED_LENGTH ? `${user.slice(0, MAX_ECHOED_LENGTH)} …` : user}`
}

function split(text: string, at: RegExp): string[] {
  return text.split(at).filter((piece) => piece !== '')
}

/** The number of `[[name:123]]` in the user's text, or null. */
function directive(text: string, name: string): number | null {
  const found = new RegExp(`\\[\\[${name}:(\\d{1,9})\\]\\]`).exec(text)
  return found ? Number(found[1]) : null
}

/** The first `call <tool> {json}` with a tool on offer and valid JSON, or null. */
function callIn(text: string, tools: string[]): { name: string; arguments: string } | null {
  for (const found of text.matchAll(/\bcall ([A-Za-z0-9_.-]{1,64}) (?=\{)/g)) {
    const [whole, name = ''] = found
    const json = objectAt(text, found.index + whole.length)
    if (tools.includes(name) && json !== null) return { name, arguments: json }
  }
  return null
}

/** The JSON object that starts at `start`, or null. */
function objectAt(text: string, start: number): string | null {
  for (let end = text.indexOf('}', start), tries = 0; end >= 0 && tries < 1000; end = text.indexOf('}', end + 1), tries++) {
    const candidate = text.slice(start, end + 1)
    try {
      JSON.parse(candidate)
      return candidate
    } catch {
      // This brace closes an inner value.
    }
  }
  return null
}

/** What the built-in echo says (`docs/echo.md`): the same on both wires, and always the same for the same request. */

/** A request, as far as the echo listens. */
export type Heard = {
  /** The text of the last user message. */
  user: string
  /** What tools answered after it. */
  outputs: string[]
  /** Names of the functions that it may call. */
  tools: string[]
  /** Bytes of the conversation, and of the part before the last user message. */
  bytes: number
  earlierBytes: number
  maxTokens: number | null
}

export type Usage = { input: number; cached: number; output: number }

/** `pieces` are streamed one by one and are one token each. */
export type Said = {
  call: { name: string; arguments: string } | null
  pieces: string[]
  cutOff: boolean
  waitMs: number
  usage: Usage
}

const MOST_TOKENS = 200_000
const LONGEST_WAIT_MS = 60_000
/** Characters of the user's text that are said again: more of them would keep the whole process busy. */
const MOST_ECHOED = 20_000

/** The text of a message, also where it comes as a list of parts. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  return Array.isArray(content) ? content.map((part: { text?: unknown }) => (typeof part?.text === 'string' ? part.text : '')).join('') : ''
}

export function answer(heard: Heard): Said {
  const call = heard.outputs.length === 0 ? callIn(heard.user, heard.tools) : null
  const whole = call ? split(call.arguments, /(?<=[,:{ ])/) : split(textFor(heard), /(?<=\s)/)
  const pieces = heard.maxTokens === null || call ? whole : whole.slice(0, heard.maxTokens)
  return {
    call,
    pieces,
    cutOff: pieces.length < whole.length,
    waitMs: Math.min(LONGEST_WAIT_MS, knob(heard.user, 'wait') ?? 0),
    usage: { input: Math.max(1, Math.ceil(heard.bytes / 4)), cached: Math.floor(heard.earlierBytes / 4), output: pieces.length },
  }
}

function textFor({ user, outputs }: Heard): string {
  if (outputs.length > 0) return `The tool answered: ${outputs.join('\n').slice(0, MOST_ECHOED)}`
  const tokens = knob(user, 'tokens')
  if (tokens !== null) return 'word '.repeat(Math.min(MOST_TOKENS, Math.max(1, tokens)))
  return `This is the built-in echo, no model. You said: ${user.length > MOST_ECHOED ? `${user.slice(0, MOST_ECHOED)} …` : user}`
}

function split(text: string, at: RegExp): string[] {
  return text.split(at).filter((piece) => piece !== '')
}

/** `[[name:123]]` in the text of the user. */
function knob(text: string, name: string): number | null {
  const found = new RegExp(`\\[\\[${name}:(\\d{1,9})\\]\\]`).exec(text)
  return found ? Number(found[1]) : null
}

/** The first `call <tool> {json}` that names a tool on offer and has arguments that are JSON. */
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
      // The brace closed something inside.
    }
  }
  return null
}

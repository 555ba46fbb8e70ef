/** Stop sequences of a chat request at an upstream whose wire has none: the gateway ends the text before the first one. */
import { own, type Members } from '../wires/allowlist.ts'
import { unsupported } from './unsupported-parameter.ts'

/** As many as OpenAI takes; the text is compared with each. */
const MAX_SEQUENCES = 4
/** Characters. So much text is held back at most. */
const MAX_LENGTH = 256

/** The sequences of a request; empty ones are left out. Throws `unsupported_parameter` for more or longer ones, and with `logprobs`, which count tokens. */
export function stopSequences(body: Members): string[] {
  const stop = own(body, 'stop') ?? []
  const sequences = (typeof stop === 'string' ? [stop] : (stop as string[])).filter((sequence) => sequence !== '')
  const isTooMuch = sequences.length > MAX_SEQUENCES || sequences.some(({ length }) => length > MAX_LENGTH)
  if (isTooMuch || (sequences.length > 0 && own(body, 'logprobs') === true)) throw unsupported('stop')
  return sequences
}

export type StopFilter = {
  /** The text that may be passed on: a beginning of a sequence is held back until it is none. '' after a sequence was found. */
  push(text: string): string
  /** What is held back, when no more text follows. */
  flush(): string
  /** Whether a sequence was found. */
  stopped(): boolean
  /** The sequence that was found, or null. */
  found(): string | null
}

export function openStopFilter(sequences: readonly string[]): StopFilter {
  let held = ''
  let found: string | null = null

  /** The length of the longest end of the text that begins a sequence. */
  function beginning(text: string): number {
    for (let length = Math.min(text.length, MAX_LENGTH - 1); length > 0; length--) {
      const end = text.slice(-length)
      if (sequences.some((sequence) => sequence.length > length && sequence.startsWith(end))) return length
    }
    return 0
  }

  return {
    push(text) {
      if (found !== null || sequences.length === 0) return found === null ? text : ''
      const whole = held + text
      const first = firstOf(sequences, whole)
      found = first?.sequence ?? null
      const passed = first ? first.at : whole.length - beginning(whole)
      held = first ? '' : whole.slice(passed)
      return whole.slice(0, passed)
    },
    flush() {
      const rest = held
      held = ''
      return rest
    },
    stopped: () => found !== null,
    found: () => found,
  }
}

/** The sequence that comes first in a text. */
function firstOf(sequences: readonly string[], text: string): { sequence: string; at: number } | undefined {
  return sequences
    .map((sequence) => ({ sequence, at: text.indexOf(sequence) }))
    .filter(({ at }) => at >= 0)
    .sort((a, b) => a.at - b.at)[0]
}

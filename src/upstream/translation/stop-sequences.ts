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
}

export function openStopFilter(sequences: readonly string[]): StopFilter {
  let held = ''
  let stopped = false

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
      if (stopped || sequences.length === 0) return stopped ? '' : text
      const whole = held + text
      const found = sequences.map((sequence) => whole.indexOf(sequence)).filter((at) => at >= 0)
      stopped = found.length > 0
      const passed = stopped ? Math.min(...found) : whole.length - beginning(whole)
      held = stopped ? '' : whole.slice(passed)
      return whole.slice(0, passed)
    },
    flush() {
      const rest = held
      held = ''
      return rest
    },
    stopped: () => stopped,
  }
}

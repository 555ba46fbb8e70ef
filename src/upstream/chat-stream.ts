/** The stream of a chat completion: chunks, then the usage if the client asked for it, then `[DONE]`; or an error and no `[DONE]`, which SDKs take for success. */
import { Failure } from '../errors.ts'
import { chunkOf, cleanChunk, measure, openHead, type Head } from './chat.ts'
import type { Ids } from './ids.ts'
import { openMeter } from './meter.ts'
import { judgeError } from './refusal.ts'
import { isMembers, type Members } from './shape.ts'
import { openSplicer, type Hole } from './splice.ts'
import { bytesOf, openSse, textOf } from './sse.ts'
import { chatUsage, readUsage } from './usage.ts'
import { BadAnswer, type Phase, type StreamRebuilder } from './wire.ts'

const delta = (...path: (string | number)[]): Hole => ({ path: ['choices', 0, 'delta', ...path], kind: 'text', passed: true, counted: true })

const HOLES: readonly Hole[] = [
  delta('content'),
  delta('reasoning_content'),
  delta('reasoning'),
  delta('refusal'),
  delta('tool_calls', 0, 'function', 'arguments'),
  { path: ['obfuscation'], kind: 'text', passed: true, counted: false },
  { path: ['created'], kind: 'number', passed: false, counted: false },
]

export type ChatStreamOptions = {
  ids: Ids
  includeUsage: boolean
  /** Epoch seconds, for an upstream that tells no time. */
  now: number
}

function eventOf(value: unknown): string {
  return `data: ${bytesOf(JSON.stringify(value))}\n\n`
}

/** The error chunk of a chat stream. */
export function chatFailure(failure: Failure): string {
  return eventOf({ error: { message: failure.message, type: failure.type, code: failure.code, param: failure.facts.param ?? null } })
}

export function openChatStream({ ids, includeUsage, now }: ChatStreamOptions): StreamRebuilder {
  const meter = openMeter()
  const splicer = openSplicer(HOLES, meter.escaped, () => 0)
  const ended = new Map<number, { finished: boolean; called: boolean }>()
  let phase: Phase = { name: 'open' }
  let head: Head | null = null
  let usage: unknown = null
  let out = ''

  const sse = openSse((data) => {
    if (phase.name !== 'open') return
    if (data === '[DONE]') return finish()
    const spliced = splicer.splice(data)
    if (spliced === null) parse(data)
    else out += `data: ${spliced}\n\n`
  })

  function parse(data: string): void {
    const event: unknown = JSON.parse(textOf(data))
    if (!isMembers(event)) throw new BadAnswer('a chunk is not an object')
    if (event['error'] !== undefined && event['error'] !== null) {
      phase = { name: 'broken', failure: judgeError(event['error']) ?? overloaded('the stream brought an error', event['error']) }
      return
    }
    const known = (head ??= openHead(event, ids, now))
    noteUsage(event)
    const chunk = cleanChunk(event, ids, known, includeUsage)
    if (!chunk) return
    const choices = chunk['choices'] as Members[]
    measure(choices, meter)
    noteChoices(choices)
    out += eventOf(chunk)
    splicer.learn(data, event, (marked) => cleanChunk(marked as Members, ids, known, includeUsage))
  }

  /** Some upstreams report usage in every chunk, or inside of a choice: the last one counts. */
  function noteUsage(event: Members): void {
    const inChoice = Array.isArray(event['choices']) && isMembers(event['choices'][0]) ? event['choices'][0]['usage'] : null
    for (const reported of [inChoice, event['usage']]) if (readUsage(reported)) usage = reported
  }

  function noteChoices(choices: Members[]): void {
    for (const choice of choices) {
      const index = choice['index'] as number
      const known = ended.get(index) ?? { finished: false, called: false }
      const called = isMembers(choice['delta']) && choice['delta']['tool_calls'] !== undefined
      ended.set(index, { finished: known.finished || choice['finish_reason'] !== null, called: known.called || called })
    }
  }

  function finish(): void {
    if (!head || ended.size === 0) throw new BadAnswer('the stream was empty')
    for (const [index, { finished, called }] of ended) {
      if (!finished) out += eventOf(chunkOf(head, [{ index, delta: {}, logprobs: null, finish_reason: called ? 'tool_calls' : 'stop' }], includeUsage))
    }
    const reported = includeUsage ? chatUsage(usage) : undefined
    if (reported) out += eventOf({ ...chunkOf(head, [], false), usage: reported })
    out += 'data: [DONE]\n\n'
    phase = { name: 'done' }
  }

  /** Runs what may throw, and gives the bytes that were made until then. */
  function made(run: () => void): string {
    out = ''
    try {
      if (phase.name === 'open') run()
    } catch (cause) {
      phase = { name: 'broken', failure: overloaded('the stream is not the chat wire', cause) }
    }
    return out
  }

  return {
    push: (chunk) => made(() => sse.push(chunk)),
    end: () =>
      made(() => {
        sse.end()
        if (phase.name === 'open') throw new BadAnswer('the stream ended without [DONE]')
      }),
    fail: chatFailure,
    phase: () => phase,
    usage: () => readUsage(usage),
    meter,
  }
}

/** The failure of an upstream that has begun to answer: what happened is only for the log. */
export function overloaded(what: string, cause: unknown): Failure {
  return new Failure('server_overloaded', { retryAfterSeconds: 5, cause: new Error(what, { cause }) })
}

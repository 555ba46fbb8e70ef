/**
 * The stream of a chat completion: chunks, then the usage if the client asked for it, then `[DONE]`; or an error and no `[DONE]`, which
 * SDKs take for success.
 */
import type { Failure } from '../../domain/errors.ts'
import { chunkOf, cleanChunk, measure, openHead, type Head } from './chat-completion.ts'
import type { Ids } from './encrypted-ids.ts'
import { openMeter } from '../usage/output-meter.ts'
import { openRebuilder, overloaded, type Out } from '../sse/stream-rewriter.ts'
import { judgeError } from '../selection/error-classification.ts'
import { isMembers, type Members } from './member-allowlist.ts'
import { openSplicer, type Hole } from '../sse/event-templates.ts'
import { bytesOf, textOf } from '../sse/sse-parser.ts'
import { chatUsage, readUsage } from '../usage/reported-usage.ts'
import { BadAnswer, type StreamRebuilder } from './wire.ts'

const delta = (...path: (string | number)[]): Hole => ({
  path: ['choices', 0, 'delta', ...path],
  kind: 'text',
  passed: true,
  counted: true,
})

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
  const endings = openEndings()
  let head: Head | null = null
  let usage: unknown = null

  const rebuilder = openRebuilder((data, _name, out) => {
    if (data === '[DONE]') return finish(out)
    const spliced = splicer.splice(data)
    if (spliced === null) parse(data, out)
    else out.write(`data: ${spliced}\n\n`)
  })

  function parse(data: string, out: Out): void {
    const event: unknown = JSON.parse(textOf(data))
    if (!isMembers(event)) throw new BadAnswer('a chunk is not an object')
    if (event['error'] !== undefined && event['error'] !== null)
      return out.broke(judgeError(event['error']) ?? overloaded('the stream brought an error', event['error']))
    const known = (head ??= openHead(event, ids, now))
    usage = usageIn(event) ?? usage
    const chunk = cleanChunk(event, ids, known, includeUsage)
    if (!chunk) return
    const choices = chunk['choices'] as Members[]
    measure(choices, meter)
    endings.note(choices)
    out.write(eventOf(chunk))
    splicer.learn(data, event, (marked) => cleanChunk(marked as Members, ids, known, includeUsage))
  }

  function finish(out: Out): void {
    if (!head || !endings.any()) throw new BadAnswer('the stream was empty')
    for (const choice of endings.missing()) out.write(eventOf(chunkOf(head, [choice], includeUsage)))
    const reported = includeUsage ? chatUsage(usage) : undefined
    if (reported) out.write(eventOf({ ...chunkOf(head, [], false), usage: reported }))
    out.write('data: [DONE]\n\n')
    out.done()
  }

  return { ...rebuilder, fail: chatFailure, usage: () => readUsage(usage), meter }
}

/** Some upstreams report usage in every chunk, or inside of a choice: the last one counts. */
function usageIn(event: Members): unknown {
  if (readUsage(event['usage'])) return event['usage']
  const [choice] = Array.isArray(event['choices']) ? (event['choices'] as unknown[]) : []
  return isMembers(choice) && readUsage(choice['usage']) ? choice['usage'] : null
}

/** Remembers which choices have ended, because each must. */
function openEndings() {
  const choices = new Map<number, { finished: boolean; called: boolean }>()
  return {
    any: () => choices.size > 0,
    note(cleaned: Members[]): void {
      for (const choice of cleaned) {
        const index = choice['index'] as number
        const known = choices.get(index)
        const called = isMembers(choice['delta']) && choice['delta']['tool_calls'] !== undefined
        choices.set(index, {
          finished: (known?.finished ?? false) || choice['finish_reason'] !== null,
          called: (known?.called ?? false) || called,
        })
      }
    },
    /** The last choice of a chunk for each that the upstream left open. */
    missing: (): Members[] =>
      [...choices]
        .filter(([, { finished }]) => !finished)
        .map(([index, { called }]) => ({ index, delta: {}, logprobs: null, finish_reason: called ? 'tool_calls' : 'stop' })),
  }
}

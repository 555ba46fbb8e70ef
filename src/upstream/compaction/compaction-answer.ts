/** The answer to a request that compacts a conversation: an item of compaction in place of the text of the summary. */
import { Failure } from '../../domain/errors.ts'
import { openStreamRewriter, type RewriterOutput } from '../sse/stream-rewriter.ts'
import { textOf } from '../sse/sse-parser.ts'
import { estimatedResponseUsage } from '../usage/reported-usage.ts'
import { isMembers, ownText, type Members } from '../wires/allowlist.ts'
import type { Ids } from '../wires/encrypted-ids.ts'
import { responseEvent } from '../wires/responses/responses-stream.ts'
import type { JsonAnswer, StreamRewriter, UpstreamCall } from '../wires/wire.ts'
import { compactionItem } from './compaction-item.ts'

/** `kept`: the items that stand before the one of compaction in the answer of `/responses/compact`; null for a response. */
export type CompactionContext = { ids: Ids; kept: readonly Members[] | null }

/** The same call, which answers with an item of compaction. `call`: one for a summary, or of an upstream that compacts by itself. */
export function answeringCompaction(call: UpstreamCall, context: CompactionContext): UpstreamCall {
  return {
    ...call,
    openRewriter: (templates) => openCompactionStream(call.openRewriter(templates), context.ids),
    rewriteJson: (value) => compactionAnswer(call.rewriteJson(value), context),
    isTranslation: true,
    translated: call.translated && answeringCompaction(call.translated, context),
  }
}

/** That of the upstream, or one for the text; a failure for a summary that was cut off or is empty: what it lacks would be lost. */
function itemOf(response: Members, ids: Ids): Members | Failure {
  const output = (response['output'] ?? []) as Members[]
  const given = output.find(({ type }) => type === 'compaction')
  if (given) return given
  if (response['status'] !== 'completed') return new Failure('summary_incomplete')
  const parts = output.flatMap(({ type, content }) => (type === 'message' ? ((content ?? []) as Members[]) : []))
  const summary = parts
    .map((part) => ownText(part, 'text'))
    .join('\n')
    .trim()
  return summary === '' ? new Failure('summary_incomplete') : compactionItem(summary, ids)
}

const withItem = (response: Members, item: Members): Members => ({
  ...response,
  status: 'completed',
  completed_at: response['completed_at'] ?? response['created_at'],
  incomplete_details: null,
  output: [item],
})

function compactionAnswer({ body, usage, meter }: JsonAnswer, { ids, kept }: CompactionContext): JsonAnswer {
  const response = JSON.parse(body({ input: 0, cachedInput: 0, output: 0 })) as Members
  const item = itemOf(response, ids)
  if (item instanceof Failure) return { usage, meter, body: () => '', failure: item }
  const { id, created_at: createdAt } = response
  const answer =
    kept === null ? withItem(response, item) : { id, object: 'response.compaction', created_at: createdAt, output: [...kept, item] }
  return {
    usage,
    meter,
    body: (estimate) => JSON.stringify({ ...answer, usage: usage ? response['usage'] : estimatedResponseUsage(estimate) }),
  }
}

/** Of the events of the summary only those of the whole response are passed on. */
function openCompactionStream(responses: StreamRewriter, ids: Ids): StreamRewriter {
  let sequence = 0
  const numbered = (event: Members) => responseEvent({ ...event, sequence_number: sequence++ })

  function read(data: string, to: RewriterOutput): void {
    const event: unknown = JSON.parse(textOf(data))
    if (!isMembers(event) || !isMembers(event['response'])) return
    const { response, type } = event
    if (type !== 'response.completed' && type !== 'response.incomplete') return to.write(numbered(event))
    const item = itemOf(response, ids)
    if (item instanceof Failure) return to.fail(item)
    to.write(numbered({ type: 'response.output_item.added', output_index: 0, item }))
    to.write(numbered({ type: 'response.output_item.done', output_index: 0, item }))
    to.write(numbered({ type: 'response.completed', response: withItem(response, item) }))
  }

  const open = () => openStreamRewriter((data, _name, to) => read(data, to))
  const rewriter = open()
  const passed = (bytes: string, by = rewriter) => (bytes === '' ? '' : by.push(Buffer.from(bytes, 'latin1')))
  const fail: StreamRewriter['fail'] = (failure) => passed(responses.fail(failure), open())

  return {
    push: (chunk) => passed(responses.push(chunk)),
    end: () => passed(responses.end()),
    fail,
    phase() {
      const phase = rewriter.phase()
      if (phase.name !== 'broken') return responses.phase()
      return responses.phase().name === 'done' ? { ...phase, isAnswer: true } : phase
    },
    terminalEvents(estimate) {
      const events = passed(responses.terminalEvents(estimate))
      const phase = rewriter.phase()
      return phase.name === 'broken' ? fail(phase.failure) : events
    },
    usage: responses.usage,
    meter: responses.meter,
  }
}

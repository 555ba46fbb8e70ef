/** Stream of a message from an upstream of the wire: known events only, our ids and model, and the usage at the end. */
import { messageErrorBody } from '../../../http/message-errors.ts'
import { eventIn, openStreamRewriter, overloaded, type RewriterOutput } from '../../sse/stream-rewriter.ts'
import { openEventTemplates, type TemplateSets } from '../../sse/event-templates.ts'
import type { Placeholder } from '../../sse/event-template.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { estimatedResponseUsage, readUsage } from '../../usage/reported-usage.ts'
import { isMembers, ownText, type Members } from '../allowlist.ts'
import { clientErrorIn } from '../client-error-mapping.ts'
import type { Ids } from '../encrypted-ids.ts'
import type { StreamRewriter } from '../wire.ts'
import { blockDelta, contextMembers, stopOf } from './message-allowed-members.ts'
import { openMessageBlocks } from './message-blocks.ts'
import { DELTA_HEAD, endEvents, messageEvent, messageOf, type Stop } from './message-object.ts'
import { cleanUsage, messageUsage, openStreamUsage } from './message-usage.ts'

const text = (name: string): Placeholder => ({ path: ['delta', name], kind: 'text', forwarded: true, metered: true })
/** What differs between the deltas of an answer. */
export const PLACEHOLDERS: readonly Placeholder[] = [text('text'), text('thinking'), text('partial_json')]

/** The block of a delta. */
type DeltaFacts = { key: unknown; type: string; index: number }

/** What the answer to a native request depends on. `promptTokens`: estimated, told before the upstream reports its usage. */
export type NativeContext = { ids: Ids; promptTokens: number }

export function openNativeStream({ ids, promptTokens }: NativeContext, sets: TemplateSets = new Map()): StreamRewriter {
  const meter = openMeter()
  const usage = openStreamUsage()
  let output: RewriterOutput | null = null
  let begun = false
  const last: Members = {}
  const context: Members = {}
  const emit = (event: Members) => output?.write(messageEvent(event))
  const blocks = openMessageBlocks(ids, meter, emit)
  const isPlain = ({ key, type, index }: DeltaFacts) => blocks.openIndex(key, type) === index
  const templates = openEventTemplates<DeltaFacts>(sets, 'messages', {
    accept: isPlain,
    meter: meter.addEscaped,
    own: () => '',
    head: () => DELTA_HEAD,
    ids,
  })

  const rewriter = openStreamRewriter((data, name, to) => {
    if (data === '[DONE]') return
    output = to
    const rewritten = templates.rewrite(data)
    if (rewritten !== null) return to.write(rewritten)
    const event = eventIn(data)
    read(event, ownText(event, 'type') || name, data, to)
  })

  function read(event: Members, type: string, data: string, to: RewriterOutput): void {
    if (type === 'error' || (type === '' && isMembers(event['error'])))
      return to.fail(clientErrorIn(event['error']) ?? overloaded('the stream reported an error', event['error']))
    if (type === 'message_start') return begin(isMembers(event['message']) ? event['message'] : {})
    if (!['content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop'].includes(type)) return
    begin({})
    if (type === 'content_block_start' && isMembers(event['content_block'])) blocks.start(event['index'], event['content_block'])
    if (type === 'content_block_delta' && isMembers(event['delta'])) delta(event, event['delta'], data)
    if (type === 'content_block_stop') blocks.stop(event['index'])
    if (type === 'message_delta') {
      Object.assign(last, isMembers(event['delta']) ? event['delta'] : {})
      usage.told(event['usage'])
      Object.assign(context, contextMembers(event, ids))
      to.answer('complete')
    }
    if (type === 'message_stop') finish(to)
  }

  function begin(message: Members): void {
    if (begun) return
    begun = true
    usage.begun(message['usage'])
    const first = cleanUsage(usage.all(), ids)
    const { input_tokens: input, cache_read_input_tokens: read, cache_creation_input_tokens: written } = first
    // Clients show it.
    if (input === 0 && read === 0 && written === 0) first['input_tokens'] = promptTokens
    emit({ type: 'message_start', message: { ...messageOf(ids.fresh('msg_'), [], null, first), ...contextMembers(message, ids) } })
  }

  function delta(event: Members, given: Members, data: string): void {
    const facts = {
      key: event['index'],
      type: ownText(given, 'type'),
      index: blocks.openIndex(event['index'], ownText(given, 'type')) ?? -1,
    }
    blocks.delta(event['index'], given)
    if (!isPlain(facts)) return
    templates.learn(data, event, PLACEHOLDERS, facts, (marked, markingIds) => ({
      type: 'content_block_delta',
      index: facts.index,
      delta: blockDelta((marked as Members)['delta'], markingIds),
    }))
  }

  const stop = (): Stop => stopOf(last, blocks.hasCalls())

  function finish(to: RewriterOutput): void {
    blocks.stop()
    if (usage.whole()) to.write(endEvents(stop(), deltaUsage(cleanUsage(usage.all(), ids)), context))
    to.done()
  }

  return {
    ...rewriter,
    fail: (failure, requestId) => messageEvent(messageErrorBody(failure, requestId)),
    terminalEvents: (estimate) => (usage.whole() ? '' : endEvents(stop(), messageUsage(estimatedResponseUsage(estimate)), context)),
    usage: () => readUsage(usage.soFar()),
    meter,
  }
}

/** The delta at the end repeats the counts alone. */
function deltaUsage({ cache_creation: _creation, ...counts }: Members): Members {
  return counts
}

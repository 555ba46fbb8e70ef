/**
 * Writes the content blocks of a native stream as the wire has them: numbered without gaps, one open at a time, no empty text, the whole signature last.
 * Servers leave out ends, begin with a delta, or send the content of a block in its start.
 */
import { isMembers, ownText, type Members } from '../allowlist.ts'
import type { Ids } from '../encrypted-ids.ts'
import type { OutputMeter } from '../../usage/output-meter.ts'
import { BadAnswer } from '../wire.ts'
import { blockDelta, contentBlock } from './message-allowed-members.ts'
import { sealSignature } from './sealed-thinking.ts'

/** Characters of a signature. */
const MAX_SIGNATURE = 4 * 1024 * 1024

/** The deltas that each type of block has. */
const DELTAS: Record<string, readonly string[]> = {
  text: ['text_delta', 'citations_delta'],
  thinking: ['thinking_delta'],
  tool_use: ['input_json_delta'],
  server_tool_use: ['input_json_delta'],
}
/** For servers that send a delta of a block that they did not start. A call without its name cannot be one. */
const STARTED_BY: Record<string, string> = { text_delta: 'text', thinking_delta: 'thinking' }
const METERED = ['text', 'thinking', 'partial_json']

type Open = {
  /** The upstream's index. */
  key: unknown
  block: Members
  /** A text begins with its first delta. */
  written: boolean
  signature: string
  /** The input that came with the start of a call, until a delta brings it. */
  input: Members | null
}

export type MessageBlocks = {
  start(key: unknown, given: Members): void
  delta(key: unknown, given: Members): void
  /** Ends the block of this key, or whichever is open. */
  stop(key?: unknown): void
  /** Our index of the open block, if deltas of this type go to it under the upstream's `key` as they are; else null. */
  openIndex(key: unknown, deltaType: string): number | null
  hasCalls(): boolean
}

/** `emit` gets the events. */
export function openMessageBlocks(ids: Ids, meter: OutputMeter, emit: (event: Members) => void): MessageBlocks {
  let open: Open | null = null
  let index = 0
  let calls = 0

  function write(block: Open, delta: Members): void {
    if (!block.written) emit({ type: 'content_block_start', index, content_block: block.block })
    block.written = true
    for (const name of METERED) if (typeof delta[name] === 'string') meter.addText(delta[name])
    emit({ type: 'content_block_delta', index, delta })
  }

  function stop(): void {
    const ended = open
    open = null
    if (!ended) return
    if (ended.input && Object.keys(ended.input).length > 0)
      write(ended, { type: 'input_json_delta', partial_json: JSON.stringify(ended.input) })
    if (ended.block['type'] === 'thinking') write(ended, { type: 'signature_delta', signature: sealSignature(ended.signature, ids) })
    if (!ended.written) return
    emit({ type: 'content_block_stop', index })
    index++
  }

  function start(key: unknown, given: Members): void {
    stop()
    const block = contentBlock(given, ids)
    if (!isMembers(block)) return
    const type = ownText(block, 'type')
    const isCall = DELTAS[type]?.includes('input_json_delta') === true
    if (isCall) meter.addText(ownText(block, 'name'))
    if (type === 'tool_use') calls++
    const opened: Open = {
      key,
      block,
      written: type !== 'text',
      signature: ownText(given, 'signature'),
      input: isCall ? (block['input'] as Members) : null,
    }
    open = opened
    const first = ownText(block, type)
    if (isCall) block['input'] = {}
    if (type === 'thinking') block['signature'] = ''
    if (type === 'text') block['citations'] = null
    if (type === 'text' || type === 'thinking') block[type] = ''
    if (opened.written) emit({ type: 'content_block_start', index, content_block: block })
    if (first !== '' && (type === 'text' || type === 'thinking')) write(opened, { type: `${type}_delta`, [type]: first })
  }

  return {
    start,
    stop(key) {
      if (key === undefined || open?.key === key) stop()
    },
    delta(key, given) {
      const type = ownText(given, 'type')
      const begun = STARTED_BY[type]
      if (open?.key !== key && begun !== undefined) start(key, { type: begun })
      if (!open || open.key !== key) return
      if (type === 'signature_delta') {
        open.signature += ownText(given, 'signature')
        if (open.signature.length > MAX_SIGNATURE) throw new BadAnswer('the signature is too large')
      }
      const delta = DELTAS[ownText(open.block, 'type')]?.includes(type) ? (blockDelta(given, ids) as Members) : null
      if (!delta || delta['text'] === '' || (type === 'citations_delta' && !delta['citation'])) return
      if (type === 'input_json_delta' && delta['partial_json'] !== '') open.input = null
      write(open, delta)
    },
    openIndex: (key, deltaType) =>
      open?.written && open.key === key && open.input === null && DELTAS[ownText(open.block, 'type')]?.includes(deltaType) ? index : null,
    hasCalls: () => calls > 0,
  }
}

/** Writes the content blocks of a streamed message strictly in order, one open at a time: deltas of a later block wait until the earlier ones have ended. */
import type { Members } from '../../wires/allowlist.ts'
import { BadAnswer } from '../../wires/wire.ts'

/** Characters that may wait. */
const MAX_WAITING = 16 * 1024 * 1024

type Block = { key: string; start: Members; waiting: Members[]; started: boolean; ended: boolean }

export type ContentBlocks = {
  /** Whether a block of this key was opened. */
  has(key: string): boolean
  open(key: string, start: Members): void
  /** Keeps a block without deltas, if there is one, for the next call that is opened: it goes in front of that. */
  withhold(key: string, block: Members | null): void
  /** Throws `BadAnswer` when too much waits. */
  delta(key: string, delta: Members): void
  /** Ends the block of this key, if it is open. */
  end(key: string): void
  /** Ends all blocks. */
  endAll(): void
}

/** `emit` gets the events. */
export function openContentBlocks(emit: (event: Members) => void): ContentBlocks {
  const open: Block[] = []
  const keys = new Set<string>()
  const withheld = new Map<string, Members>()
  let index = 0
  let waiting = 0

  function flush(): void {
    for (let block = open[0]; block; block = open[0]) {
      if (!block.started) emit({ type: 'content_block_start', index, content_block: block.start })
      block.started = true
      for (const delta of block.waiting) emit({ type: 'content_block_delta', index, delta })
      block.waiting = []
      if (!block.ended) return
      emit({ type: 'content_block_stop', index })
      index++
      open.shift()
    }
  }

  function add(key: string, start: Members, ended: boolean): void {
    keys.add(key)
    open.push({ key, start, waiting: [], started: false, ended })
  }

  return {
    has: (key) => keys.has(key),
    withhold: (key, block) => void (block && withheld.set(key, block)),
    open(key, start) {
      if (start['type'] === 'tool_use') {
        for (const [name, block] of withheld) add(name, block, true)
        withheld.clear()
      }
      add(key, start, false)
      flush()
    },
    delta(key, delta) {
      const block = open.find((one) => one.key === key && !one.ended)
      if (!block) return
      block.waiting.push(delta)
      if (block !== open[0]) waiting += JSON.stringify(delta).length
      if (waiting > MAX_WAITING) throw new BadAnswer('too much of the answer waits for an earlier block')
      flush()
    },
    end(key) {
      const block = open.find((one) => one.key === key)
      if (block) block.ended = true
      flush()
    },
    endAll() {
      for (const block of open) block.ended = true
      flush()
    },
  }
}

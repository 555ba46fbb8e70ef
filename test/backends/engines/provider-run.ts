/** Runs of the engines of providers under a clock that only pauses move, so that no test of polling sleeps. */
import { tmpdir } from 'node:os'
import { openEgress } from '../../../src/egress/egress.ts'
import type { Made, NotMade, Input, Run } from '../../../src/backends/engines/engine.ts'
import type { Outside } from '../../../src/backends/engines/provider/environment.ts'
import { contentTypeOf } from '../../../src/domain/media-info.ts'

export type FakeOutside = Outside & {
  /** Every pause so far, in milliseconds. */
  pauses: number[]
  /** What the guards were opened with. */
  allowed: string[][]
  /** Called before each pause ends. */
  onPause: (count: number) => void
}

export function fakeOutside(more: Partial<Outside> = {}): FakeOutside {
  let now = Date.UTC(2026, 9, 1)
  const outside: FakeOutside = {
    keys: { env: () => undefined, readFile: () => '' },
    openGuard(allow) {
      outside.allowed.push([...allow])
      return openEgress({ allow, clock: () => now })
    },
    clock: () => now,
    async pause(ms) {
      outside.pauses.push(ms)
      now += ms
      outside.onPause(outside.pauses.length)
    },
    random: () => 0.5,
    scratchFolder: tmpdir(),
    pauses: [],
    allowed: [],
    onPause: () => {},
    ...more,
  }
  return outside
}

export type FakeRun = Run & { remembered: string[]; percents: number[] }

export function runOf(more: Partial<Run> = {}): FakeRun {
  const remembered: string[] = []
  const percents: number[] = []
  return {
    signal: new AbortController().signal,
    progress: (percent) => void percents.push(percent),
    model: null,
    inputs: [],
    limits: { pixels: 16_000_000, durationMs: 60_000, bytes: 50_000_000 },
    job: { id: null, remember: async (id) => void remembered.push(id) },
    idempotencyKey: '0190-task:1',
    remembered,
    percents,
    ...more,
  }
}

export function input(role: Input['role'], bytes: Buffer, contentType = contentTypeOf(bytes) ?? 'application/octet-stream'): Input {
  return {
    role,
    contentType,
    bytes: bytes.length,
    async *read() {
      for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536)
    },
  }
}

export async function bytesOf(made: Made | NotMade): Promise<Buffer> {
  if (made.outcome === 'failed') throw new Error(`not made: ${made.code}`, { cause: made.cause })
  return made.body instanceof Uint8Array ? Buffer.from(made.body) : Buffer.concat(await Array.fromAsync(made.body))
}

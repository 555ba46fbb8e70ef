/** Runs of engines over files: the inputs of a run, and its result, in a scratch folder of its own. */
import * as fs from 'node:fs'
import { stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import type { Limits } from '../../../domain/media-generations.ts'
import type { Input, Made, NotMade, Run } from '../engine.ts'
import { openFile } from './open-file.ts'
import { scratchFolder } from './scratch.ts'

/** One run in its scratch folder. Inputs are files of it. */
export type Job = {
  inputs: readonly { role: Input['role']; path: string }[]
  scratch: string
  limits: Limits
  signal: AbortSignal
  progress: (percent: number) => void
}

/** A result in the scratch folder. */
export type Written = Pick<Made, 'outcome' | 'contentType' | 'facts' | 'used'> & { path: string }

const open = promisify(fs.open)

/** Scratch folders lie there unless an entry of the ENGINES file says otherwise. */
export const SCRATCH = join(tmpdir(), `tollgate-${process.getuid?.() ?? 'scratch'}`)

/** An option that is a path. Throws an Error that names it when it is not absolute. */
export function absolutePath(option: string, value: unknown): string {
  if (typeof value !== 'string' || !isAbsolute(value)) throw new Error(`${option} must be an absolute path`)
  return value
}

/** Runs jobs in scratch folders under `base`, and knows those that are under way. */
export function scratchRuns(base: string): {
  /** The folder of a job is removed when this settles: the result is an open file without a name by then. */
  run(job: (job: Job) => Promise<Written | NotMade>, control: Run): Promise<Made | NotMade>
  /** Resolves when all have ended. */
  ended(): Promise<void>
} {
  const running = new Set<Promise<unknown>>()
  return {
    async run(job, control) {
      const made = runIn(base, job, control)
      const ended: Promise<unknown> = made.catch(() => null).finally(() => running.delete(ended))
      running.add(ended)
      return made
    },
    ended: async () => void (await Promise.all(running)),
  }
}

async function runIn(
  base: string,
  run: (job: Job) => Promise<Written | NotMade>,
  { inputs, limits, signal, progress }: Run,
): Promise<Made | NotMade> {
  const scratch = await scratchFolder(base)
  try {
    const files = await Promise.all(
      inputs.map(async (input, i) => ({ role: input.role, path: await write(input, join(scratch.path, `input-${i}`), signal) })),
    )
    const result = await run({ inputs: files, scratch: scratch.path, limits, signal, progress })
    if (result.outcome === 'failed') return result
    const { path, contentType, facts, used } = result
    const { size } = await stat(path)
    const { body, release } = openFile(await open(path, 'r'), size)
    return { outcome: 'made', body, bytes: size, release, contentType, facts, used }
  } finally {
    await scratch.remove()
  }
}

async function write(input: Input, path: string, signal: AbortSignal): Promise<string> {
  await pipeline(Readable.from(input.read()), fs.createWriteStream(path, { mode: 0o600 }), { signal }).catch((error: unknown) => {
    throw signal.aborted ? signal.reason : error
  })
  return path
}

/**
 * The engine `local`: operations by programs and libraries of this machine. Each run is a child process in a scratch folder of its own;
 * what is not installed is not offered.
 */
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { tmpdir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Limits } from '../../../domain/media-generations.ts'
import { amountsAtMost, type Operation, type OperationRequest } from '../../../domain/media-operations.ts'
import { notMade, type Engine, type EngineRequest, type Input, type Made, type NotMade, type OpenEngine, type Run } from '../engine.ts'
import { installed, supported, type Available, type Programs } from './ffmpeg/available.ts'
import { FORMATS, type FormatName } from './ffmpeg/formats.ts'
import { merge } from './ffmpeg/merge.ts'
import { trim } from './ffmpeg/trim.ts'
import {
  IMAGE_FORMATS,
  inpaint,
  missingImageOperations,
  removeBackground,
  upscale,
  type ImageFailed,
  type ImageMade,
} from './image/operations.ts'
import { scratchFolder, sweepScratch } from './scratch.ts'

/** One run in its scratch folder. Inputs are files of it. */
type Job = {
  inputs: readonly { role: Input['role']; path: string }[]
  scratch: string
  limits: Limits
  signal: AbortSignal
  progress: (percent: number) => void
}

/** A result in the scratch folder. */
type Written = Pick<Made, 'outcome' | 'contentType' | 'facts' | 'used'> & { path: string }
type RunJob<Request> = (request: Request, job: Job) => Promise<Written | NotMade>
/** What can run here, and what lacks something. */
type Operations = {
  offers: Record<string, { formats: readonly [string, ...string[]] }>
  missing: Record<string, string>
  runs: { [V in Operation]?: RunJob<Extract<OperationRequest, { verb: V }>> }
}

const ALL_FORMATS = Object.keys(FORMATS) as [FormatName, ...FormatName[]]

/** Opens the engine: looks for what each operation needs, and removes the scratch folders of processes that were killed. */
export const openLocal: OpenEngine = async (_name, options) => {
  const { scratch, ffmpeg } = readOptions(options)
  await sweepScratch(scratch)
  const images = imageOperations()
  const found = await installed(ffmpeg === null ? undefined : [ffmpeg])
  // A build that lacks something is rare, and executing it takes long: until it was examined, all formats are offered.
  let films = ffmpegOperations(found.outcome === 'missing' ? found : { ...found, formats: ALL_FORMATS })
  const settled =
    found.outcome === 'missing' ? Promise.resolve() : examine(found.programs).then((build) => void (films = ffmpegOperations(build)))
  const running = new Set<Promise<unknown>>()

  async function run(request: EngineRequest, control: Run): Promise<Made | NotMade> {
    control.signal.throwIfAborted()
    await settled
    const job = 'width' in request ? undefined : ({ ...images.runs, ...films.runs }[request.verb] as RunJob<EngineRequest> | undefined)
    if (!job) return notMade('not_supported', false)
    const made = runIn(scratch, (files) => job(request, files), control)
    const ended: Promise<unknown> = made.catch(() => null).finally(() => running.delete(ended))
    running.add(ended)
    return made
  }

  const engine: Engine = {
    get offers() {
      return { ...images.offers, ...films.offers }
    },
    get missing() {
      return { ...images.missing, ...films.missing }
    },
    settled,
    quote: amountsAtMost,
    run,
    close: async () => void (await Promise.all([settled, ...running])),
  }
  return engine
}

/** `ffmpeg` is the folder of its programs, null for the usual ones. Throws an Error that names the faulty option. */
function readOptions({
  scratch = join(tmpdir(), `tollgate-${process.getuid?.() ?? 'scratch'}`),
  ffmpeg = null,
  ...others
}: Record<string, unknown>): { scratch: string; ffmpeg: string | null } {
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw new Error(`type local has no option ${unknown}`)
  if (typeof scratch !== 'string' || !isAbsolute(scratch)) throw new Error('scratch must be an absolute path')
  if (ffmpeg !== null && (typeof ffmpeg !== 'string' || !isAbsolute(ffmpeg))) throw new Error('ffmpeg must be an absolute path')
  return { scratch, ffmpeg }
}

/** No process can be started where the machine is out of them. */
function examine(programs: Programs): Promise<Available> {
  return supported(programs).catch((): Available => ({ outcome: 'missing', message: `${programs.ffmpeg} cannot be executed` }))
}

function ffmpegOperations(found: Available): Operations {
  if (found.outcome === 'missing') return { offers: {}, missing: { trim: found.message, merge: found.message }, runs: {} }
  const { programs, formats } = found
  const paths = ({ inputs }: Job) => inputs.map(({ path }) => path)
  return {
    offers: { trim: { formats }, merge: { formats } },
    missing: {},
    runs: {
      trim: (request, job) => trim({ ...job, request, inputs: paths(job), programs }),
      merge: (request, job) => merge({ ...job, request, inputs: paths(job), programs }),
    },
  }
}

function imageOperations(): Operations {
  const missing = missingImageOperations()
  const offered = Object.entries(IMAGE_FORMATS).filter(([operation]) => !Object.hasOwn(missing, operation))
  const all: Operations['runs'] = {
    background_remove: async (request, job) => written(await removeBackground({ ...job, request })),
    upscale: async (request, job) => written(await upscale({ ...job, request })),
    inpaint: async (request, job) => written(await inpaint({ ...job, request })),
  }
  return {
    offers: Object.fromEntries(offered.map(([operation, formats]) => [operation, { formats }])),
    missing,
    runs: Object.fromEntries(Object.entries(all).filter(([operation]) => offered.some(([name]) => name === operation))),
  }
}

function written(result: ImageMade | ImageFailed): Written | NotMade {
  return result.outcome === 'made' ? result : notMade(result.code, result.retryable, result.cause)
}

/** Runs a job in a scratch folder that is removed when this settles: the result is an open file without a name by then. */
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
    const body = createReadStream(path)
    await once(body, 'open')
    return { outcome: 'made', body, contentType, facts, used }
  } finally {
    await scratch.remove()
  }
}

async function write(input: Input, path: string, signal: AbortSignal): Promise<string> {
  await pipeline(Readable.from(input.read()), createWriteStream(path, { mode: 0o600 }), { signal }).catch((error: unknown) => {
    throw signal.aborted ? signal.reason : error
  })
  return path
}

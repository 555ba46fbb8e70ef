/**
 * The engine `local`: operations on videos and sound by programs of this machine. Each run is a child process in a scratch folder of its
 * own; what is not installed is not offered.
 */
import { amountsAtMost, type Operation, type OperationRequest } from '../../../domain/media-operations.ts'
import { notMade, type Engine, type EngineRequest, type Made, type NotMade, type OpenEngine, type Run } from '../engine.ts'
import { sweepScratch } from '../process/scratch.ts'
import { absolutePath, SCRATCH, scratchRuns, type Job, type Written } from '../process/scratch-run.ts'
import { installed, supported, type Available, type Programs } from './ffmpeg/available.ts'
import { FORMATS, type FormatName } from './ffmpeg/formats.ts'
import { merge } from './ffmpeg/merge.ts'
import { trim } from './ffmpeg/trim.ts'

type RunJob<Request> = (request: Request, job: Job) => Promise<Written | NotMade>
/** What can run here, and what lacks something. */
type Operations = {
  offers: Record<string, { formats: readonly [string, ...string[]] }>
  missing: Record<string, string>
  runs: { [V in Operation]?: RunJob<Extract<OperationRequest, { kind: V }>> }
}

const ALL_FORMATS = Object.keys(FORMATS) as [FormatName, ...FormatName[]]
/** Of this engine and of `preview` in earlier releases. */
const ELSEWHERE = Object.fromEntries(
  ['background_remove', 'upscale', 'inpaint', 'ai_edit'].map((kind) => [kind, 'pictures are edited by an engine of the type local-image']),
)

/** Opens the engine: looks for what each operation needs, and removes the scratch folders of processes that were killed. */
export const openLocal: OpenEngine = async (_name, options, { runs } = { runs: true }) => {
  const { scratch, ffmpeg } = readOptions(options)
  if (!runs) return quoting()
  await sweepScratch(scratch)
  const found = await installed(ffmpeg === null ? undefined : [ffmpeg])
  // A build that lacks something is rare, and executing it is slow: until it was examined, all formats are offered.
  let films = operationsOf(found.outcome === 'missing' ? found : { ...found, formats: ALL_FORMATS })
  const settled =
    found.outcome === 'missing' ? Promise.resolve() : examine(found.programs).then((build) => void (films = operationsOf(build)))
  const jobs = scratchRuns(scratch)

  async function run(request: EngineRequest, control: Run): Promise<Made | NotMade> {
    control.signal.throwIfAborted()
    await settled
    const job = 'width' in request ? undefined : (films.runs[request.kind] as RunJob<EngineRequest> | undefined)
    return job ? jobs.run((files) => job(request, files), control) : notMade('not_supported', false)
  }

  const engine: Engine = {
    get offers() {
      return films.offers
    },
    get missing() {
      return { ...ELSEWHERE, ...films.missing }
    },
    settled,
    quote: amountsAtMost,
    run,
    close: async () => void (await Promise.all([settled, jobs.ended()])),
  }
  return engine
}

/** The engine of a process that quotes for workers of other machines. */
function quoting(): Engine {
  const { offers } = operationsOf({ outcome: 'found', programs: { ffmpeg: '', ffprobe: '' }, formats: ALL_FORMATS })
  return { offers, missing: ELSEWHERE, quote: amountsAtMost, run: async () => notMade('not_supported', false), close: async () => {} }
}

/** `ffmpeg` is the folder of its programs, null for the usual ones. Throws an Error that names the faulty option. */
function readOptions({ scratch = SCRATCH, ffmpeg = null, ...others }: Record<string, unknown>): { scratch: string; ffmpeg: string | null } {
  const [unknown] = Object.keys(others)
  if (unknown !== undefined) throw new Error(`type local has no option ${unknown}`)
  return { scratch: absolutePath('scratch', scratch), ffmpeg: ffmpeg === null ? null : absolutePath('ffmpeg', ffmpeg) }
}

/** What programs were found to have, by their paths: executing them is slow. */
const builds = new Map<string, Promise<Available>>()

function examine(programs: Programs): Promise<Available> {
  const paths = JSON.stringify(programs)
  // No process can be started where the machine is out of them.
  const failed = (): Available => ({ outcome: 'missing', message: `${programs.ffmpeg} cannot be executed` })
  const build = builds.get(paths) ?? supported(programs).catch(failed)
  builds.set(paths, build)
  void build.then(({ outcome }) => outcome === 'missing' && builds.delete(paths))
  return build
}

function operationsOf(found: Available): Operations {
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

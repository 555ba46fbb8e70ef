/**
 * The engine `local-image`: operations on pictures by sharp and ONNX Runtime. It is a package of its own, because those are large: a process that runs no engines
 * needs neither. Each run is a child process in a scratch folder of its own.
 */
import { notMade, type Engine, type EngineRequest, type OpenEngine } from '../../src/backends/engines/engine.ts'
import { sweepScratch } from '../../src/backends/engines/process/scratch.ts'
import { absolutePath, SCRATCH, scratchRuns } from '../../src/backends/engines/process/scratch-run.ts'
import { amountsAtMost } from '../../src/domain/media-operations.ts'
import { MODEL_SCHEMAS, readModels, type Modelled, type Models } from './models.ts'
import { checkModel, IMAGE_FORMATS, imageOperations, type ImageOperation, type ImageOutcome } from './operations.ts'
import { missingHere } from './packages.ts'

/** Opens the engine. The models that the entry names are tried on a small picture: throws an Error of one sentence about one that does not fit. */
export const openLocalImage: OpenEngine = async (_name, options, { runs } = { runs: true }) => {
  const { scratch, models, named } = readOptions(options)
  const missing = runs ? missingOperations(models) : {}
  if (runs) await sweepScratch(scratch)
  const jobs = scratchRuns(scratch)
  for (const operation of runs ? named : []) if (missing[operation] === undefined) await checkModel(operation, models)
  const offered = Object.entries(IMAGE_FORMATS).filter(([operation]) => !Object.hasOwn(missing, operation))
  const operations = imageOperations(models)

  const engine: Engine = {
    offers: Object.fromEntries(offered.map(([operation, formats]) => [operation, { formats }])),
    missing,
    quote: amountsAtMost,
    async run(request, control) {
      control.signal.throwIfAborted()
      if (!runs || !Object.hasOwn(engine.offers, request.kind)) return notMade('not_supported', false)
      const operate = operations[request.kind as ImageOperation] as (run: object) => Promise<ImageOutcome>
      return jobs.run((job) => operate({ ...job, request: request as EngineRequest }), control)
    },
    close: async () => jobs.ended(),
  }
  return engine
}

/** Operations that cannot run here, each with a sentence for the operator. */
export function missingOperations(models: Models): Partial<Record<ImageOperation, string>> {
  const hasModel = (operation: ImageOperation): boolean => operation !== 'ai_edit' && models[operation] !== null
  const missing = (Object.keys(IMAGE_FORMATS) as ImageOperation[]).map(
    (operation) => [operation, missingHere(hasModel(operation))] as const,
  )
  return Object.fromEntries(missing.filter(([, reason]) => reason !== null))
}

/** Throws an Error that names the faulty option. */
function readOptions({ scratch = SCRATCH, ...others }: Record<string, unknown>): { scratch: string; models: Models; named: Modelled[] } {
  const unknown = Object.keys(others).find((name) => !Object.hasOwn(MODEL_SCHEMAS, name))
  if (unknown !== undefined) throw new Error(`type local-image has no option ${unknown}`)
  return { scratch: absolutePath('scratch', scratch), ...readModels(others) }
}

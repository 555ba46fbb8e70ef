/** The routing table in use: routes by kind or operation, and the engines that are open. */
import { isDeepStrictEqual } from 'node:util'
import { optionFaults, OPTION_KINDS } from '../../domain/media-generations.ts'
import type { Control, Engine, EngineRequest, Offer, RouteState, Run } from './engine.ts'
import type { EngineSetting, EnginesSettings, Route } from './engines-file.ts'

/** `resumeOnly`: the route has another engine by now, which begins the next job. `hasEnded`: set by the engine once only the result is to be fetched. */
export type JobOfRun = Pick<Control['job'], 'id'> & { resumeOnly?: true; hasEnded?: true; remember(id: string): Promise<void> }

type Opened = { setting: EngineSetting; engine: Engine }
export type Table = { routes: Map<string, Route>; engines: Map<string, Opened> }

const ENGINE_CLASSES: Record<string, Offer['engine']> = {
  preview: 'preview',
  local: 'local',
  'local-image': 'local',
  openai: 'provider',
  replicate: 'provider',
}

export const EMPTY: Table = { routes: new Map(), engines: new Map() }

/**
 * The table of these settings, and the engines of the present table that it no longer has. One whose entry is the same stays open. Rejects
 * with the error of `open`; the engines that were opened before it are closed.
 */
export async function nextTable(
  present: Table,
  settings: EnginesSettings,
  open: (setting: EngineSetting) => Promise<Engine>,
): Promise<{ next: Table; removed: Engine[] }> {
  const next: Table = { routes: new Map(settings.routes.map((route) => [route.kind, route])), engines: new Map() }
  const opened: Engine[] = []
  try {
    for (const setting of settings.engines) {
      const known = present.engines.get(setting.name)
      const isSame = known?.setting.type === setting.type && isDeepStrictEqual(known.setting.options, setting.options)
      const reused = isSame ? known.engine : null
      const engine = reused ?? (await open(setting))
      if (!reused) opened.push(engine)
      next.engines.set(setting.name, { setting, engine })
    }
  } catch (error) {
    await Promise.all(opened.map((engine) => engine.close()))
    throw error
  }
  const used = new Set([...next.engines.values()].map(({ engine }) => engine))
  return { next, removed: [...present.engines.values()].map(({ engine }) => engine).filter((engine) => !used.has(engine)) }
}

/** How a kind or operation is made by a table, or null. */
export function offerOf({ routes, engines }: Table, kind: string): Offer | null {
  const route = routes.get(kind)
  const { engine, setting } = (route && engines.get(route.engine)) ?? {}
  const made = engine && Object.hasOwn(engine.offers, kind) ? engine.offers[kind] : undefined
  if (!route || !engine || !setting || !made) return null
  return {
    route,
    formats: made.formats,
    // An edit by words without a model of words is a preview, by whatever engine.
    engine: kind === 'ai_edit' && setting.type === 'local-image' ? 'preview' : (ENGINE_CLASSES[setting.type] ?? 'other'),
    options: (engine.options?.(kind, route.model) ?? []).filter(
      (option) =>
        (OPTION_KINDS[option] as readonly string[]).includes(kind) && (option !== 'quality' || Object.keys(route.qualities).length > 0),
    ),
    quote: (request, limits = route.max) => engine.quote(request, limits, route.model, route.max),
    unsupported: (request, roles) => engine.unsupported?.(request, roles) ?? null,
  }
}

/**
 * The engine that runs a request by a route that is offered, and the job that it resumes: the engine of that job, as long as the table has it, whatever the
 * route's is now. A job whose engine is gone is not: another provider would not know it.
 */
export function runnerOf(
  { engines }: Table,
  { kind, engine: name }: Route,
  { id, engine: begunBy = name, remember }: Control['job'],
): { engine: Engine; job: JobOfRun } {
  const other = id === null || begunBy === name ? undefined : engines.get(begunBy)?.engine
  if (other && Object.hasOwn(other.offers, kind))
    return { engine: other, job: { id, resumeOnly: true, remember: (next) => remember(next, begunBy) } }
  const { engine } = engines.get(name) as Opened
  return { engine, job: { id: begunBy === name ? id : null, remember: (next) => remember(next, name) } }
}

/** The field that an offer does not take of a request that was queued before the file changed, or null. What was ordered already has its fields. */
export function fieldRefused(
  request: EngineRequest,
  job: string | null,
  inputs: Control['inputs'],
  { options, route }: Offer,
): string | null {
  if (!('width' in request) || job !== null) return null
  const { kind, n, quality, negativePrompt } = request
  const given = { n, quality, negative_prompt: negativePrompt, image_url: inputs.length > 0 ? true : undefined }
  return optionFaults(kind, given, route, options)[0]?.path.slice(1) ?? null
}

/** What the model of a route calls the quality of a request. */
export function qualityOf(request: EngineRequest, { qualities }: Route): Pick<Run, 'quality'> {
  const quality = 'width' in request && request.quality !== undefined ? qualities[request.quality] : undefined
  return quality ? { quality: quality.value } : {}
}

/** Every route of a table, once its engines know what they offer, and why it is not available: a sentence for the operator, or null when it is. */
export async function routeStates(table: Table): Promise<RouteState[]> {
  await Promise.all([...table.engines.values()].map(({ engine }) => engine.settled))
  return [...table.routes.values()].map(({ kind, engine }) => {
    const lacking = table.engines.get(engine)?.engine.missing?.[kind] ?? 'the engine of this route does not make it'
    return { kind, engine, missing: offerOf(table, kind) ? null : lacking }
  })
}

/** The routing table in force: routes by verb, and the engines that are open. */
import { isDeepStrictEqual } from 'node:util'
import type { Engine, Offer } from './engine.ts'
import type { EngineSetting, EnginesSettings, Route } from './engines-file.ts'

type Opened = { setting: EngineSetting; engine: Engine }
export type Table = { routes: Map<string, Route>; engines: Map<string, Opened> }

export const EMPTY: Table = { routes: new Map(), engines: new Map() }

/**
 * The table of these settings, and the engines of the present one that are in it no more. One whose entry is the same stays open. Rejects with what `open` rejects with; what it had
 * opened by then is closed again.
 */
export async function nextTable(present: Table, settings: EnginesSettings, open: (setting: EngineSetting) => Promise<Engine>): Promise<{ next: Table; gone: Engine[] }> {
  const next: Table = { routes: new Map(settings.routes.map((route) => [route.verb, route])), engines: new Map() }
  const fresh: Engine[] = []
  try {
    for (const setting of settings.engines) {
      const known = present.engines.get(setting.name)
      const kept = known && sameEntry(known.setting, setting) ? known.engine : null
      const engine = kept ?? (await open(setting))
      if (!kept) fresh.push(engine)
      next.engines.set(setting.name, { setting, engine })
    }
  } catch (error) {
    await Promise.all(fresh.map((engine) => engine.close()))
    throw error
  }
  const used = new Set([...next.engines.values()].map(({ engine }) => engine))
  return { next, gone: [...present.engines.values()].map(({ engine }) => engine).filter((engine) => !used.has(engine)) }
}

/** How a verb is made by a table, or null. */
export function offerOf({ routes, engines }: Table, verb: string): Offer | null {
  const route = routes.get(verb)
  const engine = route && engines.get(route.engine)?.engine
  const made = engine && Object.hasOwn(engine.offers, verb) ? engine.offers[verb] : undefined
  return route && engine && made ? { route, formats: made.formats, quote: (request) => engine.quote(request) } : null
}

function sameEntry(a: EngineSetting, b: EngineSetting): boolean {
  return a.type === b.type && isDeepStrictEqual(a.options, b.options)
}

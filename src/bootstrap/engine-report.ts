/** What this machine can run: every route of the ENGINES file with what is missing for it, for `tollgate config`. */
import { openEngines } from '../backends/engines/engine.ts'
import type { Config } from '../config/config.ts'
import { providerAccess } from './provider-access.ts'

const SILENT = { info() {}, warn() {} }

/** A line for each route. A file that cannot be used, also because its engines are of plugins, which are not loaded here, is one sentence. */
export async function engineReport(config: Pick<Config, 'ENGINES' | 'environment'>, clock: () => number): Promise<string[]> {
  try {
    const engines = await openEngines({ file: config.ENGINES, log: SILENT, providers: providerAccess(config, clock) })
    try {
      await engines.ready()
      return (await engines.routes()).map(
        ({ kind, engine, missing }) =>
          `${kind}: ${missing === null ? `engine ${engine}` : `not available with engine ${engine}: ${missing}`}`,
      )
    } finally {
      await engines.close()
    }
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)]
  }
}

/**
 * Registers the plugins of PLUGINS in order, in a separate scope behind `auth` and `metering`, with the decorators of `docs/plugins.md`
 * only. A broken one prevents startup, with a sentence that names it.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { PluginEntry } from '../../src/config/setting-types.ts'
import { guarded } from './engine-validation.ts'
import { loadPlugin } from './load-plugin.ts'

/** Decorators of our own plugins. Access to them would bypass keys, plans and money. */
const CLOSED = [
  'config',
  'clock',
  'store',
  'resources',
  'upstreams',
  'sealingKeys',
  'derivedKeys',
  'planLimits',
  'broker',
  'files',
  'egress',
  'tasks',
  'uploads',
  'taskWatch',
  'checks',
  'endings',
  'openBodyShare',
  'parseBody',
  'publicUrl',
  'signInLink',
] as const satisfies (keyof FastifyInstance)[]

/** Our plugins that every role with third-party plugins registers. */
const PRESENT = ['errors', 'ops', 'auth', 'metering']

async function thirdParty(scope: FastifyInstance, { entries }: { entries: PluginEntry[] }): Promise<void> {
  openToPlugins(scope)
  const names = [...PRESENT]
  for (const entry of entries) {
    const { name, plugin, options } = await loadPlugin(entry, { names, closed: CLOSED })
    try {
      await scope.register(plugin, options)
    } catch (error) {
      throw new Error(`The plugin ${name} of ${entry.file} could not be registered: ${messageOf(error)}`, { cause: error })
    }
    names.push(name)
    scope.log.info({ plugin: name, file: entry.file }, 'third-party plugin registered')
  }
}

/** Hides internal decorators from a scope. Plugins are trusted code in our process: this enforces the contract, it is no security boundary. */
function openToPlugins(scope: FastifyInstance): void {
  const { engines } = scope
  Object.defineProperty(scope, 'engines', { value: { add: (type: string, open: unknown) => engines.add(type, guarded(type, open)) } })
  for (const name of CLOSED) {
    Object.defineProperty(scope, name, {
      get() {
        throw new Error(`app.${name} is not open to plugins`)
      },
    })
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

export default fp(thirdParty, {
  name: 'third-party',
  fastify: '5.x',
  encapsulate: true,
  dependencies: PRESENT,
  decorators: { fastify: ['engines'] },
})

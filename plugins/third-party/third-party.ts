/**
 * Registers the plugins of PLUGINS, in their order, in a scope of their own behind `auth` and `metering`. They see the decorators of `docs/plugins.md` and no others. A broken
 * one stops the start with a sentence that names it.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { PluginEntry } from '../../src/config/config.ts'
import { guarded } from './engine-validation.ts'
import { loadPlugin } from './load-plugin.ts'

/** What stands on the application for our own plugins. Whoever could reach these could pass by keys, plans and money. */
const CLOSED = ['config', 'clock', 'store', 'resources', 'upstreams', 'sealingKeys', 'planLimits', 'broker', 'files', 'egress', 'tasks', 'checks'] as const satisfies (keyof FastifyInstance)[]

/** Plugins of ours that are there in every role that registers third-party ones. */
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

/** Leaves to a scope what is open to plugins. Plugins are trusted code in our process: this keeps them to their contract, it is no wall. */
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

export default fp(thirdParty, { name: 'third-party', fastify: '5.x', encapsulate: true, dependencies: PRESENT, decorators: { fastify: ['engines'] } })

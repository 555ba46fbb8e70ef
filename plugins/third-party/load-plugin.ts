/** Loads an entry of PLUGINS and checks that it can be registered. */
import { pathToFileURL } from 'node:url'
import type { FastifyPluginAsync } from 'fastify'
import type { PluginMetadata } from 'fastify-plugin'
import type { PluginEntry } from '../../src/config/setting-types.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'

export type Loaded = { name: string; plugin: FastifyPluginAsync<Record<string, unknown>>; options: Record<string, unknown> }

type Registered = {
  /** Plugins that are registered already. */
  names: readonly string[]
  /** Decorators that a plugin may not depend on. */
  closed: readonly string[]
}

/** Where fastify-plugin keeps the metadata of a plugin. */
const META = Symbol.for('plugin-meta')

/** Loads a plugin and checks its dependencies and options. Throws an Error of one sentence that names the file. */
export async function loadPlugin({ file, options }: PluginEntry, { names, closed }: Registered): Promise<Loaded> {
  const wrong = (why: string, cause?: unknown) => new Error(`The plugin ${file} ${why}.`, { cause })
  const module = await importFile(file, wrong)
  const plugin = unwrapped(module['default'])
  const meta: PluginMetadata | undefined = plugin?.[META]
  if (!plugin || !meta) throw wrong('does not export a plugin made with fastify-plugin as its default')
  const { name, dependencies = [], decorators } = meta
  // fastify-plugin invents a name for a plugin without one.
  if (name === undefined || /-auto-\d+$/.test(name)) throw wrong('has no name')
  if (names.includes(name)) throw wrong(`is named ${name}, and so is one before it`)
  const missing = dependencies.find((dependency) => !names.includes(dependency))
  if (missing !== undefined) throw wrong(`depends on ${missing}; there are ${names.join(', ')}`)
  const asked = [decorators?.fastify ?? []].flat().find((decorator) => closed.includes(String(decorator)))
  if (asked !== undefined) throw wrong(`asks for app.${String(asked)}, which is not open to plugins`)
  return { name, plugin, options: checkedOptions(module['optionsSchema'], options, wrong) }
}

type Wrong = (why: string, cause?: unknown) => Error

async function importFile(file: string, wrong: Wrong): Promise<Record<string, unknown>> {
  const { href } = pathToFileURL(file)
  try {
    return await import(href)
  } catch (error) {
    const { code, name, message = String(error) } = error as Partial<NodeJS.ErrnoException>
    if (code === 'ERR_MODULE_NOT_FOUND' && (error as { url?: string }).url === href) throw wrong('is not there', error)
    throw wrong(`cannot be loaded: ${name ?? 'Error'}: ${message.split('\n', 1)[0]}`, error)
  }
}

type Plugin = Loaded['plugin'] & { [META]?: PluginMetadata }

/** The plugin of a module; a transpiled CommonJS module holds it one `default` deeper. */
function unwrapped(exported: unknown): Plugin | null {
  if (typeof exported === 'function') return exported as Plugin
  const inner = (exported as { default?: unknown } | null | undefined)?.default
  return typeof inner === 'function' ? (inner as Plugin) : null
}

/** Options are text in PLUGINS: numbers and booleans are read, and defaults filled in, by the plugin's schema. */
function checkedOptions(schema: unknown, given: Record<string, string>, wrong: Wrong): Record<string, unknown> {
  const options: Record<string, unknown> = { ...given }
  if (schema === undefined) {
    if (Object.keys(options).length > 0) throw wrong('takes no options: it exports no optionsSchema')
    return options
  }
  const valid = compiled(schema, wrong)
  if (valid(options)) return options
  const { instancePath = '', message = 'is not valid', params = {} } = valid.errors?.[0] ?? {}
  throw wrong(
    `was given options of which ${instancePath.slice(1) || 'one'} ${message}${params['additionalProperty'] ? ` (${params['additionalProperty']})` : ''}`,
  )
}

function compiled(schema: unknown, wrong: Wrong): ReturnType<typeof strictValidator> {
  try {
    return strictValidator({ schema: schema as object, httpPart: 'querystring' })
  } catch (error) {
    throw wrong(`has an optionsSchema that is no JSON Schema: ${(error as Error).message}`, error)
  }
}

/**
 * The ENGINES file, YAML or JSON: the engines, and the route of each kind and operation with its limits and price.
 */
import { readFile } from 'node:fs/promises'
import { Type, type Static } from 'typebox'
import { KINDS, OPTION_KINDS, QUALITIES, readSize, unitsOf, type Terms } from '../../domain/media-generations.ts'
import { parseMoney } from '../../domain/money.ts'
import { OPERATION_DEFINITIONS, OPERATIONS, PICTURE_PIXELS, type Operation } from '../../domain/media-operations.ts'
import { FIELD_PATTERNS } from '../../domain/field-patterns.ts'
import type { Price as PlanPrice } from '../../domain/plans.ts'
import { parseSettingsFile, unreadable, type Place } from '../../domain/settings-file.ts'

export type EngineSetting = {
  name: string
  /** Which adapter: `preview`, `local`, `local-image`, `openai`, `replicate`, or one that a plugin added. */
  type: string
  /** The other members of the entry; the adapter validates them. */
  options: Record<string, unknown>
  line: number
}

export type Route = Terms & {
  engine: string
  /** As the engine calls it; null for engines without models. */
  model: string | null
  /** Longest that one run may take. */
  timeoutMs: number
  /** The share of the quote that a task costs that is canceled once its run has begun, in percent. */
  cancelPercent: number
  /** Runs at once in one process; null leaves it to the worker's slots. */
  concurrency: number | null
}

export type EnginesSettings = { engines: EngineSetting[]; routes: Route[] }

function defaultRoute(operation: Operation): string {
  const { engine, price, max } = OPERATION_DEFINITIONS[operation].route
  const limits = Object.entries(max).map(([name, value]) => `${name}: ${value}`)
  return `  - { operation: ${operation}, engine: ${engine}, price: { amount: "${price.amount}", per: ${price.per} }, max: { ${limits.join(', ')} } }\n`
}

/** The table without a file: previews, which are free, and what this machine can run, at demo prices. It is also an example of a file. */
export const DEFAULT_ENGINES = `\
engines:
  - { name: preview, type: preview }
  - { name: local, type: local }
  - { name: local-image, type: local-image }
routes:
  - { kind: image, engine: preview, price: { amount: "0", per: Job }, max: { megapixels: 4.2 }, defaults: { size: 1024x1024 } }
  - { kind: video, engine: preview, price: { amount: "0", per: Second }, max: { megapixels: 1, seconds: 10 }, defaults: { size: 640x360, seconds: 4 } }
  - { kind: music, engine: preview, price: { amount: "0", per: Second }, max: { seconds: 120 }, defaults: { seconds: 10 } }
${OPERATIONS.map(defaultRoute).join('')}`

const closed = { additionalProperties: false }
const name = (description: string) => Type.String({ pattern: '^[a-z][a-z0-9-]{0,62}$', description })
const seconds = (description: string) => Type.Optional(Type.Number({ minimum: 0.1, maximum: 3600, description }))

/** What a route has when the file leaves it out. */
const DEFAULTS = { seconds: 600, megapixels: 16, megabytes: 100, timeoutSeconds: 600 }
/** Types of engines that bill a job which they have begun, canceled or not. */
const PROVIDERS = ['openai', 'replicate']
const DEFAULT_SIZE: Record<string, string> = { image: '1024x1024', video: '640x360' }
const DEFAULT_SECONDS: Record<string, number> = { video: 4, music: 10 }

const Price = Type.Object(
  {
    amount: Type.String({ pattern: FIELD_PATTERNS.amount.pattern, description: 'Decimal, as text; `"0"` is free.' }),
    per: Type.Enum(['Job', 'Second', 'Megapixel'], {
      description:
        'Images and what is made from them are priced per `Job` or `Megapixel`, music per `Job` or `Second`, video per any of them.',
    }),
  },
  { ...closed, description: 'The price of one unit, unless the plan has a price of its own.' },
)
const Max = Type.Object(
  {
    seconds: seconds(`Length of a source or result; ${DEFAULTS.seconds} when left out.`),
    megapixels: Type.Optional(
      Type.Number({
        minimum: 0.001,
        maximum: 1000,
        description: `Pixels of a source or result, or of each frame of a video; ${DEFAULTS.megapixels} when left out. The picture that a video begins with may have ${PICTURE_PIXELS / 1e6} in any case.`,
      }),
    ),
    megabytes: Type.Optional(
      Type.Number({
        minimum: 0.001,
        maximum: 100_000,
        description: `Size of all sources of a task together, and of its result; ${DEFAULTS.megabytes} when left out.`,
      }),
    ),
  },
  {
    ...closed,
    description:
      'Limits. A request above them is refused with 400 before anything is held, and so is one whose source is an earlier result, an upload or a `data:` URL above them. Any other source above them fails the task with `input_too_large`.',
  },
)
const Defaults = Type.Object(
  {
    size: Type.Optional(
      Type.String({
        pattern: '^[1-9][0-9]{1,4}x[1-9][0-9]{1,4}$',
        description: `Width and height in pixels: \`${DEFAULT_SIZE['image']}\` when left out, \`${DEFAULT_SIZE['video']}\` for video.`,
      }),
    ),
    seconds: seconds(
      `${DEFAULT_SECONDS['video']} for video and ${DEFAULT_SECONDS['music']} for music when left out, or \`max.seconds\` if that is less.`,
    ),
    quality: Type.Optional(Type.Enum([...QUALITIES], { description: 'One of `qualities`; the default of the model when left out.' })),
  },
  { ...closed, description: 'Values for requests that leave them out.' },
)

const Quality = Type.Object(
  {
    factor: Type.Number({
      minimum: 0.001,
      maximum: 1000,
      description: 'Factor by which this quality multiplies the price of the route.',
    }),
    value: Type.Optional(
      Type.String({ minLength: 1, maxLength: 100, description: 'What the model calls it; its name here when left out.' }),
    ),
  },
  closed,
)
const Qualities = Type.Object(Object.fromEntries(QUALITIES.map((quality) => [quality, Type.Optional(Quality)])), {
  ...closed,
  minProperties: 1,
  description:
    'What `quality` of a request may be, for image and video. Without it the field is refused, and the model has its own default.',
})

const RouteEntry = Type.Object(
  {
    kind: Type.Optional(
      Type.Enum([...KINDS], { description: 'Each kind and operation has one route at most; one without is `not_supported`.' }),
    ),
    operation: Type.Optional(Type.Enum([...OPERATIONS], { description: 'Instead of `kind`.' })),
    engine: name('Name of the engine, from the list above.'),
    model: Type.Optional(Type.String({ minLength: 1, maxLength: 200, description: 'Passed to the engine, for those that have several.' })),
    price: Price,
    max: Type.Optional(Max),
    defaults: Type.Optional(Defaults),
    qualities: Type.Optional(Qualities),
    timeoutSeconds: Type.Optional(
      Type.Number({
        minimum: 1,
        maximum: 86_400,
        description: `The longest that one run may take; ${DEFAULTS.timeoutSeconds} when left out.`,
      }),
    ),
    cancelPercent: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 100,
        description:
          'The share of its estimated cost that a task is charged when it is canceled once its run has begun; 100 for engines of the types `openai` and `replicate` when left out, 0 for others.',
      }),
    ),
    concurrency: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 1000, description: 'Runs at once in one worker; as many as it has slots when left out.' }),
    ),
  },
  closed,
)

const EngineEntry = Type.Object({
  name: name('Routes refer to it by this name.'),
  type: name(
    '`preview`, `local`, `local-image`, `openai`, `replicate`, or one that a plugin adds. The other members of the entry are for that type.',
  ),
})

/** The ENGINES file. `docs/engines.md` is generated from the descriptions. */
export const EnginesFile = Type.Object({ engines: Type.Array(EngineEntry, { minItems: 1 }), routes: Type.Array(RouteEntry) }, closed)

/** The text of the file, or of the built-in table. Throws a `SettingsFileError` if it cannot be read. */
export async function readText(file: string | null): Promise<string> {
  return file === null ? DEFAULT_ENGINES : readFile(file, 'utf8').catch(unreadable('ENGINES', file))
}

/** Parses the text of the file, or of the built-in table. Throws a `SettingsFileError`. */
export function parseEngines(file: string | null, text: string): EnginesSettings {
  const { value, lineOf, fail } = parseSettingsFile('ENGINES', file ?? 'built-in table', EnginesFile, text)
  const engines = value.engines.map(({ name, type, ...options }, i) => ({ name, type, options, line: lineOf(['engines', i]) }))
  const typeOf = new Map(engines.map(({ name, type }) => [name, type]))
  const routes = value.routes.map((entry) => routeOf(entry, typeOf.get(entry.engine) ?? ''))
  check(value, routes, fail)
  return { engines, routes }
}

function routeOf(entry: Static<typeof RouteEntry>, engineType: string): Route {
  const kind = entry.kind ?? entry.operation ?? ''
  const maxSeconds = entry.max?.seconds ?? DEFAULTS.seconds
  return {
    kind,
    engine: entry.engine,
    model: entry.model ?? null,
    price: { kind, micro: parseMoney(entry.price.amount) ?? 0, per: entry.price.per as PlanPrice['per'] },
    max: {
      durationMs: Math.round(maxSeconds * 1000),
      pixels: Math.round((entry.max?.megapixels ?? DEFAULTS.megapixels) * 1_000_000),
      bytes: Math.round((entry.max?.megabytes ?? DEFAULTS.megabytes) * 1_000_000),
    },
    defaults: {
      size: entry.defaults?.size ?? DEFAULT_SIZE[kind] ?? '1024x1024',
      durationMs: Math.round((entry.defaults?.seconds ?? Math.min(DEFAULT_SECONDS[kind] ?? 0, maxSeconds)) * 1000),
      ...(entry.defaults?.quality !== undefined && { quality: entry.defaults.quality }),
    },
    qualities: Object.fromEntries(
      Object.entries(entry.qualities ?? {}).flatMap(([quality, set]) =>
        set ? [[quality, { factor: Math.round(set.factor * 1000), value: set.value ?? quality }]] : [],
      ),
    ),
    timeoutMs: Math.round((entry.timeoutSeconds ?? DEFAULTS.timeoutSeconds) * 1000),
    cancelPercent: entry.cancelPercent ?? (PROVIDERS.includes(engineType) ? 100 : 0),
    concurrency: entry.concurrency ?? null,
  }
}

/** Finds what the schema cannot see: duplicate or unknown names, a unit that the kind does not have, amounts too large, defaults above the limits. */
function check(
  { engines, routes: entries }: Static<typeof EnginesFile>,
  routes: Route[],
  fail: (at: Place, problem: string) => never,
): void {
  for (const [i, { name }] of engines.entries())
    if (engines.findIndex((other) => other.name === name) !== i) fail(['engines', i, 'name'], 'must be unique')
  for (const [i, { kind, price, defaults, max, ...route }] of routes.entries()) {
    const entry = entries[i]
    const refuse = (problem: string, ...members: Place): never => fail(['routes', i, ...members], problem)
    if ((entry?.kind === undefined) === (entry?.operation === undefined)) refuse('must have either a kind or an operation')
    if (routes.findIndex((other) => other.kind === kind) !== i) refuse(`is a second route for ${kind}`)
    if (!engines.some(({ name }) => name === route.engine)) refuse('must be the name of an engine', 'engine')
    if (!unitsOf(kind).includes(price.per)) refuse(`must be ${unitsOf(kind).join(' or ')} for ${kind}`, 'price', 'per')
    if (parseMoney(entry?.price.amount ?? '') === null) refuse('must be at most 1000000000', 'price', 'amount')
    if (entry?.qualities && !(OPTION_KINDS.quality as readonly string[]).includes(kind)) refuse(`is not for ${kind}`, 'qualities')
    if (defaults.quality !== undefined && !Object.hasOwn(route.qualities, defaults.quality))
      refuse('must be one of qualities', 'defaults', 'quality')
    const { width, height } = readSize(defaults.size)
    if (width * height > max.pixels && (kind === 'image' || kind === 'video')) refuse('is above max.megapixels', 'defaults', 'size')
    if (kind === 'video' && (width % 2 || height % 2)) refuse('must have an even width and height for video', 'defaults', 'size')
    if (defaults.durationMs > max.durationMs) refuse('is above max.seconds', 'defaults', 'seconds')
  }
}

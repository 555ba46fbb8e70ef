/** The options of an ENGINES entry that engines of providers share: where the API is, its key, its patience, and the hosts of its results. */
import { Type, type Static, type TObject } from 'typebox'
import { headerFault, RESERVED_HEADERS } from '../../../http/header-fields.ts'
import { readKey, readSettingsFile, type KeySources } from '../../../domain/settings-file.ts'

const text = (description: string) => Type.String({ minLength: 1, maxLength: 2048, description })
const milliseconds = (fallback: number, description: string) =>
  Type.Integer({ minimum: 1, maximum: 86_400_000, default: fallback, description })
export const strict = { additionalProperties: false }
/** The formats of an offer; `given` when they are left out. */
export const formatsOf = (all: [string, ...string[]], given: string[]) =>
  Type.Array(Type.Enum(all), {
    minItems: 1,
    uniqueItems: true,
    default: given,
    description: 'Those that the model makes, the default first.',
  })

export const SHARED = {
  baseUrl: Type.Optional(text("The address of the API, http or https, with its version; the vendor's own when left out.")),
  apiKey: Type.Optional(text('The key itself.')),
  apiKeyFile: Type.Optional(text('A file that holds the key. It is read again for every run, so that a key can be rotated.')),
  apiKeyEnv: Type.Optional(text('An environment variable that holds the key.')),
  headers: Type.Record(Type.String(), Type.String(), { default: {}, description: 'Sent with every request to the API.' }),
  resultHosts: Type.Array(Type.String({ pattern: '^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$', maxLength: 253 }), {
    default: [],
    description:
      "Names or addresses in a private network that results are fetched from. The API's own origin and what is public need no entry.",
  }),
  timeouts: Type.Object(
    {
      connectMs: milliseconds(5_000, 'Until a connection is there.'),
      firstByteMs: milliseconds(300_000, 'Until the answer begins to a request that makes media while it waits. A poll gets 30 s at most.'),
      idleMs: milliseconds(60_000, 'Between two bytes of an answer.'),
    },
    { ...strict, default: {} },
  ),
}

const Shared = Type.Object(SHARED)

/** How a provider is reached. */
export type Reach = Pick<Static<typeof Shared>, 'headers' | 'resultHosts' | 'timeouts'> & {
  /** Without a slash at its end. */
  base: URL
  /** Whether the operator named the address, which then may lead to a private network. */
  isNamed: boolean
  /** The key as it is now, or null. Throws when its file is gone. */
  key(): string | null
}

/** Reads the options of an entry by its schema, with the defaults. Throws an Error of one sentence about the first fault. */
export function readOptions<S extends TObject>(schema: S, options: Record<string, unknown>): Static<S> {
  const read = readSettingsFile(schema, JSON.stringify(options))
  if (read.outcome === 'refused') throw new Error(read.what)
  return read.value
}

const OURS = new Set([...RESERVED_HEADERS, 'idempotency-key'])

/** Checks what the schema cannot see. Throws an Error of one sentence; it never holds the key. */
export function reachOf(options: Static<typeof Shared>, vendorUrl: string, keys: KeySources): Reach {
  const { baseUrl, headers, resultHosts, timeouts } = options
  const base = URL.parse((baseUrl ?? vendorUrl).replace(/\/+$/, ''))
  if (!base || !['http:', 'https:'].includes(base.protocol)) throw new Error('baseUrl must be an http or https address')
  if (base.username !== '' || base.password !== '' || base.hash !== '' || base.search !== '')
    throw new Error('baseUrl must have no user, password, query or fragment')
  const fault = headerFault(headers, OURS)
  if (fault) throw new Error(`headers ${fault}`)
  const fail = (member: string, problem: string): never => {
    throw new Error(`${member} ${problem}`)
  }
  const key = (): string | null => readKey(options, keys, fail)
  if (key() === null && baseUrl === undefined) throw new Error('apiKey, apiKeyFile or apiKeyEnv is missing')
  return { base, isNamed: baseUrl !== undefined, headers, resultHosts: resultHosts.map((host) => host.toLowerCase()), timeouts, key }
}

/** Schema and validation of the UPSTREAMS file: the model servers, their keys, timeouts, retries and breakers. YAML or JSON (`docs/upstreams.md`). */
import { Type, type Static } from 'typebox'
import { DECIDED_MEMBERS, isPlainName, REFUSED_BY_OPENAI } from './policy/documented-members.ts'
import { headerFault, RESERVED_HEADERS } from '../http/header-fields.ts'
import { parseSettingsFile, readKey, type KeySources } from '../domain/settings-file.ts'
import { WIRES, type WireName } from './wires/wire.ts'

const text = (description: string) => Type.String({ minLength: 1, maxLength: 2048, description })
const whole = (min: number, fallback: number) => Type.Integer({ minimum: min, maximum: 86_400_000, default: fallback })
const strict = { additionalProperties: false }

/** A member of requests, or `tool:`, `part:` and `beta:` with a type of tools or content parts, or a name in `anthropic-beta`; a wire with a member of it. */
const ENTRY = '^(?:[a-z][a-z0-9_]{0,63}|(?:tool|part|beta|chat|responses|messages):[A-Za-z0-9][A-Za-z0-9_.:-]{0,63})$'

const OF_WIRE = /^(?:chat|responses|messages):/

/** The hosts of OpenAI, and of Azure, which serve its models. */
const OPENAI = /(?:^|\.)(?:openai\.com|(?:openai|cognitiveservices|services\.ai)\.azure\.com)$/

/** One wire or a list of them. `both` is the older name of `[chat, responses]`. A conditional, because a union tells the faults of all its members. */
const WIRE = Type.Unsafe<WireName | 'both' | WireName[]>({
  if: { type: 'array' },
  // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
  then: { items: { enum: [...WIRES] }, minItems: 1, uniqueItems: true },
  else: { enum: [...WIRES, 'both'] },
})

const UPSTREAM = Type.Object(
  {
    name: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' }),
    baseUrl: text('an http or https address, or echo:'),
    apiKey: Type.Optional(text('the API key itself')),
    apiKeyFile: Type.Optional(text('a file that holds the API key')),
    apiKeyEnv: Type.Optional(text('an environment variable that holds the API key')),
    model: Type.Optional(text('the name of the model at the upstream')),
    wire: WIRE,
    weight: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000, default: 1 }),
    priority: Type.Integer({ minimum: 0, maximum: 1_000_000, default: 0 }),
    timeouts: Type.Object(
      { connectMs: whole(1, 2000), firstByteMs: whole(1, 120_000), idleMs: whole(1, 300_000) },
      { ...strict, default: {} },
    ),
    retry: Type.Object({ attempts: Type.Integer({ minimum: 1, maximum: 10, default: 2 }) }, { ...strict, default: {} }),
    breaker: Type.Object({ failures: whole(1, 5), windowSeconds: whole(1, 30), openSeconds: whole(1, 10) }, { ...strict, default: {} }),
    headers: Type.Record(Type.String(), Type.String(), { default: {} }),
    maxTokensField: Type.Optional(Type.Enum(['max_tokens', 'max_completion_tokens'])),
    allow: Type.Array(Type.String({ pattern: ENTRY }), { maxItems: 200, default: [] }),
    drop: Type.Array(Type.String({ pattern: ENTRY }), { maxItems: 200, default: [] }),
    force: Type.Record(Type.String(), Type.Unknown(), { default: {} }),
    contextWindow: Type.Optional(Type.Integer({ minimum: 1024, maximum: 100_000_000 })),
  },
  strict,
)

/** The UPSTREAMS file. Members with a default may be left out. */
export const UpstreamsFile = Type.Object({ upstreams: Type.Array(UPSTREAM, { minItems: 1, maxItems: 100 }) }, strict)

/** One upstream of the file, with its key read. `baseUrl` has no trailing slash; it is `echo:` for the built-in echo. */
export type UpstreamSettings = Omit<Static<typeof UPSTREAM>, 'apiKeyFile' | 'apiKeyEnv' | 'apiKey' | 'model' | 'wire'> & {
  wires: readonly WireName[]
  apiKey: string | null
  model: string
}

/** Parses and validates the text of the file. Throws a `SettingsFileError`. */
export function parseUpstreams(file: string, source: string, keys: KeySources): UpstreamSettings[] {
  const { value, fail } = parseSettingsFile('UPSTREAMS', file, UpstreamsFile, source)
  const { upstreams } = value
  return upstreams.map((upstream, index) => {
    const failAt = (member: string, problem: string) => fail(['upstreams', index, member], problem)
    if (upstreams.findIndex(({ name }) => name === upstream.name) !== index) failAt('name', 'must be unique')
    return complete(upstream, keys, failAt)
  })
}

function complete(upstream: Static<typeof UPSTREAM>, keys: KeySources, fail: (member: string, problem: string) => never): UpstreamSettings {
  const { apiKey: _key, apiKeyFile: _file, apiKeyEnv: _env, baseUrl, model, headers, wire, ...rest } = upstream
  const url = URL.parse(baseUrl)
  const echo = baseUrl === 'echo:'
  if (!echo && (!url || !['http:', 'https:'].includes(url.protocol))) fail('baseUrl', 'must be an http or https address, or echo:')
  if (url && (url.username !== '' || url.password !== '' || url.hash !== '')) fail('baseUrl', 'must have no user, password or fragment')
  if (!echo && model === undefined) fail('model', 'is missing')
  checkMembers(upstream, fail)
  const fault = headerFault(headers, RESERVED_HEADERS)
  if (fault) fail('headers', fault)
  const key = readKey(upstream, keys, fail)
  const isOpenai = OPENAI.test(url?.hostname ?? '')
  const drop = isOpenai ? [...rest.drop, ...REFUSED_BY_OPENAI] : rest.drop
  return { ...rest, drop, wires: wiresOf(wire), headers, baseUrl: baseUrl.replace(/\/+$/, ''), model: model ?? 'echo', apiKey: key }
}

function wiresOf(wire: Static<typeof WIRE>): WireName[] {
  if (Array.isArray(wire)) return wire
  return wire === 'both' ? ['chat', 'responses'] : [wire]
}

/** The gateway's own members cannot be allowed, dropped or forced: limits and admission depend on them. */
function checkMembers({ allow, drop, force }: Static<typeof UPSTREAM>, fail: (member: string, problem: string) => never): void {
  for (const [member, names] of Object.entries({ allow, drop, force: Object.keys(force) })) {
    const wrong = names.find((name) => {
      const plain = name.replace(OF_WIRE, '')
      return DECIDED_MEMBERS.includes(plain) || ((member === 'force' || plain !== name) && !isPlainName(plain))
    })
    if (wrong !== undefined) fail(member, `must not name ${JSON.stringify(wrong)}`)
  }
}

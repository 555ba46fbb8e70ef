/** The command line of the operator's commands: names, positions and options. Pure. */
import { parseArgs } from 'node:util'
import { ConfigError } from '../config/setting-types.ts'
import { isTime } from '../domain/request-validation.ts'
import { FORMATS, type Format } from '../maintenance/usage-export.ts'

const DAY_MS = 24 * 3_600_000

/** `write`: changes are made, not only counted. Times are milliseconds. */
export type CommandLine = { json: boolean } & (
  | { command: 'usage'; tenant: string | null }
  | { command: 'usage export'; tenant: string | null; since: number; until: number; format: Format }
  | { command: 'tasks stuck'; olderThanMs: number }
  | { command: 'tasks requeue'; tenant: string; id: string; write: boolean }
  | { command: 'trace'; id: string; sinceMs: number | null }
  | { command: 'reseal'; write: boolean }
  | { command: 'purge'; tasksMs: number | null; eventsMs: number | null; write: boolean }
  | { command: 'backup check' }
  | { command: 'backup restored'; write: boolean }
  | { command: 'derive-keys' }
)

/** First words of the commands. */
export const COMMAND_WORDS = ['usage', 'tasks', 'trace', 'reseal', 'purge', 'backup', 'derive-keys'] as const

/** For `--help`. */
export const COMMANDS_USAGE = `tollgate usage [--tenant <namespace>]                what each plan has used of its windows or its allowance
tollgate usage export [--format ndjson|csv] [--since <time>] [--until <time>] [--tenant <namespace>]   the usage records of a time range
tollgate tasks stuck [--older-than <minutes>]        open tasks older than 10 minutes, and what each waits for
tollgate tasks requeue <namespace> <task> --yes      takes a running task from its worker and queues it again
tollgate trace <id> [--days <n>]                     the story of a request or a task: holds, attempts, charges, deliveries
tollgate reseal [--yes]                              encrypts API keys of older lines of the sealing key file with the first line
tollgate purge --tasks-days <n> --events-days <n> [--yes]   removes older finished tasks, coding requests and events
tollgate backup check                                checks that a store, its sealing key and its results belong together
tollgate backup restored --yes                       after a restore, before the start: events come after all cursors that readers have
tollgate derive-keys                                 prints the keys of DERIVED_KEYS_FILE, derived from the sealing key file
Without --yes they only read; --json prints JSON
`

const OPTIONS = {
  json: { type: 'boolean' },
  yes: { type: 'boolean' },
  tenant: { type: 'string' },
  'older-than': { type: 'string' },
  days: { type: 'string' },
  'tasks-days': { type: 'string' },
  'events-days': { type: 'string' },
  format: { type: 'string' },
  since: { type: 'string' },
  until: { type: 'string' },
} as const

/** The options of each command besides `--json`, and its number of words. */
const SHAPES: Record<CommandLine['command'], { options: readonly string[]; words: number }> = {
  usage: { options: ['tenant'], words: 1 },
  'usage export': { options: ['tenant', 'format', 'since', 'until'], words: 2 },
  'tasks stuck': { options: ['older-than'], words: 2 },
  'tasks requeue': { options: ['yes'], words: 4 },
  trace: { options: ['days'], words: 2 },
  reseal: { options: ['yes'], words: 1 },
  purge: { options: ['yes', 'tasks-days', 'events-days'], words: 1 },
  'backup check': { options: [], words: 2 },
  'backup restored': { options: ['yes'], words: 2 },
  'derive-keys': { options: [], words: 1 },
}

/** Commands with words of the operator's own. */
const FORMS: Record<string, string> = { 'tasks requeue': 'tasks requeue <namespace> <task>', trace: 'trace <id of a request or a task>' }

/** As gateways take it. */
const ID = /^[A-Za-z0-9._-]{1,128}$/

/** Without a time, the beginning of the day. */
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?Z)?$/

/** Reads the arguments of a command. Throws a `ConfigError` with what they may be. */
export function readCommandLine(args: string[]): CommandLine {
  const refuse = (mayBe: string) => new ConfigError('The command line', args.join(' '), mayBe)
  const { values, positionals } = parsed(args, refuse)
  const name = (
    ['tasks', 'backup'].includes(positionals[0] ?? '') || positionals[1] === 'export' ? positionals.slice(0, 2) : positionals.slice(0, 1)
  ).join(' ')
  const shape = Object.hasOwn(SHAPES, name) ? SHAPES[name as CommandLine['command']] : null
  if (!shape) throw refuse(`one of ${Object.keys(SHAPES).join(', ')}`)
  const unknown = Object.keys(values).find((option) => option !== 'json' && !shape.options.includes(option))
  if (unknown !== undefined) throw refuse(`${name} without --${unknown}`)
  if (positionals.length !== shape.words) throw refuse(FORMS[name] ?? `${name} without ${positionals.slice(shape.words).join(' ')}`)
  const { json = false, yes: write = false, tenant = null } = values
  const number = (option: 'older-than' | 'days' | 'tasks-days' | 'events-days', unitMs: number, min: number): number | null => {
    const text = values[option]
    if (text === undefined) return null
    const value = Number(text)
    if (text.trim() === '' || !Number.isFinite(value) || value < min) throw refuse(`--${option} with a number from ${min}`)
    return value * unitMs
  }
  const time = (option: 'since' | 'until'): number | null => {
    const text = values[option]
    if (text === undefined) return null
    if (!TIME.test(text) || !isTime(text))
      throw refuse(`--${option} with a day or a time in UTC, such as 2026-11-01 or 2026-11-01T12:00:00Z`)
    return Date.parse(text)
  }
  switch (name as CommandLine['command']) {
    case 'usage':
      return { command: 'usage', json, tenant }
    case 'usage export': {
      const { format = 'ndjson' } = values
      const known = FORMATS.find((one) => one === format)
      if (!known || json) throw refuse(`usage export with --format ${FORMATS.join(' or ')}`)
      const [since, until] = [time('since') ?? 0, time('until') ?? Infinity]
      if (since >= until) throw refuse('usage export with a --since before its --until')
      return { command: 'usage export', json, tenant, since, until, format: known }
    }
    case 'tasks stuck':
      return { command: 'tasks stuck', json, olderThanMs: number('older-than', 60_000, 0) ?? 600_000 }
    case 'tasks requeue':
      return { command: 'tasks requeue', json, tenant: positionals[2] ?? '', id: positionals[3] ?? '', write }
    case 'trace': {
      const id = positionals[1] ?? ''
      if (!ID.test(id)) throw refuse('trace with the id of a request or a task')
      return { command: 'trace', json, id, sinceMs: number('days', DAY_MS, 0) }
    }
    case 'reseal':
      return { command: 'reseal', json, write }
    case 'purge': {
      // A write may be a day late: an event that is younger may get a neighbour before it.
      const [tasksMs, eventsMs] = [number('tasks-days', DAY_MS, 0), number('events-days', DAY_MS, 1)]
      if (tasksMs === null && eventsMs === null) throw refuse('purge with --tasks-days, --events-days or both')
      return { command: 'purge', json, tasksMs, eventsMs, write }
    }
    case 'backup check':
      return { command: 'backup check', json }
    case 'backup restored':
      return { command: 'backup restored', json, write }
    case 'derive-keys':
      return { command: 'derive-keys', json }
  }
}

function parsed(args: string[], refuse: (mayBe: string) => Error) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true })
  } catch (error) {
    throw refuse(`a command with the options of tollgate --help (${(error as Error).message.split('. ')[0]})`)
  }
}

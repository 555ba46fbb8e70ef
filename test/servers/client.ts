import type { Test } from 'tap'
import { find } from './cache.ts'
import { LIST } from './list.ts'

/** The path of an entry's program in the cache, or null when `npm run servers` has not installed it. Throws for a name that the list does not have. */
export function client(name: string): string | null {
  const entry = LIST.find((candidate) => candidate.name === name)
  if (!entry) throw new Error(`test/servers/list.ts has no ${name}`)
  return find(entry)
}

/** As `client`, but throws where that is null: for what has asked `missing` before. */
export function installed(name: string): string {
  const path = client(name)
  if (path === null) throw new Error(`${name} is not installed, npm run servers ${name} has it`)
  return path
}

/** Whether the cache lacks one of the entries. If so the suite is skipped in one line that says how to have them; under CI=true it fails instead. */
export function missing(t: Test, names: string[]): boolean {
  const lacking = names.filter((name) => client(name) === null).join(' ')
  if (lacking === '') return false
  const reason = `not installed, npm run servers ${lacking} has it`
  if (process.env['CI'] === 'true') t.fail(`${lacking}: ${reason}`)
  else t.pass(lacking, { skip: reason })
  return true
}

/** The path of an entry's program, or null after having skipped the suite as `missing` does. */
export function need(t: Test, name: string): string | null {
  return missing(t, [name]) ? null : client(name)
}

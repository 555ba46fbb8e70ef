import type { Test } from 'tap'
import { find } from './cache.ts'
import { BY_NAME, LIST } from './list.ts'

/** The path of an entry's program in the cache, or null when `npm run servers` has not installed it. Throws for a name that the list does not have. */
export function client(name: string): string | null {
  const entry = [...LIST, ...BY_NAME].find((candidate) => candidate.name === name)
  if (!entry) throw new Error(`test/servers/list.ts has no ${name}`)
  return find(entry)
}

/** As `client`, but throws where that is null: for callers that have checked `missing`. */
export function installed(name: string): string {
  const path = client(name)
  if (path === null) throw new Error(`${name} is not installed: npm run servers ${name}`)
  return path
}

/** Skips a suite that lacks something, with a line on how to get it; under CI=true it fails instead. */
export function skip(t: Test, lacking: string, reason: string): void {
  if (process.env['CI'] === 'true') t.fail(`${lacking}: ${reason}`)
  else t.pass(lacking, { skip: reason })
}

/** True if an entry is not installed. The suite is then skipped, as by `skip`. */
export function missing(t: Test, names: string[]): boolean {
  const lacking = names.filter((name) => client(name) === null).join(' ')
  if (lacking !== '') skip(t, lacking, `not installed, npm run servers ${lacking} has it`)
  return lacking !== ''
}

/** True if none of the entries is installed. The suite is then skipped, as by `skip`, before it starts what they would call. */
export function noneInstalled(t: Test, names: string[]): boolean {
  return names.every((name) => client(name) === null) && missing(t, names)
}

/** The path of an entry's program; null, with the suite skipped, as by `missing`. */
export function need(t: Test, name: string): string | null {
  return missing(t, [name]) ? null : client(name)
}

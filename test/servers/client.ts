import type { Test } from 'tap'
import { find } from './cache.ts'
import { LIST } from './list.ts'

/** The path of an entry's program in the cache, or null when `npm run servers` has not installed it. Throws for a name that the list does not have. */
export function client(name: string): string | null {
  const entry = LIST.find((candidate) => candidate.name === name)
  if (!entry) throw new Error(`test/servers/list.ts has no ${name}`)
  return find(entry)
}

/** As `client`, and where that is null skips the suite in one line that says how to have the client. Under CI=true it fails the suite instead. */
export function need(t: Test, name: string): string | null {
  const path = client(name)
  if (path === null) {
    const reason = `not installed, npm run servers ${name} has it`
    if (process.env['CI'] === 'true') t.fail(`${name}: ${reason}`)
    else t.pass(name, { skip: reason })
  }
  return path
}

/**
 * Allowlist of the members of an upstream's answer: builds a new value from known members and drops all others. A `Clean` returns the value to
 * pass on, or undefined to drop it.
 */
import type { SealingIds } from './encrypted-ids.ts'

export type Clean = (value: unknown, ids: SealingIds) => unknown

export type Members = Record<string, unknown>

/** Whether a JSON value is an object. */
export function isMembers(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A member of the object itself, never of its prototype. */
export function own(holder: Members, name: string): unknown {
  return Object.hasOwn(holder, name) ? holder[name] : undefined
}

/** A string member of the object itself; '' for anything else. */
export function ownText(holder: Members, name: string): string {
  const value = own(holder, name)
  return typeof value === 'string' ? value : ''
}

/** The value of a JSON text; undefined for a text that is none. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

/** The object of a JSON text; null for any other text. */
export function parsedMembers(text: string): Members | null {
  const value = parsedJson(text)
  return isMembers(value) ? value : null
}

export const text: Clean = (value) => (typeof value === 'string' ? value : undefined)
export const number: Clean = (value) => (typeof value === 'number' ? value : undefined)
export const boolean: Clean = (value) => (typeof value === 'boolean' ? value : undefined)
/** For values that the client itself defined, such as the arguments of its tools: passed whole. */
export const opaque: Clean = (value) => value

export const constant =
  (value: unknown): Clean =>
  () =>
    value

export const nullable =
  (clean: Clean): Clean =>
  (value, ids) =>
    value === null ? null : clean(value, ids)

export const oneOf =
  (...values: string[]): Clean =>
  (value) =>
    typeof value === 'string' && values.includes(value) ? value : undefined

/** The clean value, or `fallback` where it is undefined or null. */
export const or =
  (clean: Clean, fallback: unknown): Clean =>
  (value, ids) =>
    clean(value, ids) ?? fallback

/** An id, encrypted under the given prefix; see `encrypted-ids.ts`. */
export const id =
  (prefix: string): Clean =>
  (value, ids) =>
    typeof value === 'string' && value !== '' ? ids.encrypt(prefix, value) : undefined

export const list =
  (clean: Clean): Clean =>
  (value, ids) =>
    Array.isArray(value) ? value.map((entry) => clean(entry, ids)).filter((entry) => entry !== undefined) : undefined

/** An object of the known members, in the table's order. */
export const object = (members: Record<string, Clean>): Clean => {
  const table = Object.entries(members)
  return (value, ids) => {
    if (!isMembers(value)) return undefined
    const built: Members = {}
    for (const [name, clean] of table) {
      const cleaned = clean(own(value, name), ids)
      if (cleaned !== undefined) built[name] = cleaned
    }
    return built
  }
}

/** An object whose `type` selects its table; other types are dropped. */
export const tagged =
  (tables: Record<string, Clean>): Clean =>
  (value, ids) => {
    if (!isMembers(value) || typeof value['type'] !== 'string' || !Object.hasOwn(tables, value['type'])) return undefined
    return tables[value['type']]?.(value, ids)
  }

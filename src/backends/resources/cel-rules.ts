/**
 * CEL validation rules of a CRD schema (`x-kubernetes-validations`), evaluated as Kubernetes does: `self` is the value at the rule's place,
 * with integers as CEL ints and `date-time` strings as ints that compare like timestamps. A rule with `oldSelf` is a transition rule and
 * runs only where there is an old value.
 */
import { Environment, type ParseResult } from '@marcbachmann/cel-js'
import { paramOf } from '../../domain/errors.ts'
import type { Place } from '../../domain/settings-file.ts'
import type { Fault, Schema } from './crd-schema.ts'

export type Rules = {
  /** The rules that `spec` breaks. `old` is the last accepted spec, or null. */
  broken(spec: unknown, old: unknown): Fault[]
}

type Rule = { message: string; isTransition: boolean; holds: ParseResult }
type Node = { rules: Rule[]; properties: Map<string, Node>; items: Node | null }

const environment = new Environment().registerVariable('self', 'dyn').registerVariable('oldSelf', 'dyn')

/** Parses every rule in `schema`, the schema of `spec`. Throws on invalid CEL. */
export function compileRules(schema: Schema): Rules {
  const root = compile(schema)
  return {
    broken(spec, old) {
      const faults: Fault[] = []
      check(root, ['spec'], toCel(spec, schema), old === null ? undefined : toCel(old, schema), faults)
      return faults
    },
  }
}

function compile(schema: Schema): Node {
  return {
    rules: (schema['x-kubernetes-validations'] ?? []).map(({ rule, message }) => ({
      message,
      isTransition: /\boldSelf\b/.test(rule),
      holds: environment.parse(rule),
    })),
    properties: new Map(Object.entries(schema.properties ?? {}).map(([name, property]) => [name, compile(property)])),
    items: schema.items ? compile(schema.items) : null,
  }
}

function check(node: Node, place: Place, self: unknown, oldSelf: unknown, faults: Fault[]): void {
  for (const { message, isTransition, holds } of node.rules) {
    if (isTransition && oldSelf === undefined) continue
    if (!isTrue(holds, self, oldSelf)) faults.push({ place, sentence: `${paramOf(place)}: ${message}` })
  }
  for (const [name, property] of node.properties) {
    const value = member(self, name)
    if (value !== undefined) check(property, [...place, name], value, member(oldSelf, name), faults)
  }
  const { items } = node
  // Items of an atomic list have no old value.
  if (items && Array.isArray(self)) self.forEach((item, i) => check(items, [...place, i], item, undefined, faults))
}

/** A rule that cannot be evaluated is broken, as in Kubernetes. */
function isTrue(holds: ParseResult, self: unknown, oldSelf: unknown): boolean {
  try {
    return holds({ self, oldSelf }) === true
  } catch {
    return false
  }
}

/** An own member of an object. */
export function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined
}

function toCel(value: unknown, schema: Schema): unknown {
  if (schema.type === 'integer' && typeof value === 'number') return BigInt(value)
  if (schema.format === 'date-time' && typeof value === 'string') return nanosecondsOf(value)
  const { items, properties } = schema
  if (items && Array.isArray(value)) return value.map((item) => toCel(item, items))
  if (properties && typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, toCel(inner, properties[name] ?? {})]))
  }
  return value
}

/**
 * Nanoseconds since 1970 of an RFC 3339 time: the library's timestamps are `Date`s, which are too coarse to compare. A rule that uses more of a time than its
 * order cannot be evaluated.
 */
function nanosecondsOf(time: string): bigint {
  const [, fraction = ''] = /\.(\d+)/.exec(time) ?? []
  return BigInt(Date.parse(time.replace(`.${fraction}`, ''))) * 1_000_000n + BigInt(fraction.padEnd(9, '0'))
}

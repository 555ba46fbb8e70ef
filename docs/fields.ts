/** Reads fields and bounds from a JSON schema (TypeBox or CRD) for the tables of the documentation. */
import { code } from './markdown.ts'

/** The supported keywords. */
export type Schema = {
  type?: string
  description?: string
  format?: string
  default?: unknown
  enum?: string[]
  minimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  maxItems?: number
  pattern?: string
  properties?: Record<string, Schema>
  required?: string[] | undefined
  items?: Schema
  'x-kubernetes-list-type'?: 'atomic' | 'map'
  'x-kubernetes-list-map-keys'?: string[]
  'x-kubernetes-validations'?: { rule: string; message: string }[]
}

/** A field of a schema. `needed` if its parent requires it. */
export type Field = { path: string; schema: Schema; needed: boolean }

/** The schema and all nested fields, in order; the items of an array are at `path[]`. */
export function fieldsOf(path: string, schema: Schema, needed = false): Field[] {
  const members = Object.entries(schema.properties ?? {}).flatMap(([name, member]) =>
    fieldsOf(path === '' ? name : `${path}.${name}`, member, (schema.required ?? []).includes(name)),
  )
  return [{ path, schema, needed }, ...members, ...(schema.items ? fieldsOf(`${path}[]`, schema.items) : [])]
}

/** The constraints of a value besides its type and its pattern, in words; empty without any. */
export function boundsOf(schema: Schema): string[] {
  const keys = schema['x-kubernetes-list-map-keys']
  return [
    ...(schema.enum ? [schema.enum.map(code).join(', ')] : []),
    ...range('', schema.minimum, schema.maximum),
    ...range(' characters', schema.minLength, schema.maxLength),
    ...range(' items', undefined, schema.maxItems),
    ...(keys ? [`one for each ${keys.map(code).join(', ')}`] : []),
    ...(schema['x-kubernetes-list-type'] === 'atomic' ? ['applied as a whole'] : []),
  ]
}

function range(unit: string, least?: number, most?: number): string[] {
  if (least === undefined) return most === undefined ? [] : [`at most ${most}${unit}`]
  return [most === undefined ? `at least ${least}${unit}` : `${least} to ${most}${unit}`]
}

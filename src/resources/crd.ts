/**
 * The shape of a kind, as `crds/*.yaml` says it: OpenAPI schema, defaults and CEL rules. Nothing of it is coded here a second time, so a manifest in a folder
 * is accepted and refused like one in Kubernetes; except that an unknown field is refused here by name, where Kubernetes would drop it silently.
 */
import { readFile } from 'node:fs/promises'
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import { parse } from 'yaml'
import { placeOf, type Place } from '../settings-file.ts'
import { compileRules, type Rules } from './cel.ts'
import { API_VERSION, type Kind } from './resources.ts'

/** What we use of a structural schema (Kubernetes, apiextensions.k8s.io/v1). */
export type Schema = {
  type?: 'object' | 'array' | 'string' | 'integer' | 'boolean'
  format?: string
  properties?: Record<string, Schema>
  items?: Schema
  required?: string[]
  'x-kubernetes-validations'?: { rule: string; message: string }[]
  [keyword: string]: unknown
}

/** What is wrong with a document: a sentence that begins with the place, such as `spec.media.allowance: must be string`. */
export type Fault = { place: Place; sentence: string }

export type Crd = {
  kind: Kind
  /** True for a value of the right shape; fills its defaults in. Otherwise `check.errors` says what is wrong. */
  check: ValidateFunction
  /** The CEL rules of `spec`. */
  rules: Rules
}

const FOLDER = new URL('../../crds/', import.meta.url)
const FILES: Record<Kind, string> = { Plan: 'plan.yaml', ApiKey: 'apikey.yaml' }

let opened: Promise<Record<Kind, Crd>> | null = null

/** Reads and compiles both CRDs, once: they are part of the program and do not change. Rejects if a file is not there or no CRD. */
export function openCrds(): Promise<Record<Kind, Crd>> {
  opened ??= Promise.all([openCrd('Plan'), openCrd('ApiKey')]).then(([plan, apiKey]) => ({ Plan: plan, ApiKey: apiKey }))
  return opened
}

async function openCrd(kind: Kind): Promise<Crd> {
  const crd = parse(await readFile(new URL(FILES[kind], FOLDER), 'utf8'))
  const schema: Schema = crd.spec.versions[0].schema.openAPIV3Schema
  const name = schema.properties?.['metadata']?.properties?.['name'] ?? {}
  const spec = schema.properties?.['spec'] ?? {}
  const ajv = new Ajv({ allErrors: true, useDefaults: true, strict: false, verbose: true, meta: false, validateSchema: false })
  ajv.addFormat('int32', true)
  ajv.addFormat('int64', true)
  ajv.addFormat('date-time', isDateTime)
  return { kind, check: ajv.compile(document(kind, name, closed(spec))), rules: compileRules(spec) }
}

/** The same schema, but with every object closed to fields that it does not name. */
function closed(schema: Schema): Schema {
  const properties = schema.properties && Object.fromEntries(Object.entries(schema.properties).map(([name, property]) => [name, closed(property)]))
  return {
    ...schema,
    ...(schema.items && { items: closed(schema.items) }),
    ...(properties && { properties, additionalProperties: false }),
  }
}

const LABEL = { type: 'string', maxLength: 63, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' }

/** A whole manifest. What Kubernetes itself writes into one may be there, as in the output of `kubectl get -o yaml`, and means nothing here. */
function document(kind: Kind, name: Schema, spec: Schema): object {
  const written = ['uid', 'resourceVersion', 'generation', 'creationTimestamp', 'managedFields', 'ownerReferences', 'finalizers', 'selfLink']
  const texts = (most: number) => ({ type: 'object', maxProperties: 64, additionalProperties: { type: 'string', maxLength: most } })
  const metadata = {
    type: 'object',
    required: ['name'],
    additionalProperties: false,
    properties: {
      ...Object.fromEntries(written.map((field) => [field, {}])),
      name,
      namespace: { ...LABEL, default: 'default' },
      labels: texts(63),
      annotations: texts(4096),
    },
  }
  return {
    type: 'object',
    required: ['apiVersion', 'kind', 'metadata', 'spec'],
    additionalProperties: false,
    properties: { apiVersion: { const: API_VERSION }, kind: { const: kind }, metadata, spec, status: {} },
  }
}

/** RFC 3339 by the schema's own pattern; here only whether there is such a day. */
function isDateTime(text: string): boolean {
  const [year = 0, month = 0, day = 0] = text.slice(0, 10).split('-').map(Number)
  const date = new Date(Date.UTC(year, month - 1, day))
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day && !Number.isNaN(Date.parse(text))
}

/** What the schema finds wrong. */
export function faultOf(error: ErrorObject): Fault {
  const member: unknown = error.params['additionalProperty'] ?? error.params['missingProperty']
  return { place: [...placeOf(error.instancePath), ...(typeof member === 'string' ? [member] : [])], sentence: sentence(error) }
}

function sentence(error: ErrorObject): string {
  const at = shownAt(error.instancePath)
  const below = (field: string) => (at === '' ? field : `${at}.${field}`)
  switch (error.keyword) {
    case 'additionalProperties':
      return `${below(String(error.params['additionalProperty']))}: unknown field; known here: ${Object.keys(error.parentSchema?.['properties'] ?? {}).join(', ')}`
    case 'required':
      return `${below(String(error.params['missingProperty']))}: is required`
    case 'enum':
      return `${at}: must be one of ${error.params['allowedValues'].join(', ')}`
    case 'const':
      return `${at}: must be ${error.params['allowedValue']}`
    case 'pattern':
      return `${at}: ${shown(error.data)} must match ${error.params['pattern']}`
    case 'format':
      return `${at}: ${shown(error.data)} is no ${error.params['format']}`
    default:
      return `${at === '' ? 'the document' : at}: ${error.message ?? error.keyword}`
  }
}

function shown(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}

/** `/spec/media/prices/0/amount` as `spec.media.prices[0].amount`. */
function shownAt(pointer: string): string {
  return pointer.split('/').slice(1).map((part, i) => (/^\d+$/.test(part) ? `[${part}]` : `${i === 0 ? '' : '.'}${part}`)).join('')
}

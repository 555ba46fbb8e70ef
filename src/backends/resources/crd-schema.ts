/**
 * The shape of a kind, as `crds/*.yaml` says it: OpenAPI schema, defaults and CEL rules. Nothing of it is coded here a second time, so a manifest in a folder
 * is accepted and refused like one in Kubernetes. As kubectl asks it to (`fieldValidation=Strict`), an unknown field is refused, where it would be dropped.
 */
import { readFile } from 'node:fs/promises'
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import { parse } from 'yaml'
import { placeOf, type Place } from '../../domain/settings-file.ts'
import { compileRules, type Rules } from './cel-rules.ts'
import { API_VERSION, type Kind } from './resources.ts'

/** What we use of a structural schema (Kubernetes, apiextensions.k8s.io/v1). */
export type Schema = {
  type?: 'object' | 'array' | 'string' | 'integer' | 'boolean'
  format?: string
  properties?: Record<string, Schema>
  additionalProperties?: Schema | false
  items?: Schema
  required?: string[]
  'x-kubernetes-validations'?: { rule: string; message: string }[]
  [keyword: string]: unknown
}

/** What is wrong with a document: a sentence that begins with the place, such as `spec.media.allowance: must be string, not 7`. */
export type Fault = { place: Place; sentence: string }

export type Crd = {
  kind: Kind
  /** Of a whole manifest. */
  schema: Schema
  /** True for a value of the right shape; fills its defaults in. Otherwise `check.errors` says what is wrong. */
  check: ValidateFunction
  /** The CEL rules of `spec`. */
  rules: Rules
}

const FOLDER = new URL('../../../crds/', import.meta.url)
const FILES: Record<Kind, string> = { Plan: 'plan.yaml', ApiKey: 'apikey.yaml' }

let opened: Promise<Record<Kind, Crd>> | null = null

/** Reads and compiles both CRDs, once: they are part of the program and do not change. Rejects if a file is not there or no CRD. */
export function openCrds(): Promise<Record<Kind, Crd>> {
  opened ??= Promise.all([openCrd('Plan'), openCrd('ApiKey')]).then(([plan, apiKey]) => ({ Plan: plan, ApiKey: apiKey }))
  return opened
}

async function openCrd(kind: Kind): Promise<Crd> {
  const crd = parse(await readFile(new URL(FILES[kind], FOLDER), 'utf8'))
  const { metadata = {}, spec = {}, status = {} }: Record<string, Schema> = crd.spec.versions[0].schema.openAPIV3Schema.properties
  const schema = document(kind, { name: metadata.properties?.['name'] ?? {}, spec, status })
  const ajv = new Ajv({ allErrors: true, useDefaults: true, strict: false, verbose: true, meta: false, validateSchema: false })
  ajv.addFormat('int32', true)
  ajv.addFormat('int64', true)
  ajv.addFormat('date-time', isDateTime)
  return { kind, schema, check: ajv.compile(schema), rules: compileRules(spec) }
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

const NO_FIELD: Schema = { properties: {}, additionalProperties: false }

/** Only which fields there may be. */
function shape({ properties = {}, items }: Schema): Schema {
  const shapes = Object.fromEntries(Object.entries(properties).map(([name, property]) => [name, shape(property)]))
  return { properties: shapes, additionalProperties: false, items: items ? shape(items) : NO_FIELD }
}

const LABEL: Schema = { type: 'string', maxLength: 63, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' }
const TEXTS: Schema = { type: 'object', additionalProperties: { type: 'string', default: '' } }
const WRITTEN = [
  'uid', 'resourceVersion', 'generation', 'creationTimestamp', 'deletionTimestamp', 'deletionGracePeriodSeconds',
  'managedFields', 'ownerReferences', 'finalizers', 'selfLink', 'generateName',
]

/** A whole manifest. What Kubernetes itself writes into one may be there, as in the output of `kubectl get -o yaml`, and means nothing here. */
function document(kind: Kind, { name, spec, status }: { name: Schema; spec: Schema; status: Schema }): Schema {
  const metadata: Schema = {
    type: 'object',
    required: ['name'],
    additionalProperties: false,
    properties: {
      name,
      namespace: { ...LABEL, default: 'default' },
      labels: TEXTS,
      annotations: TEXTS,
      ...Object.fromEntries(WRITTEN.map((field) => [field, {}])),
    },
  }
  return {
    type: 'object',
    required: ['apiVersion', 'kind', 'metadata', 'spec'],
    additionalProperties: false,
    properties: { apiVersion: { const: API_VERSION }, kind: { const: kind }, metadata, spec: closed(spec), status: shape(status) },
  }
}

/** RFC 3339 by the schema's own pattern; here only whether there is such a day, which `Date` would take for one of the next month. */
function isDateTime(text: string): boolean {
  const day = text.slice(0, 10)
  const midnight = new Date(`${day}T00:00:00Z`)
  return !Number.isNaN(Date.parse(text)) && !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day)
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
      return `${below(String(error.params['additionalProperty']))}: ${unknown(Object.keys(error.parentSchema?.['properties'] ?? {}))}`
    case 'required':
      return `${below(String(error.params['missingProperty']))}: is required`
    case 'type':
      return `${at === '' ? 'the document' : at}: must be ${error.params['type']}, not ${quoted(error.data)}`
    case 'enum':
      return `${at}: must be one of ${error.params['allowedValues'].join(', ')}`
    case 'const':
      return `${at}: must be ${error.params['allowedValue']}`
    case 'pattern':
      return `${at}: ${quoted(error.data)} must match ${error.params['pattern']}`
    case 'format':
      return `${at}: ${quoted(error.data)} is no ${error.params['format']}`
    default:
      return `${at === '' ? 'the document' : at}: ${error.message ?? error.keyword}`
  }
}

function unknown(known: string[]): string {
  return known.length === 0 ? 'unknown field' : `unknown field; known here: ${known.join(', ')}`
}

/** A value in a sentence, cut short. */
export function quoted(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}

/** `/spec/media/prices/0/amount` as `spec.media.prices[0].amount`. */
function shownAt(pointer: string): string {
  return pointer.split('/').slice(1).map((part, i) => (/^\d+$/.test(part) ? `[${part}]` : `${i === 0 ? '' : '.'}${part}`)).join('')
}

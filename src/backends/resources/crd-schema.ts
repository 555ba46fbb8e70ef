/**
 * OpenAPI schema validation of a CRD (`crds/*.yaml`): schema, defaults and CEL rules, none of them coded a second time, so that a manifest in a folder is
 * accepted and refused as in Kubernetes. Unknown fields are refused as with `fieldValidation=Strict`, the default of kubectl.
 */
import { readFile } from 'node:fs/promises'
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import { parse } from 'yaml'
import { paramOfPointer, stepsOf } from '../../domain/errors.ts'
import { FIELD_PATTERNS, inWords } from '../../domain/field-patterns.ts'
import { isTime } from '../../domain/request-validation.ts'
import type { Place } from '../../domain/settings-file.ts'
import { compileRules, type Rules } from './cel-rules.ts'
import { API_VERSION, type Kind } from './resources.ts'

/** The part of a structural schema (Kubernetes, apiextensions.k8s.io/v1) that is used here. */
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

/** A validation error: a sentence that begins with the place, such as `spec.media.allowance: must be string, not 7`. */
export type Fault = { place: Place; sentence: string }

export type Crd = {
  kind: Kind
  /** Schema of a whole manifest. */
  schema: Schema
  /** Validates a manifest and fills its defaults in. When it returns false, `check.errors` has the errors. */
  check: ValidateFunction
  /** The CEL rules of `spec`. */
  rules: Rules
}

const FOLDER = new URL('../../../crds/', import.meta.url)
const FILES: Record<Kind, string> = { Plan: 'plan.yaml', ApiKey: 'apikey.yaml' }

let opened: Promise<Record<Kind, Crd>> | null = null

/** Reads and compiles both CRDs, once: they are part of the program and do not change. Rejects if a file is missing or is not a CRD. */
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
  // Its pattern checks the form.
  ajv.addFormat('date-time', isTime)
  return { kind, schema, check: ajv.compile(schema), rules: compileRules(spec) }
}

/** The same schema with `additionalProperties: false` in every object. */
function closed(schema: Schema): Schema {
  const properties =
    schema.properties && Object.fromEntries(Object.entries(schema.properties).map(([name, property]) => [name, closed(property)]))
  return {
    ...schema,
    ...(schema.items && { items: closed(schema.items) }),
    ...(properties && { properties, additionalProperties: false }),
  }
}

const NO_FIELD: Schema = { properties: {}, additionalProperties: false }

/** The schema reduced to its field names. */
function shape({ properties = {}, items }: Schema): Schema {
  const shapes = Object.fromEntries(Object.entries(properties).map(([name, property]) => [name, shape(property)]))
  return { properties: shapes, additionalProperties: false, items: items ? shape(items) : NO_FIELD }
}

const LABEL: Schema = { type: 'string', maxLength: 63, pattern: FIELD_PATTERNS.label.pattern }
const TEXTS: Schema = { type: 'object', additionalProperties: { type: 'string', default: '' } }
/** Fields of `metadata` that Kubernetes itself writes. */
const SERVER_FIELDS = [
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'managedFields',
  'ownerReferences',
  'finalizers',
  'selfLink',
  'generateName',
]

/** Schema of a whole manifest. Fields that Kubernetes writes, as in the output of `kubectl get -o yaml`, are allowed and ignored. */
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
      ...Object.fromEntries(SERVER_FIELDS.map((field) => [field, {}])),
    },
  }
  return {
    type: 'object',
    required: ['apiVersion', 'kind', 'metadata', 'spec'],
    additionalProperties: false,
    properties: { apiVersion: { const: API_VERSION }, kind: { const: kind }, metadata, spec: closed(spec), status: shape(status) },
  }
}

/** A schema error as a fault. */
export function faultOf(error: ErrorObject): Fault {
  const member: unknown = error.params['additionalProperty'] ?? error.params['missingProperty']
  return { place: [...stepsOf(error.instancePath), ...(typeof member === 'string' ? [member] : [])], sentence: sentence(error) }
}

function sentence(error: ErrorObject): string {
  const at = paramOfPointer(error.instancePath) ?? ''
  const below = (field: string) => (at === '' ? field : `${at}.${field}`)
  switch (error.keyword) {
    case 'additionalProperties':
      return `${below(String(error.params['additionalProperty']))}: ${unknown(Object.keys(error.parentSchema?.['properties'] ?? {}))}`
    case 'required':
      return `${below(String(error.params['missingProperty']))}: is required`
    case 'type':
      return `${at === '' ? 'the document' : at}: must be ${error.params['type']}, not ${quoted(error.data)}${error.params['type'] === 'string' ? quotesHint(error.data) : ''}`
    case 'enum':
      return `${at}: must be one of ${error.params['allowedValues'].join(', ')}`
    case 'const':
      return `${at}: must be ${error.params['allowedValue']}`
    case 'pattern':
      return `${at}: ${inWords(error.params['pattern']) ?? `must match ${error.params['pattern']}`}, not ${quoted(error.data)}`
    case 'format':
      return `${at}: ${quoted(error.data)} is not a valid ${error.params['format']}`
    default:
      return `${at === '' ? 'the document' : at}: ${error.message ?? error.keyword}`
  }
}

/** YAML reads 0.04 as a number and true as a boolean. */
function quotesHint(data: unknown): string {
  return typeof data === 'number' || typeof data === 'boolean' ? `: write it in quotes, "${data}"` : ''
}

function unknown(known: string[]): string {
  return known.length === 0 ? 'unknown field' : `unknown field; known fields: ${known.join(', ')}`
}

/** A value as JSON for an error sentence, cut after 60 characters. */
export function quoted(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}

/**
 * Manifest validation: accepts a Plan or ApiKey as Kubernetes would, by the CRDs (`crd-schema.ts`, `cel-rules.ts`) and the rules of all
 * objects (`metadata-validation.ts`).
 */
import { member } from './cel-rules.ts'
import { faultOf, openCrds, type Fault, type Schema } from './crd-schema.ts'
import { metadataFaults } from './metadata-validation.ts'
import type { ApiKeySpec, Kind, PlanSpec, Ref } from './resources.ts'

/** A valid manifest with its defaults filled in, without the fields that Kubernetes writes. */
export type Manifest = {
  ref: Ref
  labels?: Record<string, string>
  annotations?: Record<string, string>
  spec: PlanSpec | ApiKeySpec
}

export type Verdict =
  | { outcome: 'accepted'; manifest: Manifest }
  /** `ref` is null when the document does not name its resource validly. */
  | { outcome: 'refused'; ref: Ref | null; faults: Fault[] }

export type Validator = {
  /** Validates one parsed document, which is not changed. `accepted` returns the last accepted spec of a resource for transition rules. */
  validate(document: unknown, accepted: (ref: Ref) => PlanSpec | ApiKeySpec | null): Verdict
}

const MAX_FAULTS = 10

/** Rejects if the CRD files are missing. */
export async function openValidator(): Promise<Validator> {
  const crds = await openCrds()
  return {
    validate(document, accepted) {
      const kind = kindOf(document)
      if (kind === null) return { outcome: 'refused', ref: null, faults: [{ place: ['kind'], sentence: 'kind: must be Plan or ApiKey' }] }
      const { schema, check, rules } = crds[kind]
      const copy = asRead(document, schema) as {
        metadata: { name: string; namespace: string } & Omit<Manifest, 'spec'>
        spec: PlanSpec | ApiKeySpec
      }
      if (!check(copy)) {
        const faults = (check.errors ?? []).slice(0, MAX_FAULTS).map(faultOf)
        return { outcome: 'refused', ref: refOf(kind, copy), faults }
      }
      const { name, namespace, labels, annotations } = copy.metadata
      const ref: Ref = { kind, namespace, name }
      const faults = [...metadataFaults(copy.metadata), ...rules.broken(copy.spec, accepted(ref))]
      if (faults.length > 0) return { outcome: 'refused', ref, faults: faults.slice(0, MAX_FAULTS) }
      return { outcome: 'accepted', manifest: { ref, spec: copy.spec, ...(labels && { labels }), ...(annotations && { annotations }) } }
    },
  }
}

/**
 * A copy as Kubernetes reads it: a null member that the schema has becomes its default or is dropped; a null member that the schema does not have stays, to be
 * refused as an unknown field. Minus zero becomes zero, and lone surrogates are replaced.
 */
function asRead(value: unknown, { properties = {}, additionalProperties, items = {} }: Schema): unknown {
  if (value === 0) return 0
  if (typeof value === 'string') return value.toWellFormed()
  if (Array.isArray(value)) return value.map((item) => asRead(item, items))
  if (typeof value !== 'object' || value === null) return value
  const members = Object.entries(value).flatMap(([name, member]): [string, unknown][] => {
    const known = Object.hasOwn(properties, name) ? properties[name] : additionalProperties
    if (member !== null || !known) return [[name, asRead(member, known || {})]]
    return 'default' in known ? [[name, structuredClone(known['default'])]] : []
  })
  return Object.fromEntries(members)
}

function kindOf(document: unknown): Kind | null {
  const kind = member(document, 'kind')
  return kind === 'Plan' || kind === 'ApiKey' ? kind : null
}

const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/

/** The resource that a refused document names; null if its name or namespace is invalid. */
function refOf(kind: Kind, document: unknown): Ref | null {
  const metadata = member(document, 'metadata')
  const name = member(metadata, 'name')
  const namespace = member(metadata, 'namespace') ?? 'default'
  const isLabel = (text: unknown): text is string => typeof text === 'string' && LABEL.test(text)
  return isLabel(name) && isLabel(namespace) ? { kind, namespace, name } : null
}

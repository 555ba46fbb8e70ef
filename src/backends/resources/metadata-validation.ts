/** Validation of labels and annotations, with the rules and sentences of Kubernetes (apimachinery, `ValidateLabels` and `ValidateAnnotations`). */
import { quoted, type Fault } from './crd-schema.ts'

type Texts = Record<string, string>

const NAME = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/
const NAME_BYTES_MAX = 63
const PREFIX_BYTES_MAX = 253
/** Total size of all names and values. */
const ANNOTATIONS_BYTES_MAX = 256 * 1024

const NAME_WORDS = "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
const SUBDOMAIN_WORDS =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"

/** The faults of labels and annotations. */
export function metadataFaults({ labels = {}, annotations = {} }: { labels?: Texts; annotations?: Texts }): Fault[] {
  const faults: Fault[] = []
  const add = (field: string, key: string, text: string, error: string | null) => {
    if (error !== null) faults.push({ place: ['metadata', field, key], sentence: `metadata.${field}: ${quoted(text)}: ${error}` })
  }
  for (const [key, value] of Object.entries(labels)) {
    add('labels', key, key, keyError(key))
    add('labels', key, value, labelValueError(value))
  }
  // The prefix of an annotation is not case-sensitive.
  for (const key of Object.keys(annotations)) add('annotations', key, key, keyError(key.toLowerCase()))
  if (bytesOf(annotations) > ANNOTATIONS_BYTES_MAX) {
    faults.push({
      place: ['metadata', 'annotations'],
      sentence: `metadata.annotations: may not be more than ${ANNOTATIONS_BYTES_MAX} bytes`,
    })
  }
  return faults
}

function keyError(key: string): string | null {
  const [name = '', prefix, ...more] = key.split('/').toReversed()
  if (more.length > 0)
    return `a valid label key must ${NAME_WORDS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`
  if (prefix === '') return 'prefix part must be non-empty'
  if (prefix !== undefined && !SUBDOMAIN.test(prefix)) return `prefix part ${SUBDOMAIN_WORDS}`
  if (prefix !== undefined && prefix.length > PREFIX_BYTES_MAX) return `prefix part must be no more than ${PREFIX_BYTES_MAX} bytes`
  if (name === '') return 'name part must be non-empty'
  if (!NAME.test(name)) return `name part must ${NAME_WORDS}`
  return name.length > NAME_BYTES_MAX ? `name part must be no more than ${NAME_BYTES_MAX} bytes` : null
}

function labelValueError(value: string): string | null {
  if (value !== '' && !NAME.test(value)) return `a valid label must be an empty string or ${NAME_WORDS}`
  return value.length > NAME_BYTES_MAX ? `must be no more than ${NAME_BYTES_MAX} bytes` : null
}

function bytesOf(texts: Texts): number {
  return Object.entries(texts).reduce((bytes, [key, value]) => bytes + Buffer.byteLength(key) + Buffer.byteLength(value), 0)
}

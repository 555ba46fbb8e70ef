/**
 * Index of the manifests in a folder's files, in the order of their names: the document of each resource, duplicates, and what a broken
 * file keeps from being deleted.
 */
import type { Fault } from '../crd-schema.ts'
import type { Ref } from '../resources.ts'
import type { Manifest } from '../manifest-validation.ts'
import { lineIn, type Document } from './manifest-parser.ts'
import type { ManifestFile } from './folder-scan.ts'

const MAX_NAMED = 5

/** Map key of a resource. */
export function keyOf({ kind, namespace, name }: Ref): string {
  return `${kind}/${namespace}/${name}`
}

/** An invalid document or file. `ref` is the resource that the document names, if it names one validly. */
export type ManifestError = { file: string; ref: Ref | null; message: string }

/** `manifest` is null when the last valid document of the resource stays in force. */
export type IndexedDocument = { file: string; manifest: Manifest | null }

/** `keep` are the resources that must not be deleted though no document declares them. */
export type ManifestIndex = { documents: Map<string, IndexedDocument>; keep: Set<string> | 'all'; errors: ManifestError[] }

/** `ref` is null when the document does not name its resource validly; `manifest` is null when it has `faults`. */
export type Validated = { ref: Ref | null; manifest: Manifest | null; faults: Fault[] }

/** Returns a function that indexes a scan of the folder. It remembers which resources each file declared. */
export function openManifestIndex(validate: (document: Document) => Validated): (files: ManifestFile[]) => ManifestIndex {
  /** The resources of each file when it was last readable, and since. A file that never was may be meant to declare any resource. */
  const declaredBy = new Map<string, { keys: Set<string>; isReadable: boolean }>()

  return (files) => {
    const documents = new Map<string, IndexedDocument>()
    const errors: ManifestError[] = []
    const keep = new Set<string>()
    const unreadable: { name: string; keys: Set<string> }[] = []
    let keepsAll = false
    for (const { name, parsed } of files) {
      const before = declaredBy.get(name) ?? { keys: new Set<string>(), isReadable: false }
      const keys = new Set<string>()
      const report = (ref: Ref | null, message: string) => errors.push({ file: name, ref, message })
      const isReadable =
        parsed.outcome === 'parsed' && parsed.documents.map((document) => add(document, name, keys, documents, report)).every(Boolean)
      if (isReadable) {
        declaredBy.set(name, { keys, isReadable })
        continue
      }
      for (const key of before.keys) keys.add(key)
      declaredBy.set(name, { keys, isReadable: before.isReadable })
      for (const key of keys) keep.add(key)
      if (parsed.outcome === 'broken') {
        // The last valid documents of a broken file still take precedence over the same resources in a later file.
        const kept = [...keys].filter((key) => !documents.has(key))
        for (const key of kept) documents.set(key, { file: name, manifest: null })
        report(null, kept.length === 0 ? parsed.reason : `${parsed.reason}; ${keptSentence(kept)}`)
      } else unreadable.push({ name, keys })
      if (before.isReadable) continue
      keepsAll = true
      report(null, 'nothing is deleted until this file is fixed')
    }
    for (const { name, keys } of unreadable) {
      const kept = [...keys].filter((key) => !documents.has(key))
      if (kept.length > 0) errors.push({ file: name, ref: null, message: keptSentence(kept) })
    }
    for (const name of declaredBy.keys()) if (!files.some((file) => file.name === name)) declaredBy.delete(name)
    return { documents, keep: keepsAll ? 'all' : keep, errors }
  }

  /** Adds a document. False when it does not name its resource validly: it may be any resource of the file. */
  function add(
    document: Document,
    file: string,
    keys: Set<string>,
    documents: Map<string, IndexedDocument>,
    report: (ref: Ref | null, message: string) => void,
  ): boolean {
    const { ref, manifest, faults } = validate(document)
    if (ref === null) {
      report(null, faultsText(document, '', faults))
      return false
    }
    const key = keyOf(ref)
    const first = documents.get(key)
    if (first) {
      report(null, `line ${document.line}: ${key} is already declared in ${first.file}, which takes precedence`)
      return true
    }
    keys.add(key)
    documents.set(key, { file, manifest })
    if (manifest === null) report(ref, faultsText(document, `${key}: `, faults))
    return true
  }
}

/** The faults in one line of text, each with its line number unless the fault before has the same. */
function faultsText(document: Document, prefix: string, faults: Fault[]): string {
  let last = 0
  return faults
    .map(({ place, sentence }, n) => {
      const line = lineIn(document, place)
      const at = line === last ? '' : `line ${line}: `
      last = line
      return `${at}${n === 0 ? prefix : ''}${sentence}`
    })
    .join('; ')
}

function keptSentence(keys: string[]): string {
  const more = keys.length - MAX_NAMED
  return `none of its resources is deleted until it is fixed: ${keys.slice(0, MAX_NAMED).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

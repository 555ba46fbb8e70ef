/** What the files of a folder claim, in the order of their names; and what must not be deleted because the file that held it is not legible now. */
import type { Fault } from '../crd-schema.ts'
import type { Ref } from '../resources.ts'
import type { Manifest } from '../manifest-validation.ts'
import { lineIn, type Document } from './manifest-parser.ts'
import type { ManifestFile } from './folder-scan.ts'

const MOST_NAMED = 5

/** A resource's place in a map. */
export function keyOf({ kind, namespace, name }: Ref): string {
  return `${kind}/${namespace}/${name}`
}

/** A document that is not accepted, or a file. `ref` is the resource that it means, if that is legible. */
export type Trouble = { file: string; ref: Ref | null; message: string }

/** `manifest` is null when the last good document of the resource stays. */
export type Claim = { file: string; manifest: Manifest | null }

export type Claimed = { claims: Map<string, Claim>; held: Set<string> | 'all'; troubles: Trouble[] }

/** `ref` is null when the document does not say legibly which resource it means; `manifest` when it is not accepted, because of `faults`. */
export type Judgement = { ref: Ref | null; manifest: Manifest | null; faults: Fault[] }

/** Remembers what each file held. Returns what they claim at each look. */
export function openClaims(judge: (document: Document) => Judgement): (files: ManifestFile[]) => Claimed {
  /** What each file held when it was last legible, and since. One that never was may be meant to hold anything. */
  const heldBy = new Map<string, { keys: Set<string>; isLegible: boolean }>()

  return (files) => {
    const claims = new Map<string, Claim>()
    const troubles: Trouble[] = []
    const held = new Set<string>()
    const illegible: { name: string; keys: Set<string> }[] = []
    let holdsAll = false
    for (const { name, parsed } of files) {
      const before = heldBy.get(name) ?? { keys: new Set<string>(), isLegible: false }
      const keys = new Set<string>()
      const trouble = (ref: Ref | null, message: string) => troubles.push({ file: name, ref, message })
      const isLegible = parsed.outcome === 'parsed' && parsed.documents.map((document) => enter(document, name, keys, claims, trouble)).every(Boolean)
      if (isLegible) {
        heldBy.set(name, { keys, isLegible })
        continue
      }
      for (const key of before.keys) keys.add(key)
      heldBy.set(name, { keys, isLegible: before.isLegible })
      for (const key of keys) held.add(key)
      if (parsed.outcome === 'broken') {
        // The last good documents of a broken file still come before the same resources in a later file.
        const stay = [...keys].filter((key) => !claims.has(key))
        for (const key of stay) claims.set(key, { file: name, manifest: null })
        trouble(null, stay.length === 0 ? parsed.reason : `${parsed.reason}; ${staying(stay)}`)
      } else illegible.push({ name, keys })
      if (before.isLegible) continue
      holdsAll = true
      trouble(null, 'until it is mended nothing is deleted')
    }
    for (const { name, keys } of illegible) {
      const stay = [...keys].filter((key) => !claims.has(key))
      if (stay.length > 0) troubles.push({ file: name, ref: null, message: staying(stay) })
    }
    for (const name of heldBy.keys()) if (!files.some((file) => file.name === name)) heldBy.delete(name)
    return { claims, held: holdsAll ? 'all' : held, troubles }
  }

  /** Enters what a document claims. False when it does not say legibly which resource it means: it may be any that the file held. */
  function enter(document: Document, file: string, keys: Set<string>, claims: Map<string, Claim>, trouble: (ref: Ref | null, message: string) => void): boolean {
    const { ref, manifest, faults } = judge(document)
    if (ref === null) {
      trouble(null, inWords(document, '', faults))
      return false
    }
    const key = keyOf(ref)
    const first = claims.get(key)
    if (first) {
      trouble(null, `line ${document.line}: ${key} is declared in ${first.file} already; that one counts`)
      return true
    }
    keys.add(key)
    claims.set(key, { file, manifest })
    if (manifest === null) trouble(ref, inWords(document, `${key}: `, faults))
    return true
  }
}

/** Each fault, with its line where that is another than the one before. */
function inWords(document: Document, prefix: string, faults: Fault[]): string {
  let last = 0
  return faults.map(({ place, sentence }, n) => {
    const line = lineIn(document, place)
    const at = line === last ? '' : `line ${line}: `
    last = line
    return `${at}${n === 0 ? prefix : ''}${sentence}`
  }).join('; ')
}

function staying(keys: string[]): string {
  const more = keys.length - MOST_NAMED
  return `until it is mended nothing of it is deleted: ${keys.slice(0, MOST_NAMED).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

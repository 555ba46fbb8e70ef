/** What the files of a folder claim, in the order of their names; and what must not be deleted because the file that held it is not wholly good now. */
import type { Ref } from '../resources.ts'
import type { Manifest } from '../validate.ts'
import type { Document } from './documents.ts'
import type { ManifestFile } from './folder.ts'

/** A resource's place in a map. */
export function keyOf({ kind, namespace, name }: Ref): string {
  return `${kind}/${namespace}/${name}`
}

/** A document that is not accepted, or a file. `ref` is the resource that it means, if that is legible. */
export type Trouble = { file: string; ref: Ref | null; message: string }

/** `manifest` is null when the last good document of the resource stays. */
export type Claim = { file: string; manifest: Manifest | null }

export type Claimed = { claims: Map<string, Claim>; held: Set<string> | 'all'; troubles: Trouble[] }

/** `ref` is null when the document does not say legibly which resource it means; `manifest` when it is not accepted, because of `message`. */
export type Judgement = { ref: Ref | null; manifest: Manifest | null; message: string }

/** Remembers what each file held. Returns what they claim at each look. */
export function openClaims(judge: (document: Document) => Judgement): (files: ManifestFile[]) => Claimed {
  /** What each file held when it was last wholly good, and since. One that never was, `isWhole` false, may be meant to hold anything. */
  const heldBy = new Map<string, { keys: Set<string>; isWhole: boolean }>()

  return (files) => {
    const claims = new Map<string, Claim>()
    const troubles: Trouble[] = []
    const held = new Set<string>()
    let holdsAll = false
    for (const { name, parsed } of files) {
      const before = heldBy.get(name) ?? { keys: new Set<string>(), isWhole: false }
      const keys = new Set<string>()
      const trouble = (ref: Ref | null, message: string) => troubles.push({ file: name, ref, message })
      if (parsed.outcome === 'broken') trouble(null, parsed.reason)
      const isWhole = parsed.outcome === 'parsed' && parsed.documents.map((document) => enter(document, name, keys, claims, trouble)).every(Boolean)
      if (isWhole) {
        heldBy.set(name, { keys, isWhole })
        continue
      }
      for (const key of before.keys) keys.add(key)
      heldBy.set(name, { keys, isWhole: before.isWhole })
      for (const key of keys) held.add(key)
      // The last good documents of a broken file still come before the same resources in a later file.
      if (parsed.outcome === 'broken') for (const key of keys) if (!claims.has(key)) claims.set(key, { file: name, manifest: null })
      if (before.isWhole) continue
      holdsAll = true
      trouble(null, 'until it is mended nothing is deleted')
    }
    for (const name of heldBy.keys()) if (!files.some((file) => file.name === name)) heldBy.delete(name)
    return { claims, held: holdsAll ? 'all' : held, troubles }
  }

  /** Enters what a document claims. False when it cannot be accepted, or says nothing legible. */
  function enter(document: Document, file: string, keys: Set<string>, claims: Map<string, Claim>, trouble: (ref: Ref | null, message: string) => void): boolean {
    const { ref, manifest, message } = judge(document)
    const at = `line ${document.line}`
    if (ref === null) {
      trouble(null, `${at}: ${message}`)
      return false
    }
    const key = keyOf(ref)
    const first = claims.get(key)
    if (first) {
      trouble(null, `${at}: ${key} is declared in ${first.file} already; that one counts`)
      return true
    }
    keys.add(key)
    claims.set(key, { file, manifest })
    if (manifest === null) trouble(ref, `${at}: ${key}: ${message}`)
    return manifest !== null
  }
}
